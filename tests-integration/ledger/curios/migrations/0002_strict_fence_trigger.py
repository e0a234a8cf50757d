"""Have PostgreSQL refuse every write that shows no token."""

from django.db import migrations

from fencekit.django import AddFenceTrigger


class Migration(migrations.Migration):
    dependencies = [("curios", "0001_initial")]

    operations = [AddFenceTrigger("Strict", strict=True)]
