"""Counters and gauges are read when the SDK collects, and counters never fall."""

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from pairbus.telemetry.metrics import (
    CONSOLE,
    DRAIN_RATE,
    DRAINED_MESSAGES,
    DURATION_BUCKETS,
    FAILOVERS,
    METRICS,
    OPERATION_DURATION,
    PATH_STATE,
    MetricKind,
)
from pairbus.telemetry.samples import Sample
from tests.telemetry import RecordedTelemetry

pytestmark = pytest.mark.rule("O1")


class Source:
    def __init__(self, *samples: Sample) -> None:
        self.values = list(samples)

    def samples(self) -> Iterator[Sample]:
        yield from self.values


def drained(value: float) -> Sample:
    return Sample(DRAINED_MESSAGES, value, {"destination": "orders"})


def test_counter_is_the_sum_of_what_was_added(recorded: RecordedTelemetry) -> None:
    instruments = recorded.telemetry.instruments
    assert instruments is not None
    for _ in range(3):
        instruments.add(FAILOVERS, 2, {"path": "orders", "cause": "OSError"})
    instruments.add(FAILOVERS, 1, {"path": "bills", "cause": "OSError"})

    assert sorted(value for _, value in recorded.points(FAILOVERS)) == [1, 6]
    assert recorded.value(FAILOVERS, path="orders", cause="OSError") == 6


def test_samples_of_several_sources_are_added_in_a_counter(recorded: RecordedTelemetry) -> None:
    instruments = recorded.telemetry.instruments
    assert instruments is not None
    first, second = Source(drained(5)), Source(drained(7))
    instruments.observe(first)
    instruments.observe(second)

    assert recorded.value(DRAINED_MESSAGES) == 12


def test_counter_does_not_fall_when_a_source_ends(recorded: RecordedTelemetry) -> None:
    instruments = recorded.telemetry.instruments
    assert instruments is not None
    rate = Sample(DRAIN_RATE, 10.0, {})
    first, second = Source(drained(5), rate), Source(drained(7))
    instruments.observe(first)
    instruments.observe(second)
    instruments.end(first)
    instruments.end(first)

    assert recorded.value(DRAINED_MESSAGES) == 12
    assert recorded.points(DRAIN_RATE) == []


def test_source_that_does_not_exist_any_more_is_not_read(recorded: RecordedTelemetry) -> None:
    instruments = recorded.telemetry.instruments
    assert instruments is not None
    source = Source(Sample(DRAIN_RATE, 10.0, {}))
    instruments.observe(source)
    assert recorded.value(DRAIN_RATE) == 10.0
    del source
    gc.collect()

    assert recorded.points(DRAIN_RATE) == []


def test_instruments_have_the_names_units_and_kinds_of_the_table(
    recorded: RecordedTelemetry,
) -> None:
    instruments = recorded.telemetry.instruments
    assert instruments is not None
    samples = [
        Sample(metric.name, 1.0, dict.fromkeys(metric.attributes, "x"))
        for metric in METRICS.values()
        if metric.kind is not MetricKind.HISTOGRAM
    ]
    source = Source(*samples)
    instruments.observe(source)
    for histogram in instruments.histograms.values():
        histogram.record(0.3)

    found = recorded.metrics()
    # The metrics of the console are for Prometheus only.
    expected = {name: metric for name, metric in METRICS.items() if metric.recorded_by != CONSOLE}
    assert found.keys() == expected.keys()
    for name, metric in expected.items():
        assert (found[name].unit, found[name].description) == (metric.unit, metric.description)
    kinds = {
        MetricKind.COUNTER: "Sum",
        MetricKind.GAUGE: "Gauge",
        MetricKind.HISTOGRAM: "Histogram",
    }
    for name, metric in expected.items():
        assert type(found[name].data).__name__ == kinds[metric.kind]
    [point] = found[OPERATION_DURATION].data.data_points
    assert tuple(point.explicit_bounds) == DURATION_BUCKETS  # type: ignore[union-attr]


def test_source_that_ends_while_it_is_read_is_counted_once(recorded: RecordedTelemetry) -> None:
    instruments = recorded.telemetry.instruments
    assert instruments is not None

    class EndsItself(Source):
        has_ended = False

        def samples(self) -> Iterator[Sample]:
            if not self.has_ended:
                self.has_ended = True
                instruments.end(self)
            yield drained(5)

    source = EndsItself()
    instruments.observe(source)

    assert recorded.value(DRAINED_MESSAGES) == 5
    assert recorded.value(DRAINED_MESSAGES) == 5


def test_source_that_cannot_be_read_does_not_hide_the_others(
    recorded: RecordedTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    instruments = recorded.telemetry.instruments
    assert instruments is not None

    class Broken(Source):
        def samples(self) -> Iterator[Sample]:
            raise OSError("gone")

    sources = [Broken(), Source(drained(5))]
    for source in sources:
        instruments.observe(source)

    assert recorded.value(DRAINED_MESSAGES) == 5
    assert "could not be read" in caplog.text
    for source in sources:
        instruments.end(source)
    assert recorded.value(DRAINED_MESSAGES) == 5


def test_collection_in_a_forked_child_does_not_wait_for_a_thread_of_the_parent(
    recorded: RecordedTelemetry,
) -> None:
    instruments = recorded.telemetry.instruments
    assert instruments is not None
    source = Source(Sample(PATH_STATE, 1.0, {"path": "orders", "state": "healthy"}))
    instruments.observe(source)
    held, release = threading.Event(), threading.Event()

    def hold_locks() -> None:
        with instruments._sources_lock, instruments._added_lock:
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold_locks)
    thread.start()
    assert held.wait(30)
    child = os.fork()
    if child == 0:
        try:
            values = [sample.value for sample in instruments.collect(PATH_STATE)]
            os._exit(0 if values == [1.0] else 1)
        finally:
            os._exit(2)
    release.set()
    thread.join()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
