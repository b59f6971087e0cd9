"""Namespaces that are dead, refuse connections, are frozen, or become silent at some point: every
call of a pairing returns, reports the state, and leaves nothing open.

No time is measured. The silence lasts for ever, and a call that does not return fails the test at
its deadline.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import BacklogUnavailable, SendUnavailable
from pairbus.events import PathStatus
from pairbus.pairing.recovery import ping
from tests.faults.bounded_calls import all_tasks_end, come_back, side_by_side, threads_of_ours
from tests.faults.dead_ports import Elsewhere, black_hole, dead_port
from tests.faults.namespace_process import Namespace, backlog_path, wait_until
from tests.faults.paired_clients import (
    FLAVOURS,
    Host,
    close_all,
    connect,
    enter,
    options_of,
    pair,
    paired,
)
from tests.faults.silent_relays import Point, Relays

pytestmark = [
    # The SDK does not close its socket when a connection fails.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
    pytest.mark.timeout(600),
]

QUEUE, OTHER = "orders", "parcels"
MINUTE = timedelta(minutes=1)
PATIENT = timedelta(seconds=8)
"""Half of it is enough to reach the backlog while many other cases run."""
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
"""Points at which every call hangs."""
IN_A_SEND = {
    "credit": Point("flow", attached=3),
    "the answer to a send": Point("disposition", attached=3),
    "half the answer to a send": Point("disposition", attached=3, half=True),
}
IN_TLS = {"TLS": Point("TLS", raw=0), "half of TLS": Point("TLS", raw=900)}


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


@pytest.fixture(autouse=True)
def _nothing_of_ours_lives_on(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    # Log records refer to errors, and those to sockets of the SDK.
    caplog.get_records("call").clear()
    gc.collect()
    wait_until(lambda: not threads_of_ours(), f"threads to end: {threads_of_ours()}")


class Case:
    """A pairing with its own relays. A raw relay does not parse frames."""

    def __init__(
        self, relays: Relays, primary: Namespace, secondary: Namespace, *, tls: bool, raw: bool
    ) -> None:
        self.name = next(names)
        self.primary = relays.to(primary, tls=tls, raw=raw)
        self.secondary = relays.to(secondary, tls=tls, raw=raw)
        self._secondary = secondary
        self._tls = tls

    def paired(self, flavour: str, primary: Host | None = None, **options: Any) -> Any:
        """Return a context with a paired client."""
        host = self.primary if primary is None else primary
        return paired(flavour, host, self.secondary, self.name, tls=self._tls, **options)

    def stored(self) -> list[str]:
        """Return the ids of the messages in the backlog."""
        return stored_by(self._secondary, self.name)

    def all_closed(self) -> None:
        for relay in (self.primary, self.secondary):
            wait_until(lambda relay=relay: relay.open == 0, "connections to be closed")


NewCase = Callable[..., Case]


@pytest.fixture
def new_case(relays: Relays, primary: Namespace, secondary: Namespace) -> NewCase:
    """Makes cases, for one point at which a host becomes silent."""

    def make(point: Point | None = None, *, tls: bool = False, raw: bool = False) -> Case:
        raw = raw or (point is not None and point.raw is not None)
        return Case(relays, primary, secondary, tls=tls, raw=raw)

    return make


def stored_by(secondary: Namespace, name: str) -> list[str]:
    """Return the ids of the messages in the backlog of a pairing."""
    return [id for index in range(2) for id in secondary.ids(backlog_path(name, index))]


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
    """Make calls that hang on the silent primary, and return the ids that were sent."""
    sent: list[str] = []
    sender = bus.get_queue_sender(QUEUE)
    for call in calls:
        before = case.primary.silences
        await call(sender, sent)
        assert case.primary.silences > before, call
        assert state(bus) is PathStatus.FAILOVER
        assert isinstance(bus.status().paths[QUEUE].cause, OperationTimeoutError)
        bus.mark_path_healthy(QUEUE)
    # A new connection is opened: a link that hung is not used again.
    case.primary.heal()
    connections = case.primary.accepted
    stored = list(sent)
    await send_one(sender, sent)
    assert case.primary.accepted == connections + 1
    assert state(bus) is PathStatus.HEALTHY
    assert sorted(await come_back(case.stored)) == sorted(stored)
    await come_back(sender.close)
    return sent


def ping_operation(bus: Any) -> Any:
    return ping(bus._pairing, bus._factory, bus._pairing.path(QUEUE))


def state(bus: Any, path: str = QUEUE) -> PathStatus:
    return bus.status().paths[path].status


# A silent primary.


@pytest.mark.rule("S2a", "S3", "S11", "S14")
async def test_calls_that_hang_on_the_primary_continue_with_the_backlog(
    flavour: str, new_case: NewCase, primary: Namespace
) -> None:
    async def one(point: Point, calls: list[Call], *, tls: bool, twice: bool = False) -> None:
        case = new_case(point, tls=tls)
        case.primary.fall_silent(point)
        async with case.paired(flavour, operation_timeout=PATIENT) as bus:
            sent = await in_silence(case, bus, calls)
        # A message without an acknowledgement is in both namespaces, with the same id.
        there = await come_back(held_by, primary, sent)
        assert there == (sent if twice else sent[-1:])
        await come_back(case.all_closed)

    opening: list[Call] = [only_enter, create, *SENDS]
    cases = {
        f"{name} ({'TLS' if tls else 'plain'})": one(point, opening, tls=tls)
        for tls in (False, True)
        for name, point in (BEFORE_THE_LINK | (IN_TLS if tls else {})).items()
    }
    for name, point in IN_A_SEND.items():
        twice = point.what == "disposition"
        cases[name] = one(point, SENDS, tls=False, twice=twice)
    await side_by_side(cases)
    await all_tasks_end()


def held_by(namespace: Namespace, ids: list[str]) -> list[str]:
    """Return the ids that are in the queue, once for each message."""
    there = namespace.ids(QUEUE)
    return [id for id in ids for _ in range(there.count(id))]


@pytest.mark.rule("S2a", "S3", "S1")
async def test_with_an_interval_a_hanging_call_raises_and_starts_the_timer(
    new_case: NewCase, primary: Namespace
) -> None:
    async def one(flavour: str, point: Point, *, tls: bool) -> None:
        case = new_case(point, tls=tls)
        case.primary.fall_silent(point)
        sent: list[str] = []
        async with case.paired(flavour, failover_interval=MINUTE) as bus:
            sender = bus.get_queue_sender(QUEUE)
            await enter(sender)  # does not fail while the primary is down
            with pytest.raises(OperationTimeoutError):
                await send_one(sender, sent)
            assert case.primary.silences > 0
            assert state(bus) is PathStatus.SUSPECT
            assert await come_back(case.stored) == []
            case.primary.heal()
            connections = case.primary.accepted
            await send_one(sender, sent)
            assert case.primary.accepted == connections + 1
            assert state(bus) is PathStatus.HEALTHY
        assert sent[-1] in await come_back(held_by, primary, sent)
        await come_back(case.all_closed)

    points = [
        (BEFORE_THE_LINK["SASL"], False),
        (BEFORE_THE_LINK["the answer to a token"], True),
        (IN_A_SEND["the answer to a send"], False),
        (IN_TLS["half of TLS"], True),
    ]
    await side_by_side(
        {
            f"{point} ({flavour})": one(flavour, point, tls=tls)
            for flavour in FLAVOURS
            for point, tls in points
        }
    )
    await all_tasks_end()


# A silent secondary, and two silent namespaces.


@pytest.mark.rule("S2a", "S5", "S14")
async def test_hanging_backlog_raises_both_causes(new_case: NewCase, primary: Namespace) -> None:
    async def one(flavour: str, point: Point, *, tls: bool, both: bool) -> None:
        case = new_case(point, tls=tls)
        if both:
            case.primary.fall_silent(point)
        else:
            case.primary.refuse()
        sent: list[str] = []
        async with case.paired(
            flavour, backlog_cool_down=timedelta(), operation_timeout=PATIENT
        ) as bus:
            case.secondary.fall_silent(point)
            sender = bus.get_queue_sender(QUEUE)
            await enter(sender)
            bus.mark_path_healthy(QUEUE)
            with pytest.raises(SendUnavailable) as caught:
                await send_one(sender, sent)
            assert case.secondary.silences > 0
            assert isinstance(caught.value.backlog_error, OperationTimeoutError)
            assert isinstance(caught.value.primary_error, ServiceBusError)
            if both:
                assert isinstance(caught.value.primary_error, OperationTimeoutError)
            await create(sender, sent)  # the limit is one that every namespace accepts
            assert bool(case.primary.silences) is both
            case.secondary.heal()
            connections = case.secondary.accepted
            await send_one(sender, sent)
            if point.attached < 3:  # otherwise the link that `create` opened works
                assert case.secondary.accepted > connections
        assert sent[-1] in await come_back(case.stored)
        if both:
            assert await come_back(held_by, primary, sent) in ([], sent[:1])
        await come_back(case.all_closed)

    cases = {}
    answer = {"answer": IN_A_SEND["the answer to a send"]}
    for place, (name, point) in enumerate((BEFORE_THE_LINK | answer | IN_TLS).items()):
        # One after the other: the cases of the primary cover the differences.
        tls = point.raw is not None or place % 2 == 1
        flavours = FLAVOURS if place % 4 < 2 else FLAVOURS[::-1]
        cases[f"{name}, both"] = one(flavours[0], point, tls=tls, both=True)
        cases[name] = one(flavours[1], point, tls=not tls or point.raw is not None, both=False)
    await side_by_side(cases)
    await all_tasks_end()


@pytest.mark.rule("S2a", "S4")
async def test_hanging_backlog_queue_leaves_time_for_another(new_case: NewCase) -> None:
    async def one(flavour: str, point: Point) -> None:
        case = new_case()
        case.primary.refuse()
        sent: list[str] = []
        async with case.paired(flavour, operation_timeout=PATIENT) as bus:
            case.secondary.fall_silent(point, times=1)
            await send_one(bus.get_queue_sender(QUEUE), sent)
            assert case.secondary.silences == 1
            [pulled] = [one for one in bus.status().backlog.values() if not one.in_rotation]
            assert isinstance(pulled.cause, OperationTimeoutError)
        # The first queue may have stored it too, without an acknowledgement.
        copies = 2 if point.what == "disposition" else 1
        assert await come_back(case.stored) == sent * copies
        await come_back(case.all_closed)

    points = {"token": Point("transfer", attached=2), "answer": IN_A_SEND["the answer to a send"]}
    await side_by_side(
        {
            f"{name} ({flavour})": one(flavour, point)
            for flavour in FLAVOURS
            for name, point in points.items()
        }
    )


# Pairing.


@pytest.mark.rule("S2a", "P1", "P6")
async def test_pairing_with_a_silent_secondary_fails_and_can_be_repeated(
    flavour: str, relays: Relays, primary: Namespace, secondary: Namespace
) -> None:
    hasty = {"operation_timeout": timedelta(seconds=1)}

    async def one(other: Host, *, tls: bool = False, heal: Callable[[], None] | None) -> None:
        name = next(names)
        client = connect(flavour, relays.to(primary))
        backlog = connect(flavour, other, tls=tls)
        with pytest.raises(BacklogUnavailable):
            await pair(flavour, client, options_of(backlog, name, **hasty))
        if heal is not None:
            heal()
            bus = await pair(flavour, client, options_of(backlog, name))
            assert len(bus.backlog_queues) == 2
            await come_back(bus.close)
        await close_all(client, backlog)

    mute, mute_in_tls = relays.to(secondary), relays.to(secondary, tls=True, raw=True)
    mute.fall_silent(Point("http"))
    mute_in_tls.fall_silent(IN_TLS["half of TLS"])
    with dead_port() as dead, black_hole() as hole:
        await side_by_side(
            {
                "silent": one(mute, heal=mute.heal),
                "silent in TLS": one(mute_in_tls, tls=True, heal=mute_in_tls.heal),
                "refused": one(Elsewhere(secondary, dead), heal=None),
                "black hole": one(Elsewhere(secondary, hole), heal=None),
            }
        )
    assert mute.silences > 0
    assert mute_in_tls.silences > 0


# Dead hosts and frozen processes.


@pytest.mark.rule("S2a", "S14")
async def test_dead_or_refusing_primary_fails_no_call(
    new_case: NewCase, relays: Relays, primary: Namespace
) -> None:
    async def one(flavour: str, host: Host, calls: list[Call], *, tls: bool) -> None:
        case = new_case(tls=tls, raw=True)
        sent: list[str] = []
        async with case.paired(
            flavour, host, check_duplicate_detection=True, operation_timeout=PATIENT
        ) as bus:
            sender = bus.get_queue_sender(QUEUE)
            for call in calls:
                await call(sender, sent)
                assert state(bus) is PathStatus.FAILOVER
                bus.mark_path_healthy(QUEUE)
            assert isinstance(
                await come_back(bus._driver.run, ping_operation(bus)), ServiceBusError
            )
            await come_back(sender.close)
        assert sorted(await come_back(case.stored)) == sorted(sent)
        await come_back(case.all_closed)

    every: list[Call] = [only_enter, create, *SENDS]
    some: list[Call] = [only_enter, send_one]  # each takes its timeout
    refusing = [relays.to(primary) for _ in FLAVOURS]
    cases = {}
    with ExitStack() as ports:
        for flavour, relay in zip(FLAVOURS, refusing, strict=True):
            relay.refuse()
            dead = Elsewhere(primary, ports.enter_context(dead_port()))
            hole, another = (Elsewhere(primary, ports.enter_context(black_hole())) for _ in "12")
            cases |= {
                f"refused ({flavour})": one(flavour, dead, every, tls=False),
                f"closed ({flavour})": one(flavour, relay, every, tls=False),
                f"black hole ({flavour})": one(flavour, hole, some, tls=False),
                f"black hole, TLS ({flavour})": one(flavour, another, some, tls=True),
            }
        await side_by_side(cases)
        await all_tasks_end()
    assert all(relay.accepted for relay in refusing)


class Bystander:
    """A pairing whose sender is open when processes are stopped."""

    def __init__(self, flavour: str, primary: Namespace, secondary: Namespace, tls: bool) -> None:
        self.name = next(names)
        self.sent: list[str] = []
        self._secondary = secondary
        self._client = connect(flavour, primary, tls=tls)
        # A client that the pairing creates is closed by it.
        self._other = connect(flavour, secondary, tls=True) if tls else None
        self._given = secondary.connection_string if self._other is None else self._other
        self._flavour = flavour

    async def begin(self) -> None:
        self.bus = await pair(self._flavour, self._client, options_of(self._given, self.name))
        self.sender = self.bus.get_queue_sender(QUEUE)
        await enter(self.sender)
        await send_one(self.sender, self.sent)

    async def while_the_primary_is_frozen(self) -> None:
        for call in (send_one, send_batch, schedule, create):
            await call(self.sender, self.sent)
            assert state(self.bus) is PathStatus.FAILOVER
            self.bus.mark_path_healthy(QUEUE)
        error = await come_back(self.bus._driver.run, ping_operation(self.bus))
        assert isinstance(error, OperationTimeoutError)

    async def after_it(self) -> None:
        await send_one(self.sender, self.sent)
        assert state(self.bus) is PathStatus.HEALTHY
        assert sorted(stored_by(self._secondary, self.name)) == sorted(self.sent[1:-1])

    async def while_both_are_frozen(self) -> None:
        with pytest.raises(SendUnavailable) as caught:
            await send_one(self.sender, [])
        assert isinstance(caught.value.primary_error, OperationTimeoutError)
        assert isinstance(caught.value.backlog_error, OperationTimeoutError)
        another = self.bus.get_queue_sender(OTHER)
        await enter(another)
        await come_back(another.close)
        await come_back(self.bus.close)
        hasty = options_of(self._given, self.name, operation_timeout=timedelta(seconds=1))
        with pytest.raises(BacklogUnavailable):
            await pair(self._flavour, self._client, hasty)
        await close_all(self._client, *([] if self._other is None else [self._other]))


@pytest.mark.rule("S2a", "S5", "S14")
async def test_frozen_processes_are_left_and_used_again_after_they_continue(
    primary: Namespace, secondary: Namespace
) -> None:
    all_four = {
        f"{flavour}, TLS: {tls}": Bystander(flavour, primary, secondary, tls)
        for flavour in FLAVOURS
        for tls in (False, True)
    }

    async def all_do(step: Callable[[Bystander], Coroutine[Any, Any, None]]) -> None:
        await side_by_side({name: step(one) for name, one in all_four.items()})

    await all_do(Bystander.begin)
    with primary.frozen():
        await all_do(Bystander.while_the_primary_is_frozen)
    await all_do(Bystander.after_it)
    with primary.frozen(), secondary.frozen():
        await all_do(Bystander.while_both_are_frozen)
    sent = [one.sent for one in all_four.values()]
    there = set(primary.ids(QUEUE))
    assert all(ids[0] in there and ids[-1] in there for ids in sent)


@pytest.mark.rule("S2a")
async def test_token_request_without_a_response_is_bounded(
    flavour: str, secondary: Namespace
) -> None:
    sent: list[str] = []
    name = next(names)
    with LocalNamespace("mute") as mute:
        mute.create_queue(QUEUE)
        fault = mute.add_fault("ignore-tokens")
        async with paired(flavour, mute, secondary, name) as bus:
            await send_one(bus.get_queue_sender(QUEUE), sent)
            assert fault.fired > 0
            assert state(bus) is PathStatus.FAILOVER
    assert stored_by(secondary, name) == sent


# Calls that are not affected.


@pytest.mark.rule("S2", "S2a")
@pytest.mark.parametrize("retries", [0, 2])
async def test_retries_of_the_user_are_made_first(
    flavour: str, retries: int, new_case: NewCase
) -> None:
    case = new_case()
    case.primary.refuse()
    sdk = {"retry_total": retries}
    plain = connect(flavour, case.primary, **sdk)
    with pytest.raises(ServiceBusError):
        await send_one(plain.get_queue_sender(QUEUE), [])
    assert case.primary.accepted == 1 + retries
    await close_all(plain)

    sent: list[str] = []
    async with case.paired(flavour, sdk=sdk, operation_timeout=timedelta(seconds=20)) as bus:
        await send_one(bus.get_queue_sender(QUEUE), sent)
        assert case.primary.accepted == 2 * (1 + retries)
    assert await come_back(case.stored) == sent


@pytest.mark.rule("S2a")
async def test_hanging_call_does_not_disturb_other_senders(
    new_case: NewCase, primary: Namespace
) -> None:
    async def one(flavour: str) -> None:
        case = new_case()
        sent: list[str] = []
        async with case.paired(
            flavour, failover_interval=MINUTE, operation_timeout=timedelta(seconds=15)
        ) as bus:
            others = [bus.get_queue_sender(path) for path in (QUEUE, OTHER, OTHER)]
            await asyncio.gather(*(enter(one) for one in others))
            case.primary.fall_silent(IN_A_SEND["credit"], times=1)
            hanging = asyncio.ensure_future(send_one(bus.get_queue_sender(QUEUE), []))
            await come_back(wait_until, lambda: case.primary.silences == 1, "the silence")

            await asyncio.gather(*(send_many(one, sent) for one in others))
            newcomer = bus.get_queue_sender(OTHER)
            await enter(newcomer)
            await send_one(newcomer, sent)
            assert not hanging.done()
            assert state(bus) is state(bus, OTHER) is PathStatus.HEALTHY
            with pytest.raises(OperationTimeoutError):
                await hanging
            assert state(bus, OTHER) is PathStatus.HEALTHY
        there = await come_back(lambda: primary.ids(QUEUE) + primary.ids(OTHER))
        assert set(sent) <= set(there)
        await come_back(case.all_closed)

    await side_by_side({flavour: one(flavour) for flavour in FLAVOURS})


async def send_many(sender: Any, sent: list[str]) -> None:
    for _ in range(20):
        await send_one(sender, sent)
