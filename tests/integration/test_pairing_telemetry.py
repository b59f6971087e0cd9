"""Metrics and spans of paired senders on real connections, and the trace context of messages."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.settings import settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan

from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.sections import Message
from pairbus.errors import SendUnavailable
from pairbus.events import PathStatus
from pairbus.telemetry.metrics import (
    FAILOVERS,
    METRICS,
    OPERATION_BYTES,
    OPERATION_DURATION,
    OPERATIONS,
    PATH_STATE,
    PINGS,
    SENT_MESSAGES,
    THROTTLED_CALLS,
)
from tests.integration.pairs import Make, Pair, error_of, message
from tests.telemetry import RecordedTelemetry, set_providers
from tests.waiting import DEADLINE_S

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.rule("O1")]

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONTEXT: dict[str | bytes, Any] = {
    "traceparent": PARENT,
    "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
    "Diagnostic-Id": PARENT,
    "tenant": "contoso",
}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> RecordedTelemetry:
    return set_providers(monkeypatch)


@pytest.fixture
def sdk_tracing() -> Iterator[None]:
    """The tracing of the Azure SDK is enabled."""
    settings.tracing_implementation = OpenTelemetrySpan
    yield
    settings.tracing_implementation.unset_value()  # type: ignore[attr-defined]


def properties_of(payload: bytes) -> bytes:
    """Return the application properties as they are encoded."""
    return Message.parse(payload).application_properties


def received(client: Client, path: str, count: int) -> list[bytes]:
    """Return messages as their receiver gets them."""
    receiver = Receiver(client, path, settled=True)
    payloads: list[bytes] = []
    while len(payloads) < count:
        payloads += [each.payload for each in receiver.receive(count, timeout_s=DEADLINE_S)]
    return payloads


def context_of(payload: bytes) -> dict[str, Any]:
    values = Message.parse(payload).read_application_properties()
    return {str(key): value for key, value in values.items()}


def trace_parent(span: Any) -> str:
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


# Metrics.


async def test_metrics_follow_a_path_through_an_outage(
    make: Make, recorded: RecordedTelemetry
) -> None:
    pair = await make(ping_primary_interval=timedelta(seconds=1), ping_jitter=0)
    path = pair.queue()
    [sender] = await pair.entered(path)
    await sender.send_messages(message())
    await sender.send_messages([message(), message()])
    assert recorded.value(PATH_STATE, path=path, state="healthy") == 1

    fault = pair.fault("disable", path)
    await sender.send_messages(message())
    assert fault.fired
    assert recorded.value(PATH_STATE, path=path, state="failover") == 1
    assert recorded.value(PATH_STATE, path=path) == 1
    [(attributes, failovers)] = recorded.points(FAILOVERS)
    assert (attributes["path"], failovers) == (path, 1)
    assert attributes["cause"].endswith("Error")
    pair.remove_faults(fault)
    await pair.until_state(path, PathStatus.HEALTHY)

    names = {"messaging_destination_name": path, "messaging_operation_name": "send"}
    assert recorded.value(SENT_MESSAGES, **names) == 4
    assert recorded.value(SENT_MESSAGES, server_port=pair.primary.port) == 3
    assert recorded.value(SENT_MESSAGES, server_port=pair.secondary.port) == 1
    assert recorded.value(PINGS, path=path, outcome="accepted") >= 1
    failed, stored_call, sent = sorted(
        recorded.points(OPERATION_DURATION),
        key=lambda point: (point[1], "error.type" not in point[0]),
    )
    assert failed[0]["error.type"].startswith("azure.servicebus.exceptions.")
    assert (stored_call[1], sent[1]) == (1, 2)
    for name in recorded.metrics():
        for attributes, _ in recorded.points(name):
            assert set(attributes) <= set(METRICS[name].attributes)


async def test_operations_agree_with_the_meters(
    make: Make, recorded: RecordedTelemetry, tmp_path: Path
) -> None:
    pair = await make(backlog_queue_count=1, ledger=tmp_path)
    path = pair.queue()
    [sender] = await pair.entered(path)
    before = metered(pair)
    counted_before = counted(recorded)
    await sender.send_messages([message("a" * 100), message("b")])
    [number] = await sender.schedule_messages(message(), datetime(2999, 1, 1, tzinfo=UTC))
    await sender.cancel_scheduled_messages(number)
    await pair.fail_over(sender)
    await sender.send_messages([message("c" * 1000), message("d")])

    change = {key: value - before.get(key, 0) for key, value in metered(pair).items()}
    counts = counted(recorded)
    assert {key: counts[key] - counted_before.get(key, 0) for key in counts} == {
        key: value for key, value in change.items() if key in counts
    }
    sends = [key for key in counts if key[1] == "send"]
    assert len(sends) == 2
    assert recorded.value(OPERATION_BYTES, kind="send") > 1100


def metered(pair: Pair) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for namespace in (pair.primary, pair.secondary):
        for (_, kind), reading in namespace.meter().items():
            key = f"localhost:{namespace.port}", str(kind)
            sums[key] = sums.get(key, 0) + reading.operations
    return sums


def counted(recorded: RecordedTelemetry) -> dict[tuple[str, str], int]:
    return {
        (attributes["namespace"], attributes["kind"]): value
        for attributes, value in recorded.points(OPERATIONS)
    }


async def test_throttled_call_and_failed_messages_are_counted(
    make: Make, recorded: RecordedTelemetry
) -> None:
    pair = await make()
    path = pair.queue()
    [sender] = await pair.entered(path)
    fault = pair.fault("throttle", path)
    assert await error_of(sender.send_messages([message(), message()])) is not None
    assert fault.fired

    assert recorded.value(THROTTLED_CALLS, namespace=f"localhost:{pair.primary.port}") == 1
    assert recorded.value(SENT_MESSAGES, error_type="busy") == 2


async def test_counters_stay_when_the_pairing_is_closed(
    make: Make, recorded: RecordedTelemetry
) -> None:
    first, second = await make(), await make()
    path = first.queue()
    for pair in (first, second):
        await pair.sender(path).send_messages(message())
    await first.close()

    assert recorded.value(SENT_MESSAGES, messaging_destination_name=path) == 2
    await second.close()
    assert recorded.value(SENT_MESSAGES, messaging_destination_name=path) == 2
    assert recorded.points(PATH_STATE) == []


async def test_nothing_is_recorded_if_telemetry_is_switched_off(
    make: Make, recorded: RecordedTelemetry
) -> None:
    pair = await make(telemetry=False)
    sender = pair.sender(pair.queue())
    await sender.send_messages(message())
    await pair.fail_over(sender)
    await pair.close()

    assert recorded.metrics() == {}
    assert recorded.spans() == []


# Spans.


async def test_failover_and_stored_calls_are_spans(make: Make, recorded: RecordedTelemetry) -> None:
    pair = await make()
    path = pair.queue()
    [sender] = await pair.entered(path)
    fault = pair.fault("disable", path)
    with recorded.tracers.get_tracer("application").start_as_current_span("request") as request:
        await sender.send_messages(message())
        await sender.send_messages([message(), message()])
    assert fault.fired
    await pair.close()

    first, second = recorded.spans("store ")
    [failover] = recorded.spans("failover ")
    assert failover.name == f"failover {path}"
    for span in (first, second):
        assert span.name == f"store {path}"
        assert span.parent == request.get_span_context()
        assert [link.context for link in span.links] == [failover.context]
        [queue] = (span.attributes or {})["pairbus.backlog.queues"]  # type: ignore[union-attr]
        assert queue in pair.backlog_queues
        cause = (span.attributes or {})["pairbus.failover.cause.type"]
        assert str(cause).startswith("azure.servicebus.exceptions.")
    assert (second.attributes or {})["messaging.batch.message_count"] == 2


async def test_span_says_that_nothing_was_stored(make: Make, recorded: RecordedTelemetry) -> None:
    pair = await make(backlog_queue_count=1)
    sender = pair.sender(pair.queue())
    await pair.fail_over(sender)
    fault = pair.secondary.add_fault("disable", pair.backlog_queues[0])
    assert isinstance(await error_of(sender.send_messages(message())), SendUnavailable)
    assert fault.fired

    _, failed = recorded.spans("store ")
    assert (failed.attributes or {})["pairbus.backlog.queues"] == ()
    assert (failed.attributes or {})["error.type"] == "pairbus.errors.SendUnavailable"


# The context of the producer.


@pytest.mark.parametrize(
    "context",
    [
        pytest.param(CONTEXT, id="text"),
        pytest.param({str(name).encode(): value for name, value in CONTEXT.items()}, id="bytes"),
        pytest.param(
            {name: str(value).encode() for name, value in CONTEXT.items()}, id="values in bytes"
        ),
    ],
)
async def test_context_of_the_producer_is_the_same_bytes_after_the_backlog(
    make: Make, recorded: RecordedTelemetry, context: dict[str | bytes, Any]
) -> None:
    pair = await make()
    path, plain_path = pair.queue(), pair.queue()
    plain = pair.sender(plain_path, client=pair.clients[0])
    sender = pair.sender(path)
    for target in (plain, sender):
        await target.send_messages(message("1", application_properties=dict(context)))
    await pair.fail_over(sender)
    await sender.send_messages(message("2", application_properties=dict(context)))
    await sender.send_messages([message("3", application_properties=dict(context))])

    with Client(ClientOptions.from_connection_string(pair.primary.connection_string)) as client:
        destination = Sender(client, path)
        for item in pair.backlog(path):
            destination.send(item.payload)
        [expected] = received(client, plain_path, 1)
        direct, _, *stored = received(client, path, 4)
    assert context_of(expected) == CONTEXT
    assert [properties_of(payload) for payload in (direct, *stored)] == [
        properties_of(expected)
    ] * 3


async def test_spans_of_the_sdk_work_with_pairing(
    make: Make, recorded: RecordedTelemetry, sdk_tracing: None
) -> None:
    pair = await make(backlog_queue_count=1)
    path = pair.queue()
    [sender] = await pair.entered(path)
    await sender.send_messages(message("healthy"))

    [produced] = recorded.spans("ServiceBus.message")
    [sent] = recorded.spans("ServiceBus.send")
    assert context_of(pair.arrived(path)[0])["traceparent"] == trace_parent(produced)
    assert (sent.attributes or {})["messaging.destination.name"] == path


async def test_message_in_the_backlog_has_the_context_of_the_span_of_the_sdk(
    make: Make, recorded: RecordedTelemetry, sdk_tracing: None
) -> None:
    pair = await make(backlog_queue_count=1)
    path = pair.queue()
    [sender] = await pair.entered(path)
    await pair.fail_over(sender)
    await sender.send_messages([message("1"), message("2")])
    await sender.schedule_messages(message("3"), datetime(2999, 1, 1, tzinfo=UTC))
    batch = await sender.create_message_batch()
    batch.add_message(message("4"))
    await sender.send_messages(batch)
    for name in ("traceparent", b"Diagnostic-Id"):
        await sender.send_messages(message("5", application_properties={name: PARENT}))

    produced = [trace_parent(span) for span in recorded.spans("ServiceBus.message")]
    *contexts, own, own_id = [context_of(item.payload) for item in pair.backlog(path)]
    assert (own, own_id) == ({"traceparent": PARENT}, {"Diagnostic-Id": PARENT})
    parents = [context["traceparent"] for context in contexts]
    assert parents == [context["Diagnostic-Id"] for context in contexts]
    assert set(parents) <= set(produced)
    assert len(set(parents)) == len(parents) == 5
    queues = [
        (span.attributes or {})["messaging.destination.name"]
        for span in recorded.spans("ServiceBus.send")
    ]
    assert queues.count(pair.backlog_queues[0]) == 6


async def test_context_of_the_caller_is_not_added_twice(
    make: Make, recorded: RecordedTelemetry, sdk_tracing: None
) -> None:
    pair = await make(backlog_queue_count=1)
    path = pair.queue()
    [sender] = await pair.entered(path)

    async def send_all() -> None:
        await sender.send_messages(message("1", application_properties=dict(CONTEXT)))
        await sender.send_messages([message("2", application_properties=dict(CONTEXT))])
        batch = await sender.create_message_batch()
        batch.add_message(message("3", application_properties=dict(CONTEXT)))
        await sender.send_messages(batch)

    await send_all()
    fault = pair.fault("disable", path)
    await send_all()  # the first of these was sent to the primary before it was stored
    assert fault.fired

    payloads = [*pair.arrived(path), *(item.payload for item in pair.backlog(path))]
    assert len(payloads) == 6
    for payload in payloads:
        assert context_of(payload) == CONTEXT
        assert [payload.count(str(name).encode()) for name in CONTEXT] == [1] * len(CONTEXT)
