"""Credit, drain and session windows between our server and peers as clients."""

import pytest

from examples.engine.memory_server import MemoryServer, Request, Response
from pairbus.amqp.link import ReceiverLink
from pairbus.amqp.performatives import Accepted, Released
from tests.interop.fixture_types import Connect, StartServer
from tests.interop.limitations import needs
from tests.interop.messages import PeerMessage, text, texts
from tests.interop.transfers import texts_received_by


def put_texts(server: MemoryServer, count: int) -> None:
    server.put("q", *(message.encode() for message in texts(count)))


def texts_of(messages: list[PeerMessage]) -> list[str]:
    return [message.text for message in messages]


def numbers(*range_: int) -> list[str]:
    return [str(number) for number in range(*range_)]


def incoming_link(server: MemoryServer, address: str = "q") -> ReceiverLink:
    """Return our endpoint of the link on which a peer sends to an address."""
    [link] = [
        endpoint.link
        for endpoint in server.endpoints
        if endpoint.address == address and isinstance(endpoint.link, ReceiverLink)
    ]
    return link


def test_sender_continues_when_its_credit_is_renewed(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server(credit=4, incoming_window=3)
    sender = connect(server).sender("q")

    for message in texts(50):
        assert sender.send(message) == Accepted()

    assert texts_received_by(server) == numbers(50)


@needs("obeys credit", "send without waiting")
def test_sender_does_not_exceed_its_credit(server: MemoryServer, connect: Connect) -> None:
    peer = connect(server)
    sender = peer.sender("q")
    link = incoming_link(server)
    server.call(lambda: setattr(server, "credit", 0))  # It must not renew the credit by itself.
    server.call(lambda: link.flow(2))
    peer.receiver("other")  # A round trip: the flow has arrived.

    for message in texts(5):
        sender.post(message)
    sender.wait_for_outcomes(2)
    peer.receiver("another")
    assert texts_received_by(server) == numbers(2)
    server.call(lambda: link.flow(3))
    sender.wait_for_outcomes(3)

    assert texts_received_by(server) == numbers(5)


@needs("ignores credit")
def test_sdk_sends_without_credit(server: MemoryServer, connect: Connect) -> None:
    def grant_token(request: Request) -> Response:
        server.credit = 0  # From now on: the link for tokens has its credit.
        return Response(200, "OK")

    server.call(lambda: server.handlers.update({"$cbs": grant_token}))

    assert connect(server).sender("q").send(text("a")) != Accepted()

    # To slow the SDK down, a server must answer later instead of granting less credit.
    conditions = [violation.condition for violation in server.violations]
    assert conditions == ["amqp:link:transfer-limit-exceeded"]
    server.violations.clear()


def test_receiver_gets_no_more_messages_than_its_credit(
    server: MemoryServer, connect: Connect
) -> None:
    put_texts(server, 10)
    receiver = connect(server).receiver("q")

    messages = receiver.receive(3)
    for message in messages:
        receiver.settle(message)

    assert texts_of(messages) == numbers(3)
    assert len(server.queues["q"]) == 7
    assert texts_of(receiver.receive(7)) == numbers(3, 10)


@needs("flow control")
def test_credit_can_be_granted_in_parts(server: MemoryServer, connect: Connect) -> None:
    put_texts(server, 10)
    receiver = connect(server).receiver("q")

    receiver.grant(3)
    assert texts_of(receiver.take(3)) == numbers(3)
    receiver.grant(4)
    assert texts_of(receiver.take(4)) == numbers(3, 7)
    receiver.grant(1)
    receiver.drain()  # The answer to a drain follows everything that was sent.

    assert texts_of(receiver.arrived()) == ["7"]
    assert len(server.queues["q"]) == 2


@needs("flow control")
@pytest.mark.parametrize("count", [0, 2])
def test_drain_returns_unused_credit(server: MemoryServer, connect: Connect, count: int) -> None:
    put_texts(server, count)
    receiver = connect(server).receiver("q")

    receiver.grant(10)
    receiver.drain()

    assert texts_of(receiver.arrived()) == numbers(count)
    assert server.drains > 0
    server.put("q", text("later").encode())
    assert len(server.queues["q"]) == 1  # The credit was returned.
    assert texts_of(receiver.receive()) == ["later"]


@needs("flow control", "small receive window")
def test_drain_is_answered_after_messages_that_wait_for_the_window(
    server: MemoryServer, connect: Connect
) -> None:
    put_texts(server, 20)
    peer = connect(server, window=8, max_frame_size=1024)
    receiver = peer.receiver("q", accept=True)  # rhea renews its window for settled messages.

    receiver.grant(30)
    receiver.drain()

    assert texts_of(receiver.arrived()) == numbers(20)


@needs("obeys credit", "send without waiting")
def test_peer_returns_credit_when_we_drain_it(server: MemoryServer, connect: Connect) -> None:
    peer = connect(server)
    sender = peer.sender("q")
    link = incoming_link(server)
    server.call(lambda: setattr(server, "credit", 0))
    sender.send(text("last"))

    server.call(lambda: link.flow(4, drain=True))
    if peer.name == "proton":  # Its application answers drains.
        peer.until(lambda: sender.link.drain_mode)
        assert sender.link.drained() == 4

    peer.until(lambda: link.credit == 0)
    assert texts_received_by(server) == ["last"]


def test_receiver_waits_for_messages_of_an_empty_queue(
    server: MemoryServer, connect: Connect
) -> None:
    peer = connect(server)
    receiver = peer.receiver("q")
    if peer.name.startswith("sdk"):
        assert receiver.native.receive_messages(5, max_wait_time=0.3) == []
    else:
        receiver.grant(1)

    server.put("q", text("later").encode())

    assert texts_of(receiver.receive()) == ["later"]


def test_closed_receiver_returns_its_credit(server: MemoryServer, connect: Connect) -> None:
    peer = connect(server)
    receiver = peer.receiver("q")
    if peer.name.startswith("sdk"):
        assert receiver.native.receive_messages(5, max_wait_time=0.3) == []
    else:
        receiver.grant(5)

    receiver.close()
    peer.until(lambda: not [end for end in server.endpoints if end.address == "q"])

    assert peer.name in ("proton", "rhea") or server.drains == 1
    server.put("q", text("later").encode())
    assert len(server.queues["q"]) == 1
    assert texts_of(peer.receiver("q").receive()) == ["later"]


def test_unread_messages_of_a_closed_receiver_are_redelivered(
    server: MemoryServer, connect: Connect
) -> None:
    put_texts(server, 10)
    peer = connect(server)
    sdk = peer.name.startswith("sdk")
    receiver = peer.receiver("q", prefetch_count=10) if sdk else peer.receiver("q")
    if not sdk:
        receiver.grant(10)
    [first] = receiver.receive(1)
    receiver.settle(first)
    peer.until(lambda: not server.queues["q"])

    receiver.close()

    peer.until(lambda: len(server.queues["q"]) == 9)
    if sdk:  # It releases messages that it prefetched.
        assert [settlement.state for settlement in server.settlements][1:] == [Released()] * 9
    assert sorted(texts_of(peer.receiver("q").receive(9))) == numbers(1, 10)
