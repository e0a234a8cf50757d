"""The views of the ledger, and the admin."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("", include("ledger.accounts.urls"))]
