"""A class that makes no sense is refused when it is defined, with words that say what to do."""

from __future__ import annotations

import os
import types
from datetime import timedelta
from typing import Any, Generic, TypeVar, Union
from uuid import UUID

import pydantic
import pytest
import redis
import redis.asyncio
import valkey.asyncio
from pydantic import BaseModel

from fencekit.cache import CacheHooks, GenericCache, SyncGenericCache
from fencekit.cache.spelling import check_tag, key_text
from harness.caches import tagged

T = TypeVar("T")
# Never connected to.
ASYNC = redis.asyncio.Redis()
SYNC = redis.Redis()


class Profile(BaseModel):
    id: int


def declare(kind: Any = Profile, base: Any = GenericCache, **attributes: Any) -> Any:
    attributes.setdefault("redis_client", SYNC if base is SyncGenericCache else ASYNC)
    name = attributes.pop("called", "SomeCache")
    return _define(name, base[kind], attributes)


def _define(name: str, base: Any, attributes: dict[str, Any]) -> Any:
    return types.new_class(name, (base,), exec_body=lambda space: space.update(attributes))


def entry_key(cls: Any, key: Any = 1) -> str:
    subject: Any = cls()._subject(key)
    entry: str = subject.entry
    return entry


def test_the_class_as_users_declare_it() -> None:
    class ProfileCache(GenericCache[Profile]):
        ttl = 10 * 60
        redis_client = ASYNC

    assert entry_key(ProfileCache) == ":profile:1"
    assert ProfileCache._definition.policy.ttl_ms == 600_000


@pytest.mark.parametrize("base", [GenericCache, SyncGenericCache])
def test_a_bare_base_is_refused(base: Any) -> None:
    with pytest.raises(TypeError, match=r"SomeCache does not say what it keeps.*\[YourModel\]"):
        _define("SomeCache", base, {"redis_client": ASYNC})


KINDS: Any = (T, list[T], Union[T, int])  # type: ignore[valid-type]  # noqa: UP007


@pytest.mark.parametrize("kind", KINDS)
def test_a_base_that_is_still_generic_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="still generic"):
        declare(kind)


def test_a_generic_class_between_is_refused() -> None:
    with pytest.raises(TypeError, match="still generic"):

        class Middle(GenericCache[T], Generic[T]):
            redis_client = ASYNC


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Profile", "names its type as text"),
        (None, "None is how a miss reads"),
        (Profile | None, "None is how a miss reads"),
        (Any, "None is how a miss reads"),
    ],
)
def test_types_that_no_cache_keeps(kind: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        _define("SomeCache", GenericCache[kind], {"redis_client": ASYNC})


def test_the_roots_themselves_are_not_used() -> None:
    for root in (GenericCache, SyncGenericCache):
        with pytest.raises(TypeError, match="declared, not used"):
            root()


@pytest.mark.parametrize(
    ("client", "words"),
    [
        (None, "no redis_client"),
        ("redis://localhost", "expected a client of redis-py or valkey-py, not builtins.str"),
        (SYNC, "give it to the sync class|a sync client"),
    ],
)
def test_a_missing_or_wrong_client(client: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        declare(redis_client=client)


def test_an_async_client_for_a_sync_cache() -> None:
    with pytest.raises(TypeError, match="async client"):
        declare(base=SyncGenericCache, redis_client=ASYNC)


def test_a_factory_is_a_plain_function() -> None:
    async def connect() -> Any:
        return ASYNC

    with pytest.raises(TypeError, match="coroutine function"):
        declare(redis_client=connect)
    declare(redis_client=lambda: ASYNC)
    declare(redis_client=staticmethod(lambda: ASYNC))
    declare(redis_client=redis.asyncio.Redis)
    declare(redis_client=valkey.asyncio.Valkey())


@pytest.mark.parametrize("ttl", [0.5, 30.0, 5, timedelta(minutes=1)])
def test_any_positive_duration_with_jitter(ttl: Any) -> None:
    policy = declare(ttl=ttl)._definition.policy
    times = {policy.times(negative=False)[1] for _ in range(200)}
    middle = ttl.total_seconds() * 1000 if isinstance(ttl, timedelta) else ttl * 1000
    assert min(times) >= round(middle * 0.9)
    assert max(times) <= round(middle * 1.1)
    assert len(times) > 10


@pytest.mark.parametrize(
    ("attributes", "error", "words"),
    [
        ({"ttl": 0}, ValueError, r"SomeCache\.ttl must be above zero"),
        ({"ttl": -1}, ValueError, r"SomeCache\.ttl must be above zero"),
        ({"ttl": float("nan")}, ValueError, r"\.ttl must be above zero"),
        ({"ttl": float("inf")}, ValueError, r"\.ttl .* at most ten years"),
        ({"ttl": timedelta(0)}, ValueError, r"\.ttl must be above zero"),
        ({"ttl": "60"}, TypeError, r"\.ttl must be seconds or a timedelta, not str"),
        ({"ttl": None}, TypeError, r"\.ttl must be seconds"),
        ({"ttl": True}, TypeError, r"\.ttl must be seconds"),
        ({"negative_ttl": 0}, ValueError, r"\.negative_ttl must be above zero"),
        ({"grace": -1}, ValueError, r"\.grace must be above zero"),
        ({"lease": 0}, ValueError, r"\.lease must be above zero"),
        ({"jitter": 1}, ValueError, r"\.jitter must be at least zero and below 1"),
        ({"jitter": -0.1}, ValueError, r"\.jitter"),
        ({"beta": -1}, ValueError, r"\.beta must be at least zero"),
        ({"beta": "1"}, TypeError, r"\.beta must be a number"),
        ({"verify": 1}, TypeError, r"\.verify must be True or False"),
        ({"strict": None}, TypeError, r"\.strict must be True or False"),
        ({"version": 1.5}, TypeError, r"\.version must be a str or an int"),
        ({"name": "a:b"}, ValueError, r"\.name is 'a:b'"),
        ({"name": ""}, ValueError, r"\.name is ''"),
        ({"name": "a b"}, ValueError, r"\.name is 'a b'"),
        ({"name": 5}, TypeError, r"\.name must be a str"),
        ({"prefix": "a{b"}, ValueError, "brace"),
        ({"prefix": None}, TypeError, r"\.prefix must be a str"),
        ({"hooks": print}, TypeError, r"\.hooks must be a CacheHooks"),
    ],
)
def test_attributes_that_make_no_sense(
    attributes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        declare(**attributes)


def test_everything_that_may_be_said() -> None:
    declare(
        name="people",
        prefix="app:v1",
        version=3,
        jitter=0,
        negative_ttl=5,
        grace=timedelta(minutes=1),
        beta=1,
        lease=2.5,
        verify=True,
        strict=True,
        hooks=CacheHooks(),
        tags=tagged("all"),
    )


class UserProfile(BaseModel):
    id: int


class HTTPResponse(BaseModel):
    status: int


class Page(BaseModel, Generic[T]):
    items: list[T]


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        (UserProfile, ":user_profile:1"),
        (HTTPResponse, ":http_response:1"),
        (list[UserProfile], ":list-user_profile:1"),
        (UserProfile | HTTPResponse, ":user_profile-http_response:1"),
        (Page[UserProfile], ":page-user_profile:1"),
        (dict[str, list[int]], ":dict-str-list-int:1"),
    ],
)
def test_names_that_follow_from_the_type(kind: Any, entry: str) -> None:
    assert entry_key(declare(kind)) == entry


def test_prefix_and_name() -> None:
    assert entry_key(declare(prefix="app", name="people")) == "app:people:1"


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        (1, ":profile:1"),
        pytest.param("1", ":profile:1", id="text"),
        (-5, ":profile:-5"),
        ("a:b*c", ":profile:a:b*c"),
        ("{a}%", ":profile:%7Ba%7D%25"),
        ("ü", ":profile:ü"),
        (UUID(int=1), ":profile:00000000-0000-0000-0000-000000000001"),
    ],
)
def test_keys_are_spelled_as_given_but_for_braces(key: Any, entry: str) -> None:
    assert entry_key(declare(), key) == entry


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (None, TypeError),
        (1.5, TypeError),
        (True, TypeError),
        (b"raw", TypeError),
        ((1, 2), TypeError),
        ("", ValueError),
        ("\ud800", ValueError),
        ("x" * 1025, ValueError),
        ("ü" * 513, ValueError),
    ],
)
def test_what_cannot_be_a_key(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="key"):
        key_text(key)


@pytest.mark.parametrize(
    ("tag", "error"),
    [
        ("a:b", ValueError),
        ("", ValueError),
        ("a b", ValueError),
        ("{a}", ValueError),
        (1, TypeError),
    ],
)
def test_a_tag_with_a_separator_is_refused(tag: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="tag"):
        check_tag(tag)


def model(name: str, /, **fields: Any) -> Any:
    return pydantic.create_model(name, **fields)


def test_two_types_of_one_name_are_refused_or_told_apart() -> None:
    first = declare(model("Account", id=(int, ...)), called="FirstCache")
    other = model("Account", name=(str, ...))
    with pytest.raises(TypeError, match=r"OtherCache and .*FirstCache keep values of different"):
        declare(other, called="OtherCache")
    declare(other, called="OtherCache", name="account2")
    declare(other, called="OtherCache", prefix="app")
    declare(other, called="OtherCache", redis_client=redis.asyncio.Redis())
    assert first is not None


def test_a_class_that_is_gone_is_in_nobodys_way() -> None:
    declare(model("Passing", id=(int, ...)))
    declare(model("Passing", id=(str, ...)))


def test_classes_of_one_type_share_their_entries() -> None:
    kind = model("Shared", id=(int, ...))
    one, two = declare(kind), declare(kind, base=SyncGenericCache)
    assert entry_key(one) == entry_key(two)
    assert one._definition.codec.fingerprint == two._definition.codec.fingerprint


def test_a_cache_may_be_extended() -> None:
    class Base(GenericCache[Profile]):
        redis_client = ASYNC

    class Short(Base):
        ttl = 5

    assert Short._definition.policy.ttl_ms == 5_000
    assert entry_key(Short) == ":profile:1"


def test_a_factory_is_called_once_for_each_process_and_never_at_definition() -> None:
    calls: list[int] = []

    def connect() -> Any:
        calls.append(os.getpid())
        return redis.Redis()

    source = declare(base=SyncGenericCache, redis_client=connect)._definition.source
    assert not calls
    assert source.access() is source.access()
    assert calls == [os.getpid()]


def test_a_factory_that_returns_no_client_says_so() -> None:
    cls = declare(base=SyncGenericCache, redis_client=lambda: "redis://localhost")
    with pytest.raises(TypeError, match="expected a client"):
        cls().get(1)
