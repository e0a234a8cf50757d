"""What every measurement has: the scope, and buckets made for seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter

__all__ = ["SCOPE", "durations"]

SCOPE: Final = "fencekit"
# From a round trip to an hour: the SDK's own boundaries are made for milliseconds.
_SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)


def durations(meter: Meter, name: str, description: str) -> Histogram:
    """Make a histogram of seconds."""
    return meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=list(_SECONDS)
    )
