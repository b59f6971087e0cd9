"""Settlement and outcomes between our server and peers as clients."""

from typing import Any

import pytest

from examples.engine.memory_server import MemoryServer, ServerConnection
from pairbus.amqp import events as ev
from pairbus.amqp.performatives import (
    SETTLE_FIRST,
    SETTLE_SECOND,
    SETTLE_SETTLED,
    SETTLE_UNSETTLED,
    Accepted,
    Error,
    Modified,
    Rejected,
    Released,
)
from pairbus.amqp.types import Symbol
from pairbus.errors import LockLost
from tests.interop.fixture_types import Connect, Watch
from tests.interop.limitations import needs
from tests.interop.messages import text, texts
from tests.unit.amqp.same import same

ERROR = Error(Symbol("test:error"), "test error", {Symbol("detail"): "test"})


@needs("presettled send")
def test_presettled_message_is_received_settled(server: MemoryServer, connect: Connect) -> None:
    peer = connect(server)
    settled, unsettled = peer.sender("q", settled=True), peer.sender("q", settled=False)

    settled.post(text("settled"))
    assert unsettled.send(text("unsettled")) == Accepted()

    assert [each.settled for each in server.received] == [True, False]
    assert [attach.snd_settle_mode for attach in server.attaches] == [
        SETTLE_SETTLED,
        SETTLE_UNSETTLED,
    ]


def test_presettled_message_is_settled_when_it_is_sent(
    server: MemoryServer, connect: Connect, watch: Watch
) -> None:
    frames = watch(server)
    server.put("q", *(message.encode() for message in texts(2)))
    peer = connect(server)

    messages = peer.receiver("q", settled=True).receive(2)

    assert [message.text for message in messages] == ["0", "1"]
    assert all(message.settled for message in messages)
    attach = server.attaches[-1]
    assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (SETTLE_SETTLED, SETTLE_FIRST)
    assert [frame.performative.settled for frame in frames.transfers("out")[-2:]] == [True] * 2
    assert server.settlements == []
    assert not server.queues["q"]


@needs("settle mode first")
def test_receiver_in_mode_first_settles_at_once(server: MemoryServer, connect: Connect) -> None:
    server.put("q", text("a").encode())
    peer = connect(server)
    receiver = peer.receiver("q")

    receiver.settle(receiver.receive()[0])

    [settlement] = peer.until(lambda: server.settlements)
    assert (settlement.state, settlement.settled) == (Accepted(), True)


def test_receiver_in_mode_second_waits_for_our_settlement(
    server: MemoryServer, connect: Connect, watch: Watch
) -> None:
    frames = watch(server)
    server.put("q", text("a").encode())
    peer = connect(server)
    receiver = peer.receiver("q", second=True)

    receiver.settle(receiver.receive()[0])

    [settlement] = server.settlements
    assert (settlement.state, settlement.settled) == (Accepted(), False)
    assert server.attaches[-1].rcv_settle_mode == SETTLE_SECOND
    dispositions = {
        frame.direction: frame.performative
        for frame in frames.frames
        if frame.name == "disposition"
    }
    assert (dispositions["in"].settled, dispositions["in"].state) == (False, Accepted())
    assert (dispositions["out"].settled, dispositions["out"].state) == (True, Accepted())
    [link] = [endpoint.link for endpoint in server.endpoints if endpoint.address == "q"]
    unsettled = link.session.outgoing.unsettled.values()
    assert [delivery for delivery in unsettled if delivery.link is link] == []


def intercept_deliveries(server: MemoryServer) -> list[ev.Delivery]:
    """Let the test settle the deliveries to the address "q"."""
    deliveries = []

    def intercept(connection: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.Delivery) and event.link.context.address == "q":
            deliveries.append(event)
            return True
        return False

    server.call(lambda: setattr(server, "intercept", intercept))
    return deliveries


@needs("sender settles second")
def test_sender_settles_after_our_outcome_in_mode_second(
    server: MemoryServer, connect: Connect
) -> None:
    deliveries = intercept_deliveries(server)
    updates: list[ev.Event] = []
    peer = connect(server)
    sender = peer.sender("q")
    sender.post(text("a"))
    [delivery] = peer.until(lambda: deliveries)
    session = delivery.link.session
    intercept = server.intercept

    def collect(connection: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.IncomingDeliveriesUpdated):
            updates.append(event)
        return intercept(connection, event)

    server.call(lambda: setattr(server, "intercept", collect))
    server.call(lambda: session.settle(delivery.id, delivery.id, Accepted(), settled=False))
    assert sender.wait_for_outcomes(1) == [(Accepted(), False)]
    assert list(session.incoming.unsettled) == [delivery.id]

    sender.confirm(1)

    [update] = peer.until(lambda: updates)
    assert (update.deliveries, update.state, update.settled) == ([delivery], Accepted(), True)
    assert session.incoming.unsettled == {}


@needs("send without waiting")
def test_one_disposition_settles_a_range_of_deliveries(
    server: MemoryServer, connect: Connect
) -> None:
    deliveries = intercept_deliveries(server)
    peer = connect(server)
    sender = peer.sender("q")
    for message in texts(10):
        sender.post(message)
    peer.until(lambda: len(deliveries) == 10)
    session = deliveries[0].link.session

    server.call(lambda: session.settle(deliveries[2].id, deliveries[7].id, Accepted()))
    assert sender.wait_for_outcomes(6) == [(Accepted(), True)] * 6
    server.call(lambda: session.settle(deliveries[0].id, deliveries[9].id, Released()))

    assert sender.wait_for_outcomes(4) == [(Released(), True)] * 4


@pytest.mark.parametrize("second", [False, True], ids=["mode first", "mode second"])
def test_outcomes_of_a_receiver_reach_us(
    server: MemoryServer, connect: Connect, second: bool
) -> None:
    peer = connect(server)
    outcomes: tuple[Any, ...] = peer.outcomes
    for number, outcome in enumerate(outcomes):
        address = f"q{number}"
        server.put(address, text(address).encode())
        receiver = peer.receiver(address, second=second)
        [message] = receiver.receive()
        receiver.settle(message, outcome)
        peer.until(lambda number=number: len(server.settlements) > number)

        state = server.settlements[number].state
        assert state == outcome
        if isinstance(outcome, Modified) and outcome.message_annotations is not None:
            assert same(state.message_annotations, outcome.message_annotations)
        if isinstance(outcome, Rejected):
            assert len(server.dead_lettered[address]) == 1
        elif isinstance(outcome, Modified) and outcome.undeliverable_here:
            assert len(server.deferred[address]) == 1


@needs("reports outcomes")
def test_our_outcomes_reach_a_sender(server: MemoryServer, connect: Connect) -> None:
    outcomes = (
        Accepted(),
        Released(),
        Rejected(),
        Rejected(ERROR),
        Modified(),
        Modified(delivery_failed=True),
        Modified(True, True, {Symbol("x-opt-why"): "because"}),
    )
    peer = connect(server)
    for number, outcome in enumerate(outcomes):
        address = f"q{number}"
        server.call(
            lambda address=address, outcome=outcome: server.outcomes.update({address: outcome})
        )
        assert peer.sender(address).send(text("a")) == outcome


def test_abandoned_message_is_redelivered(server: MemoryServer, connect: Connect) -> None:
    server.put("q", text("a").encode())
    peer = connect(server)
    receiver = peer.receiver("q")
    [first] = receiver.receive()

    receiver.settle(first, Modified(delivery_failed=True))

    [second] = receiver.receive()
    assert (first.text, second.text) == ("a", "a")
    [endpoint] = [endpoint for endpoint in server.endpoints if endpoint.address == "q"]
    assert [entry.attempts for entry in endpoint.unsettled.values()] == [1]


def test_unsettled_message_of_a_closed_client_is_redelivered(
    server: MemoryServer, connect: Connect
) -> None:
    server.put("q", text("a").encode())
    peer = connect(server)
    peer.receiver("q").receive()
    assert not server.queues["q"]

    peer.close()

    server.wait_for(lambda: server.queues["q"])
    [message] = connect(server).receiver("q").receive()
    assert message.text == "a"


@needs("confirms settlement")
def test_settlement_that_fails_is_reported(server: MemoryServer, connect: Connect) -> None:
    from azure.servicebus.exceptions import MessageLockLostError

    server.put("q", text("a").encode())
    errors = {"q": LockLost("the lock has expired")}
    server.call(lambda: server.settlement_errors.update(errors))
    receiver = connect(server).receiver("q")
    [message] = receiver.receive()

    with pytest.raises(MessageLockLostError, match="the lock has expired"):
        receiver.settle(message)

    assert len(server.settlements) == 1
