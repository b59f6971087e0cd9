"""Durations of calls: recorded in groups, each in the context of its call."""

import logging
import threading
from time import perf_counter
from typing import Any

import pytest
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics.export import HistogramDataPoint
from opentelemetry.trace import INVALID_SPAN, get_current_span

from pairbus.telemetry.durations import MAX_PENDING, Durations
from pairbus.telemetry.metrics import OPERATION_DURATION
from pairbus.telemetry.senders import SEND, SenderTelemetry, ServerAddress
from tests.telemetry import RecordedTelemetry

pytestmark = pytest.mark.rule("O1")

ATTRIBUTES = {"messaging.operation.name": "send"}


@pytest.fixture
def histogram(recorded: RecordedTelemetry) -> Histogram:
    assert recorded.telemetry.instruments is not None
    return recorded.telemetry.instruments.histograms[OPERATION_DURATION]


@pytest.fixture
def senders(recorded: RecordedTelemetry, histogram: Histogram) -> SenderTelemetry:
    telemetry = SenderTelemetry(
        recorded.telemetry, primary=ServerAddress("one"), secondary=ServerAddress("two")
    )
    assert recorded.telemetry.instruments is not None
    recorded.telemetry.instruments.observe(telemetry)
    return telemetry


def make_durations(histogram: Histogram) -> tuple[Durations, list[Exception]]:
    errors: list[Exception] = []
    return Durations(histogram, errors.append), errors


def only_point(recorded: RecordedTelemetry) -> HistogramDataPoint:
    [point] = recorded.metrics()[OPERATION_DURATION].data.data_points
    assert isinstance(point, HistogramDataPoint)
    return point


def exemplar_spans(recorded: RecordedTelemetry) -> list[int | None]:
    return [exemplar.span_id for exemplar in only_point(recorded).exemplars]


def test_durations_are_recorded_in_groups(
    histogram: Histogram, recorded: RecordedTelemetry
) -> None:
    durations, _ = make_durations(histogram)
    for _ in range(MAX_PENDING - 1):
        durations.add(0.001, ATTRIBUTES)
    assert recorded.value(OPERATION_DURATION) == 0
    for _ in range(2):
        durations.add(0.001, ATTRIBUTES)
    assert recorded.value(OPERATION_DURATION) == MAX_PENDING
    durations.record()
    assert recorded.value(OPERATION_DURATION) == MAX_PENDING + 1
    durations.record()
    assert recorded.points(OPERATION_DURATION) == [(ATTRIBUTES, MAX_PENDING + 1)]


def test_each_duration_is_in_the_bucket_of_its_value(
    histogram: Histogram, recorded: RecordedTelemetry
) -> None:
    durations, _ = make_durations(histogram)
    for seconds in (0.001, 0.002, 0.03, 20.0):
        durations.add(seconds, ATTRIBUTES)
    durations.record()

    point = only_point(recorded)
    bounds: tuple[Any, ...] = (*point.explicit_bounds, "above")
    counts = dict(zip(bounds, point.bucket_counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {
        0.005: 2,
        0.05: 1,
        "above": 1,
    }
    assert point.sum == pytest.approx(20.033)


def test_durations_are_recorded_when_metrics_are_collected_and_at_the_end(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    senders.call_ended(SEND, "orders", perf_counter())
    assert recorded.value(OPERATION_DURATION) == 1
    senders.call_ended(SEND, "orders", perf_counter())
    senders.close()
    assert recorded.value(OPERATION_DURATION) == 2


def test_durations_of_many_threads_are_recorded_once(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    def call() -> None:
        for _ in range(20 * MAX_PENDING):
            senders.call_ended(SEND, "orders", perf_counter())

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        recorded.points(OPERATION_DURATION)
    for thread in threads:
        thread.join()

    assert recorded.value(OPERATION_DURATION) == 80 * MAX_PENDING


def test_duration_is_recorded_in_the_context_of_its_call(
    histogram: Histogram, recorded: RecordedTelemetry
) -> None:
    durations, _ = make_durations(histogram)
    with recorded.tracers.get_tracer("application").start_as_current_span("request") as request:
        durations.add(0.001, ATTRIBUTES)
    durations.record()

    assert exemplar_spans(recorded) == [request.get_span_context().span_id]


def test_duration_without_a_context_is_not_recorded_in_that_of_another_call(
    histogram: Histogram, recorded: RecordedTelemetry
) -> None:
    durations, _ = make_durations(histogram)
    durations.add(0.001, ATTRIBUTES)
    with recorded.tracers.get_tracer("application").start_as_current_span("request") as request:
        durations.record()
        assert get_current_span() is request

    assert exemplar_spans(recorded) == []


def test_error_of_the_sdk_is_logged_once_and_does_not_reach_the_sender(
    recorded: RecordedTelemetry,
    histogram: Histogram,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0

    def fail(*args: Any) -> None:
        nonlocal calls
        calls += 1
        raise OSError("disk full")

    monkeypatch.setattr(histogram, "record", fail)
    senders = SenderTelemetry(
        recorded.telemetry, primary=ServerAddress("one"), secondary=ServerAddress("two")
    )
    with caplog.at_level(logging.WARNING):
        for _ in range(2 * MAX_PENDING):
            senders.call_ended(SEND, "orders", 0.0)
        senders.close()

    assert calls > 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "disk full" in caplog.text
    assert get_current_span() is INVALID_SPAN
