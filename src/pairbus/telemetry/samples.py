"""A value of a metric at one moment."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class Sample(NamedTuple):
    """One value of a metric of `METRICS`."""

    name: str
    value: float
    labels: Mapping[str, str | int]
    """The attributes of the value."""


class SampleSource(Protocol):
    """An object whose state is read whenever metrics are collected, in any thread."""

    def samples(self) -> Iterable[Sample]:
        """Return the current values."""
