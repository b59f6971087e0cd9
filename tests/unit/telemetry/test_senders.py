"""Telemetry of senders: durations of calls, operations, and events of a pairing."""

import os
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import StatusCode

from pairbus.errors import ConnectionLost, SendUnavailable
from pairbus.events import (
    BacklogQueuePulled,
    BacklogQueueRestored,
    DrainStalled,
    Event,
    PathStatus,
    Pinged,
    Probed,
    SecondaryRestored,
    SecondaryUnavailable,
    StateChanged,
    Throttled,
)
from pairbus.telemetry.error_types import MAX_TEXT
from pairbus.telemetry.metrics import (
    FAILOVERS,
    OPERATION_BYTES,
    OPERATION_DURATION,
    OPERATIONS,
    PINGS,
    THROTTLED_CALLS,
)
from pairbus.telemetry.providers import make_telemetry
from pairbus.telemetry.senders import (
    CANCEL,
    SCHEDULE,
    SEND,
    SenderTelemetry,
    ServerAddress,
)
from tests.telemetry import RecordedTelemetry

pytestmark = pytest.mark.rule("O1")

WHEN = datetime(2030, 1, 2, tzinfo=UTC)
DOWN = ConnectionLost("the host is down")


class Nothing:
    """A pairing without paths."""

    def samples(self) -> tuple[()]:
        return ()


@pytest.fixture
def senders(recorded: RecordedTelemetry) -> SenderTelemetry:
    telemetry = SenderTelemetry(
        recorded.telemetry,
        primary=ServerAddress("one.example"),
        secondary=ServerAddress("two.example", 5673),
    )
    telemetry.observe(Nothing())
    return telemetry


def changed(to_state: PathStatus, after_s: float = 0, **changes: Any) -> StateChanged:
    values: dict[str, Any] = {"path": "orders", "cause": DOWN, "from_state": PathStatus.HEALTHY}
    return StateChanged(
        when=WHEN + timedelta(seconds=after_s), to_state=to_state, **(values | changes)
    )


# Metrics.


def test_duration_has_the_attributes_of_the_messaging_conventions(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    senders.call_ended(SEND, "orders", perf_counter())
    senders.call_ended(SEND, "orders", perf_counter())

    assert recorded.points(OPERATION_DURATION) == [
        (
            {
                "messaging.system": "servicebus",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": "orders",
                "server.address": "one.example",
            },
            2,
        )
    ]


def test_failed_call_has_the_type_of_its_error(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    senders.call_ended(SEND, "orders", perf_counter(), DOWN)
    senders.call_ended(SCHEDULE, "orders", perf_counter(), TimeoutError())

    errors = {
        attributes["messaging.operation.name"]: attributes["error.type"]
        for attributes, _ in recorded.points(OPERATION_DURATION)
    }
    assert errors == {"send": "pairbus.errors.ConnectionLost", "schedule": "TimeoutError"}


def test_call_to_the_backlog_has_the_secondary_as_its_server(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    senders.call_ended(SEND, "orders", perf_counter(), secondary=True)

    assert recorded.value(OPERATION_DURATION, server_address="two.example", server_port=5673) == 1


def test_cancelling_sends_nothing(senders: SenderTelemetry, recorded: RecordedTelemetry) -> None:
    senders.call_ended(CANCEL, "orders", perf_counter())

    [(attributes, _)] = recorded.points(OPERATION_DURATION)
    assert "messaging.operation.type" not in attributes


def test_operations_and_bytes_are_counted_by_kind_and_namespace(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    senders.count_operations("send", "one.example", [100, 50])
    senders.count_operations("send", "one.example", [1])
    senders.count_operations("management", "two.example", [])

    assert recorded.value(OPERATIONS, kind="send", namespace="one.example") == 3
    assert recorded.value(OPERATION_BYTES, kind="send") == 151
    assert recorded.value(OPERATIONS, kind="management", namespace="two.example") == 1
    senders.close()
    assert recorded.value(OPERATIONS) == 4


def test_events_are_counted(senders: SenderTelemetry, recorded: RecordedTelemetry) -> None:
    for event in (
        changed(PathStatus.SUSPECT),
        changed(PathStatus.FAILOVER),
        Pinged(when=WHEN, path="orders", error=DOWN),
        Pinged(when=WHEN, path="orders", error=DOWN, refused=True),
        Pinged(when=WHEN, path="orders"),
        Probed(when=WHEN, path="orders", error=DOWN),
        changed(PathStatus.HEALTHY, cause=None),
        changed(PathStatus.FAILOVER, cause=None),
        Throttled(when=WHEN, path="orders", namespace="one.example", messages=9, error=DOWN),
    ):
        senders.on_event(event)

    assert recorded.value(FAILOVERS, path="orders", cause="ConnectionLost") == 1
    assert recorded.value(FAILOVERS, path="orders", cause="") == 1
    outcomes = {attributes["outcome"]: value for attributes, value in recorded.points(PINGS)}
    assert outcomes == {"failed": 2, "refused": 1, "accepted": 1}
    assert recorded.value(THROTTLED_CALLS, namespace="one.example") == 1


def test_without_a_provider_of_metrics_only_spans_are_made(recorded: RecordedTelemetry) -> None:
    telemetry = make_telemetry(None, recorded.tracers)
    assert telemetry is not None
    senders = SenderTelemetry(
        telemetry, primary=ServerAddress("one"), secondary=ServerAddress("two")
    )
    senders.call_ended(SEND, "orders", 0.0)
    senders.on_event(changed(PathStatus.FAILOVER))
    senders.close()

    assert [span.name for span in recorded.spans()] == ["failover orders"]


def test_without_a_provider_of_spans_only_metrics_are_recorded() -> None:
    telemetry = make_telemetry(MeterProvider(shutdown_on_exit=False), None)
    assert telemetry is not None
    senders = SenderTelemetry(
        telemetry, primary=ServerAddress("one"), secondary=ServerAddress("two")
    )
    senders.on_event(changed(PathStatus.FAILOVER))
    with senders.storing("orders", 1, DOWN) as span:
        span.set_queues({"q"})
    senders.close()

    assert make_telemetry(None, None) is None


def test_pairing_of_the_parent_has_no_metrics_in_a_forked_child(senders: SenderTelemetry) -> None:
    senders.count_operations("send", "one.example", [1])
    with senders._lock:  # a thread of the parent holds it
        child = os.fork()
        if child == 0:
            os._exit(len(list(senders.samples())))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(senders.samples())) == 2


# Spans.


def test_failover_is_a_span_until_the_path_is_healthy(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    senders.on_event(changed(PathStatus.FAILOVER))
    senders.on_event(changed(PathStatus.DRAINING, 60))
    assert recorded.spans() == []
    senders.on_event(changed(PathStatus.HEALTHY, 90))

    [span] = recorded.spans()
    assert span.name == "failover orders"
    assert span.parent is None
    assert span.start_time == int(WHEN.timestamp() * 1e9)
    assert span.end_time == int((WHEN.timestamp() + 90) * 1e9)
    assert dict(span.attributes or {}) == {
        "messaging.system": "servicebus",
        "messaging.destination.name": "orders",
        "pairbus.failover.cause": str(DOWN),
        "pairbus.failover.cause.type": "pairbus.errors.ConnectionLost",
    }
    assert [event.name for event in span.events] == ["draining"]


def test_failover_is_a_trace_of_its_own(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    with recorded.tracers.get_tracer("application").start_as_current_span("request"):
        senders.on_event(changed(PathStatus.FAILOVER))
    senders.close()

    request, failover = recorded.spans()
    assert failover.parent is None
    assert failover.context.trace_id != request.context.trace_id


def test_events_of_the_outage_are_events_of_its_span(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    events: list[Event] = [
        Pinged(when=WHEN, path="bills"),
        changed(PathStatus.FAILOVER),
        Pinged(when=WHEN, path="orders", error=DOWN),
        Pinged(when=WHEN, path="bills", error=DOWN),
        BacklogQueuePulled(when=WHEN, queue="q/1", cause=DOWN),
        BacklogQueueRestored(when=WHEN, queue="q/1"),
        SecondaryUnavailable(when=WHEN, cause=DOWN),
        SecondaryRestored(when=WHEN),
        Throttled(when=WHEN, path="orders", namespace="two", messages=1, error=DOWN),
        DrainStalled(when=WHEN, path="orders"),
        changed(PathStatus.HEALTHY, 1, cause=None),
        Pinged(when=WHEN, path="orders"),
    ]
    for event in events:
        senders.on_event(event)

    [span] = recorded.spans()
    assert [event.name for event in span.events] == [
        "ping",
        "queue pulled",
        "queue restored",
        "secondary unavailable",
        "secondary restored",
        "throttled",
        "drain stalled",
    ]
    assert dict(span.events[1].attributes or {}) == {
        "error.type": "pairbus.errors.ConnectionLost",
        "error.message": str(DOWN),
        "queue": "q/1",
    }


def test_closing_ends_the_spans_of_failovers_that_last(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    senders.on_event(changed(PathStatus.FAILOVER))
    senders.on_event(changed(PathStatus.FAILOVER, path="bills"))
    senders.close()
    senders.close()

    assert {span.name for span in recorded.spans()} == {"failover orders", "failover bills"}


def test_stored_call_is_a_span_of_the_caller_with_a_link_to_the_failover(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    tracer = recorded.tracers.get_tracer("application")
    senders.on_event(changed(PathStatus.FAILOVER))
    with (
        tracer.start_as_current_span("request") as request,
        senders.storing("orders", 3, DOWN) as span,
    ):
        with tracer.start_as_current_span("send"):
            pass
        span.set_queues({"q/2", "q/1"})
    senders.close()

    send, store, _, failover = recorded.spans()
    assert store.name == "store orders"
    assert store.parent == request.get_span_context()
    assert send.parent == store.context
    assert [link.context for link in store.links] == [failover.context]
    assert dict(store.attributes or {}) == {
        "messaging.system": "servicebus",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 3,
        "pairbus.failover.cause": str(DOWN),
        "pairbus.failover.cause.type": "pairbus.errors.ConnectionLost",
        "pairbus.backlog.queues": ("q/1", "q/2"),
    }


def test_call_that_could_not_store_is_a_span_with_an_error(
    senders: SenderTelemetry, recorded: RecordedTelemetry
) -> None:
    error = SendUnavailable("x" * 2 * MAX_TEXT)
    with pytest.raises(SendUnavailable), senders.storing("orders", 1, None):
        raise error

    [span] = recorded.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert len(span.status.description or "") == MAX_TEXT
    assert (span.attributes or {})["error.type"] == "pairbus.errors.SendUnavailable"
    assert "pairbus.failover.cause" not in (span.attributes or {})


class BrokenProcessor(SpanProcessor):
    """A span processor of the application that fails."""

    def __init__(self, *, at_start: bool) -> None:
        self._at_start = at_start
        self.calls = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self._at_start:
            self.calls += 1
            raise OSError("disk full")

    def on_end(self, span: Any) -> None:
        if not self._at_start:
            self.calls += 1
            raise OSError("disk full")


@pytest.mark.parametrize("at_start", [True, False])
def test_broken_span_processor_does_not_fail_the_call(
    recorded: RecordedTelemetry, at_start: bool, caplog: pytest.LogCaptureFixture
) -> None:
    processor = BrokenProcessor(at_start=at_start)
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(processor)
    telemetry = make_telemetry(None, tracers)
    assert telemetry is not None
    senders = SenderTelemetry(
        telemetry, primary=ServerAddress("one"), secondary=ServerAddress("two")
    )
    for _ in range(2):
        with senders.storing("orders", 1, DOWN) as span:
            span.set_queues({"q"})
    with pytest.raises(SendUnavailable), senders.storing("orders", 1, DOWN):
        raise SendUnavailable("x")

    assert processor.calls == 3
    assert caplog.text.count("disk full") == 1
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_providers_keep_their_own_instruments() -> None:
    meters, tracers = MeterProvider(shutdown_on_exit=False), TracerProvider(shutdown_on_exit=False)
    first, second = make_telemetry(meters, tracers), make_telemetry(meters, None)
    other = make_telemetry(MeterProvider(shutdown_on_exit=False), None)

    assert first is not None
    assert second is not None
    assert other is not None
    assert first.instruments is second.instruments is not other.instruments
