"""What a lock with tokens may do, and what a record of one job may."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from history.checker import Operation

__all__ = ["Fence", "FencedMutex", "Job", "Once"]


class Fence(NamedTuple):
    """A lock and its gate.

    Attributes:
        holder: twice the token that holds it; odd for a grant whose answer nobody got; 0: free.
        last: the highest of those so far.
        blind: the store was wiped, and nothing was granted since.
    """

    holder: int = 0
    last: int = 0
    blind: bool = False


class FencedMutex:
    """A grant is legal only when the lock is free, and with a token above the last.

    ============  =========  ====================================================================
    kind          argument   answer
    ============  =========  ====================================================================
    ``acquire``              the token; ``"refused"``
    ``release``   token      ``"released"``, ``"lost"``; with its repetitions it is one operation
    ``renew``     token      ``"renewed"``, ``"lost"``
    ``write``     token      ``"passed"``, ``"refused"``: at the gate
    ``lapse``     token      none, and no completion: the lease may end from here on
    ``vanish``               none, and no completion: a grant that nobody heard of may end
    ``force``                ``"freed"``, ``"idle"``
    ``wipe``                 none: the store lost everything
    ``forget``               none: the store lost the record, not the lock
    ============  =========  ====================================================================

    An acquire without an answer may have been granted a token that nobody knows.

    With ``refusals=False`` only what was allowed is judged, not what was refused: an attempt that
    came to nothing may have held the lock for a moment, and shut an older token out, unseen.
    """

    start = Fence()

    def __init__(self, *, refusals: bool = True) -> None:
        self._refusals = refusals

    def step(self, state: Fence, operation: Operation) -> Iterable[Fence]:
        """The states after it."""
        after: Iterable[Fence] = getattr(self, f"_{operation.kind}")(state, operation)
        return after

    def _acquire(self, state: Fence, operation: Operation) -> Iterable[Fence]:
        if operation.ended is None and operation.answer is None:
            if not state.holder:
                unheard = state.last | 1
                yield Fence(unheard, unheard)
        elif operation.answer == "refused":
            if state.holder or not self._refusals:
                yield state
        elif not state.holder and 2 * operation.answer > state.last:
            yield Fence(2 * operation.answer, 2 * operation.answer)

    def _release(self, state: Fence, operation: Operation) -> Iterable[Fence]:
        mine = state.holder == 2 * operation.argument
        if operation.answer in {"released", None} and mine:
            yield state._replace(holder=0)
        elif operation.answer == "lost" and not mine:
            yield state

    def _renew(self, state: Fence, operation: Operation) -> Iterable[Fence]:
        if (operation.answer != "lost") == (state.holder == 2 * operation.argument):
            yield state

    def _write(self, state: Fence, operation: Operation) -> Iterable[Fence]:
        token, passed = 2 * operation.argument, operation.answer != "refused"
        if passed and token >= state.last:
            yield state._replace(last=token)
        elif not passed and (
            token < state.last or state.blind or not (self._refusals or state.holder == token)
        ):
            yield state

    def _lapse(self, state: Fence, operation: Operation) -> Iterable[Fence]:
        if state.holder == 2 * operation.argument:
            yield state._replace(holder=0)

    def _vanish(self, state: Fence, operation: Operation) -> Iterable[Fence]:
        del operation
        if state.holder % 2:
            yield state._replace(holder=0)

    def _force(self, state: Fence, operation: Operation) -> Iterable[Fence]:
        if operation.answer != "idle" and state.holder:
            # The former holder is shut out at once.
            yield Fence(0, state.last | 1)
        elif operation.answer == "idle" and not state.holder:
            yield state

    def _wipe(self, state: Fence, operation: Operation) -> Iterable[Fence]:
        del operation
        yield Fence(0, state.last, blind=True)

    def _forget(self, state: Fence, operation: Operation) -> Iterable[Fence]:
        del operation
        yield state._replace(blind=True)


class Job(NamedTuple):
    """A record of one job.

    Attributes:
        runs: the token of the attempt that runs, 0 if none does.
        last: the highest token so far.
        over: the lease of that attempt has ended.
        result: what it came to, once it is done.
    """

    runs: int = 0
    last: int = 0
    over: bool = False
    result: object = None


class Once:
    """A job is begun by one at a time, and once it is done it stays done, with one result.

    =============  ===============  =============================================================
    kind           argument         answer
    =============  ===============  =============================================================
    ``begin``                       ``("begun", token)``, ``("reclaimed", token)``,
                                    ``("busy", None)``, ``("done", result)``
    ``complete``   (token, result)  ``"done"``, ``"lost"``
    ``give_back``  token            ``"given"``, ``"lost"``
    ``lapse``      token            none, and no completion: the lease may end from here on
    ``vanish``                      none, and no completion: a claim that nobody heard of may end
    ``wipe``                        none: the store lost the record
    =============  ===============  =============================================================
    """

    start = Job()

    def step(self, state: Job, operation: Operation) -> Iterable[Job]:
        """The states after it."""
        after: Iterable[Job] = getattr(self, f"_{operation.kind}")(state, operation)
        return after

    def _begin(self, state: Job, operation: Operation) -> Iterable[Job]:
        idle, free = state.result is None and not state.runs, state.over
        if operation.answer is None:
            if idle or (state.result is None and free):
                yield Job(state.last | 1, state.last | 1)
            return
        how, what = operation.answer
        if how == "busy":
            legal = bool(state.runs)
        elif how == "done":
            legal = state.result is not None and state.result == what
        else:
            legal = state.result is None and (idle if how == "begun" else free)
            if legal and 2 * what > state.last:
                yield Job(2 * what, 2 * what)
            return
        if legal:
            yield state

    def _complete(self, state: Job, operation: Operation) -> Iterable[Job]:
        token, result = operation.argument
        mine = state.runs == 2 * token
        if operation.answer in {"done", None} and mine:
            yield Job(0, state.last, result=result)
        elif operation.answer == "lost" and not mine:
            yield state

    def _give_back(self, state: Job, operation: Operation) -> Iterable[Job]:
        mine = state.runs == 2 * operation.argument
        if operation.answer in {"given", None} and mine:
            yield Job(0, state.last)
        elif operation.answer == "lost" and not mine:
            yield state

    def _wipe(self, state: Job, operation: Operation) -> Iterable[Job]:
        del operation
        yield Job(0, state.last)

    def _lapse(self, state: Job, operation: Operation) -> Iterable[Job]:
        if state.runs == 2 * operation.argument and not state.over:
            yield state._replace(over=True)

    def _vanish(self, state: Job, operation: Operation) -> Iterable[Job]:
        del operation
        if state.runs % 2 and not state.over:
            yield state._replace(over=True)
