"""`failback="after-drain"`: order within a session across an outage.

The tests drain the backlog themselves, without a syphon.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusAuthorizationError

from pairbus import SendUnavailable
from pairbus.amqp.client import Receiver, Sender
from pairbus.amqp.sections import Message
from pairbus.events import DrainStalled, PathStatus, Pinged
from pairbus.pairing.backlog_peeks import SMALL
from pairbus.transfer import from_backlog, to_backlog
from tests.integration.emulator_clients import client_of
from tests.integration.pairs import (
    MINUTE,
    SECOND,
    SENDS,
    Make,
    Pair,
    error_of,
    gather_all,
    message,
    until,
)
from tests.messages import message as encoded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.rule("S12")]

HEALTHY, FAILOVER, DRAINING = PathStatus.HEALTHY, PathStatus.FAILOVER, PathStatus.DRAINING
HOLD_S = 5.0
CHECK_S = HOLD_S / 10


@asynccontextmanager
async def draining_backlog(pair: Pair) -> AsyncIterator[asyncio.Task[None]]:
    """Drain the backlog as a syphon does: complete a message after the primary accepted it, and
    keep the order."""
    stop = threading.Event()
    work = asyncio.create_task(asyncio.to_thread(syphon, pair, stop))
    try:
        yield work
    finally:
        stop.set()
        await work


def syphon(pair: Pair, stop: threading.Event) -> None:
    with client_of(pair.secondary) as backlog, client_of(pair.primary) as primary:
        receivers = [Receiver(backlog, queue) for queue in pair.backlog_queues]
        for receiver in receivers:
            receiver.grant_credit(20)  # attaches in the background
        senders: dict[str, Sender] = {}
        while not stop.is_set():
            for receiver in receivers:
                for delivery in receiver.receive(20, timeout_s=0.02):
                    moved = from_backlog(delivery.payload)
                    if moved.path not in senders:
                        senders[moved.path] = Sender(primary, moved.path)
                    senders[moved.path].send(moved.payload)
                    receiver.settle([delivery])


async def draining(make: Make, *, messages: int = 1, **options: Any) -> tuple[Pair, str, Any]:
    """Return a pairing whose primary is back, a path with messages in the backlog, and a sender."""
    given = {"fake_clock": True, "ping_jitter": 0.0, "failback": "after-drain", **options}
    pair = await make(**given)
    queue = pair.queue()
    sender = pair.sender(queue)
    pair.primary.stop()
    await sender.__aenter__()
    for _ in range(messages):
        await sender.send_messages(message(session_id="s"))
    assert len(pair.backlog(queue)) == messages
    assert pair.state(queue) is FAILOVER
    pair.primary.start()
    pair.advance(60)
    await until(lambda: pair.state(queue) is not FAILOVER, "the ping")
    return pair, queue, sender


def peeks(pair: Pair, queue: str) -> int:
    reading = pair.secondary.meter().get((queue, "peek"))
    return 0 if reading is None else reading.operations


def next_peek_at(pair: Pair, queue: str) -> float | None:
    """Return the time of the next peek; None if there is none."""
    path = pair.bus._pairing.path(queue)
    step = pair.bus._pairing.next_step(path)
    return None if step is None else step.at


async def peeks_done(pair: Pair, queue: str) -> None:
    """Wait until all peeks that are due were made."""
    await until(
        lambda: (at := next_peek_at(pair, queue)) is None or at > pair.clock.time,
        "the peeks that are due",
    )


def is_held(pair: Pair, queue: str) -> bool:
    return pair.bus._pairing.path(queue).health.hold_until is not None


def empty(pair: Pair) -> None:
    """Receive and complete all messages of the backlog."""
    with client_of(pair.secondary) as client:
        for queue in pair.backlog_queues:
            receiver = Receiver(client, queue)
            while pair.in_queue(queue):
                receiver.settle(receiver.receive(20))
    assert pair.backlog() == []


# End to end.


@pytest.mark.rule("S12", "S13")
async def test_sessions_arrive_in_order_across_an_outage(make: Make) -> None:
    pair = await make(
        failback="after-drain", ping_primary_interval=SECOND, failback_hold=2 * SECOND
    )
    queue = pair.queue(requires_session=True)
    (sender,) = await pair.entered(queue)
    sent: list[str] = []

    async def send_round() -> None:
        for session in ("a", "b", "c", "d"):
            body = f"{session}{len(sent)}"
            await sender.send_messages(message(body, session_id=session))
            sent.append(body)

    await send_round()
    await send_round()
    pair.primary.stop()
    for _ in range(3):
        await send_round()
    assert len(pair.backlog(queue)) == 12
    pair.primary.start()
    await until(lambda: pair.state(queue) is not FAILOVER, "the primary to be back")
    async with draining_backlog(pair) as work:
        rounds = 0
        while pair.state(queue) is not HEALTHY:
            assert not work.done()
            if rounds < 10:  # a backlog that grows as fast as it is drained never ends
                await send_round()
                rounds += 1
            await asyncio.sleep(0.1)
        await send_round()
        await send_round()
    arrived = [Message.parse(payload).read_body()[1][0].decode() for payload in pair.arrived(queue)]
    assert sorted(arrived) == sorted(sent)
    for session in ("a", "b", "c", "d"):
        mine = [body for body in arrived if body[0] == session]
        assert mine == [body for body in sent if body[0] == session]
    assert pair.backlog() == []
    assert pair.changes(queue) == [(HEALTHY, FAILOVER), (FAILOVER, DRAINING), (DRAINING, HEALTHY)]


# Peeks at the backlog.


async def test_empty_backlog_needs_three_peeks_at_each_queue(make: Make) -> None:
    pair, queue, sender = await draining(make, messages=0)
    await peeks_done(pair, queue)
    assert pair.state(queue) is DRAINING
    assert [peeks(pair, name) for name in pair.backlog_queues] == [2, 2, 2]
    pair.advance(CHECK_S)
    await pair.until_state(queue, HEALTHY)
    assert [peeks(pair, name) for name in pair.backlog_queues] == [3, 3, 3]
    await sender.send_messages(message(session_id="s"))
    assert len(pair.arrived(queue)) == 1
    pair.advance(3600)
    await sender.send_messages(message(session_id="s"))
    assert [peeks(pair, name) for name in pair.backlog_queues] == [3, 3, 3]
    assert len(pair.of(Pinged)) == 1


async def test_large_backlog_costs_two_credits_a_peek_and_sends_continue(make: Make) -> None:
    pair, queue, sender = await draining(
        make,
        messages=SMALL + 2,
        backlog_queue_count=1,
        failback_hold=timedelta(milliseconds=100),  # so that stored messages do not count as young
    )
    (backlog,) = pair.backlog_queues
    await peeks_done(pair, queue)
    assert peeks(pair, backlog) == 2
    for number in range(3):
        assert not is_held(pair, queue)
        assert next_peek_at(pair, queue) == pair.clock.time + 2**number
        await sender.send_messages(message(session_id="s"))
        assert len(pair.backlog()) == SMALL + 3 + number
        pair.advance(2**number)
        await peeks_done(pair, queue)
        assert peeks(pair, backlog) == 2 * (2 + number)
    assert pair.state(queue) is DRAINING
    assert pair.arrived(queue) == []
    empty(pair)
    pair.advance(2**3)
    await peeks_done(pair, queue)
    pair.advance(0.02)
    await pair.until_state(queue, HEALTHY)


async def test_path_fails_back_while_other_processes_store_messages(make: Make) -> None:
    pair, queue, sender = await draining(make, backlog_queue_count=1)
    (backlog,) = pair.backlog_queues
    await peeks_done(pair, queue)
    assert is_held(pair, queue)
    pair.advance(HOLD_S)  # the first hold counts every message
    await peeks_done(pair, queue)
    pair.advance(1)
    await peeks_done(pair, queue)
    assert is_held(pair, queue)
    waiting = asyncio.ensure_future(sender.send_messages(message("held", session_id="s")))
    with client_of(pair.secondary) as client:
        Sender(client, backlog).send(to_backlog(encoded("other"), queue))
        pair.advance(CHECK_S)
        await peeks_done(pair, queue)
        assert pair.state(queue) is DRAINING  # the path's own message is in front
        receiver = Receiver(client, backlog)
        (own,) = receiver.receive()
        receiver.settle([own])
    for _ in range(2):
        assert pair.state(queue) is DRAINING
        pair.advance(CHECK_S)
        await peeks_done(pair, queue)
    await waiting
    assert pair.state(queue) is HEALTHY
    assert len(pair.backlog()) == 1  # that of the other process


async def test_locked_message_keeps_the_path_draining(make: Make) -> None:
    pair, queue, _ = await draining(make, backlog_queue_count=1)
    (backlog,) = pair.backlog_queues
    with client_of(pair.secondary) as client:
        receiver = Receiver(client, backlog)
        (delivery,) = receiver.receive()
        before = peeks(pair, backlog)
        for _ in range(4):
            await peeks_done(pair, queue)
            assert pair.state(queue) is DRAINING
            pair.advance(CHECK_S)
        await peeks_done(pair, queue)
        assert peeks(pair, backlog) >= before + 4
        receiver.settle([delivery])
    pair.advance(CHECK_S)
    await peeks_done(pair, queue)
    pair.advance(CHECK_S)
    await pair.until_state(queue, HEALTHY)


# The hold.


async def test_held_sends_go_to_the_primary_when_the_backlog_is_empty(make: Make) -> None:
    pair, queue, sender = await draining(make)
    await peeks_done(pair, queue)
    assert is_held(pair, queue)
    waiting = asyncio.ensure_future(sender.send_messages(message("held", session_id="s")))
    pair.advance(CHECK_S)
    await peeks_done(pair, queue)
    assert not waiting.done()
    empty(pair)
    for _ in range(2):
        pair.advance(CHECK_S)
        await peeks_done(pair, queue)
    await waiting
    assert pair.state(queue) is HEALTHY
    assert pair.backlog() == []
    assert len(pair.arrived(queue)) == 1


async def test_no_send_is_held_longer_than_the_limit_and_holds_are_repeated(make: Make) -> None:
    pair, queue, sender = await draining(make)
    await peeks_done(pair, queue)
    waiting = asyncio.ensure_future(sender.send_messages(message("held", session_id="s")))
    pair.advance(HOLD_S)
    await waiting
    assert len(pair.backlog(queue)) == 2
    await peeks_done(pair, queue)
    assert not is_held(pair, queue)
    await sender.send_messages(message(session_id="s"))  # at once
    assert len(pair.backlog(queue)) == 3
    assert pair.arrived(queue) == []
    pair.advance(1)
    await peeks_done(pair, queue)
    assert is_held(pair, queue)
    empty(pair)
    for _ in range(2):
        pair.advance(CHECK_S)
        await peeks_done(pair, queue)
    assert pair.state(queue) is HEALTHY


@pytest.mark.rule("S14")
async def test_held_send_fails_when_the_pairing_is_closed(make: Make) -> None:
    pair, queue, sender = await draining(make)
    await peeks_done(pair, queue)
    waiting = asyncio.ensure_future(error_of(sender.send_messages(message(session_id="s"))))
    await asyncio.sleep(0)
    await pair.close()
    assert await waiting is not None
    assert len(pair.backlog(queue)) == 1
    assert pair.arrived(queue) == []


# Errors.


@pytest.mark.rule("S12", "S13")
async def test_drain_without_a_syphon_is_an_event_and_the_path_can_be_marked_healthy(
    make: Make,
) -> None:
    pair, queue, sender = await draining(make, drain_timeout=SECOND)
    await peeks_done(pair, queue)
    assert pair.of(DrainStalled) == []
    pair.advance(1)
    await until(lambda: pair.of(DrainStalled), "the event")
    (stalled,) = pair.of(DrainStalled)
    assert (stalled.path, stalled.error) == (queue, None)
    assert pair.state(queue) is DRAINING
    pair.bus.mark_path_healthy(queue)
    assert pair.state(queue) is HEALTHY
    await sender.send_messages(message(session_id="s"))
    assert len(pair.arrived(queue)) == 1
    assert len(pair.backlog(queue)) == 1
    assert pair.changes(queue)[-1] == (DRAINING, HEALTHY)


async def test_missing_listen_right_keeps_the_path_draining_and_is_an_event(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    probe = await make(start=False)
    send_only = probe.secondary.connection_string_of(SENDS.name, SENDS.primary_key)

    async def make_with_send_right(**options: Any) -> Pair:
        pair = await make(start=False)
        for index in range(3):
            pair.secondary.create_queue(f"{pair.name}/x-servicebus-transfer/{index}")
        return await pair.start(secondary=pair.connect(send_only), create_backlog=False, **options)

    pair, queue, sender = await draining(make_with_send_right, drain_timeout=SECOND)
    await peeks_done(pair, queue)
    pair.advance(1)
    await until(lambda: pair.of(DrainStalled), "the event")
    assert isinstance(pair.of(DrainStalled)[0].error, ServiceBusAuthorizationError)
    assert f"{queue}: the peek at the backlog failed" in caplog.text
    await sender.send_messages(message(session_id="s"))
    assert pair.state(queue) is DRAINING
    assert len(pair.backlog(queue)) == 2
    pair.bus.mark_path_healthy(queue)
    await sender.send_messages(message(session_id="s"))
    assert len(pair.arrived(queue)) == 1


@pytest.mark.rule("S5", "S12")
async def test_session_of_a_pulled_queue_never_moves_to_another(make: Make) -> None:
    pair = await make(
        failback="after-drain", fake_clock=True, backlog_cool_down=MINUTE, ping_jitter=0.0
    )
    queue = pair.queue(requires_session=True)
    pair.fault("internal-error", queue)
    path = pair.bus._pairing.path(queue)
    queue_of = {str(n): pair.bus._pairing.backlog.queue_of_session(path, str(n)) for n in range(12)}
    lost = queue_of["0"]
    fault = pair.secondary.add_fault("internal-error", lost)
    first, second = pair.sender(queue), pair.sender(queue)
    error = await error_of(first.send_messages(message(session_id="0")))
    assert fault.fired == 1
    assert isinstance(error, SendUnavailable)
    assert error.backlog_error is not None
    errors = await gather_all(
        error_of(sender.send_messages(message(session_id=session)))
        for sender, session in zip((first, second) * 6, queue_of, strict=True)
    )
    for session, error in zip(queue_of, errors, strict=True):
        assert isinstance(error, SendUnavailable) == (queue_of[session] == lost), session
    assert fault.fired == 1
    stored = {
        moved.session: backlog_queue
        for backlog_queue in pair.backlog_queues
        for moved in pair.in_queue(backlog_queue)
    }
    assert stored == {
        session: backlog_queue
        for session, backlog_queue in queue_of.items()
        if backlog_queue != lost
    }
    pair.secondary.clear_faults()
    pair.clock.time += 59.0
    assert isinstance(await error_of(first.send_messages(message(session_id="0"))), SendUnavailable)
    pair.clock.time += 1
    await first.send_messages(message(session_id="0"))
    assert [moved.session for moved in pair.in_queue(lost)] == ["0"]
