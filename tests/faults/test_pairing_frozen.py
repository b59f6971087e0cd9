"""Calls of a pairing return when a namespace is dead, refuses connections, is frozen or becomes
silent. They report the state and leave no connection open.

No time is measured. The silence does not end, and a call that does not return fails the test at its
deadline.
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
from tests.faults.bounded_calls import all_tasks_end, bounded, pairbus_threads, run_concurrently
from tests.faults.dead_ports import UnservedPort, black_hole, dead_port
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
LONG_TIMEOUT = timedelta(seconds=8)
"""Half of this timeout is enough to reach the backlog while many other cases run."""
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
def _all_threads_end(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    # Log records keep errors alive, and errors keep sockets of the SDK alive.
    caplog.get_records("call").clear()
    gc.collect()
    wait_until(lambda: not pairbus_threads(), f"threads to end: {pairbus_threads()}")


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
    """Return a function that makes a case, for a point at which a host becomes silent."""

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
    await bounded(sender.send_messages, message(sent))


async def send_list(sender: Any, sent: list[str]) -> None:
    await bounded(sender.send_messages, [message(sent), message(sent)])


async def send_batch(sender: Any, sent: list[str]) -> None:
    batch = ServiceBusMessageBatch()
    batch.add_message(message(sent))
    batch.add_message(message(sent))
    await bounded(sender.send_messages, batch)


async def schedule(sender: Any, sent: list[str]) -> None:
    assert await bounded(sender.schedule_messages, message(sent), tomorrow()) == [None]


async def only_enter(sender: Any, sent: list[str]) -> None:
    await enter(sender)


async def create(sender: Any, sent: list[str]) -> None:
    batch = await bounded(sender.create_message_batch)
    assert batch.max_size_in_bytes == 256 * 1024


Call = Callable[[Any, list[str]], Awaitable[None]]
SENDS: list[Call] = [send_one, send_list, send_batch, schedule]


async def calls_to_silent_primary(case: Case, bus: Any, calls: list[Call]) -> list[str]:
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
    assert sorted(await bounded(case.stored)) == sorted(stored)
    await bounded(sender.close)
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
    async def check_case(
        point: Point, calls: list[Call], *, tls: bool, twice: bool = False
    ) -> None:
        case = new_case(point, tls=tls)
        case.primary.become_silent(point)
        # More cases than in other tests share the CPU.
        async with case.paired(flavour, operation_timeout=1.5 * LONG_TIMEOUT) as bus:
            sent = await calls_to_silent_primary(case, bus, calls)
        # A message without an acknowledgement is in both namespaces, with the same id.
        arrived = await bounded(ids_in_queue, primary, sent)
        assert arrived == (sent if twice else sent[-1:])
        await bounded(case.all_closed)

    # Each call lasts until its timeout, so half of the calls are made with TLS.
    halves: list[list[Call]] = [[only_enter, send_one, send_batch], [create, send_list, schedule]]
    cases = {
        f"{name} ({'TLS' if tls else 'plain'})": check_case(point, halves[tls], tls=tls)
        for tls in (False, True)
        for name, point in BEFORE_THE_LINK.items()
    }
    for (name, point), calls in zip(IN_TLS.items(), halves, strict=True):
        cases[name] = check_case(point, calls, tls=True)
    for name, point in IN_A_SEND.items():
        twice = point.unit == "disposition"
        cases[name] = check_case(point, SENDS, tls=False, twice=twice)
    await run_concurrently(cases)
    await all_tasks_end()


def ids_in_queue(namespace: Namespace, ids: list[str]) -> list[str]:
    """Return the ids that are in the queue, once for each message."""
    arrived = namespace.ids(QUEUE)
    return [id for id in ids for _ in range(arrived.count(id))]


@pytest.mark.rule("S2a", "S3", "S1")
async def test_with_an_interval_a_hanging_call_raises_and_starts_the_timer(
    new_case: NewCase, primary: Namespace
) -> None:
    async def check_case(flavour: str, point: Point, *, tls: bool) -> None:
        case = new_case(point, tls=tls)
        case.primary.become_silent(point)
        sent: list[str] = []
        async with case.paired(flavour, failover_interval=MINUTE) as bus:
            sender = bus.get_queue_sender(QUEUE)
            await enter(sender)  # does not fail while the primary is down
            with pytest.raises(OperationTimeoutError):
                await send_one(sender, sent)
            assert case.primary.silences > 0
            assert state(bus) is PathStatus.SUSPECT
            assert await bounded(case.stored) == []
            case.primary.heal()
            connections = case.primary.accepted
            await send_one(sender, sent)
            assert case.primary.accepted == connections + 1
            assert state(bus) is PathStatus.HEALTHY
        assert sent[-1] in await bounded(ids_in_queue, primary, sent)
        await bounded(case.all_closed)

    points = [
        (BEFORE_THE_LINK["SASL"], False),
        (BEFORE_THE_LINK["the answer to a token"], True),
        (IN_A_SEND["the answer to a send"], False),
        (IN_TLS["half of TLS"], True),
    ]
    await run_concurrently(
        {
            f"{point} ({flavour})": check_case(flavour, point, tls=tls)
            for flavour in FLAVOURS
            for point, tls in points
        }
    )
    await all_tasks_end()


# A silent secondary, and two silent namespaces.


@pytest.mark.rule("S2a", "S5", "S14")
async def test_hanging_backlog_raises_both_causes(new_case: NewCase, primary: Namespace) -> None:
    async def check_case(flavour: str, point: Point, *, tls: bool, both: bool) -> None:
        case = new_case(point, tls=tls)
        if both:
            case.primary.become_silent(point)
        else:
            case.primary.refuse()
        sent: list[str] = []
        async with case.paired(
            flavour, backlog_cool_down=timedelta(), operation_timeout=LONG_TIMEOUT
        ) as bus:
            case.secondary.become_silent(point)
            sender = bus.get_queue_sender(QUEUE)
            await enter(sender)
            bus.mark_path_healthy(QUEUE)
            with pytest.raises(SendUnavailable) as caught:
                await send_one(sender, sent)
            assert case.secondary.silences > 0
            assert isinstance(caught.value.backlog_error, OperationTimeoutError)
            assert isinstance(caught.value.primary_error, ServiceBusError)
            # A handshake that hangs transfers nothing.
            transferred = point is IN_A_SEND["the answer to a send"]
            assert caught.value.unknown == ((0,) if transferred else ())
            assert caught.value.not_sent == (() if transferred else (0,))
            if both:
                assert isinstance(caught.value.primary_error, OperationTimeoutError)
            await create(sender, sent)  # with a size limit that every namespace accepts
            assert bool(case.primary.silences) is both
            case.secondary.heal()
            await bounded(wait_until, lambda: bus.status().secondary_host.reachable, "a probe")
            connections = case.secondary.accepted
            await send_one(sender, sent)
            if point.attached < 3:  # otherwise the link that `create` opened works
                assert case.secondary.accepted > connections
        assert sent[-1] in await bounded(case.stored)
        if both:
            assert await bounded(ids_in_queue, primary, sent) in ([], sent[:1])
        await bounded(case.all_closed)

    cases = {}
    answer = {"answer": IN_A_SEND["the answer to a send"]}
    for place, (name, point) in enumerate((BEFORE_THE_LINK | answer | IN_TLS).items()):
        # TLS and flavours alternate, because the cases of the primary cover the differences.
        tls = point.raw is not None or place % 2 == 1
        flavours = FLAVOURS if place % 4 < 2 else FLAVOURS[::-1]
        cases[f"{name}, both"] = check_case(flavours[0], point, tls=tls, both=True)
        cases[name] = check_case(
            flavours[1], point, tls=not tls or point.raw is not None, both=False
        )
    await run_concurrently(cases)
    await all_tasks_end()


@pytest.mark.rule("S2a", "S4")
async def test_hanging_backlog_queue_leaves_time_for_another(new_case: NewCase) -> None:
    async def check_case(flavour: str, point: Point) -> None:
        case = new_case()
        case.primary.refuse()
        sent: list[str] = []
        async with case.paired(flavour, operation_timeout=LONG_TIMEOUT) as bus:
            case.secondary.become_silent(point, times=1)
            await send_one(bus.get_queue_sender(QUEUE), sent)
            assert case.secondary.silences == 1
            [pulled] = [queue for queue in bus.status().backlog.values() if not queue.in_rotation]
            assert isinstance(pulled.cause, OperationTimeoutError)
        # The first queue stored it too, without an acknowledgement.
        assert await bounded(case.stored) == sent * 2
        await bounded(case.all_closed)

    answer = IN_A_SEND["the answer to a send"]
    await run_concurrently({flavour: check_case(flavour, answer) for flavour in FLAVOURS})


@pytest.mark.rule("S2a", "S4")
async def test_host_that_hangs_once_before_the_link_is_open_is_used_after_a_probe(
    new_case: NewCase,
) -> None:
    async def check_case(flavour: str) -> None:
        case = new_case()
        case.primary.refuse()
        sent: list[str] = []
        async with case.paired(flavour, operation_timeout=LONG_TIMEOUT) as bus:
            case.secondary.become_silent(Point("transfer", attached=2), times=1)
            sender = bus.get_queue_sender(QUEUE)
            with pytest.raises(SendUnavailable) as caught:
                await send_one(sender, [])
            assert case.secondary.silences == 1
            assert isinstance(caught.value.backlog_error, OperationTimeoutError)
            await bounded(wait_until, lambda: bus.status().secondary_host.reachable, "a probe")
            await send_one(sender, sent)
            assert all(queue.in_rotation for queue in bus.status().backlog.values())
        assert await bounded(case.stored) == sent
        await bounded(case.all_closed)

    await run_concurrently({flavour: check_case(flavour) for flavour in FLAVOURS})


@pytest.mark.rule("S2a", "S5")
async def test_host_that_opens_links_and_answers_no_send_holds_up_one_call_at_a_time(
    new_case: NewCase,
) -> None:
    async def check_case(flavour: str) -> None:
        case = new_case()
        case.primary.refuse()
        async with case.paired(flavour, operation_timeout=LONG_TIMEOUT) as bus:
            senders = [bus.get_queue_sender(QUEUE) for _ in range(2)]
            case.secondary.become_silent(IN_A_SEND["the answer to a send"])
            with pytest.raises(SendUnavailable):
                await send_one(senders[0], [])
            assert case.secondary.silences == 2  # both queues
            await bounded(wait_until, lambda: is_reachable(bus), "a probe")

            trial = asyncio.ensure_future(send_one(senders[0], []))
            await bounded(wait_until, lambda: case.secondary.silences == 3, "the send")
            with pytest.raises(SendUnavailable) as refused:
                await send_one(senders[1], [])
            assert refused.value.not_sent == (0,)
            assert isinstance(refused.value.backlog_error, OperationTimeoutError)
            assert not trial.done()
            with pytest.raises(SendUnavailable) as unanswered:
                await trial
            assert unanswered.value.unknown == (0,)
            assert case.secondary.silences == 3  # no other queue was tried

            case.secondary.heal()
            await bounded(wait_until, lambda: is_reachable(bus), "a probe")
            sent: list[str] = []
            for sender in senders:
                await send_one(sender, sent)
            assert set(sent) <= set(await bounded(case.stored))
        await bounded(case.all_closed)

    await run_concurrently({flavour: check_case(flavour) for flavour in FLAVOURS})


def is_reachable(bus: Any) -> bool:
    reachable: bool = bus.status().secondary_host.reachable
    return reachable


# Pairing.


@pytest.mark.rule("S2a", "P1", "P6")
async def test_pairing_with_a_silent_secondary_fails_and_can_be_repeated(
    flavour: str, relays: Relays, primary: Namespace, secondary: Namespace
) -> None:
    short_timeout = {"operation_timeout": timedelta(seconds=1)}

    async def check_case(
        other: Host, *, tls: bool = False, heal: Callable[[], None] | None
    ) -> None:
        name = next(names)
        client = connect(flavour, relays.to(primary))
        backlog = connect(flavour, other, tls=tls)
        with pytest.raises(BacklogUnavailable):
            await pair(flavour, client, options_of(backlog, name, **short_timeout))
        if heal is not None:
            heal()
            bus = await pair(flavour, client, options_of(backlog, name))
            assert len(bus.backlog_queues) == 2
            await bounded(bus.close)
        await close_all(client, backlog)

    silent, silent_in_tls = relays.to(secondary), relays.to(secondary, tls=True, raw=True)
    silent.become_silent(Point("http"))
    silent_in_tls.become_silent(IN_TLS["half of TLS"])
    with dead_port() as dead, black_hole() as hole:
        await run_concurrently(
            {
                "silent": check_case(silent, heal=silent.heal),
                "silent in TLS": check_case(silent_in_tls, tls=True, heal=silent_in_tls.heal),
                "refused": check_case(UnservedPort(secondary, dead), heal=None),
                "black hole": check_case(UnservedPort(secondary, hole), heal=None),
            }
        )
    assert silent.silences > 0
    assert silent_in_tls.silences > 0


# Dead hosts and frozen processes.


@pytest.mark.rule("S2a", "S14")
async def test_dead_or_refusing_primary_fails_no_call(
    new_case: NewCase, relays: Relays, primary: Namespace
) -> None:
    async def check_case(flavour: str, host: Host, calls: list[Call], *, tls: bool) -> None:
        case = new_case(tls=tls, raw=True)
        sent: list[str] = []
        async with case.paired(
            flavour, host, check_duplicate_detection=True, operation_timeout=LONG_TIMEOUT
        ) as bus:
            sender = bus.get_queue_sender(QUEUE)
            for call in calls:
                await call(sender, sent)
                assert state(bus) is PathStatus.FAILOVER
                bus.mark_path_healthy(QUEUE)
            assert isinstance(await bounded(bus._driver.run, ping_operation(bus)), ServiceBusError)
            await bounded(sender.close)
        assert sorted(await bounded(case.stored)) == sorted(sent)
        await bounded(case.all_closed)

    every: list[Call] = [only_enter, create, *SENDS]
    some: list[Call] = [only_enter, send_one]  # each call lasts until its timeout
    refusing = [relays.to(primary) for _ in FLAVOURS]
    cases = {}
    with ExitStack() as ports:
        for flavour, relay in zip(FLAVOURS, refusing, strict=True):
            relay.refuse()
            dead = UnservedPort(primary, ports.enter_context(dead_port()))
            hole, another = (UnservedPort(primary, ports.enter_context(black_hole())) for _ in "12")
            cases |= {
                f"refused ({flavour})": check_case(flavour, dead, every, tls=False),
                f"closed ({flavour})": check_case(flavour, relay, every, tls=False),
                f"black hole ({flavour})": check_case(flavour, hole, some, tls=False),
                f"black hole, TLS ({flavour})": check_case(flavour, another, some, tls=True),
            }
        await run_concurrently(cases)
        await all_tasks_end()
    assert all(relay.accepted for relay in refusing)


class OpenPairing:
    """A pairing whose sender is open when processes are frozen."""

    def __init__(self, flavour: str, primary: Namespace, secondary: Namespace, tls: bool) -> None:
        self.name = next(names)
        self.sent: list[str] = []
        self._secondary = secondary
        self._client = connect(flavour, primary, tls=tls)
        # Without TLS the pairing gets a connection string, creates the client, and closes it.
        self._other = connect(flavour, secondary, tls=True) if tls else None
        self._secondary_option = secondary.connection_string if self._other is None else self._other
        self._flavour = flavour

    async def begin(self) -> None:
        options = options_of(self._secondary_option, self.name, operation_timeout=LONG_TIMEOUT)
        self.bus = await pair(self._flavour, self._client, options)
        self.sender = self.bus.get_queue_sender(QUEUE)
        await enter(self.sender)
        await send_one(self.sender, self.sent)

    async def while_the_primary_is_frozen(self) -> None:
        # Each call lasts until its timeout, so half of the calls are made with TLS.
        calls: list[Call] = [send_one, create] if self._other is None else [send_batch, schedule]
        for call in calls:
            await call(self.sender, self.sent)
            assert state(self.bus) is PathStatus.FAILOVER
            self.bus.mark_path_healthy(QUEUE)
        error = await bounded(self.bus._driver.run, ping_operation(self.bus))
        assert isinstance(error, OperationTimeoutError)

    async def after_the_primary_continues(self) -> None:
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
        await bounded(another.close)
        await bounded(self.bus.close)
        options = options_of(
            self._secondary_option, self.name, operation_timeout=timedelta(seconds=1)
        )
        with pytest.raises(BacklogUnavailable):
            await pair(self._flavour, self._client, options)
        await close_all(self._client, *([] if self._other is None else [self._other]))


@pytest.mark.rule("S2a", "S5", "S14")
async def test_frozen_processes_are_left_and_used_again_after_they_continue(
    primary: Namespace, secondary: Namespace
) -> None:
    pairings = {
        f"{flavour}, TLS: {tls}": OpenPairing(flavour, primary, secondary, tls)
        for flavour in FLAVOURS
        for tls in (False, True)
    }

    async def in_each_pairing(step: Callable[[OpenPairing], Coroutine[Any, Any, None]]) -> None:
        await run_concurrently({name: step(pairing) for name, pairing in pairings.items()})

    await in_each_pairing(OpenPairing.begin)
    with primary.frozen():
        await in_each_pairing(OpenPairing.while_the_primary_is_frozen)
    await in_each_pairing(OpenPairing.after_the_primary_continues)
    with primary.frozen(), secondary.frozen():
        await in_each_pairing(OpenPairing.while_both_are_frozen)
    sent = [pairing.sent for pairing in pairings.values()]
    arrived = set(primary.ids(QUEUE))
    assert all(ids[0] in arrived and ids[-1] in arrived for ids in sent)


@pytest.mark.rule("S2a")
async def test_token_request_without_a_response_is_bounded(
    flavour: str, secondary: Namespace
) -> None:
    sent: list[str] = []
    name = next(names)
    with LocalNamespace("silent") as silent:
        silent.create_queue(QUEUE)
        fault = silent.add_fault("ignore-tokens")
        async with paired(flavour, silent, secondary, name, operation_timeout=LONG_TIMEOUT) as bus:
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
    assert await bounded(case.stored) == sent


@pytest.mark.rule("S2a")
async def test_hanging_call_does_not_disturb_other_senders(
    new_case: NewCase, primary: Namespace
) -> None:
    async def check_case(flavour: str) -> None:
        case = new_case()
        sent: list[str] = []
        async with case.paired(
            flavour, failover_interval=MINUTE, operation_timeout=timedelta(seconds=15)
        ) as bus:
            others = [bus.get_queue_sender(path) for path in (QUEUE, OTHER, OTHER)]
            await asyncio.gather(*(enter(sender) for sender in others))
            case.primary.become_silent(IN_A_SEND["credit"], times=1)
            hanging = asyncio.ensure_future(send_one(bus.get_queue_sender(QUEUE), []))
            await bounded(wait_until, lambda: case.primary.silences == 1, "the silence")

            await asyncio.gather(*(send_many(sender, sent) for sender in others))
            new_sender = bus.get_queue_sender(OTHER)
            await enter(new_sender)
            await send_one(new_sender, sent)
            assert not hanging.done()
            assert state(bus) is state(bus, OTHER) is PathStatus.HEALTHY
            with pytest.raises(OperationTimeoutError):
                await hanging
            assert state(bus, OTHER) is PathStatus.HEALTHY
        arrived = await bounded(lambda: primary.ids(QUEUE) + primary.ids(OTHER))
        assert set(sent) <= set(arrived)
        await bounded(case.all_closed)

    await run_concurrently({flavour: check_case(flavour) for flavour in FLAVOURS})


async def send_many(sender: Any, sent: list[str]) -> None:
    for _ in range(20):
        await send_one(sender, sent)
