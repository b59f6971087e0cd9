"""The embedded syphon (`enable_syphon=True`), and the clients of the pairing."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from pyspark.sql import SparkSession

import pairbus.aio
from pairbus import PairedClient, PairingFaulted, SendAvailabilityOptions, pair_namespace
from pairbus.errors import SendUnavailable, StateError
from pairbus.events import SyphonStarted, SyphonStopped
from pairbus.spark.sessions import SessionLease, lease_session
from tests.backlog import Backlog
from tests.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.timeout(600)
CAUSE = OSError("the disk is gone")
QUICK = {"retry_total": 0, "socket_timeout": 5}


def options(backlog: Backlog, **more: Any) -> SendAvailabilityOptions:
    return SendAvailabilityOptions(
        secondary=backlog.secondary.connection_string,
        primary_name=backlog.name,
        backlog_queue_count=2,
        failover_interval=timedelta(),
        ping_primary_interval=timedelta(seconds=1),
        enable_syphon=True,
        **more,
    )


def paired(backlog: Backlog, **more: Any) -> PairedClient:
    client = ServiceBusClient.from_connection_string(backlog.primary.connection_string, **QUICK)
    return pair_namespace(client, options(backlog, **more))


def send_through_an_outage(backlog: Backlog, bus: PairedClient, path: str) -> None:
    """Send one message while the primary refuses messages, so that it goes to the backlog."""
    fault = backlog.primary.add_fault("disable", path)
    with bus.get_queue_sender(path) as sender:
        sender.send_messages(ServiceBusMessage("hello", message_id="one"))
        assert fault.fired
        backlog.primary.call(lambda core: core.faults.remove(fault))


@pytest.mark.rule("Y7")
def test_embedded_syphon_drains_the_backlog_in_the_spark_of_the_application(
    session: SparkSession, backlog: Backlog
) -> None:
    path = backlog.path("orders")
    events: list[Any] = []
    with paired(backlog, on_event=events.append) as bus:
        send_through_an_outage(backlog, bus, path)
        assert not bus.primary.closed
        assert (bus.primary.cause, bus.secondary.cause) == (None, None), "an outage is no fault"
        wait_until(lambda: backlog.ids(path) == ["one"], "the message to be delivered")
        wait_until(lambda: backlog.left() == 0, "the message to be completed")
        assert bus.syphon.status().running

    # Closing the client does not wait until Spark has stopped.
    wait_until(lambda: has_stopped(events), "the syphon to stop")
    kinds = [type(event) for event in events if isinstance(event, SyphonStarted | SyphonStopped)]
    assert kinds == [SyphonStarted, SyphonStopped]
    assert bus.syphon is None
    assert session.range(3).count() == 3, "the application's Spark was stopped"


def has_stopped(events: list[Any]) -> bool:
    return any(isinstance(event, SyphonStopped) for event in events)


@pytest.mark.rule("Y7")
@pytest.mark.parametrize(
    ("which", "partner", "how"),
    [("primary", "secondary", "close"), ("secondary", "primary", "fault")],
)
def test_closing_or_faulting_one_client_faults_the_other_and_stops_the_syphon(
    session: SparkSession, backlog: Backlog, which: str, partner: str, how: str
) -> None:
    events: list[Any] = []
    bus = paired(backlog, on_event=events.append)
    sender = bus.get_queue_sender(backlog.path("orders"))
    wait_until(lambda: bus.syphon is not None, "the syphon")

    client = getattr(bus, which)
    client.close() if how == "close" else client.fault(CAUSE)

    wait_until(lambda: getattr(bus, partner).cause is not None, "the partner to be faulted")
    if how == "fault":
        assert root_cause(getattr(bus, partner).cause) is CAUSE
    wait_until(lambda: has_stopped(events), "the syphon to stop")
    assert bus.syphon is None
    # The calls are made on the client of the primary.
    expected = StateError if (which, how) == ("primary", "close") else PairingFaulted
    calls: list[Callable[[], Any]] = [
        lambda: bus.get_queue_sender("x"),
        lambda: bus.get_queue_receiver("x"),
        lambda: bus.mark_path_healthy("x"),
    ]
    for call in calls:
        with pytest.raises(expected):
            call()
    with pytest.raises(expected if expected is PairingFaulted else ValueError):
        sender.send_messages(ServiceBusMessage("x"))
    bus.close()


@pytest.mark.rule("Y7")
@pytest.mark.parametrize(
    ("flavour", "which", "partner"),
    [("sync", "primary", "secondary"), ("aio", "secondary", "primary")],
)
async def test_closing_a_client_of_the_application_faults_the_other_and_stops_the_syphon(
    session: SparkSession, backlog: Backlog, flavour: str, which: str, partner: str
) -> None:
    kind: Any = ServiceBusClient if flavour == "sync" else AsyncServiceBusClient
    texts = {name: getattr(backlog, name).connection_string for name in (which, partner)}
    clients = {name: kind.from_connection_string(text, **QUICK) for name, text in texts.items()}
    events: list[Any] = []
    pairing_options = replace(
        options(backlog, on_event=events.append), secondary=clients["secondary"]
    )
    bus: Any
    if flavour == "sync":
        bus = pair_namespace(clients["primary"], pairing_options)
    else:
        bus = await pairbus.aio.pair_namespace(clients["primary"], pairing_options)
    await until(lambda: bus.syphon is not None)

    await finished(clients[which].close())

    assert getattr(bus, which).closed
    assert (getattr(bus, partner).closed, getattr(bus, partner).cause) == (False, None)
    await until(lambda: getattr(bus, partner).cause is not None)
    assert "The application closed its ServiceBusClient" in str(getattr(bus, partner).cause)
    await until(lambda: has_stopped(events))
    assert bus.syphon is None
    with pytest.raises(StateError, match="application closed its ServiceBusClient"):
        bus.get_queue_sender("x")
    await finished(bus.close())
    await finished(clients[partner].close())


async def finished(result: Any) -> None:
    """Await the result of a call of the async flavour."""
    if result is not None:
        await result


def root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@pytest.mark.rule("Y7", "S5")
def test_send_in_failover_fails_when_the_secondary_is_faulted(
    session: SparkSession, backlog: Backlog
) -> None:
    path = backlog.path("orders")
    backlog.primary.add_fault("disable", path)
    with paired(backlog) as bus, bus.get_queue_sender(path) as sender:
        sender.send_messages(ServiceBusMessage("stored"))
        bus.secondary.fault(CAUSE)

        with pytest.raises(SendUnavailable) as caught:
            sender.send_messages(ServiceBusMessage("not sent"))

    assert isinstance(caught.value.backlog_error, PairingFaulted)
    assert caught.value.backlog_error.__cause__ is CAUSE


@pytest.mark.rule("Y7", "A1", "A2")
@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # of aiohttp
async def test_embedded_syphon_works_with_the_async_client_over_websockets_with_tokens(
    session: SparkSession, backlog: Backlog
) -> None:
    path = backlog.path("orders")
    events: list[Any] = []
    host = f"localhost:{backlog.primary.port}"
    client = AsyncServiceBusClient(
        host,
        backlog.primary.token_issuer.async_credential(),
        use_tls=False,
        custom_endpoint_address=f"sb://{host}",
        transport_type=TransportType.AmqpOverWebsocket,
        **QUICK,
    )
    pairing_options = options(backlog, on_event=events.append)
    async with client, await pairbus.aio.pair_namespace(client, pairing_options) as bus:
        fault = backlog.primary.add_fault("disable", path)
        sender = bus.get_queue_sender(path)
        async with sender:
            await sender.send_messages(ServiceBusMessage("hello", message_id="one"))
        assert fault.fired
        backlog.primary.call(lambda core: core.faults.remove(fault))
        await until(lambda: backlog.ids(path) == ["one"])

        await bus.secondary.fault(CAUSE)

        await until(lambda: bus.primary.closed)
        assert root_cause(bus.primary.cause) is CAUSE
        with pytest.raises(PairingFaulted):
            bus.get_queue_sender(path)
        await bus.close()
        await until(lambda: isinstance(events[-1], SyphonStopped))
        # The first pairing has ended, so the client can be paired again.
        async with await pairbus.aio.pair_namespace(client, pairing_options):
            pass


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  the emulator runs in another thread
            await asyncio.sleep(0.05)


@pytest.mark.rule("Y7")
def test_syphon_that_cannot_start_is_reported_and_started_again(
    session: SparkSession, backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = backlog.path("orders")
    errors = iter([OSError("no Java here")])

    def lease_with_errors(*args: Any) -> SessionLease:
        for error in errors:
            raise error
        return lease_session(*args)

    monkeypatch.setattr("pairbus.syphon.query.lease_session", lease_with_errors)
    events: list[Any] = []
    with paired(backlog, on_event=events.append) as bus:
        send_through_an_outage(backlog, bus, path)
        wait_until(lambda: backlog.ids(path) == ["one"], "the message to be delivered")

    stopped = [event for event in events if isinstance(event, SyphonStopped)]
    assert str(stopped[0].error) == "no Java here"
