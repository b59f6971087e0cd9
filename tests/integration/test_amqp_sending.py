"""The sender of our client on sockets: credit, outcomes, batches and deliveries in flight."""

from typing import Any

import pytest

from examples.engine.memory_server import MemoryServer, ServerConnection
from pairbus.amqp import events as ev
from pairbus.amqp.batch import BATCH_FORMAT, make_batch
from pairbus.amqp.client import Sender
from pairbus.amqp.performatives import Accepted, Error, Modified, Rejected, Released
from pairbus.amqp.performatives import Received as ReceivedState
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol
from pairbus.errors import (
    AmqpError,
    Busy,
    ConnectionLost,
    EntityDisabled,
    EntityNotFound,
    LinkLost,
    MessageTooLarge,
    NotAuthorized,
    OperationTimeout,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from tests.integration.amqp_clients import Connect, set_server_attribute, wait_for_input
from tests.interop.fixture_types import StartServer, Watch


def message(text: str, size: int = 0) -> bytes:
    return Message.build(data=text.encode() + bytes(size)).encode()


HELLO = message("hello")


class DeferredSettlement:
    """Receives deliveries to `orders`, and settles them on request."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.deliveries: list[ev.Delivery] = []
        self.settled: list[ev.IncomingDeliveriesUpdated] = []
        set_server_attribute(server, "intercept", self)

    def __call__(self, peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.IncomingDeliveriesUpdated):
            self.settled.append(event)
        if not isinstance(event, ev.Delivery) or event.link.context.address != "orders":
            return False
        self.deliveries.append(event)
        return True

    def wait(self, count: int) -> None:
        self.server.wait_for(lambda: len(self.deliveries) >= count)

    def answer(self, index: int, state: Any, *, settled: bool = True) -> None:
        """Send the state of a delivery."""
        delivery = self.deliveries[index]
        self.server.call(
            lambda: delivery.link.session.settle(delivery.id, delivery.id, state, settled=settled)
        )


@pytest.fixture
def deferred(server: MemoryServer) -> DeferredSettlement:
    return DeferredSettlement(server)


def rejected(condition: str, description: str = "because") -> Rejected:
    return Rejected(Error.of(AmqpError(description, condition=condition)))


def test_send_waits_until_the_message_is_accepted(server: MemoryServer, connect: Connect):
    with Sender(connect(server), "orders") as sender:
        sender.send(HELLO)

    [received] = server.received
    assert received == ("orders", HELLO, 0, False)


def test_messages_are_sent_in_order(server: MemoryServer, connect: Connect):
    messages = [message(f"{number}") for number in range(200)]

    with Sender(connect(server), "orders") as sender:
        sender.wait([sender.post(each) for each in messages])

    assert [received.payload for received in server.received] == messages


def test_batch_is_one_delivery_with_its_format(server: MemoryServer, connect: Connect):
    messages = [message("a"), message("b", 300)]

    with Sender(connect(server), "orders") as sender:
        sender.send_batch(iter(messages))

    [received] = server.received
    assert received == ("orders", make_batch(messages), BATCH_FORMAT, False)


def test_batch_of_no_messages_is_not_sent(server: MemoryServer, connect: Connect):
    with Sender(connect(server), "orders") as sender:
        sender.send_batch([])
        sender.send(HELLO)

    assert [received.payload for received in server.received] == [HELLO]


def test_large_message_is_sent_in_many_frames(
    start_server: StartServer, connect: Connect, watch: Watch
):
    server = start_server(max_frame_size=512)
    log = watch(server)
    large = message("large", 100_000)

    with Sender(connect(server), "orders") as sender:
        sender.send(large)
        sender.send(HELLO)

    assert [received.payload for received in server.received] == [large, HELLO]
    assert len(log.transfers("in")) > 200


def test_messages_wait_for_a_small_window(start_server: StartServer, connect: Connect):
    server = start_server(incoming_window=2, max_frame_size=512)
    messages = [message(f"{number}", 2000) for number in range(10)]

    with Sender(connect(server), "orders") as sender:
        sender.wait([sender.post(each) for each in messages])

    assert [received.payload for received in server.received] == messages


def test_posted_message_is_sent_immediately(server: MemoryServer, sender: Sender):
    posted = sender.post(HELLO)

    server.wait_for(lambda: server.received)
    sender.wait([posted])
    assert posted.done
    assert posted.error is None


def test_each_delivery_in_flight_has_its_own_outcome(deferred: DeferredSettlement, sender: Sender):
    posted = [sender.post(message(f"{number}")) for number in range(6)]
    deferred.wait(6)
    assert sender.in_flight == 6
    assert not any(each.done for each in posted)

    deferred.answer(5, Accepted())
    deferred.answer(1, rejected("com.microsoft:server-busy"))
    deferred.answer(0, Accepted())
    deferred.answer(2, Released())
    deferred.answer(4, rejected("amqp:not-allowed"))
    deferred.answer(3, Modified(delivery_failed=True))
    sender.wait(posted)

    assert all(each.done for each in posted)
    kinds = [type(each.error) for each in posted]
    assert kinds == [type(None), Busy, Unavailable, Unavailable, Refused, type(None)]
    assert "released" in str(posted[2].error)
    assert "modified" in str(posted[3].error)
    assert sender.in_flight == 0


def test_one_disposition_settles_a_range(
    server: MemoryServer, deferred: DeferredSettlement, sender: Sender
):
    posted = [sender.post(HELLO) for _ in range(5)]
    deferred.wait(5)

    first, last = deferred.deliveries[0], deferred.deliveries[4]
    server.call(lambda: first.link.session.settle(first.id, last.id, Accepted()))
    sender.wait(posted)

    assert [each.error for each in posted] == [None] * 5


def test_waiting_for_some_leaves_the_others_in_flight(deferred: DeferredSettlement, sender: Sender):
    first, second = sender.post(HELLO), sender.post(HELLO)
    deferred.wait(2)

    deferred.answer(1, Accepted())
    sender.wait([second])
    assert second.done
    assert not first.done
    assert sender.in_flight == 1

    deferred.answer(0, Accepted())
    sender.wait([first, second])
    assert first.error is None


def test_state_that_is_not_an_outcome_is_ignored(deferred: DeferredSettlement, sender: Sender):
    posted = sender.post(HELLO)
    deferred.wait(1)

    deferred.answer(0, ReceivedState(0, 5), settled=False)
    sender.wait([posted], timeout_s=0.2)

    assert isinstance(posted.error, OperationTimeout)


def test_unsettled_outcome_is_settled_by_the_sender(deferred: DeferredSettlement, sender: Sender):
    posted = sender.post(HELLO)
    deferred.wait(1)

    deferred.answer(0, Accepted(), settled=False)
    sender.wait([posted])
    sender.close()

    assert posted.error is None
    [resolved] = deferred.settled
    assert resolved.settled
    assert resolved.state == Accepted()


def test_delivery_settled_without_an_outcome_is_not_accepted(
    deferred: DeferredSettlement, sender: Sender
):
    posted = sender.post(HELLO)
    deferred.wait(1)

    deferred.answer(0, None)
    sender.wait([posted])

    assert type(posted.error) is Unavailable
    assert "(no outcome)" in str(posted.error)


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("com.microsoft:server-busy", Busy),
        ("com.microsoft:entity-disabled", EntityDisabled),
        ("amqp:resource-limit-exceeded", QuotaExceeded),
        ("amqp:link:message-size-exceeded", MessageTooLarge),
        ("amqp:unauthorized-access", NotAuthorized),
        ("amqp:not-allowed", Refused),
        ("amqp:internal-error", Unavailable),
        ("com.microsoft:something-new", Unavailable),
    ],
)
def test_rejected_message_raises_its_error(
    server: MemoryServer, sender: Sender, condition: str, kind: type[AmqpError]
):
    info = {Symbol("tracking-id"): "17"}
    error = AmqpError("too bad", condition=condition, info=info)
    set_server_attribute(server, "rejections", {"orders": error})

    with pytest.raises(kind, match="'orders' rejected a message: too bad") as caught:
        sender.send(HELLO)

    assert type(caught.value) is kind
    assert caught.value.condition == condition
    assert caught.value.info == info
    assert len(server.received) == 1

    set_server_attribute(server, "rejections", {})
    sender.send(HELLO)


def test_message_rejected_without_an_error_is_unavailable(server: MemoryServer, connect: Connect):
    set_server_attribute(server, "outcomes", {"orders": Rejected()})

    with pytest.raises(Unavailable, match="no reason was given"):
        Sender(connect(server), "orders").send(HELLO)


@pytest.mark.parametrize("state", [Released(), Modified(), Modified(undeliverable_here=True)])
def test_released_or_modified_message_is_unavailable(
    server: MemoryServer, sender: Sender, state: Any
):
    set_server_attribute(server, "outcomes", {"orders": state})

    with pytest.raises(Unavailable, match="did not accept a message"):
        sender.send(HELLO)

    set_server_attribute(server, "outcomes", {})
    sender.send(HELLO)


@pytest.mark.timeout(20)
def test_send_without_credit_times_out(start_server: StartServer, connect: Connect):
    server = start_server(credit=0)
    sender = Sender(connect(server), "orders")
    sender.open()

    with pytest.raises(OperationTimeout, match="credit to send to 'orders'"):
        sender.send(HELLO, timeout_s=0.2)
    with pytest.raises(OperationTimeout, match="credit"):
        sender.post(HELLO, timeout_s=0.2)

    assert server.received == []
    assert sender.in_flight == 0

    def give_credit() -> None:
        for end in server.endpoints:
            end.link.flow(1)

    server.call(give_credit)
    sender.send(message("late"))
    assert [received.payload for received in server.received] == [message("late")]


def test_send_waits_for_credit(start_server: StartServer, connect: Connect):
    server = start_server(credit=1)
    messages = [message(f"{number}") for number in range(20)]

    with Sender(connect(server), "orders") as sender:
        sender.wait([sender.post(each) for each in messages])

    assert [received.payload for received in server.received] == messages


def test_message_that_is_too_large_is_not_sent(start_server: StartServer, connect: Connect):
    server = start_server(max_message_size=1000)
    sender = Sender(connect(server), "orders")
    fits = message("", 1000 - len(message("", 900)) + 900)
    assert len(fits) == 1000

    with pytest.raises(MessageTooLarge, match="accepts at most 1000"):
        sender.send(message("", len(fits) - 8 + 1))
    with pytest.raises(MessageTooLarge):
        sender.send_batch([fits])
    sender.send(fits)

    assert sender.max_message_size == 1000
    assert [received.payload for received in server.received] == [fits]


def test_limit_of_a_link_is_known_once_it_is_attached(sender: Sender):
    assert sender.max_message_size is None
    sender.open()
    assert sender.max_message_size is None


@pytest.mark.timeout(20)
def test_missing_outcome_is_a_timeout(deferred: DeferredSettlement, sender: Sender):
    sender.open()

    with pytest.raises(OperationTimeout, match="'orders' to accept"):
        sender.send(HELLO, timeout_s=0.2)

    deferred.wait(1)
    assert sender.in_flight == 0

    # A late outcome is not mistaken for that of the next message.
    late = sender.post(message("next"))
    deferred.wait(2)
    deferred.answer(0, rejected("amqp:not-allowed"))
    deferred.answer(1, Accepted())
    sender.wait([late])
    assert late.error is None


def test_wait_that_times_out_fails_only_pending_deliveries(
    deferred: DeferredSettlement, sender: Sender
):
    posted = [sender.post(HELLO) for _ in range(3)]
    deferred.wait(3)
    deferred.answer(1, Accepted())

    sender.wait(posted, timeout_s=0.2)

    assert [type(each.error) for each in posted] == [
        OperationTimeout,
        type(None),
        OperationTimeout,
    ]
    assert all(each.done for each in posted)
    assert sender.in_flight == 0


def test_all_deliveries_in_flight_fail_when_the_connection_is_cut(
    server: MemoryServer, connect: Connect, deferred: DeferredSettlement
):
    client = connect(server)
    sender = Sender(client, "orders")
    posted = [sender.post(HELLO) for _ in range(3)]
    deferred.wait(3)

    server.cut()
    sender.wait(posted)

    assert server.cuts == 1
    assert [type(each.error) for each in posted] == [ConnectionLost] * 3
    assert sender.in_flight == 0
    assert len(deferred.deliveries) == 3

    set_server_attribute(server, "intercept", None)
    sender.send(message("next"))
    assert [received.payload for received in server.received] == [message("next")]


def test_only_deliveries_of_a_lost_link_fail(
    server: MemoryServer, connect: Connect, deferred: DeferredSettlement
):
    client = connect(server)
    lost, kept = Sender(client, "orders"), Sender(client, "orders")
    first, second = lost.post(HELLO), kept.post(HELLO)
    deferred.wait(2)

    server.call(
        lambda: deferred.deliveries[0].link.detach(AmqpError("gone", condition="amqp:not-found"))
    )
    lost.wait([first])
    deferred.answer(1, Accepted())
    kept.wait([second])

    assert first.error is not None
    assert first.error.condition == "amqp:not-found"
    assert second.error is None


def test_link_detached_without_an_error_is_lost(
    server: MemoryServer, deferred: DeferredSettlement, sender: Sender
):
    posted = sender.post(HELLO)
    deferred.wait(1)

    server.call(deferred.deliveries[0].link.detach)
    sender.wait([posted])

    assert type(posted.error) is LinkLost


def test_link_lost_while_waiting_for_credit_raises_its_error(
    start_server: StartServer, connect: Connect
):
    server = start_server(credit=0)

    def detach_soon(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.AttachReceived):
            peer.loop.call_later(0.05, detach, event.link)
        return False

    def detach(link: Any) -> None:
        with server.changed:
            link.detach(AmqpError("removed", condition="amqp:not-found"))
            server.flush()

    set_server_attribute(server, "intercept", detach_soon)

    with pytest.raises(EntityNotFound, match="removed"):
        Sender(connect(server), "orders").send(HELLO)


def test_link_lost_between_calls_is_attached_again(server: MemoryServer, connect: Connect):
    client = connect(server)
    sender = Sender(client, "orders")
    sender.send(HELLO)

    def detach() -> None:
        for end in server.endpoints:
            end.link.detach(AmqpError("idle", condition="amqp:link:detach-forced"))

    server.call(detach)
    wait_for_input(client)
    sender.send(HELLO)

    assert len(server.received) == 2
    assert len(server.attaches) == 2


def test_unused_credit_is_returned_to_a_drain(server: MemoryServer, connect: Connect):
    client = connect(server)
    sender = Sender(client, "orders")
    sender.open()
    [link] = [end.link for end in server.endpoints]

    server.call(lambda: link.flow(5, drain=True))
    wait_for_input(client)
    client.connect()  # Reads the drain.
    client.connect()  # Writes the answer.

    server.wait_for(lambda: link.credit == 0)


def test_drain_sends_the_message_that_waits_for_credit(start_server: StartServer, connect: Connect):
    server = start_server(credit=0)
    sender = Sender(connect(server), "orders")
    links: list[Any] = []

    def drain_soon(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.AttachReceived):
            links.append(event.link)
            peer.loop.call_later(0.05, drain, peer)
        return False

    def drain(peer: ServerConnection) -> None:
        if not sender._needs_credit:  # It would return the credit.
            peer.loop.call_later(0.01, drain, peer)
            return
        with server.changed:
            links[0].flow(3, drain=True)
            server.flush()

    set_server_attribute(server, "intercept", drain_soon)

    sender.send(HELLO)

    assert [received.payload for received in server.received] == [HELLO]
    server.wait_for(lambda: links[0].credit == 0)
