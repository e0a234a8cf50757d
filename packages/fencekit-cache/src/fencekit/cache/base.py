"""What both colours of cache do, as flows; the colours only run them."""

from __future__ import annotations

from typing import TypeVar

from fencekit.cache.loading import Loading
from fencekit.cache.reading import Lookup
from fencekit.cache.spelling import Key
from fencekit.cache.writing import Writing

__all__ = ["BaseCache", "Key", "Lookup"]

T = TypeVar("T")


class BaseCache(Loading[T], Writing[T]):
    """What is declared of a cache, and what its methods do; see `GenericCache`."""
