"""Claims: what a begin was answered, and how an attempt that began here is ended."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fencekit.claim_base import BaseClaim, MemoPolicy
from fencekit.handles import AsyncLostEvent, LostEvent
from fencekit.protocol.claim import Announcement, Begun, Standing
from fencekit.protocol.memo import Memo

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from fencekit.drivers.aio import AsyncDriver
    from fencekit.drivers.sync import SyncDriver
    from fencekit.protocol.operation import Flow

__all__ = ["AsyncClaim", "Claim"]


class Claim(BaseClaim):
    """What a begin was answered: an attempt of this caller's, or how the key stands.

    A context manager: left by an exception it records a failed, retryable attempt. Left without
    one before `complete`, `fail` or `release` it records the same and raises a RuntimeError,
    because whether the work is done cannot be guessed.
    """

    def __init__(
        self, key: str, found: Begun | Standing, policy: MemoPolicy, driver: SyncDriver
    ) -> None:
        super().__init__(key, found, policy)
        self._driver = driver
        self._lost_event: LostEvent | None = None

    @property
    def lost(self) -> LostEvent:
        """Set as soon as the lease is lost, and before anybody else can begin.

        Raises:
            IdempotencyNotOwned: no attempt began here.
        """
        self._begun()
        if self._lost_event is None:
            self._lost_event = LostEvent(self._left)
            if self._gone:
                self._lost_event.set()
        return self._lost_event

    def complete(self, result: Any = None) -> None:
        """Record the work as done and keep its result; silent when it already was recorded.

        Accepted also after the lease is over, as long as nobody has taken over. A store error is
        not the end: the same command is sent again for some seconds.

        Raises:
            IdempotencyNotOwned: another attempt took over, the record was cleared or lost, the
                attempt has ended otherwise, or none began here.
            OutcomeUnknown: no answer for all that time. Calling this again is safe; running the
                work again is not.
            HandleForked: the claim is the parent process's.
        """
        if self._ended != "completed":
            self._run_completion(self._complete(result, None))

    def complete_memo(
        self, memo: Memo, *, published: bytes = b"", announcement: Announcement | None = None
    ) -> None:
        """Record the work as done, with a memo in the caller's own encoding; see `complete`.

        Args:
            memo: what is kept of the result.
            published: what is noted in the record with it.
            announcement: what is told in the same step; `announced` says whether it was.

        Raises:
            IdempotencyNotOwned, OutcomeUnknown, HandleForked: as for `complete`.
        """
        if self._ended != "completed":
            self._run_completion(self._complete(None, memo, published, announcement))

    def fail(self, error: BaseException | str, *, terminal: bool = False) -> None:
        """Record the attempt as failed, to be tried again, or for good where ``terminal``.

        Args:
            error: of which the class name and 500 characters of its message are kept.
            terminal: no further attempt is made until the record expires or is cleared.

        Raises:
            IdempotencyNotOwned, HandleForked: as for `complete`.
            StoreUnavailable, StoreRefused, OutcomeUnknown: it may not be recorded; call this again.
        """
        if self._ended != "failed":
            operation = self._fail(error, terminal=terminal)
            self.settle("failed", self._driver.execute(operation))

    def release(self) -> None:
        """Give the attempt back, uncounted: the work may begin again at once, elsewhere.

        Raises:
            IdempotencyNotOwned, HandleForked: as for `complete`.
            StoreUnavailable, StoreRefused, OutcomeUnknown: it may not be recorded; call this again.
        """
        if self._ended != "released":
            self.settle("released", self._driver.execute(self._release()))

    def renew(self, lease: timedelta | None = None) -> None:
        """Have the lease end ``lease`` from now, never sooner than it would; one round trip.

        For a body that starves the thread which renews by itself.

        Args:
            lease: the lease from now on; by default as long as before.

        Raises:
            IdempotencyNotOwned, HandleForked: as for `complete`.
            StoreUnavailable, StoreRefused, OutcomeUnknown: the lease is as it was, or longer.
        """
        self._renewed(self._driver.run(self._renew(lease)))

    def _run_completion(self, flow: Flow[str | None]) -> None:
        try:
            lost = self._driver.run(flow)
        except BaseException:
            self.let_go()
            raise
        self.settle("completed", lost)

    def _ring(self) -> None:
        if self._lost_event is not None:
            self._lost_event.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        flow = self._leave(error)
        if flow is not None:
            self._driver.run(flow)
            if error is None:
                self._insist_on_a_verdict()


class AsyncClaim(BaseClaim):
    """The async twin of `Claim`: same methods, same arguments, same meanings."""

    def __init__(
        self, key: str, found: Begun | Standing, policy: MemoPolicy, driver: AsyncDriver
    ) -> None:
        super().__init__(key, found, policy)
        self._driver = driver
        self._lost_event: AsyncLostEvent | None = None

    @property
    def lost(self) -> AsyncLostEvent:
        """Set as soon as the lease is lost, and before anybody else can begin.

        Raises:
            IdempotencyNotOwned: no attempt began here.
        """
        self._begun()
        if self._lost_event is None:
            self._lost_event = AsyncLostEvent(self._left)
            if self._gone:
                self._lost_event.set()
        return self._lost_event

    async def complete(self, result: Any = None) -> None:
        """Record the work as done and keep its result; see `Claim.complete`.

        Raises:
            IdempotencyNotOwned, OutcomeUnknown, HandleForked: as there.
        """
        if self._ended != "completed":
            await self._run_completion(self._complete(result, None))

    async def complete_memo(
        self, memo: Memo, *, published: bytes = b"", announcement: Announcement | None = None
    ) -> None:
        """Record the work as done, with a memo in the caller's own encoding.

        Args:
            memo: what is kept of the result.
            published: what is noted in the record with it.
            announcement: what is told in the same step; `announced` says whether it was.

        Raises:
            IdempotencyNotOwned, OutcomeUnknown, HandleForked: as for `Claim.complete`.
        """
        if self._ended != "completed":
            await self._run_completion(self._complete(None, memo, published, announcement))

    async def fail(self, error: BaseException | str, *, terminal: bool = False) -> None:
        """Record the attempt as failed; see `Claim.fail`.

        Raises:
            IdempotencyNotOwned, HandleForked: as there.
            StoreUnavailable, StoreRefused, OutcomeUnknown: as there.
        """
        if self._ended != "failed":
            operation = self._fail(error, terminal=terminal)
            self.settle("failed", await self._driver.execute(operation))

    async def release(self) -> None:
        """Give the attempt back, uncounted; see `Claim.release`.

        Raises:
            IdempotencyNotOwned, HandleForked: as there.
            StoreUnavailable, StoreRefused, OutcomeUnknown: as there.
        """
        if self._ended != "released":
            self.settle("released", await self._driver.execute(self._release()))

    async def renew(self, lease: timedelta | None = None) -> None:
        """Have the lease end ``lease`` from now, never sooner; see `Claim.renew`.

        Raises:
            IdempotencyNotOwned, HandleForked: as there.
            StoreUnavailable, StoreRefused, OutcomeUnknown: as there.
        """
        self._renewed(await self._driver.run(self._renew(lease)))

    async def _run_completion(self, flow: Flow[str | None]) -> None:
        try:
            lost = await self._driver.run(flow)
        except BaseException:
            self.let_go()
            raise
        self.settle("completed", lost)

    def _ring(self) -> None:
        if self._lost_event is not None:
            self._lost_event.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        flow = self._leave(error)
        if flow is not None:
            await self._driver.run(flow)
            if error is None:
                self._insist_on_a_verdict()
