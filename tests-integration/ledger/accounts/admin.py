"""Accounts in the admin."""

from django.contrib import admin

from ledger.accounts.models import Account, Branch, Transfer

admin.site.register([Account, Branch, Transfer])
