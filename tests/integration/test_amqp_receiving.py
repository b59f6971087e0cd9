"""The receiver of our client on sockets: credit, waiting, drain, settlement and sessions."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient

from examples.engine.memory_server import Entry, MemoryServer, ServerConnection
from pairbus.amqp import events as ev
from pairbus.amqp.client import AnySession, Receiver
from pairbus.amqp.client.receiver import FIRST_WINDOW
from pairbus.amqp.link import SenderLink
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
    Source,
)
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Described, Symbol
from pairbus.errors import (
    AmqpError,
    EntityNotFound,
    LinkLost,
    LockLost,
    OperationTimeout,
    ProtocolError,
    StateError,
)
from tests.integration.amqp_clients import Connect, set_server_attribute, wait_for_input
from tests.interop.fixture_types import StartServer, Watch
from tests.interop.transfers import receive
from tests.waiting import DEADLINE_S, wait_until

SESSION_FILTER = Symbol("com.microsoft:session-filter")


def message(text: Any, size: int = 0) -> bytes:
    return Message.build(data=str(text).encode() + bytes(size)).encode()


MESSAGES = [message(number) for number in range(10)]


def payloads(deliveries: list[ev.Delivery]) -> list[bytes]:
    return [delivery.payload for delivery in deliveries]


# Credit.


def test_receive_returns_no_more_messages_than_requested(server: MemoryServer, receiver: Receiver):
    server.put("orders", *MESSAGES)

    assert payloads(receive(receiver, 3)) == MESSAGES[:3]
    assert receiver.credit == 0
    assert len(server.queues["orders"]) == 7
    assert payloads(receive(receiver, 7)) == MESSAGES[3:]


def test_receive_does_not_wait_for_the_full_count(server: MemoryServer, connect: Connect):
    server.put("orders", *MESSAGES[:2])
    receiver = Receiver(connect(server, operation_timeout_s=50), "orders")

    first = receiver.receive(100)

    assert 1 <= len(first) <= 2
    assert payloads(first + receiver.receive(100, timeout_s=0.2)) == MESSAGES[:2]


def test_receive_returns_no_messages_at_the_timeout(receiver: Receiver):
    receiver.open()

    assert receiver.receive(timeout_s=0.1) == []
    assert receiver.receive(5, timeout_s=0) == []
    assert receiver.credit == 5


def test_message_after_the_timeout_is_kept_for_the_next_call(
    server: MemoryServer, receiver: Receiver, watch: Watch
):
    log = watch(server)
    receiver.open()
    assert receiver.receive(2, timeout_s=0.1) == []

    server.put("orders", *MESSAGES[:2])
    server.wait_for(lambda: not server.queues["orders"])

    assert payloads(receive(receiver, 2)) == MESSAGES[:2]
    assert log.names("in").count("flow") == 1


def test_messages_beyond_the_count_are_kept_for_the_next_call(
    server: MemoryServer, receiver: Receiver
):
    receiver.open()
    assert receiver.receive(5, timeout_s=0.1) == []
    server.put("orders", *MESSAGES[:5])
    server.wait_for(lambda: not server.queues["orders"])

    assert payloads(receiver.receive(1)) == MESSAGES[:1]
    assert payloads(receive(receiver, 4)) == MESSAGES[1:5]
    assert receiver.credit == 0


def test_receive_waits_for_a_message(server: MemoryServer, connect: Connect):
    def send_soon(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.FlowReceived) and event.link is not None:
            peer.loop.call_later(0.1, put)
        return False

    def put() -> None:
        with server.changed:
            server.store("orders", [Entry(MESSAGES[0])])
            server.flush()

    set_server_attribute(server, "intercept", send_soon)

    assert payloads(Receiver(connect(server), "orders").receive()) == MESSAGES[:1]


def test_many_messages_arrive_in_order(server: MemoryServer, connect: Connect):
    messages = [message(number, 200) for number in range(3000)]
    server.put("orders", *messages)
    receiver = Receiver(connect(server), "orders", confirm=False)

    received = []
    while len(received) < len(messages):
        some = receiver.receive(500)
        received += payloads(some)
        receiver.settle(some)

    assert received == messages
    server.wait_for(lambda: len(server.settlements) == len(messages))


def test_large_messages_arrive_in_many_frames(
    start_server: StartServer, connect: Connect, watch: Watch
):
    server = start_server(outgoing_frame_size=512)
    log = watch(server)
    large = [message(number, 50_000) for number in range(3)]
    server.put("orders", *large)

    assert payloads(receive(Receiver(connect(server), "orders"), 3)) == large
    assert len(log.transfers("out")) > 300


def test_message_format_is_reported(server: MemoryServer, connect: Connect):
    server.put("orders", b"batch", message_format=0x80013700)

    [delivery] = Receiver(connect(server), "orders").receive()

    assert delivery.message_format == 0x80013700


def test_two_receivers_share_a_connection(server: MemoryServer, connect: Connect):
    server.put("orders", MESSAGES[0])
    server.put("invoices", MESSAGES[1])
    client = connect(server)
    orders, invoices = Receiver(client, "orders"), Receiver(client, "invoices")
    orders.open()
    invoices.open()

    assert payloads(orders.receive()) == [MESSAGES[0]]
    assert payloads(invoices.receive(5)) == [MESSAGES[1]]
    assert client.generation == 1


def test_delivery_without_credit_ends_the_link(server: MemoryServer, receiver: Receiver):
    server.put("orders", *MESSAGES[:3])

    def exceed_credit(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.FlowReceived) and event.link is not None and event.link.credit:
            event.link.credit = 3
        return False

    set_server_attribute(server, "intercept", exceed_credit)

    assert payloads(receiver.receive(1)) == MESSAGES[:1]
    assert not server.queues["orders"]

    set_server_attribute(server, "intercept", None)
    assert payloads(receive(receiver, 3)) == MESSAGES[:3]
    assert [error.condition for error in server.errors] == ["amqp:link:transfer-limit-exceeded"]


# Drain.


def test_drain_takes_back_unused_credit(server: MemoryServer, receiver: Receiver):
    receiver.open()
    assert receiver.receive(5, timeout_s=0.1) == []
    assert receiver.credit == 5

    assert receiver.drain() == []

    assert receiver.credit == 0
    assert server.drains == 1
    server.put("orders", MESSAGES[0])
    assert len(server.queues["orders"]) == 1
    assert payloads(receiver.receive()) == MESSAGES[:1]


def test_drain_returns_messages_that_arrived_before(server: MemoryServer, receiver: Receiver):
    receiver.open()
    assert receiver.receive(5, timeout_s=0.1) == []
    server.put("orders", *MESSAGES[:2])
    server.wait_for(lambda: not server.queues["orders"])

    drained = receiver.drain()

    assert payloads(drained) == MESSAGES[:2]
    assert receiver.credit == 0
    receiver.settle(drained)
    assert [each.state for each in server.settlements] == [Accepted()] * 2


def test_drain_without_credit_does_nothing(server: MemoryServer, receiver: Receiver):
    assert receiver.drain() == []
    receiver.open()
    assert receiver.drain() == []

    assert server.drains == 0


@pytest.mark.timeout(20)
def test_drain_that_is_not_answered_is_a_timeout(server: MemoryServer, receiver: Receiver):
    seen = []

    def ignore_drain(peer: ServerConnection, event: ev.Event) -> bool:
        drains = isinstance(event, ev.FlowReceived) and event.link is not None and event.link.drain
        if drains:
            seen.append(event)
        return drains

    set_server_attribute(server, "intercept", ignore_drain)
    receiver.open()
    assert receiver.receive(5, timeout_s=0.1) == []

    with pytest.raises(OperationTimeout, match="'orders' to answer a drain"):
        receiver.drain(timeout_s=0.2)

    server.wait_for(lambda: seen)
    assert len(seen) == 1


def receive_available(receiver: Receiver) -> list[ev.Delivery]:
    return [delivery for some in receiver.receive_available(1) for delivery in some]


def grant_and_drain(receiver: Receiver) -> list[ev.Delivery]:
    receiver.grant_credit(1)
    return receiver.drain()


@pytest.mark.parametrize("receive_one", [receive_available, grant_and_drain])
def test_drain_waits_for_the_rest_of_a_message(
    server: MemoryServer, receiver: Receiver, receive_one: Callable[[Receiver], list[ev.Delivery]]
):
    """The first frame of a message uses the credit, before the message is complete."""
    whole = message(1, 1000)
    links: list[SenderLink] = []

    def send_first_half(peer: ServerConnection, event: ev.Event) -> bool:
        drains = isinstance(event, ev.FlowReceived) and event.link is not None and event.link.drain
        if drains and not links:
            links.append(event.link)
            event.link.send(whole[:500], more=True)
        return bool(links)

    set_server_attribute(server, "intercept", send_first_half)
    receiver.open()
    with ThreadPoolExecutor(1) as executor:
        received = executor.submit(receive_one, receiver)
        wait_until(lambda: links and receiver.credit == 0, "the first frame to arrive")
        server.call(lambda: links[0].send(whole[500:]))

        assert payloads(received.result(DEADLINE_S)) == [whole]


def test_available_messages_are_received_with_credit_that_is_drained_at_the_end(
    server: MemoryServer, receiver: Receiver
):
    flows: list[bool] = []

    def record(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.FlowReceived) and event.link is not None:
            flows.append(event.link.drain)
        return False

    set_server_attribute(server, "intercept", record)
    server.put("orders", *MESSAGES)

    received = [delivery for some in receiver.receive_available(50) for delivery in some]

    assert payloads(received) == MESSAGES
    assert flows == [False, True]
    assert (receiver.credit, receiver.empty_receives) == (0, 0)
    assert list(receiver.receive_available(50)) == []
    assert (receiver.credit, receiver.empty_receives) == (0, 1)


@pytest.mark.rule("C5")
def test_receive_that_ends_with_the_link_is_counted_as_failed(
    server: MemoryServer, receiver: Receiver
):
    def detach(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.FlowReceived) and event.link is not None:
            event.link.detach(LinkLost("no more"))
        return False

    set_server_attribute(server, "intercept", detach)

    with pytest.raises(LinkLost):
        list(receiver.receive_available(50))

    assert (receiver.empty_receives, receiver.failed_receives) == (0, 1)


@pytest.mark.rule("Y13")
def test_slow_caller_locks_only_the_first_part_of_the_available_messages(
    server: MemoryServer, receiver: Receiver
):
    count = FIRST_WINDOW + 10
    server.put("orders", *[MESSAGES[0]] * count)

    parts = receiver.receive_available(count)
    received = len(next(parts))
    while received < FIRST_WINDOW:
        received += len(next(parts))

    assert len(server.queues["orders"]) == 10
    assert received + sum(map(len, parts)) == count
    assert (receiver.credit, receiver.empty_receives) == (0, 0)


# Settlement.


@pytest.mark.parametrize(
    "state",
    [
        None,
        Accepted(),
        Released(),
        Rejected(),
        Rejected(Error("com.microsoft:dead-letter", "why", {Symbol("DeadLetterReason"): "r"})),
        Modified(delivery_failed=True),
        Modified(delivery_failed=True, undeliverable_here=True),
    ],
    ids=str,
)
def test_settlement_is_confirmed(server: MemoryServer, receiver: Receiver, state: Any):
    server.put("orders", *MESSAGES[:3])
    deliveries = receive(receiver, 3)

    receiver.settle(deliveries, state)

    expected = Accepted() if state is None else state
    assert [each.payload for each in server.settlements] == MESSAGES[:3]
    assert [each.state for each in server.settlements] == [expected] * 3
    assert not any(each.settled for each in server.settlements)  # It waited for the answer.
    assert server.attaches[-1].rcv_settle_mode == SETTLE_SECOND


def test_without_confirmation_messages_are_settled_at_once(server: MemoryServer, connect: Connect):
    server.put("orders", *MESSAGES[:3])
    receiver = Receiver(connect(server), "orders", confirm=False)

    receiver.settle(receive(receiver, 3))

    server.wait_for(lambda: len(server.settlements) == 3)
    assert all(each.settled for each in server.settlements)
    assert server.attaches[-1].rcv_settle_mode == SETTLE_FIRST


def test_consecutive_deliveries_are_settled_with_one_disposition(
    server: MemoryServer, receiver: Receiver, watch: Watch
):
    server.put("orders", *MESSAGES)
    deliveries = receive(receiver, 10)
    log = watch(server)

    receiver.settle([deliveries[n] for n in (9, 0, 2, 1, 5, 6)])

    ranges = [
        (frame.performative.first, frame.performative.last)
        for frame in log.frames
        if frame.name == "disposition" and frame.direction == "in"
    ]
    base = deliveries[0].id
    assert ranges == [(base, base + 2), (base + 5, base + 6), (base + 9, None)]
    settled = sorted(each.payload for each in server.settlements)
    assert settled == sorted(MESSAGES[n] for n in (0, 1, 2, 5, 6, 9))


def test_released_message_is_redelivered(server: MemoryServer, receiver: Receiver):
    server.put("orders", MESSAGES[0])

    receiver.settle(receiver.receive(), Released())
    [again] = receiver.receive()

    assert again.payload == MESSAGES[0]


def test_rejected_message_is_dead_lettered(server: MemoryServer, receiver: Receiver):
    server.put("orders", MESSAGES[0])

    receiver.settle(receiver.receive(), Rejected())

    assert [entry.payload for entry in server.dead_lettered["orders"]] == [MESSAGES[0]]


def test_settling_nothing_needs_no_link(server: MemoryServer, receiver: Receiver):
    receiver.settle([])

    assert server.opens == []


@pytest.mark.parametrize("confirm", [True, False])
def test_settling_twice_is_not_possible(server: MemoryServer, connect: Connect, confirm: bool):
    server.put("orders", MESSAGES[0])
    receiver = Receiver(connect(server), "orders", confirm=confirm)
    deliveries = receiver.receive()
    receiver.settle(deliveries)

    with pytest.raises(StateError, match="already settled"):
        receiver.settle(deliveries)

    server.wait_for(lambda: len(server.settlements) == 1)


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("com.microsoft:message-lock-lost", LockLost),
        ("com.microsoft:session-lock-lost", LockLost),
        ("amqp:not-found", EntityNotFound),
    ],
)
@pytest.mark.parametrize("state", [Accepted(), Rejected(), Modified()], ids=str)
def test_failed_settlement_raises_its_error(
    server: MemoryServer, receiver: Receiver, condition: str, kind: type[AmqpError], state: Any
):
    set_server_attribute(
        server, "settlement_errors", {"orders": AmqpError("expired", condition=condition)}
    )
    server.put("orders", *MESSAGES[:2])
    deliveries = receive(receiver, 2)

    with pytest.raises(kind, match="'orders' did not settle a message: expired") as caught:
        receiver.settle(deliveries, state)

    assert type(caught.value) is kind
    assert caught.value.condition == condition
    assert len(server.settlements) == 2


@pytest.mark.timeout(20)
def test_settlement_that_is_not_confirmed_is_a_timeout(server: MemoryServer, receiver: Receiver):
    seen = []

    def ignore(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.OutgoingDeliveriesUpdated):
            seen.append(event)
        return isinstance(event, ev.OutgoingDeliveriesUpdated)

    set_server_attribute(server, "intercept", ignore)
    server.put("orders", MESSAGES[0])
    deliveries = receiver.receive()

    with pytest.raises(OperationTimeout, match="'orders' to confirm"):
        receiver.settle(deliveries, timeout_s=0.2)

    server.wait_for(lambda: seen)
    assert len(seen) == 1
    # A delivery without an answer may be settled again.
    set_server_attribute(server, "intercept", None)
    receiver.settle(deliveries)
    assert len(server.settlements) == 1


def test_locks_are_lost_with_the_connection(server: MemoryServer, connect: Connect):
    server.put("orders", MESSAGES[0])
    client = connect(server)
    receiver = Receiver(client, "orders")
    before = receiver.receive()

    server.cut()
    wait_for_input(client)
    assert server.cuts == 1
    after = receiver.receive()
    assert payloads(after) == payloads(before)

    with pytest.raises(LockLost, match="the link to 'orders' that held the locks ended"):
        receiver.settle(before)
    receiver.settle(after)
    assert client.generation == 2
    assert len(server.settlements) == 1


def test_settlement_on_a_cut_connection_fails(server: MemoryServer, receiver: Receiver):
    server.put("orders", MESSAGES[0])
    deliveries = receiver.receive()

    def cut(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.OutgoingDeliveriesUpdated):
            peer.cut()
        return isinstance(event, ev.OutgoingDeliveriesUpdated)

    set_server_attribute(server, "intercept", cut)

    with pytest.raises(AmqpError) as caught:
        receiver.settle(deliveries)

    assert server.cuts == 1
    assert not isinstance(caught.value, LockLost)
    with pytest.raises(LockLost):
        receiver.settle(deliveries)


def test_message_of_another_receiver_cannot_be_settled(server: MemoryServer, connect: Connect):
    server.put("orders", MESSAGES[0])
    client = connect(server)
    first, second = Receiver(client, "orders"), Receiver(client, "orders")
    second.open()
    deliveries = first.receive()

    with pytest.raises(LockLost):
        second.settle(deliveries)

    first.settle(deliveries)


# Presettled messages.


def test_presettled_messages_are_removed_at_once(server: MemoryServer, connect: Connect):
    server.put("orders", *MESSAGES[:3])
    receiver = Receiver(connect(server), "orders", settled=True)

    deliveries = receive(receiver, 3)

    assert payloads(deliveries) == MESSAGES[:3]
    assert all(delivery.settled for delivery in deliveries)
    assert server.attaches[-1].snd_settle_mode == SETTLE_SETTLED
    receiver.settle(deliveries)
    assert server.settlements == []


def test_presettled_messages_are_kept_after_the_connection_is_lost(
    server: MemoryServer, connect: Connect
):
    client = connect(server)
    receiver = Receiver(client, "orders", settled=True)
    receiver.open()
    assert receiver.receive(3, timeout_s=0.1) == []
    server.put("orders", *MESSAGES[:3])
    server.wait_for(lambda: not server.queues["orders"])
    assert payloads(receiver.receive(1)) == MESSAGES[:1]

    server.cut()
    wait_for_input(client)
    assert server.cuts == 1

    # No other receiver gets them, so messages that arrived are kept.
    assert payloads(receive(receiver, 2)) == MESSAGES[1:3]
    assert client.generation == 2


def test_locked_messages_are_dropped_after_the_connection_is_lost(
    server: MemoryServer, connect: Connect
):
    client = connect(server)
    receiver = Receiver(client, "orders")
    receiver.open()
    assert receiver.receive(3, timeout_s=0.1) == []
    server.put("orders", *MESSAGES[:3])
    server.wait_for(lambda: not server.queues["orders"])
    [first] = receiver.receive(1)
    receiver.settle([first])

    server.cut()
    wait_for_input(client)
    deliveries = receive(receiver, 2)

    assert payloads(deliveries) == MESSAGES[1:3]
    receiver.settle(deliveries)
    assert [each.payload for each in server.settlements] == MESSAGES[:3]


# Sessions.


def test_session_is_requested_by_its_id(server: MemoryServer, connect: Connect):
    receiver = Receiver(connect(server), "orders", session_id="s-1")
    assert receiver.session_id is None

    receiver.open()

    [attach] = server.attaches
    assert attach.source.filter == {SESSION_FILTER: "s-1"}
    assert receiver.session_id == "s-1"


@pytest.mark.parametrize("written", ["s-7", Described(SESSION_FILTER, "s-7")])
def test_next_available_session_is_chosen_by_the_server(
    server: MemoryServer, connect: Connect, written: Any
):
    def choose(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.AttachReceived):
            event.link.accept(source=Source("orders", filter={SESSION_FILTER: written}))
        return isinstance(event, ev.AttachReceived)

    set_server_attribute(server, "intercept", choose)
    receiver = Receiver(connect(server), "orders", session_id=AnySession)

    receiver.open()

    assert receiver.session_id == "s-7"


def test_session_filters_equal_those_of_the_azure_sdk(server: MemoryServer, connect: Connect):
    text = (
        f"Endpoint=sb://127.0.0.1:{server.port}/;SharedAccessKeyName=root;"
        "SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
    )
    with ServiceBusClient.from_connection_string(text, retry_total=0) as theirs:
        for wanted in ("s", NEXT_AVAILABLE_SESSION):
            with theirs.get_queue_receiver("orders", session_id=wanted, max_wait_time=5):
                pass
    client = connect(server)
    for ours in ("s", AnySession):
        Receiver(client, "orders", session_id=ours).open()

    receivers = [
        attach
        for attach in server.attaches
        if attach.role and attach.source.address.endswith("orders")
    ]
    filters = [attach.source.filter for attach in receivers]
    assert filters == [{SESSION_FILTER: "s"}, {SESSION_FILTER: None}] * 2
    modes = {(attach.snd_settle_mode, attach.rcv_settle_mode) for attach in receivers}
    assert modes == {(SETTLE_UNSETTLED, SETTLE_SECOND)}


def test_session_locked_by_another_receiver_cannot_be_locked(
    server: MemoryServer, connect: Connect
):
    error = AmqpError("taken", condition="com.microsoft:session-cannot-be-locked")
    set_server_attribute(server, "attach_errors", {"orders": error})

    with pytest.raises(LockLost, match="taken"):
        Receiver(connect(server), "orders", session_id="s").open()


@pytest.mark.timeout(20)
def test_late_session_after_a_timeout_is_released(server: MemoryServer, connect: Connect):
    links: list[Any] = []
    ended: list[Any] = []

    def wait(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.AttachReceived):
            links.append(event.link)
        if isinstance(event, ev.Detached):
            ended.append(event.link)
        return isinstance(event, ev.AttachReceived)

    set_server_attribute(server, "intercept", wait)
    client = connect(server)
    client.connect()
    receiver = Receiver(client, "orders", session_id=AnySession)

    with pytest.raises(OperationTimeout, match="a link to 'orders'"):
        receiver.receive(timeout_s=0.2)

    server.wait_for(lambda: links)
    assert len(links) == 1
    set_server_attribute(server, "intercept", None)
    client.connect()  # Writes the remaining output.
    server.call(links[0].accept)
    Receiver(client, "invoices").open()
    server.wait_for(lambda: not links[0].alive)


def test_session_lost_during_a_receive_raises_its_error(server: MemoryServer, connect: Connect):
    def detach_on_flow(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.FlowReceived) and event.link is not None:
            error = AmqpError("expired", condition="com.microsoft:session-lock-lost")
            event.link.detach(error)
        return False

    set_server_attribute(server, "intercept", detach_on_flow)

    with pytest.raises(LockLost, match="expired"):
        Receiver(connect(server), "orders", session_id="s").receive()


def test_link_detached_during_a_receive_is_lost(server: MemoryServer, receiver: Receiver):
    def detach_on_flow(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.FlowReceived) and event.link is not None:
            event.link.detach()
        return False

    set_server_attribute(server, "intercept", detach_on_flow)

    with pytest.raises(LinkLost):
        receiver.receive()

    set_server_attribute(server, "intercept", None)
    server.put("orders", MESSAGES[0])
    assert payloads(receiver.receive()) == MESSAGES[:1]


def test_undecodable_message_is_delivered_unchanged(server: MemoryServer, receiver: Receiver):
    server.put("orders", b"\xff\xff not AMQP")

    [delivery] = receiver.receive()

    assert delivery.payload == b"\xff\xff not AMQP"
    with pytest.raises(ProtocolError):
        Message.parse(delivery.payload)
    receiver.settle([delivery], Rejected())
