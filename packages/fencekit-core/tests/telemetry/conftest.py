"""Providers that keep what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fencekit import otel
from fencekit.drivers.sync import SyncDriver
from fencekit.hooks import install_hooks

Points = dict[tuple[str, ...], Any]


class Collected:
    """What was reported.

    Attributes:
        tracers: the provider of spans.
        meters: the provider of metrics.
    """

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._exporter = InMemorySpanExporter()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def providers(self) -> dict[str, Any]:
        """For `otel.hooks` and `otel.instrument`."""
        return {"tracer_provider": self.tracers, "meter_provider": self.meters}

    def spans(self, name: str) -> list[ReadableSpan]:
        """The spans of a name, in the order in which they ended."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def all_spans(self) -> list[ReadableSpan]:
        """Every span."""
        return list(self._exporter.get_finished_spans())

    def metrics(self) -> dict[str, Any]:
        """Every metric, by name."""
        data = self._reader.get_metrics_data()
        return {
            metric.name: metric
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> Points:
        """The points of a metric, by the values of their attributes in the order of the names."""
        metric = self.metrics().get(name)
        return {
            tuple(str(point.attributes[key]) for key in sorted(point.attributes)): point
            for point in (metric.data.data_points if metric is not None else ())
        }

    def count(self, name: str, *values: str) -> int:
        """The value of a counter, or how many values a histogram has, under these attributes."""
        point = self.points(name).get(values)
        if point is None:
            return 0
        return int(point.count if hasattr(point, "count") else point.value)


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
def hooks(collected: Collected) -> Any:
    return otel.hooks(**collected.providers)


@pytest.fixture(autouse=True)
def nothing_stays_installed() -> Iterator[None]:
    yield
    install_hooks(None)


@pytest.fixture
def redis_client(redis_client: Any) -> Iterator[Any]:
    """The stock client; what fencekit opened beside it is closed before it."""
    yield redis_client
    SyncDriver.of(redis_client).close()
