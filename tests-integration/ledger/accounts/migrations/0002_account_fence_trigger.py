"""Have PostgreSQL refuse a fence that goes down."""

from django.db import migrations

from fencekit.django import AddFenceTrigger


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [AddFenceTrigger("Account")]
