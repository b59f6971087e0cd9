"""The OpenTelemetry instruments of this process, made from the table `METRICS`.

Counters and gauges are observable: their values are read when the SDK of the application collects
metrics, so counting costs no call of OpenTelemetry. Only histograms are recorded as values occur.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

from pairbus.telemetry.metrics import CONSOLE, DURATION_BUCKETS, METRICS, MetricKind
from pairbus.telemetry.samples import Sample, SampleSource

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

logger = logging.getLogger("pairbus.telemetry")

_Labels = tuple[tuple[str, str | int], ...]
_Sums = dict[tuple[str, _Labels], float]


class Instruments:
    """The instruments of one meter, and the values that they report. Can be used from any thread.

    A counter is the sum of what was added, of the samples of all sources, and of the last samples
    of the sources that have ended: it never falls.
    """

    def __init__(self, meter: "Meter") -> None:
        self._sources: WeakSet[SampleSource] = WeakSet()
        self._added: _Sums = {}
        self._reset_locks()
        self.histograms: dict[str, Histogram] = {}
        """The histograms, by name."""
        for metric in METRICS.values():
            if metric.recorded_by == CONSOLE:
                continue
            text = {"unit": metric.unit, "description": metric.description}
            if metric.kind is MetricKind.HISTOGRAM:
                self.histograms[metric.name] = meter.create_histogram(
                    metric.name, explicit_bucket_boundaries_advisory=DURATION_BUCKETS, **text
                )
                continue
            create: Callable[..., object] = (
                meter.create_observable_counter
                if metric.kind is MetricKind.COUNTER
                else meter.create_observable_gauge
            )
            create(metric.name, [partial(self._observe, metric.name)], **text)
        _reset_locks_after_fork(self)

    def _reset_locks(self) -> None:
        """Create the locks, in a new object or after a fork."""
        self._sources_lock = Lock()
        """Protects the sources. It is not held while they are read, which may take long."""
        self._added_lock = Lock()
        """Protects what was added. Nothing else is locked while it is held, so `add` can be called
        with any lock."""

    def add(self, name: str, amount: float, labels: Mapping[str, str | int]) -> None:
        """Add to a counter."""
        key = name, tuple(labels.items())
        with self._added_lock:
            self._added[key] = self._added.get(key, 0) + amount

    def observe(self, source: SampleSource) -> None:
        """Read a source at each collection, until it ends. Only a weak reference is kept."""
        with self._sources_lock:
            self._sources.add(source)

    def end(self, source: SampleSource) -> None:
        """Keep the counters of a source, and read it no more. Can be called repeatedly."""
        samples = _read(source)
        with self._sources_lock:
            if source not in self._sources:
                return
            self._sources.discard(source)
            for sample in samples:
                if METRICS[sample.name].kind is MetricKind.COUNTER:
                    self.add(sample.name, sample.value, sample.labels)

    def collect(self, name: str) -> list[Sample]:
        """Return the current values of a counter or gauge."""
        is_counter = METRICS[name].kind is MetricKind.COUNTER
        sums: dict[_Labels, float] = {}
        with self._sources_lock:
            sources = list(self._sources)
        readings = [(source, _read(source)) for source in sources]
        with self._sources_lock:
            for source, samples in readings:
                if source not in self._sources:
                    continue  # it ended meanwhile, and its counters were added
                for sample in samples:
                    if sample.name == name:
                        key = tuple(sample.labels.items())
                        sums[key] = sample.value + (sums.get(key, 0) if is_counter else 0)
            with self._added_lock:
                for (added_name, key), value in self._added.items():
                    if added_name == name:
                        sums[key] = sums.get(key, 0) + value
        return [Sample(name, value, dict(key)) for key, value in sums.items()]

    def _observe(self, name: str, _: "CallbackOptions") -> "Iterable[Observation]":
        from opentelemetry.metrics import Observation

        return [Observation(sample.value, sample.labels) for sample in self.collect(name)]


def _read(source: SampleSource) -> list[Sample]:
    try:
        return list(source.samples())
    except Exception:  # the metrics of the other sources do not depend on it
        logger.exception("The metrics of %r could not be read", source)
        return []


def _reset_locks_after_fork(instruments: Instruments) -> None:
    """Replace the locks in a forked child, where a thread of the parent may hold them for ever."""
    weak = ref(instruments)

    def reset() -> None:
        if (alive := weak()) is not None:
            alive._reset_locks()

    os.register_at_fork(after_in_child=reset)
