"""What a fenced update must cope with, or refuse."""

from __future__ import annotations

from django.db import models

from fencekit.django.fields import FenceTokenField
from fencekit.django.models import FencedModel


class Place(FencedModel):
    """The parent of multi-table inheritance; itself in one table."""

    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Restaurant(Place):
    """Stored in two tables."""

    stars = models.IntegerField(default=0)


class Guest(FencedModel):
    """One table and a neighbour, and no trigger that would help a naive update."""

    place = models.ForeignKey(Place, models.CASCADE)
    value = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return str(self.value)


class PlaceProxy(Place):
    """Another class for the same table."""

    class Meta:
        proxy = True


class Strict(FencedModel):
    """Guarded by a strict trigger on PostgreSQL."""

    value = models.IntegerField(default=0)

    def __str__(self) -> str:
        return str(self.value)


class Odd(models.Model):
    """A fence of another name in a column of yet another, and fields that are no fences."""

    guard = FenceTokenField(db_column="Odd Guard")
    narrow = models.IntegerField(default=0)
    nullable = models.BigIntegerField(null=True)
    text = models.CharField(max_length=20, default="")

    def __str__(self) -> str:
        return self.text
