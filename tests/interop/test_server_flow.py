"""Credit, drain, settlement and outcomes between our client and peers as servers."""

import threading
from typing import Any

import pytest

from pairbus.amqp.client import Receiver, Sender
from pairbus.amqp.events import OutgoingDeliveriesUpdated
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
from pairbus.amqp.types import Symbol, UInt
from pairbus.errors import (
    AmqpError,
    Busy,
    EntityNotFound,
    LockLost,
    MessageTooLarge,
    OperationTimeout,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from tests.interop.engine_client import EngineClient
from tests.interop.fixture_types import OpenClient, StartPeer
from tests.interop.limitations import needs
from tests.interop.messages import text, texts
from tests.interop.peers import PeerServer, wait_until
from tests.interop.transfers import payload, receive, received_texts, texts_of
from tests.unit.amqp.same import same


def test_sender_waits_for_credit(start_peer: StartPeer, open_client: OpenClient) -> None:
    peer = start_peer(credit=0)
    sender = Sender(open_client(peer), "q")
    sender.open()

    with pytest.raises(OperationTimeout, match="timed out waiting for credit to send to 'q'"):
        sender.send(payload("too early"), timeout_s=0.3)
    peer.grant("q", 2)
    sender.send(payload("a"))
    sender.send(payload("b"))

    assert received_texts(peer, 2) == ["a", "b"]


@needs("server: holds messages")
def test_many_deliveries_are_in_flight(peer: PeerServer, open_client: OpenClient) -> None:
    peer.rule("q", hold=True)
    sender = Sender(open_client(peer), "q")

    pending = [sender.post(payload(str(number))) for number in range(10)]
    messages = peer.receive(10)
    assert sender.in_flight == 10
    for message in messages:
        peer.settle(message, Accepted())
    sender.wait(pending)

    assert [delivery.error for delivery in pending] == [None] * 10
    assert sender.in_flight == 0


def test_receiver_gets_no_more_messages_than_its_credit(
    peer: PeerServer, open_client: OpenClient
) -> None:
    peer.put("q", *texts(5))
    receiver = Receiver(open_client(peer), "q")

    assert texts_of(receive(receiver, 2)) == ["0", "1"]
    assert receiver.credit == 0
    assert receiver.drain() == []
    assert texts_of(receive(receiver, 3)) == ["2", "3", "4"]


def test_receiver_continues_after_a_drain(peer: PeerServer, open_client: OpenClient) -> None:
    peer.put("q", text("a"))
    receiver = Receiver(open_client(peer), "q")
    [delivery] = receiver.receive(10)
    assert receiver.credit == 9

    assert receiver.drain() == []

    assert receiver.credit == 0
    receiver.settle([delivery])
    peer.put("q", text("b"))
    assert texts_of(receive(receiver, 1)) == ["b"]


def test_messages_before_the_answer_to_a_drain_are_kept(
    peer: PeerServer, open_client: OpenClient
) -> None:
    peer.put("q", text("a"))
    receiver = Receiver(open_client(peer), "q")
    assert len(receiver.receive(10)) == 1
    peer.put("q", text("b"), text("c"))

    drained = receiver.drain()

    assert texts_of(drained) == ["b", "c"]
    assert receiver.credit == 0


@needs("server: drains senders")
def test_sender_returns_credit_when_a_peer_drains_it(
    start_peer: StartPeer, open_client: OpenClient
) -> None:
    peer = start_peer(credit=0)
    client = open_client(peer)
    sender, receiver = Sender(client, "q"), Receiver(client, "other")
    sender.open()
    peer.grant("q", 5)
    sender.send(payload("a"))
    receiver.open()

    def idle_until_drained() -> None:
        while peer.credit_of("q"):
            assert receiver.receive(timeout_s=0.1) == []

    peer.drain_sender("q")
    idle_until_drained()
    with pytest.raises(OperationTimeout, match="credit"):
        sender.send(payload("too early"), timeout_s=0.1)
    peer.grant("q", 3)  # rhea goes on draining.
    idle_until_drained()

    def grant_when_needed() -> None:
        wait_until(lambda: sender._needs_credit)
        peer.grant("q", 3)

    granting = threading.Thread(target=grant_when_needed, daemon=True)
    granting.start()
    sender.send(payload("b"))
    granting.join()

    assert received_texts(peer, 2) == ["a", "b"]
    idle_until_drained()


def test_presettled_messages_are_received_settled(
    peer: PeerServer, open_client: OpenClient
) -> None:
    peer.put("q", text("a"))

    [delivery] = Receiver(open_client(peer), "q", settled=True).receive()

    assert delivery.settled
    assert peer.settle_modes("q")[0] == SETTLE_SETTLED


@pytest.mark.parametrize("confirm", [True, False])
def test_receiver_settles_with_and_without_confirmation(
    peer: PeerServer, open_client: OpenClient, confirm: bool
) -> None:
    peer.put("q", *texts(3))
    receiver = Receiver(open_client(peer), "q", confirm=confirm)
    deliveries = []
    while len(deliveries) < 3:
        deliveries += receiver.receive(3 - len(deliveries))

    receiver.settle(deliveries)

    assert peer.outcomes(3) == [(Accepted(), not confirm)] * 3
    mode = SETTLE_SECOND if confirm else SETTLE_FIRST
    assert tuple(peer.settle_modes("q")) == (SETTLE_UNSETTLED, mode)


def test_engine_sends_settled_and_unsettled_messages(peer: PeerServer) -> None:
    with EngineClient(peer.port) as engine:
        session = engine.begin()
        mixed = engine.sender(session, "mixed")
        settled = engine.sender(session, "settled", snd_settle_mode=SETTLE_SETTLED)

        mixed.send(payload(), settled=True)
        mixed.send(payload(), settled=False)
        update = engine.next(OutgoingDeliveriesUpdated)
        settled.send(payload())
        engine.flush()

        assert (update.state, update.settled) == (Accepted(), True)
        assert [message.settled for message in peer.receive(3)] == [True, False, True]
        assert session.outgoing.unsettled == {}


@needs("server: settles second")
def test_engine_settles_after_the_outcome_in_mode_second(peer: PeerServer) -> None:
    with EngineClient(peer.port) as engine:
        session = engine.begin()
        link = engine.sender(session, "q", rcv_settle_mode=SETTLE_SECOND)
        delivery = link.send(payload())

        update = engine.next(OutgoingDeliveriesUpdated)
        assert (update.deliveries, update.state, update.settled) == (
            [delivery],
            Accepted(),
            False,
        )
        session.confirm(delivery.id, delivery.id, Accepted())
        engine.flush()

        peer.process.next("settled")
        assert session.outgoing.unsettled == {}


ERROR = Error(Symbol("test:error"), "test error", {Symbol("detail"): "test"})
OUTCOMES: dict[str, Any] = {
    "accepted": Accepted(),
    "released": Released(),
    "rejected": Rejected(),
    "rejected with an error": Rejected(ERROR),
    "modified": Modified(delivery_failed=True),
    "modified with all fields": Modified(True, True, {Symbol("x-opt-why"): UInt(1)}),
}


@pytest.mark.parametrize("confirm", [True, False], ids=["mode second", "mode first"])
@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes_of_a_receiver_reach_a_peer(
    peer: PeerServer, open_client: OpenClient, name: str, confirm: bool
) -> None:
    state = OUTCOMES[name]
    peer.put("q", text(name))
    receiver = Receiver(open_client(peer), "q", confirm=confirm)
    deliveries = receiver.receive()

    if confirm and state == Rejected(ERROR):
        # The peers confirm with the same state, which the client reports as a failure.
        with pytest.raises(AmqpError, match="'q' did not settle a message: test error"):
            receiver.settle(deliveries, state)
    else:
        receiver.settle(deliveries, state)

    [(outcome, settled)] = peer.outcomes(1)
    assert outcome == state
    assert settled is not confirm
    if isinstance(state, Modified):
        assert same(outcome.message_annotations, state.message_annotations)


FAILURES: dict[str, tuple[Any, type[AmqpError], str]] = {
    "not found": (
        Rejected(Error("amqp:not-found", "no such queue")),
        EntityNotFound,
        "'q' rejected a message: no such queue",
    ),
    "not allowed": (Rejected(Error("amqp:not-allowed", "no")), Refused, "rejected a message: no"),
    "full": (
        Rejected(Error("amqp:resource-limit-exceeded", "the queue is full")),
        QuotaExceeded,
        "the queue is full",
    ),
    "too large": (
        Rejected(Error("amqp:link:message-size-exceeded", "too large")),
        MessageTooLarge,
        "too large",
    ),
    "busy": (Rejected(Error("com.microsoft:server-busy", "slow down")), Busy, "slow down"),
    "unknown condition": (Rejected(Error("test:unknown", "a bug")), Unavailable, "a bug"),
    "no error": (Rejected(), Unavailable, "'q' rejected a message: no reason was given"),
    "released": (Released(), Unavailable, "'q' did not accept a message (released)"),
    "modified": (
        Modified(True, True, {Symbol("x-opt-why"): "because"}),
        Unavailable,
        "'q' did not accept a message (modified)",
    ),
}


def test_sender_raises_the_error_for_each_outcome(
    peer: PeerServer, open_client: OpenClient
) -> None:
    sender = Sender(open_client(peer), "q")
    for name, (state, error_type, description) in FAILURES.items():
        peer.settle_with("q", state)

        with pytest.raises(AmqpError) as caught:
            sender.send(payload())

        assert type(caught.value) is error_type, name
        assert description in str(caught.value)
        peer.settle_with("q", None)
        sender.send(payload("the link is still attached"))


def test_rejection_carries_the_info_of_its_error(peer: PeerServer, open_client: OpenClient) -> None:
    info = {Symbol("colour"): "red", Symbol("n"): UInt(3)}
    peer.settle_with("q", Rejected(Error("test:error", "test error", info)))

    with pytest.raises(Unavailable) as caught:
        Sender(open_client(peer), "q").send(payload())

    assert caught.value.condition == "test:error"
    assert caught.value.info == info
    assert type(caught.value.info["n"]) is UInt


def test_outcomes_of_a_peer_reach_the_engine(peer: PeerServer) -> None:
    for name, state in OUTCOMES.items():
        peer.settle_with(name, None if state == Accepted() else state)
    with EngineClient(peer.port) as engine:
        session = engine.begin()
        for name, state in OUTCOMES.items():
            engine.sender(session, name).send(payload())
            update = engine.next(OutgoingDeliveriesUpdated)
            assert (update.state, update.settled) == (state, True)


def test_settlement_that_fails_raises_its_error(peer: PeerServer, open_client: OpenClient) -> None:
    peer.put("q", *texts(2))
    receiver = Receiver(open_client(peer), "q")
    deliveries = receiver.receive()
    peer.fail_settlements(Error("com.microsoft:message-lock-lost", "the lock has expired"))

    with pytest.raises(LockLost, match="the lock has expired"):
        receiver.settle(deliveries)

    receiver.settle(receiver.receive())


def test_message_above_the_limit_of_the_link_is_not_sent(
    start_peer: StartPeer, open_client: OpenClient
) -> None:
    peer = start_peer(max_message_size=1000)
    sender = Sender(open_client(peer), "q")

    with pytest.raises(MessageTooLarge, match="accepts at most 1000"):
        sender.send(payload("x" * 1000))

    assert sender.max_message_size == 1000
    sender.send(payload("x" * 900))
    assert received_texts(peer, 1) == ["x" * 900]
