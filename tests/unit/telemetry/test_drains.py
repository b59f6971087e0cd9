"""Records of drained messages become spans and durations."""

import pytest
from opentelemetry.trace import SpanKind

from pairbus.telemetry.drains import DrainRecord, DrainTelemetry, TracedMessage
from pairbus.telemetry.metrics import PROCESS_DURATION
from pairbus.telemetry.providers import make_telemetry
from pairbus.telemetry.senders import ServerAddress
from tests.telemetry import RecordedTelemetry

pytestmark = pytest.mark.rule("O1")

TRACES = ["0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"]
SPAN = "b7ad6b7169203331"


def traced(
    trace_id: str, enqueued_time: int | None = 1_000_000, flags: str = "01"
) -> TracedMessage:
    return TracedMessage(f"00-{trace_id}-{SPAN}-{flags}", "a=b", "q/1", enqueued_time, 7_000_000)


def record(*messages: TracedMessage) -> DrainRecord:
    return DrainRecord(
        destination="orders", messages=300, started_at=6.0, ended_at=8.5, traced=messages
    )


@pytest.fixture
def drains(recorded: RecordedTelemetry) -> DrainTelemetry:
    return DrainTelemetry(recorded.telemetry, ServerAddress("one.example", 5673))


def test_drain_is_a_span_with_links_to_the_producers(
    drains: DrainTelemetry, recorded: RecordedTelemetry
) -> None:
    drains.add(record(*map(traced, TRACES)))

    [span] = recorded.spans("drain ")
    assert (span.name, span.kind, span.parent) == ("drain orders", SpanKind.CONSUMER, None)
    assert (span.start_time, span.end_time) == (6_000_000_000, 8_500_000_000)
    assert [f"{link.context.trace_id:032x}" for link in span.links] == TRACES
    assert all(f"{link.context.span_id:016x}" == SPAN for link in span.links)
    assert dict(span.attributes or {}) == {
        "messaging.system": "servicebus",
        "messaging.operation.name": "drain",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 300,
        "server.address": "one.example",
        "server.port": 5673,
    }


def test_wait_is_a_span_in_the_trace_of_the_producer(
    drains: DrainTelemetry, recorded: RecordedTelemetry
) -> None:
    drains.add(record(*map(traced, TRACES)))

    [drain] = recorded.spans("drain ")
    waits = recorded.spans("wait ")
    assert [f"{span.context.trace_id:032x}" for span in waits] == TRACES
    for span in waits:
        assert span.name == "wait orders"
        assert span.parent is not None
        assert f"{span.parent.span_id:016x}" == SPAN
        assert (span.start_time, span.end_time) == (1_000_000_000, 7_000_000_000)
        assert [link.context for link in span.links] == [drain.context]
        assert (span.attributes or {})["pairbus.backlog.queue"] == "q/1"
        assert span.context.trace_state.get("a") == "b"


def test_message_without_an_enqueued_time_has_no_wait(
    drains: DrainTelemetry, recorded: RecordedTelemetry
) -> None:
    drains.add(record(traced(TRACES[0], None)))

    assert [span.name for span in recorded.spans()] == ["drain orders"]


def test_wait_does_not_end_before_it_starts(
    drains: DrainTelemetry, recorded: RecordedTelemetry
) -> None:
    drains.add(record(traced(TRACES[0], 9_000_000)))

    [wait] = recorded.spans("wait ")
    assert wait.start_time == wait.end_time == 9_000_000_000


def test_producer_that_was_not_sampled_has_no_wait(
    drains: DrainTelemetry, recorded: RecordedTelemetry
) -> None:
    drains.add(record(traced(TRACES[0], flags="00")))

    assert recorded.spans("wait ") == []


def test_duration_of_a_drain_is_recorded(
    drains: DrainTelemetry, recorded: RecordedTelemetry
) -> None:
    drains.add(record())

    [point] = recorded.metrics()[PROCESS_DURATION].data.data_points
    assert point.sum == 2.5  # type: ignore[union-attr]
    assert dict(point.attributes or {})["messaging.operation.type"] == "process"


def test_only_metrics_or_only_spans(recorded: RecordedTelemetry) -> None:
    for providers in ((recorded.meters, None), (None, recorded.tracers)):
        telemetry = make_telemetry(*providers)
        assert telemetry is not None
        DrainTelemetry(telemetry, ServerAddress("one")).add(record())

    assert len(recorded.spans()) == 1
    assert recorded.value(PROCESS_DURATION) == 1
