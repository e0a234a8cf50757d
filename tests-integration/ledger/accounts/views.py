"""Requests to the ledger."""

from __future__ import annotations

import json
import time

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from fencekit.errors import IdempotencyPayloadMismatch
from ledger.accounts import services


@csrf_exempt
@require_POST
def add_one(request: HttpRequest, pk: int) -> JsonResponse:
    """Add one to a balance."""
    del request
    return JsonResponse({"balance": services.add_one(pk)})


@csrf_exempt
@require_POST
def add_one_released_too_early(request: HttpRequest, pk: int) -> JsonResponse:
    """Add one to a balance, wrongly: the lock is free before the request's COMMIT."""
    answer = JsonResponse({"balance": services.add_one_released_too_early(pk)})
    time.sleep(float(request.GET.get("linger", "0")))
    return answer


@csrf_exempt
@require_POST
def transfer(request: HttpRequest) -> JsonResponse:
    """Carry out the order of the Idempotency-Key header once."""
    body = json.loads(request.body)
    try:
        return JsonResponse(services.transfer(request.headers["Idempotency-Key"], **body))
    except IdempotencyPayloadMismatch as error:
        return JsonResponse({"error": str(error)}, status=422)
