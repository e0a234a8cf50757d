"""What type checkers see: the decorators leave a function's parameters and result as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencekit.celery import idempotent_task, unique_task

if TYPE_CHECKING:
    from typing_extensions import assert_type


@unique_task(key="order_id")
@idempotent_task(key="order_id", ttl="24h", terminal_for=(ValueError,))
def pay(order_id: str, amount: int = 1) -> tuple[str, int]:
    return order_id, amount


if TYPE_CHECKING:
    assert_type(pay("o-1", amount=2), tuple[str, int])
    pay(1)  # type: ignore[arg-type]
    pay("o-1", total=2)  # type: ignore[call-arg]


def test_the_function_is_there() -> None:
    assert pay.__name__ == "pay"
