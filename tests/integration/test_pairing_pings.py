"""Pings of a path in failover: form, interval and end."""

from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusReceivedMessage

import pairbus.aio
from pairbus.amqp.section_edit import DATA
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Symbol
from pairbus.emulator.connections.incoming_links import IncomingLink
from pairbus.emulator.entities.message_codec import parse_message
from pairbus.events import PathStatus, Pinged
from pairbus.pairing.ping import PING_CONTENT_TYPE
from tests.integration.encoded_messages import payload
from tests.integration.pairs import LISTENS, Make, Pair, gather_all, message, until
from tests.integration.raw_peer import DEADLINE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEALTHY, FAILOVER = PathStatus.HEALTHY, PathStatus.FAILOVER


async def fail_over(pair: Pair, *paths: str, session_id: str | None = None) -> list[Any]:
    """Let paths fail over, and then remove the faults."""
    faults = [pair.fault("internal-error", path) for path in paths]
    senders = [pair.sender(path) for path in paths]
    await gather_all(sender.send_messages(message(session_id=session_id)) for sender in senders)
    assert all(fault.fired == 1 for fault in faults)
    assert all(pair.state(path) is FAILOVER for path in paths)
    pair.remove_faults(*faults)
    return senders


def sends(pair: Pair, path: str) -> int:
    reading = pair.primary.meter().get((path, "send"))
    return 0 if reading is None else reading.messages


@pytest.mark.rule("G1", "G3")
async def test_ping_has_the_documented_form_and_is_not_delivered(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = await make(fake_clock=True, ping_jitter=0.0)
    plain, with_sessions, topic = pair.queue(), pair.queue(requires_session=True), pair.topic()
    await fail_over(pair, plain, with_sessions, topic, session_id="s")
    assert [sends(pair, path) for path in (plain, with_sessions, topic)] == [0, 0, 0]
    payloads: list[bytes] = []
    take = IncomingLink._store

    def record(inlet: Any, delivery: Any) -> None:
        if inlet.path in (plain, with_sessions, topic):
            payloads.append(bytes(delivery.payload))
        take(inlet, delivery)

    monkeypatch.setattr(IncomingLink, "_store", record)
    pair.advance(60)
    for path in (plain, with_sessions, topic):
        await pair.until_state(path, HEALTHY)
        assert sends(pair, path) == 1
    assert pair.arrived(plain) == pair.arrived(with_sessions) == []
    assert (
        pair.primary.call(
            lambda core: sum(
                len(queue) for queue in core.entities.get(f"{topic}/Subscriptions/all").queues
            )
        )
        == 0
    )
    sessions = set()
    assert len(payloads) == 3
    for encoded in payloads:
        ping = Message.parse(encoded)
        kind, body = ping.read_body()
        assert b"".join(body) == b""
        assert (kind, len(body)) == (DATA, 1)
        assert ping.read_header().ttl == 1000
        properties = ping.read_properties()
        assert properties.content_type == PING_CONTENT_TYPE
        sessions.add(UUID(properties.group_id))
        assert ping.application_properties == ping.message_annotations == b""
    assert len(sessions) == 3


@pytest.mark.rule("G2")
async def test_pings_keep_the_interval_and_stop_after_the_first_success(make: Make) -> None:
    pair = await make(fake_clock=True, ping_jitter=0.0)
    queue = pair.queue()
    fault = pair.fault("internal-error", queue)
    sender = pair.sender(queue)
    await sender.send_messages(message())
    path = pair.bus._pairing.path(queue)
    for number in range(1, 4):
        due = pair.bus._pairing.next_step(path).at
        assert due == pair.clock.time + 60
        pair.advance(59.999)
        await sender.send_messages(message())  # goes to the backlog while the clock is stopped
        assert len(pair.of(Pinged)) == number - 1
        pair.advance(0.001)
        await until(lambda: len(pair.of(Pinged)) == number, "a ping")  # noqa: B023
        assert fault.fired == 1 + number
        assert pair.state(queue) is FAILOVER
        last = pair.bus.status().paths[queue].last_ping
        assert last is pair.of(Pinged)[-1]
        assert last.error is not None
        assert not last.refused
        await until(lambda: pair.bus._pairing.next_step(path).at > pair.clock.time, "the next")
    pair.remove_faults(fault)
    pair.advance(60)
    await pair.until_state(queue, HEALTHY)
    assert [event.error is None for event in pair.of(Pinged)] == [False, False, False, True]
    assert sends(pair, queue) == 1  # rejected pings are not billed
    assert pair.bus._pairing.next_step(path) is None
    pair.advance(3600)
    await sender.send_messages(message())
    assert len(pair.of(Pinged)) == 4
    assert sends(pair, queue) == 2


@pytest.mark.rule("G2")
async def test_pings_of_many_paths_are_spread(make: Make) -> None:
    pair = await make(fake_clock=True, ping_jitter=0.5)
    paths = pair.queues(6)
    await fail_over(pair, *paths)
    core = pair.bus._pairing
    due = [core.next_step(core.path(path)).at - pair.clock.time for path in paths]
    assert all(30 <= seconds <= 90 for seconds in due)
    assert len(set(due)) == len(paths)
    pair.advance(min(due))
    first = paths[due.index(min(due))]
    await pair.until_state(first, HEALTHY)
    assert [event.path for event in pair.of(Pinged)] == [first]
    pair.advance(90)
    await gather_all(pair.until_state(path, HEALTHY) for path in paths)
    assert sorted(event.path for event in pair.of(Pinged)) == sorted(paths)


@pytest.mark.rule("G4")
async def test_refused_ping_is_an_event_and_messages_go_to_the_backlog(make: Make) -> None:
    pair = await make(fake_clock=True)
    gone, forbidden = pair.queues(2)
    senders = await fail_over(pair, gone, forbidden)
    pair.delete(gone)
    fault = pair.fault("refuse-tokens", forbidden, status=401)
    pair.advance(66)
    await until(lambda: len(pair.of(Pinged)) == 2, "two pings")
    assert fault.fired == 1
    for ping in pair.of(Pinged):
        assert ping.refused
        assert ping.error is not None
        assert pair.bus.status().paths[ping.path].last_ping is ping
    await gather_all(sender.send_messages(message()) for sender in senders)
    assert [pair.state(path) for path in (gone, forbidden)] == [FAILOVER, FAILOVER]
    assert [len(pair.backlog(path)) for path in (gone, forbidden)] == [2, 2]
    pair.primary.create_queue(gone)
    pair.remove_faults(fault)
    pair.advance(66)
    await gather_all(pair.until_state(path, HEALTHY) for path in (gone, forbidden))


@pytest.mark.rule("G3")
async def test_drop_pings_completes_delivered_pings(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    ping = Message.build(
        properties=Properties(content_type=Symbol(PING_CONTENT_TYPE)), data=b""
    ).encode()
    # The emulator drops pings on arrival, so they are put into the queue directly.
    pair.primary.call(
        lambda core: core.entities.router.send(
            core.entities.get(queue),
            [
                parse_message(payload("one")),
                parse_message(ping),
                parse_message(payload("two")),
                parse_message(ping),
            ],
            core.now_ms(),
        )
    )
    receiver = pair.bus.get_queue_receiver(queue)
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < 4:
        messages += await pair.do(
            receiver.receive_messages, max_message_count=4, max_wait_time=DEADLINE_S
        )
    drop = pairbus.drop_pings if pair.sync else pairbus.aio.drop_pings
    kept = await pair.do(drop, receiver, messages)
    assert [str(item) for item in kept] == ["one", "two"]
    assert len(pair.arrived(queue)) == 2
    await pair.do(receiver.close)


@pytest.mark.rule("G2", "S13")
async def test_path_without_the_send_right_can_be_marked_healthy(make: Make) -> None:
    pair = await make(start=False)
    text = pair.primary.connection_string_of(LISTENS.name, LISTENS.primary_key)
    await pair.start(primary=pair.connect(text), fake_clock=True)
    queue = pair.queue()
    pair.primary.stop()
    await pair.sender(queue).send_messages(message())
    pair.primary.start()
    pair.advance(66)
    await until(lambda: pair.of(Pinged), "a ping")
    assert pair.of(Pinged)[0].refused
    pair.bus.mark_path_healthy(queue)
    assert pair.state(queue) is HEALTHY
    assert pair.changes(queue) == [(HEALTHY, FAILOVER), (FAILOVER, HEALTHY)]
