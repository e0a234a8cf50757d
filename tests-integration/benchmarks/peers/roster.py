"""Who is compared, in which version, and in which roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["OURS", "ROSTER", "Contender"]

OURS: Final = "fencekit"


@dataclass(frozen=True)
class Contender:
    """A library.

    Attributes:
        name: what people call it.
        module: its module among `contenders`.
        pins: what is installed for it; ours is there already.
        roles: what it is asked as.
        lacks: questions that it has nothing for.
    """

    name: str
    module: str
    pins: tuple[str, ...]
    roles: frozenset[str]
    lacks: frozenset[str] = frozenset()

    @property
    def version(self) -> str:
        """Its own version, or nothing where the client's is meant."""
        return self.pins[0].partition("==")[2] if self.pins else ""


def _contender(name: str, module: str, pins: str, roles: str, lacks: str = "") -> Contender:
    return Contender(
        name, module, tuple(pins.split()), frozenset(roles.split()), frozenset(lacks.split())
    )


ROSTER: Final = (
    _contender(OURS, "ours", "", "lock alock fifo jobs ajobs cache acache"),
    _contender("redis-py Lock", "redis_py", "", "lock alock"),
    _contender("python-redis-lock", "python_redis_lock", "python-redis-lock==4.0.1", "lock"),
    _contender("pottery", "pottery_redlock", "pottery==3.0.1", "lock alock"),
    _contender(
        "py-redis-semaphore", "py_redis_semaphore", "py-redis-semaphore==0.2.0", "lock alock"
    ),
    _contender("portalocker", "portalocker_redis", "portalocker[redis]==4.4.2", "lock"),
    _contender("redis-fifo-lock", "redis_fifo_lock", "redis-fifo-lock==0.3.2", "alock fifo"),
    _contender("ddredis", "ddredis_both", "ddredis==0.3.0", "alock acache", lacks="many"),
    _contender("cashews", "cashews_both", "cashews[redis]==7.6.0", "alock acache"),
    _contender("aiocache", "aiocache_redis", "aiocache[redis]==0.12.3", "acache"),
    _contender("dogpile.cache", "dogpile_cache", "dogpile.cache==1.5.0", "cache"),
    # Its extra alone does not import: it needs boto3 too.
    _contender("powertools", "powertools", "aws-lambda-powertools[redis]==3.37.0 boto3", "jobs"),
    _contender("idemkit", "idemkit_jobs", "idemkit[redis]==1.0.2", "jobs ajobs"),
)
