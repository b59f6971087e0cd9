"""The memory that a client can make a namespace use is bounded, whatever the size of messages and
however little the client reads."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiver

from pairbus.amqp.client import Client, Management, Receiver, Sender
from pairbus.amqp.composite import encode_composite
from pairbus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from pairbus.amqp.link import ReceiverLink
from pairbus.amqp.performatives import Attach, Begin, Detach, Open, SaslInit, Target
from pairbus.amqp.types import Symbol
from pairbus.emulator.connections import outgoing_links
from pairbus.emulator.connections.amqp_connection import HIGH_WATER
from pairbus.emulator.connections.request_links import CREDIT
from pairbus.emulator.namespace import LocalNamespace
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.errors import QuotaExceeded
from pairbus.servicebus.management import COMPLETED
from tests.integration.emulator_clients import QUICK_CLOSE, open_socket, round_trip
from tests.integration.encoded_messages import sized
from tests.integration.sdk_flavours import SDK_SOCKETS
from tests.waiting import DEADLINE_S

pytestmark = SDK_SOCKETS

SIZE = 200_000
COUNT = 30
FULL = -(-HIGH_WATER // SIZE)
"""Number of messages that fill one turn or one response."""


@pytest.fixture
def receiver(queue_namespace: LocalNamespace) -> Iterator[ServiceBusReceiver]:
    """A client of the SDK."""
    with (
        ServiceBusClient.from_connection_string(queue_namespace.connection_string) as client,
        client.get_queue_receiver("q", **QUICK_CLOSE) as receiver,
    ):
        yield receiver


def fill(client: Client, count: int = COUNT, path: str = "q") -> None:
    with Sender(client, path) as sender:
        for _ in range(count):
            sender.send(sized(SIZE))


@dataclass
class TurnCounter:
    """Counts the messages that a namespace delivers in each turn of its loop."""

    delivered: list[int] = field(default_factory=list)

    def install(self, core: NamespaceRuntime) -> None:
        turn = core.turn

        def counted_turn() -> None:
            before = received(core)
            turn()
            self.delivered.append(received(core) - before)

        core.turn = counted_turn  # type: ignore[method-assign]


def received(core: NamespaceRuntime) -> int:
    readings = core.meter.readings().items()
    return sum(reading.messages for (_, kind), reading in readings if kind == "receive")


# Receiving.


def test_one_turn_delivers_a_bounded_number_of_bytes(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    fill(client)
    counter = TurnCounter()
    queue_namespace.call(counter.install)
    got = 0
    with Receiver(client, "q", settled=True) as receiver:
        while got < COUNT:
            some = receiver.receive(COUNT - got)
            assert some, f"only {got} messages arrived"
            got += len(some)
    assert sum(counter.delivered) == COUNT
    assert max(counter.delivered) == FULL


def test_links_of_one_connection_share_the_bound(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    names = [f"queue-{number}" for number in range(6)]
    for name in names:
        queue_namespace.create_queue(name)
        fill(client, 4, name)
    counter = TurnCounter()
    got = dict.fromkeys(names, 0)
    with ExitStack() as links:
        receivers = {name: links.enter_context(Receiver(client, name)) for name in names}
        for receiver in receivers.values():
            receiver.open()
        queue_namespace.call(counter.install)
        queue_namespace.call(
            lambda core: [core.messages_available(core.entities.get(item).queue) for item in names]
        )
        for receiver in receivers.values():
            receiver.receive(4, timeout_s=0)  # grants credit
        for name, receiver in receivers.items():
            while got[name] < 4:
                some = receiver.receive(4 - got[name])
                assert some, f"{name} was not served: {got}"
                got[name] += len(some)
    assert sum(counter.delivered) == 24
    assert max(counter.delivered) <= 2 * FULL


def test_drain_is_answered_after_all_available_messages(
    queue_namespace: LocalNamespace, receiver: ServiceBusReceiver, client: Client
) -> None:
    fill(client)
    counter = TurnCounter()
    queue_namespace.call(counter.install)
    with Receiver(client, "q", settled=True) as ours:
        ours.open()
        link = ours._link
        assert isinstance(link, ReceiverLink)
        link.flow(COUNT + 5, drain=True)
        client.run_until(lambda: link.credit == 0, client.deadline(None), "the answer to a drain")
        assert len(ours.receive(COUNT, timeout_s=0)) == COUNT
    assert max(counter.delivered) == FULL


@pytest.mark.rule("N6")
@pytest.mark.parametrize("receivers", [1, 2])
def test_deliveries_without_locks_are_forgotten(
    queue_namespace: LocalNamespace,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    receivers: int,
) -> None:
    monkeypatch.setattr(outgoing_links, "MAX_TRACKED", 10)
    paths = ["q", "other"][:receivers]
    for path in paths:
        with Sender(client, path) as sender:
            sender.send_batch([sized(1000) for _ in range(100)])
    with ExitStack() as links:
        for path in paths:
            receiver = links.enter_context(Receiver(client, path, confirm=False))
            management = Management(client, path)
            for _ in range(100):
                (delivery,) = receiver.receive(1)
                management.settle([delivery.tag], COMPLETED)
        tracked = queue_namespace.call(
            lambda core: [
                len(link.link.session.outgoing.unsettled)
                for path in paths
                for link in core.outgoing_links[core.entities.get(path).queue.id]
            ]
        )
        assert len(tracked) == receivers
        assert 0 < max(tracked) <= 20


def test_message_can_be_settled_after_others_were_forgotten(
    queue_namespace: LocalNamespace, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_links, "MAX_TRACKED", 10)
    with Sender(client, "q") as sender:
        sender.send_batch([sized(1000) for _ in range(100)])
    management = Management(client, "q")
    with Receiver(client, "q") as receiver:
        kept = receiver.receive(1)
        for _ in range(99):
            (delivery,) = receiver.receive(1)
            management.settle([delivery.tag], COMPLETED)
        assert len(management.peek(1, 10)) == 1
        receiver.settle(kept)
    assert management.peek(1, 10) == []


# Responses of the management node.


def test_sdk_peeks_large_messages_in_several_calls(
    receiver: ServiceBusReceiver, client: Client
) -> None:
    fill(client, 2 * FULL + 1)
    seen = [receiver.peek_messages(100) for _ in range(4)]
    assert [len(some) for some in seen] == [FULL, FULL, 1, 0]
    numbers = [message.sequence_number for some in seen for message in some]
    assert numbers == sorted(set(numbers))


def test_sdk_receives_large_deferred_messages_in_several_calls(
    receiver: ServiceBusReceiver, client: Client
) -> None:
    fill(client, FULL + 2)
    numbers = []
    while len(numbers) < FULL + 2:
        for message in receiver.receive_messages(FULL + 2, max_wait_time=DEADLINE_S):
            receiver.defer_message(message)
            numbers.append(message.sequence_number)
    first = receiver.receive_deferred_messages(numbers)
    left = numbers[len(first) :]
    second = receiver.receive_deferred_messages(left)
    assert [len(first), len(second)] == [FULL, 2]
    assert [message.sequence_number for message in (*first, *second)] == numbers
    for message in (*first, *second):
        receiver.complete_message(message)


def test_concurrent_peeks_get_one_message_each_once_the_bound_is_reached(
    client: Client,
) -> None:
    fill(client, 2 * FULL)
    management = Management(client, "q")
    management.peek(1, 1)
    deadline = client.deadline(None)
    body = {"from-sequence-number": 1, "message-count": 100}
    sent_requests = [
        management._post("com.microsoft:peek-message", body, deadline) for _ in range(20)
    ]
    management._requests.wait(sent_requests, deadline)
    counts = [len(item.body["messages"]) for item in sent_requests]
    assert min(counts) >= 1
    assert counts[0] == FULL
    assert 1 in counts


def test_client_that_grants_no_credit_for_responses_loses_its_link(client: Client) -> None:
    requests = Management(client, "q")._requests
    requests._receiver._renew_credit = lambda link: None  # type: ignore[method-assign]
    deadline = client.deadline(None)
    sent_requests = [
        requests.post({"operation": "none"}, {}, deadline) for _ in range(2 * CREDIT + 1)
    ]
    requests.wait(sent_requests, deadline)
    assert {type(item.error) for item in sent_requests} == {QuotaExceeded}


# Clients that do not read.

HELLO = (
    SASL_HEADER
    + encode_frame(0, encode_composite(SaslInit(Symbol("ANONYMOUS"))), SASL_FRAME)
    + AMQP_HEADER
    + encode_frame(0, encode_composite(Open("peer")))
    + encode_frame(0, encode_composite(Begin(None, 0, 100, 100)))
)
LONG_NAME = "x" * 1000
"""A marker that the response repeats."""
ATTACH = encode_frame(
    0,
    encode_composite(
        Attach(LONG_NAME, 0, False, target=Target("nowhere"), initial_delivery_count=0)
    ),
) + encode_frame(0, encode_composite(Detach(0, closed=True)))
GET = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nPadding: " + b"x" * 1000 + b"\r\n\r\n"


@dataclass(frozen=True)
class Exchange:
    """Endless requests, and the marker of their responses."""

    hello: bytes
    request: bytes
    response_marker: bytes


EXCHANGES = {
    "AMQP": Exchange(HELLO, ATTACH, b"\x00\x53\x16"),
    "HTTP": Exchange(b"", GET, b"HTTP/1.1 401"),
}


@pytest.mark.parametrize("protocol", EXCHANGES)
def test_client_that_does_not_read_responses_is_not_read_until_it_does(
    queue_namespace: LocalNamespace, protocol: str
) -> None:
    exchange = EXCHANGES[protocol]
    with open_socket(queue_namespace) as sock:
        sock.sendall(exchange.hello)
        sent_requests = send_until_blocked(sock, exchange.request)
        assert sent_requests.whole > HIGH_WATER // 1000  # some requests were read first
        round_trip(queue_namespace, "other")  # other clients are still served
        assert count_responses(sock, exchange, sent_requests) == sent_requests.whole


@dataclass(frozen=True)
class SentRequests:
    whole: int
    rest: bytes
    """The rest of a request that was not sent completely."""


def send_until_blocked(sock: socket.socket, request: bytes) -> SentRequests:
    """Send requests without reading responses, until no more can be sent."""
    sock.settimeout(1)
    many = request * 100
    sent = 0
    while sent < 256 * HIGH_WATER:
        try:
            sent += sock.send(many[sent % len(request) :])
        except TimeoutError:
            whole, part = divmod(sent, len(request))
            return SentRequests(whole + (part > 0), request[part:] if part else b"")
    raise AssertionError("the namespace never stopped reading")


def count_responses(sock: socket.socket, exchange: Exchange, sent_requests: SentRequests) -> int:
    """Read, and send the rest of the last request."""
    sock.settimeout(DEADLINE_S)
    response_count, tail = 0, b""
    rest = sent_requests.rest
    while response_count < sent_requests.whole:
        data = sock.recv(65536)
        assert data, f"connection closed after {response_count} of {sent_requests.whole} responses"
        if rest:
            sock.sendall(rest)  # the namespace reads again
            rest = b""
        text = tail + data
        response_count += text.count(exchange.response_marker)
        tail = text[-len(exchange.response_marker) + 1 :]
    return response_count
