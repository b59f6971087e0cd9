"""The durations of calls, which are recorded in groups.

The code of a send is cold: between two calls of the Azure SDK, all of it was pushed out of the
caches of the processor, and takes several times the CPU time that it takes in a loop. So a call
does as little as possible, and the SDK of OpenTelemetry records many durations at once.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram

MAX_PENDING = 64
"""Durations that wait to be recorded. To record a group delays one call, by about 1 ms."""

Attributes = Mapping[str, str | int]


class Durations:
    """Records durations in a histogram, each in the context of its call. Can be used from any
    thread.

    `on_error` gets every exception of the application's SDK.
    """

    def __init__(self, histogram: "Histogram", on_error: Callable[[Exception], None]) -> None:
        self._record: Callable[..., None] = histogram.record
        self._on_error = on_error
        self.pending: deque[tuple[float, Attributes, Context]] = deque()

    def add(self, seconds: float, attributes: Attributes) -> None:
        """Add the duration of a call that ends now."""
        self.pending.append((seconds, attributes, copy_context()))
        if len(self.pending) >= MAX_PENDING:
            self.record()

    def record(self) -> None:
        """Record all durations."""
        record, pending = self._record, self.pending
        try:
            for _ in range(len(pending)):  # not those that other threads add meanwhile
                seconds, attributes, context = pending.popleft()
                context.run(record, seconds, attributes)
        except IndexError:  # another thread took the last one
            pass
        except Exception as exc:  # noqa: BLE001  telemetry must not fail a send
            self._on_error(exc)


class CallTimer:
    """Adds the durations of calls with the same attributes."""

    def __init__(self, durations: Durations, attributes: Attributes) -> None:
        self._pending = durations.pending
        self._record = durations.record
        self._attributes = attributes

    def ended(self, started_at: float) -> None:
        """Add the duration of a call that ends now, and began at a time of `perf_counter`. It does
        what `Durations.add` does, without another call."""
        pending = self._pending
        pending.append((perf_counter() - started_at, self._attributes, copy_context()))
        if len(pending) >= MAX_PENDING:
            self._record()
