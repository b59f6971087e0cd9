"""A message through failover, backlog and drain in one trace, and the metrics of a syphon."""

from datetime import timedelta
from typing import Any

import pytest
from azure.core.settings import settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from opentelemetry.sdk.trace import ReadableSpan
from pyspark.sql import SparkSession

from pairbus import SendAvailabilityOptions, pair_namespace
from pairbus.amqp.sections import Message
from pairbus.syphon import Syphon
from pairbus.telemetry.metrics import DRAINED_MESSAGES, PROCESS_DURATION, SYPHON_HEALTHY
from tests.backlog import Backlog
from tests.spark.conftest import Drain, MakeSyphon
from tests.telemetry import RecordedTelemetry, set_providers
from tests.waiting import DEADLINE_S, wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.rule("O1")]

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> RecordedTelemetry:
    return set_providers(monkeypatch)


def send_in_failover(backlog: Backlog, path: str, *messages: ServiceBusMessage) -> None:
    """Send messages through a pairing while their destination is disabled."""
    fault = backlog.primary.add_fault("disable", path)
    options = SendAvailabilityOptions(
        secondary=backlog.secondary.connection_string,
        primary_name=backlog.name,
        backlog_queue_count=2,
        failover_interval=timedelta(),
        check_duplicate_detection=False,
    )
    with (
        ServiceBusClient.from_connection_string(
            backlog.primary.connection_string, retry_total=0
        ) as client,
        pair_namespace(client, options) as bus,
        bus.get_queue_sender(path) as sender,
    ):
        for message in messages:
            sender.send_messages(message)
    assert fault.fired
    backlog.primary.clear_faults()


def properties(payload: bytes) -> dict[Any, Any]:
    return Message.parse(payload).read_application_properties()


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def test_wait_and_drain_belong_to_the_trace_of_the_producer(
    backlog: Backlog, drain: Drain, recorded: RecordedTelemetry
) -> None:
    path = backlog.path("orders")
    settings.tracing_implementation = OpenTelemetrySpan
    try:
        with recorded.tracers.get_tracer("application").start_as_current_span("request"):
            send_in_failover(backlog, path, ServiceBusMessage("1"), ServiceBusMessage("2"))
    finally:
        settings.tracing_implementation.unset_value()  # type: ignore[attr-defined]
    assert drain().drained

    [request] = recorded.spans("request")
    stores, waits = recorded.spans("store "), recorded.spans("wait ")
    assert [span.name for span in waits] == [f"wait {path}"] * 2
    assert {trace_id(span) for span in [*stores, *waits]} == {trace_id(request)}
    linked = [link.context for span in recorded.spans("drain ") for link in span.links]
    assert {context.trace_id for context in linked} == {trace_id(request)}
    arrived = [str(properties(payload)["traceparent"]) for payload in backlog.arrived(path)]
    producers = {f"{context.span_id:016x}" for context in linked}
    assert {parent.split("-")[2] for parent in arrived} == producers
    assert len(producers) == 2
    for wait in waits:
        assert wait.parent is not None
        assert f"{wait.parent.span_id:016x}" in producers
        assert wait.start_time is not None
        assert wait.end_time is not None
        assert wait.start_time <= wait.end_time


def test_context_that_the_caller_has_set_arrives_unchanged(
    backlog: Backlog, drain: Drain, recorded: RecordedTelemetry
) -> None:
    path = backlog.path("orders")
    context: dict[str | bytes, Any] = {
        "traceparent": PARENT,
        "tracestate": "a=b",
        "Diagnostic-Id": PARENT,
    }
    send_in_failover(backlog, path, ServiceBusMessage("1", application_properties=context))
    assert drain().drained

    [payload] = backlog.arrived(path)
    assert properties(payload) == context
    [wait] = recorded.spans("wait ")
    assert f"{trace_id(wait):032x}" == PARENT.split("-")[1]


def test_metrics_of_a_syphon(
    backlog: Backlog, make_syphon: MakeSyphon, recorded: RecordedTelemetry
) -> None:
    path = backlog.path("orders")
    send_in_failover(backlog, path, ServiceBusMessage("1"))
    with make_syphon() as syphon:
        wait_until(
            lambda: recorded.value(DRAINED_MESSAGES, destination=path, pairing=backlog.name) == 1,
            "the message in the metrics",
        )
        assert recorded.value(SYPHON_HEALTHY, pairing=backlog.name) == 1
        assert syphon.status().moved == {path: 1}

    assert recorded.value(DRAINED_MESSAGES, destination=path) == 1
    assert recorded.points(SYPHON_HEALTHY) == []
    assert recorded.value(PROCESS_DURATION, messaging_destination_name=path) == 1


def test_nothing_is_recorded_if_telemetry_is_switched_off(
    backlog: Backlog, drain: Drain, recorded: RecordedTelemetry
) -> None:
    path = backlog.path("orders")
    send_in_failover(backlog, path, ServiceBusMessage("1"))
    count = len(recorded.spans())
    assert drain(telemetry=False).drained

    assert len(recorded.spans()) == count
    assert recorded.value(DRAINED_MESSAGES) == 0


@pytest.mark.parametrize("is_kept", [True, False])
def test_wait_needs_the_enqueued_time_that_a_transformation_may_drop(
    session: SparkSession, backlog: Backlog, recorded: RecordedTelemetry, is_kept: bool
) -> None:
    path = backlog.path("orders")
    context: dict[str | bytes, Any] = {"traceparent": PARENT}
    send_in_failover(backlog, path, ServiceBusMessage("1", application_properties=context))
    transform = (lambda rows: rows) if is_kept else (lambda rows: rows.drop("enqueued_time"))
    syphon = Syphon(backlog.options(), spark=session, transform=transform)
    syphon.start(once=True)
    try:
        assert syphon.wait(DEADLINE_S)
    finally:
        syphon.stop()

    assert syphon.status().drained
    assert len(recorded.spans("drain ")) == 1
    assert len(recorded.spans("wait ")) == (1 if is_kept else 0)
