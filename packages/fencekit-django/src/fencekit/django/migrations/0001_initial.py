"""Fences and effects; and the models without tables that the admin pages stand on."""

import django.utils.timezone
import fencekit.django.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                (
                    "digest",
                    models.CharField(
                        editable=False, max_length=64, primary_key=True, serialize=False
                    ),
                ),
                ("scope", models.CharField(max_length=255)),
                ("key", models.CharField(max_length=512)),
                ("fingerprint", models.CharField(blank=True, default="", max_length=64)),
                ("result", models.TextField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_index=True, default=django.utils.timezone.now),
                ),
            ],
            options={"db_table": "fencekit_effect"},
        ),
        migrations.CreateModel(
            name="Fence",
            fields=[
                (
                    "digest",
                    models.CharField(
                        editable=False, max_length=64, primary_key=True, serialize=False
                    ),
                ),
                ("resource", models.CharField(max_length=512)),
                ("record", models.CharField(default="lock", max_length=8)),
                (
                    "token",
                    fencekit.django.fields.FenceTokenField(db_default=0, default=0, editable=False),
                ),
                (
                    "updated_at",
                    models.DateTimeField(db_index=True, default=django.utils.timezone.now),
                ),
            ],
            options={"db_table": "fencekit_fence"},
        ),
        migrations.CreateModel(
            name="Lock",
            fields=[
                ("name", models.CharField(max_length=512, primary_key=True, serialize=False)),
            ],
            options={
                "permissions": [("force_release_lock", "Can force a lock open")],
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("name", models.CharField(max_length=512, primary_key=True, serialize=False)),
            ],
            options={
                "verbose_name": "FIFO queue",
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Record",
            fields=[
                ("name", models.CharField(max_length=512, primary_key=True, serialize=False)),
            ],
            options={
                "verbose_name": "idempotency record",
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
    ]
