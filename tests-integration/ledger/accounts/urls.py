"""The views of the ledger."""

from django.urls import path

from ledger.accounts import views

urlpatterns = [
    path("accounts/<int:pk>/add-one", views.add_one),
    path("accounts/<int:pk>/add-one-wrongly", views.add_one_released_too_early),
    path("transfers", views.transfer),
]
