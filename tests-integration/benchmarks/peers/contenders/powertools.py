"""AWS Powertools' idempotency on its Redis layer; it neither renews nor waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.redis import (
    RedisCachePersistenceLayer,
)


def jobs(client: Any, url: str, work: Callable[[], Any]) -> Callable[[str], Any]:
    del client

    @idempotent_function(  # type: ignore[untyped-decorator]
        data_keyword_argument="key",
        persistence_store=RedisCachePersistenceLayer(url=url),
        config=IdempotencyConfig(expires_after_seconds=300),
    )
    def once(*, key: str) -> Any:
        del key
        return work()

    return lambda key: once(key=key)
