"""A syphon in the application: `enable_syphon=True`, and what happens when a client goes down."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from pyspark.sql import SparkSession

import pairbus.aio
from pairbus import PairedClient, PairingFaulted, SendAvailabilityOptions, pair_namespace
from pairbus.errors import SendUnavailable, StateError
from pairbus.events import SyphonStarted, SyphonStopped
from tests.spark.kit import DEADLINE_S, Backlog, wait_until

pytestmark = pytest.mark.timeout(600)
CAUSE = OSError("the disk is gone")
QUICK = {"retry_total": 0, "socket_timeout": 5}


def options(backlog: Backlog, secondary: Any, **more: Any) -> SendAvailabilityOptions:
    return SendAvailabilityOptions(
        secondary=secondary,
        primary_name=backlog.name,
        backlog_queue_count=2,
        failover_interval=timedelta(),
        ping_primary_interval=timedelta(seconds=1),
        enable_syphon=True,
        **more,
    )


def paired(backlog: Backlog, **more: Any) -> PairedClient:
    client = ServiceBusClient.from_connection_string(backlog.primary.connection_string, **QUICK)
    return pair_namespace(client, options(backlog, backlog.secondary.connection_string, **more))


def send_through_an_outage(backlog: Backlog, bus: PairedClient, path: str) -> None:
    """One message that the primary does not take, and that the backlog has."""
    fault = backlog.primary.add_fault("disable", path)
    with bus.get_queue_sender(path) as sender:
        sender.send_messages(ServiceBusMessage("hello", message_id="one"))
        assert fault.fired
        backlog.primary.call(lambda core: core.faults.remove(fault))


@pytest.mark.rule("Y7")
def test_the_application_moves_its_own_backlog_beside_its_own_spark(
    session: SparkSession, backlog: Backlog
) -> None:
    path = backlog.path("orders")
    events: list[Any] = []
    with paired(backlog, on_event=events.append) as bus:
        send_through_an_outage(backlog, bus, path)
        wait_until(lambda: backlog.ids(path) == ["one"], "the message to come home")
        wait_until(lambda: backlog.left() == 0, "it to be completed")
        assert bus.syphon.status().running

    # Closing does not wait for long, and Spark may need longer to stop.
    wait_until(lambda: any(isinstance(one, SyphonStopped) for one in events), "the syphon to stop")
    kinds = [type(one) for one in events if isinstance(one, SyphonStarted | SyphonStopped)]
    assert kinds == [SyphonStarted, SyphonStopped]
    assert bus.syphon is None
    assert session.range(3).count() == 3, "the application's Spark was stopped"


def down(bus: Any, which: str, how: str) -> Any:
    client = getattr(bus, which)
    return client.close() if how == "close" else client.fault(CAUSE)


@pytest.mark.rule("Y7")
@pytest.mark.parametrize("how", ["close", "fault"])
@pytest.mark.parametrize(("which", "partner"), [("primary", "secondary"), ("secondary", "primary")])
def test_one_client_that_is_down_takes_the_other_with_it_and_the_syphon_stops(
    session: SparkSession, backlog: Backlog, which: str, partner: str, how: str
) -> None:
    events: list[Any] = []
    bus = paired(backlog, on_event=events.append)
    sender = bus.get_queue_sender(backlog.path("orders"))
    wait_until(lambda: bus.syphon is not None, "the syphon")

    down(bus, which, how)

    wait_until(lambda: getattr(bus, partner).cause is not None, "the partner to be faulted")
    if how == "fault":
        assert root(getattr(bus, partner).cause) is CAUSE
    wait_until(lambda: any(isinstance(one, SyphonStopped) for one in events), "the syphon to stop")
    assert bus.syphon is None
    # Of the two, the primary's client is the one that calls are made on.
    wanted = StateError if (which, how) == ("primary", "close") else PairingFaulted
    calls: list[Callable[[], Any]] = [
        lambda: bus.get_queue_sender("x"),
        lambda: bus.get_queue_receiver("x"),
        lambda: bus.mark_path_healthy("x"),
    ]
    for call in calls:
        with pytest.raises(wanted):
            call()
    with pytest.raises(wanted if wanted is PairingFaulted else ValueError):
        sender.send_messages(ServiceBusMessage("x"))
    bus.close()


def root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@pytest.mark.rule("Y7")
def test_an_outage_is_not_a_fault(session: SparkSession, backlog: Backlog) -> None:
    path = backlog.path("orders")
    with paired(backlog) as bus:
        send_through_an_outage(backlog, bus, path)

        assert not bus.primary.closed
        assert (bus.primary.cause, bus.secondary.cause) == (None, None)


@pytest.mark.rule("Y7", "S5")
def test_a_send_in_failover_without_a_secondary_was_not_sent(
    session: SparkSession, backlog: Backlog
) -> None:
    path = backlog.path("orders")
    backlog.primary.add_fault("disable", path)
    with paired(backlog) as bus, bus.get_queue_sender(path) as sender:
        sender.send_messages(ServiceBusMessage("stored"))
        bus.secondary.fault(CAUSE)

        with pytest.raises(SendUnavailable) as caught:
            sender.send_messages(ServiceBusMessage("lost, and said so"))

    assert isinstance(caught.value.backlog_error, PairingFaulted)
    assert caught.value.backlog_error.__cause__ is CAUSE


@pytest.mark.rule("Y7")
async def test_it_is_the_same_in_an_event_loop(session: SparkSession, backlog: Backlog) -> None:
    path = backlog.path("orders")
    events: list[Any] = []
    client = AsyncServiceBusClient.from_connection_string(
        backlog.primary.connection_string, **QUICK
    )
    asked = options(backlog, backlog.secondary.connection_string, on_event=events.append)
    async with client, await pairbus.aio.pair_namespace(client, asked) as bus:
        fault = backlog.primary.add_fault("disable", path)
        sender = bus.get_queue_sender(path)
        async with sender:
            await sender.send_messages(ServiceBusMessage("hello", message_id="one"))
        assert fault.fired
        backlog.primary.call(lambda core: core.faults.remove(fault))
        await until(lambda: backlog.ids(path) == ["one"])

        await bus.secondary.fault(CAUSE)

        await until(lambda: bus.primary.closed)
        assert root(bus.primary.cause) is CAUSE
        with pytest.raises(PairingFaulted):
            bus.get_queue_sender(path)
        await bus.close()
        await until(lambda: isinstance(events[-1], SyphonStopped))
        async with await pairbus.aio.pair_namespace(client, asked):  # nothing is left of the first
            pass


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  the emulator is in another thread
            await asyncio.sleep(0.05)


@pytest.mark.rule("Y7")
def test_a_syphon_that_cannot_start_is_told_and_tried_again(
    session: SparkSession, backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = backlog.path("orders")
    broken = iter([OSError("no Java here")])

    def take(*args: Any) -> SparkSession:
        for error in broken:
            raise error
        return session

    monkeypatch.setattr("pairbus.syphon.syphon.take", take)
    monkeypatch.setattr("pairbus.syphon.syphon.give_back", lambda: None)
    events: list[Any] = []
    with paired(backlog, on_event=events.append) as bus:
        send_through_an_outage(backlog, bus, path)
        wait_until(lambda: backlog.ids(path) == ["one"], "the message to come home")

    stopped = [one for one in events if isinstance(one, SyphonStopped)]
    assert str(stopped[0].error) == "no Java here"
