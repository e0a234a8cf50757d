"""Fenced transactions: who enters, who waits, who is refused, and when the lock comes back."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.db.transaction import TransactionManagementError

from fencekit import DistributedLock, FencedOutError, FenceToken, LockNotAcquired
from fencekit.django import (
    Fence,
    fenced_atomic,
    invalidate_on_commit,
    locked_atomic,
    once,
    release_on_commit,
)
from ledger.accounts.models import Account
from ledger.stage import together

LEASE = timedelta(seconds=5)


def token(value: int, record: Any = "lock") -> FenceToken:
    return FenceToken(value, resource="account:1", record=record)


def stored() -> list[int]:
    return list(Fence.objects.order_by("record").values_list("token", flat=True))


class Held:
    """A handle that counts its releases."""

    resource = "held"

    def __init__(self, error: Exception | None = None) -> None:
        self.released = 0
        self.error = error

    def release(self) -> None:
        self.released += 1
        if self.error is not None:
            raise self.error


class AsyncHeld(Held):
    pass


class Awaited:
    """A lock of somebody else's, whose release would be a coroutine that nobody awaits."""

    async def release(self) -> None:
        pytest.fail("awaited")


@pytest.mark.usefixtures("alias")
def test_rising_tokens_enter_and_lower_ones_do_not() -> None:
    for value in (5, 5, 9):
        with fenced_atomic(token(value)):
            Account.objects.create(name=str(value))
    with pytest.raises(FencedOutError) as caught, fenced_atomic(token(7)):
        Account.objects.create(name="7")
    assert (caught.value.resource, caught.value.token, caught.value.current) == ("account:1", 7, 9)
    assert stored() == [9]
    assert sorted(Account.objects.values_list("name", flat=True)) == ["5", "5", "9"]


@pytest.mark.usefixtures("alias")
def test_a_body_that_raises_takes_the_fence_back_too() -> None:
    with pytest.raises(KeyError), fenced_atomic(token(5)):
        Account.objects.create(name="a")
        raise KeyError
    assert stored() == []
    assert not Account.objects.exists()


@pytest.mark.usefixtures("alias")
def test_tokens_of_locks_and_claims_have_fences_of_their_own() -> None:
    with fenced_atomic(token(9, "claim")):
        pass
    with fenced_atomic(token(5)):
        pass
    assert stored() == [9, 5]


@pytest.mark.usefixtures("alias")
def test_names_that_a_collation_takes_for_one_are_two() -> None:
    for name, value in (("a", 9), ("A", 5), ("ä", 4)):
        with fenced_atomic(FenceToken(value, resource=name)):
            pass
    assert Fence.objects.count() == 3


def test_something_that_is_no_token_is_refused() -> None:
    with pytest.raises(TypeError), fenced_atomic(5):  # type: ignore[arg-type]
        pass


def test_a_successor_waits_for_a_predecessor_in_its_block_and_sees_what_it_wrote(
    alias: str,
) -> None:
    """Red with two plain `transaction.atomic()`: the successor reads 0 and writes 1."""
    account = Account.objects.create(name="a")
    entered, waiting = threading.Event(), threading.Event()

    def predecessor() -> None:
        with fenced_atomic(token(5)):
            found = Account.objects.get(pk=account.pk)
            entered.set()
            waiting.wait(10)
            threading.Event().wait(0.1)
            found.balance += 1
            found.save(update_fields=["balance"])

    def successor() -> None:
        entered.wait(10)
        waiting.set()
        for _ in range(2):
            try:
                with fenced_atomic(token(9)):
                    found = Account.objects.get(pk=account.pk)
                    found.balance += 1
                    found.save(update_fields=["balance"])
            except OperationalError:  # REPEATABLE READ: a predecessor committed meanwhile
                continue
            return

    assert together(alias, [predecessor, successor]) == [None, None]
    account.refresh_from_db()
    assert account.balance == 2
    assert stored() == [9]


def test_racing_first_entries_leave_the_highest_token(alias: str) -> None:
    def enter(value: int) -> None:
        for _ in range(20):
            try:
                with fenced_atomic(token(value)):
                    return
            except FencedOutError:
                return
            except OperationalError:
                continue
        pytest.fail("never entered")

    works = [lambda value=value: enter(value) for value in (3, 8, 1, 6)]
    assert together(alias, works) == [None] * 4
    assert stored() == [8]


@pytest.mark.usefixtures("alias")
def test_nested_in_a_broken_transaction() -> None:
    alias = Fence.objects.all().db
    with transaction.atomic(using=alias):
        transaction.set_rollback(True, using=alias)
        with pytest.raises(TransactionManagementError), fenced_atomic(token(5)):
            pass


class TestRelease:
    def test_outside_a_transaction_at_once(self, alias: str) -> None:
        held = Held()
        release_on_commit(held, alias)
        assert held.released == 1

    def test_after_the_outermost_commit_and_once(self, alias: str) -> None:
        held = Held()
        with transaction.atomic(using=alias):
            with transaction.atomic(using=alias):
                release_on_commit(held, alias)
            assert held.released == 0
        assert held.released == 1

    def test_after_a_rollback(self, alias: str) -> None:
        held = Held()
        with pytest.raises(KeyError), transaction.atomic(using=alias):
            release_on_commit(held, alias)
            raise KeyError
        assert held.released == 1

    def test_after_a_rollback_whose_exception_is_kept(self, alias: str) -> None:
        held = Held()
        gc.disable()
        try:
            with pytest.raises(KeyError) as kept, transaction.atomic(using=alias):
                release_on_commit(held, alias)
                raise KeyError
            assert held.released == 1
            assert kept.value is not None
        finally:
            gc.enable()

    def test_after_a_rollback_to_a_savepoint(self, alias: str) -> None:
        inner, outer = Held(), Held()
        with transaction.atomic(using=alias):
            release_on_commit(outer, alias)
            with pytest.raises(KeyError), transaction.atomic(using=alias):
                release_on_commit(inner, alias)
                raise KeyError
            assert (inner.released, outer.released) == (1, 0)
        assert (inner.released, outer.released) == (1, 1)

    def test_after_set_rollback(self, alias: str) -> None:
        held = Held()
        with transaction.atomic(using=alias):
            release_on_commit(held, alias)
            transaction.set_rollback(True, using=alias)
        assert held.released == 1

    def test_when_the_connection_is_closed(self, sqlite_alias: str) -> None:
        held = Held()
        with transaction.atomic(using=sqlite_alias):
            release_on_commit(held, sqlite_alias)
            connections[sqlite_alias].close()
            assert held.released == 1

    def test_an_error_is_logged_and_fails_nothing(
        self, alias: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        held = Held(OSError("gone"))
        with transaction.atomic(using=alias):
            release_on_commit(held, alias)
        assert held.released == 1
        assert "'held' was not released" in caplog.text

    def test_things_that_cannot_be_released_are_refused(self, sqlite_alias: str) -> None:
        for wrong in (None, object(), AsyncHeld(), Awaited()):
            with pytest.raises(TypeError):
                release_on_commit(wrong, sqlite_alias)

    def test_manual_transactions_are_refused(self, sqlite_alias: str) -> None:
        transaction.set_autocommit(False, using=sqlite_alias)
        try:
            with pytest.raises(TransactionManagementError):
                release_on_commit(Held(), sqlite_alias)
        finally:
            transaction.rollback(using=sqlite_alias)
            transaction.set_autocommit(True, using=sqlite_alias)

    def test_blocks_inside_manual_transactions_are_refused(
        self, sqlite_alias: str, redis_client: Any
    ) -> None:
        """Their hooks are called when autocommit is switched on again, if it ever is."""
        lock, held, cache = DistributedLock(redis_client), Held(), Cache()
        ways: tuple[Callable[[], None], ...] = (
            lambda: release_on_commit(held, sqlite_alias),
            lambda: invalidate_on_commit(cache, "a", using=sqlite_alias),
        )
        transaction.set_autocommit(False, using=sqlite_alias)
        try:
            for refused in ways:
                with (
                    pytest.raises(TransactionManagementError),
                    transaction.atomic(using=sqlite_alias),
                ):
                    refused()
            with (
                pytest.raises(TransactionManagementError),
                locked_atomic(lock, "account:1", ttl=LEASE),
            ):
                pytest.fail("entered")
        finally:
            transaction.rollback(using=sqlite_alias)
            transaction.set_autocommit(True, using=sqlite_alias)
        assert held.released == 0
        assert lock.try_acquire("account:1", ttl=LEASE) is not None


class TestLockedAtomic:
    def test_acquire_fence_commit_release(self, alias: str, redis_client: Any) -> None:
        lock = DistributedLock(redis_client)
        with locked_atomic(lock, "account:1", ttl=LEASE) as handle:
            assert connections[alias].in_atomic_block
            assert stored() == [handle.token]
        assert not connections[alias].in_atomic_block
        assert lock.try_acquire("account:1", ttl=LEASE) is not None
        assert stored() == [handle.token]

    def test_in_an_outer_transaction_the_lock_is_held_until_its_commit(
        self, alias: str, redis_client: Any
    ) -> None:
        lock = DistributedLock(redis_client)
        with transaction.atomic(using=alias):
            with locked_atomic(lock, "account:1", ttl=LEASE):
                pass
            assert lock.try_acquire("account:1", ttl=LEASE) is None
        assert lock.try_acquire("account:1", ttl=LEASE) is not None

    def test_the_lock_comes_back_after_a_rollback(self, alias: str, redis_client: Any) -> None:
        lock = DistributedLock(redis_client)
        with transaction.atomic(using=alias):
            with pytest.raises(KeyError) as kept, locked_atomic(lock, "account:1", ttl=LEASE):
                raise KeyError
            assert kept.value is not None
            # To the savepoint; and of the outer transaction:
            handle = lock.try_acquire("account:1", ttl=LEASE)
            assert handle is not None
            handle.release()
            with locked_atomic(lock, "account:1", ttl=LEASE):
                pass
            transaction.set_rollback(True, using=alias)
        assert lock.try_acquire("account:1", ttl=LEASE) is not None

    def test_hooks_of_the_block_run_under_the_lock(self, alias: str, redis_client: Any) -> None:
        lock, free = DistributedLock(redis_client), []
        with locked_atomic(lock, "account:1", ttl=LEASE):
            transaction.on_commit(
                lambda: free.append(lock.try_acquire("account:1", ttl=LEASE)), using=alias
            )
        assert free == [None]

    def test_the_lock_comes_back_when_a_hook_raises(self, alias: str, redis_client: Any) -> None:
        """The exception, while it is kept, keeps the hooks that were not run, ours too."""

        def hook() -> None:
            raise KeyError

        lock = DistributedLock(redis_client)
        with pytest.raises(KeyError) as kept, locked_atomic(lock, "account:1", ttl=LEASE):
            transaction.on_commit(hook, using=alias)
        assert lock.try_acquire("account:1", ttl=LEASE) is not None
        assert kept.value is not None

    def test_the_lock_comes_back_when_the_block_closes_its_connection(
        self, sqlite_alias: str, redis_client: Any
    ) -> None:
        lock = DistributedLock(redis_client)
        with locked_atomic(lock, "account:1", ttl=LEASE):
            connections[sqlite_alias].close()
        assert lock.try_acquire("account:1", ttl=LEASE) is not None

    def test_the_lock_comes_back_after_set_rollback(self, alias: str, redis_client: Any) -> None:
        lock = DistributedLock(redis_client)
        with locked_atomic(lock, "account:1", ttl=LEASE):
            transaction.set_rollback(True, using=alias)
        assert lock.try_acquire("account:1", ttl=LEASE) is not None

    def test_a_fence_that_is_higher_refuses_and_gives_the_lock_back(
        self, alias: str, redis_client: Any
    ) -> None:
        lock = DistributedLock(redis_client)
        with fenced_atomic(FenceToken(2**52, resource="account:1"), alias):
            pass
        with pytest.raises(FencedOutError), locked_atomic(lock, "account:1", ttl=LEASE):
            pytest.fail("entered")
        assert lock.try_acquire("account:1", ttl=LEASE) is not None

    @pytest.mark.usefixtures("alias")
    def test_a_lock_that_is_held_is_said(self, redis_client: Any) -> None:
        lock = DistributedLock(redis_client)
        lock.acquire("account:1", ttl=LEASE)
        with (
            pytest.raises(LockNotAcquired),
            locked_atomic(lock, "account:1", ttl=LEASE, wait=timedelta(milliseconds=20)),
        ):
            pytest.fail("entered")

    @pytest.mark.usefixtures("alias")
    def test_a_lease_lost_before_the_commit_is_only_logged(
        self, redis_client: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        lock = DistributedLock(redis_client)
        with locked_atomic(lock, "account:1", ttl=LEASE):
            Account.objects.create(name="a")
            lock.force_release("account:1")
        assert Account.objects.exists()
        assert "was over before its transaction" in caplog.text

    @pytest.mark.usefixtures("alias")
    def test_the_bodys_exception_wins(self, redis_client: Any) -> None:
        lock = DistributedLock(redis_client)
        with pytest.raises(KeyError), locked_atomic(lock, "account:1", ttl=LEASE):
            lock.force_release("account:1")
            raise KeyError


@pytest.mark.parametrize("nested", [False, True])
def test_the_bodys_exception_wins_over_a_lost_connection(
    postgres_alias: str, redis_client: Any, *, nested: bool
) -> None:
    lock = DistributedLock(redis_client)
    blocks: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "fenced_atomic": lambda: fenced_atomic(token(5)),
        "locked_atomic": lambda: locked_atomic(lock, "account:1", ttl=LEASE),
        "once": lambda: once("scope", "key"),
    }
    for name, block in blocks.items():
        outer = transaction.atomic(using=postgres_alias) if nested else nullcontext()
        with pytest.raises(KeyError, match=name), outer, block():
            with connections[postgres_alias].cursor() as cursor, suppress(OperationalError):
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            raise KeyError(name)
        connections[postgres_alias].close()
    gc.collect()
    assert stored() == []
    assert lock.try_acquire("account:1", ttl=LEASE) is not None


class Cache:
    def __init__(self, error: Exception | None = None) -> None:
        self.keys: list[Any] = []
        self.error = error

    def invalidate(self, *keys: Any) -> None:
        if self.error is not None:
            raise self.error
        self.keys += keys


class AsyncCache(Cache):
    async def invalidate(self, *keys: Any) -> None:  # type: ignore[override]
        self.keys += keys


class TestInvalidate:
    @pytest.mark.parametrize("kind", [Cache, AsyncCache])
    def test_after_the_commit_and_not_before(self, alias: str, kind: type[Cache]) -> None:
        cache = kind()
        with transaction.atomic(using=alias):
            invalidate_on_commit(cache, 1, 2, using=alias)
            assert cache.keys == []
        assert cache.keys == [1, 2]

    def test_not_after_a_rollback(self, alias: str) -> None:
        cache = Cache()
        with pytest.raises(KeyError), transaction.atomic(using=alias):
            invalidate_on_commit(cache, 1, using=alias)
            raise KeyError
        assert cache.keys == []

    def test_an_error_is_raised_and_locks_still_come_back(self, alias: str) -> None:
        held = Held()
        try:
            with transaction.atomic(using=alias):
                invalidate_on_commit(Cache(OSError("gone")), 1, using=alias)
                release_on_commit(held, alias)
        except OSError:
            # Django's list of hooks lives as long as the traceback does.
            assert held.released == 0
        gc.collect()
        assert held.released == 1

    def test_arguments_that_make_no_sense_are_refused(self, sqlite_alias: str) -> None:
        with pytest.raises(TypeError):
            invalidate_on_commit(object(), 1, using=sqlite_alias)
        with pytest.raises(ValueError, match="no key"):
            invalidate_on_commit(Cache(), using=sqlite_alias)
