"""Namespaces that are dead, refuse, are frozen, or stop answering at some point: every call of a
pairing comes back, says what is so, and leaves nothing behind.

No time is measured. The silence lasts for ever; a call that does not end it by itself fails the
test at its deadline.
"""

import asyncio
import gc
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.broker.namespace import LocalNamespace
from pairbus.errors import BacklogUnavailable, SendUnavailable
from pairbus.events import PathState
from tests.faults.pairing_kit import (
    FLAVOURS,
    Namespace,
    Point,
    Relay,
    Relays,
    backlog_path,
    black_hole,
    close_all,
    come_back,
    connect,
    enter,
    in_thread,
    options_of,
    pair,
    paired,
    side_by_side,
    threads_of_ours,
    wait_until,
)

pytestmark = [
    # The SDK forgets to close its socket when a connection fails.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.timeout(150),
]

QUEUE, OTHER = "orders", "parcels"
MINUTE = timedelta(minutes=1)
names = (f"case{number}" for number in count(1))

BEFORE_THE_LINK = {
    "the protocol header": Point("sasl header"),
    "SASL": Point("sasl"),
    "the header after SASL": Point("header"),
    "open": Point("open"),
    "half of open": Point("open", half=True),
    "begin": Point("begin"),
    "the links for tokens": Point("attach"),
    "the answer to a token": Point("transfer", attached=2),
    "the sender's link": Point("attach", attached=2),
}
"""Whatever a call wants, it hangs there."""
IN_A_SEND = {
    "credit": Point("flow", attached=3),
    "the answer to a send": Point("disposition", attached=3),
    "half the answer to a send": Point("disposition", attached=3, half=True),
}
IN_TLS = {"TLS": Point("TLS", raw=0), "half of TLS": Point("TLS", raw=900)}


@pytest.fixture(scope="module", autouse=True)
def _collect_sockets() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    namespace = Namespace("primary", tmp_path_factory.mktemp("primary"), QUEUE, OTHER)
    yield namespace
    namespace.close()


@pytest.fixture(scope="module")
def secondary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    namespace = Namespace("secondary", tmp_path_factory.mktemp("secondary"))
    yield namespace
    namespace.close()


@pytest.fixture(scope="module")
def relays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relays]:
    relays = Relays(tmp_path_factory.mktemp("relays"))
    yield relays
    relays.close()


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def tls(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(autouse=True)
def _nothing_of_ours_lives_on() -> Iterator[None]:
    yield
    wait_until(lambda: not threads_of_ours(), f"threads to end: {threads_of_ours()}")


class Case:
    """A pairing of its own, on relays of its own."""

    def __init__(
        self, relays: Relays, primary: Namespace, secondary: Namespace, *, tls: bool, raw: bool
    ) -> None:
        self.name = next(names)
        self.primary = relays.to(primary, tls=tls, raw=raw)
        self.secondary = relays.to(secondary, tls=tls, raw=raw)
        self._secondary = secondary

    def stored(self) -> list[str]:
        """The ids of what is in the backlog."""
        return [one for i in range(2) for one in self._secondary.ids(backlog_path(self.name, i))]

    def all_closed(self) -> None:
        for relay in (self.primary, self.secondary):
            wait_until(lambda relay=relay: relay.open == 0, "connections to be closed")


def message(sent: list[str]) -> ServiceBusMessage:
    sent.append(str(uuid4()))
    return ServiceBusMessage("x", message_id=sent[-1])


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


async def send_one(sender: Any, sent: list[str]) -> None:
    await come_back(sender.send_messages, message(sent))


async def send_list(sender: Any, sent: list[str]) -> None:
    await come_back(sender.send_messages, [message(sent), message(sent)])


async def send_batch(sender: Any, sent: list[str]) -> None:
    batch = ServiceBusMessageBatch()
    batch.add_message(message(sent))
    batch.add_message(message(sent))
    await come_back(sender.send_messages, batch)


async def schedule(sender: Any, sent: list[str]) -> None:
    assert await come_back(sender.schedule_messages, message(sent), tomorrow()) == [None]


async def only_enter(sender: Any, sent: list[str]) -> None:
    await enter(sender)


async def create(sender: Any, sent: list[str]) -> None:
    batch = await come_back(sender.create_message_batch)
    assert batch.max_size_in_bytes == 256 * 1024


Call = Callable[[Any, list[str]], Awaitable[None]]
SENDS: list[Call] = [send_one, send_list, send_batch, schedule]


async def in_silence(case: Case, bus: Any, calls: list[Call]) -> list[str]:
    """Make calls, each of which meets the silence of the primary; the ids of what was sent."""
    sent: list[str] = []
    sender = bus.get_queue_sender(QUEUE)
    for call in calls:
        before = case.primary.silences
        await call(sender, sent)
        assert case.primary.silences > before, call
        assert state(bus) is PathState.FAILOVER
        assert isinstance(bus.status().paths[QUEUE].cause, OperationTimeoutError)
        bus.mark_path_healthy(QUEUE)
    before = case.primary.silences
    met = await come_back(bus.ping, bus.pairing.path(QUEUE))
    assert case.primary.silences > before
    assert isinstance(met, OperationTimeoutError)

    # A new connection is made: nothing that hung is used again.
    case.primary.heal()
    connections = case.primary.accepted
    stored = list(sent)
    await send_one(sender, sent)
    assert case.primary.accepted == connections + 1
    assert state(bus) is PathState.HEALTHY
    assert sorted(case.stored()) == sorted(stored)
    await come_back(sender.close)
    return sent


def state(bus: Any, path: str = QUEUE) -> PathState:
    return bus.status().paths[path].state


# Silence of the primary.


@pytest.mark.rule("S2a", "S14")
async def test_calls_that_hang_before_the_link_is_open_go_on_into_the_backlog(
    flavour: str, tls: bool, relays: Relays, primary: Namespace, secondary: Namespace
) -> None:
    async def one(point: Point) -> None:
        case = Case(relays, primary, secondary, tls=tls, raw=point.raw is not None)
        case.primary.fall_silent(point)
        async with paired(flavour, case.primary, case.secondary, case.name, tls=tls) as bus:
            sent = await in_silence(case, bus, [only_enter, create, *SENDS])
        assert primary_has(primary, sent) == sent[-1:]
        case.all_closed()

    points = BEFORE_THE_LINK | (IN_TLS if tls else {})
    await side_by_side({name: one(point) for name, point in points.items()})


def primary_has(primary: Namespace, ids: list[str]) -> list[str]:
    there = primary.ids(QUEUE)
    return [id for id in ids for _ in range(there.count(id))]
