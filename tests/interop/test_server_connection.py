"""Heartbeats, lost connections and many links between our client and peers as servers."""

import select
import time
from collections.abc import Callable
from typing import Any

import pytest

from pairbus.amqp.client import Receiver, Sender
from pairbus.amqp.events import (
    Attached,
    Closed,
    Delivery,
    Detached,
    Ended,
    OutgoingDeliveriesUpdated,
)
from pairbus.amqp.performatives import Accepted, Source
from pairbus.amqp.types import Described, Int32, Symbol
from pairbus.errors import (
    ConnectionLost,
    LockLost,
    OperationTimeout,
)
from tests.interop.engine_client import EngineClient
from tests.interop.fixture_types import OpenClient, StartPeer
from tests.interop.limitations import needs
from tests.interop.messages import text
from tests.interop.peers import DEADLINE_S, PeerServer, wait_until
from tests.interop.transfers import payload, received_texts, texts_of, wait_for_loss


def idle_until(receiver: Receiver, condition: Callable[[], object]) -> None:
    """Wait for messages that do not arrive, as an idle application does."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        assert receiver.receive(timeout_s=0.1) == []


def test_our_heartbeats_keep_the_connection_alive(
    start_peer: StartPeer, open_client: OpenClient
) -> None:
    peer = start_peer(idle_timeout_s=3.6)
    client = open_client(peer)
    receiver = Receiver(client, "q")
    receiver.open()
    before = peer.frames_in

    # We send one each 0.9 s: five take longer than the peer waits for the first.
    idle_until(receiver, lambda: peer.frames_in >= before + 5)

    peer.put("q", text("a"))
    assert texts_of(receiver.receive()) == ["a"]
    assert client.generation == 1


def test_heartbeats_of_a_peer_keep_the_connection_alive(
    peer: PeerServer, open_client: OpenClient
) -> None:
    client = open_client(peer, idle_timeout_s=4.5)
    receiver = Receiver(client, "q")
    receiver.open()
    before = peer.frames_out

    # rhea sends one each 1.125 s, and proton one each 2.25 s.
    needed = 3 if peer.name == "proton" else 5
    idle_until(receiver, lambda: peer.frames_out >= before + needed)

    peer.put("q", text("a"))
    assert texts_of(receiver.receive()) == ["a"]
    assert client.generation == 1


def test_connection_to_a_frozen_server_is_lost_and_opened_again(
    peer: PeerServer, open_client: OpenClient
) -> None:
    client = open_client(peer, idle_timeout_s=1.5)
    sender = Sender(client, "q")
    sender.send(payload("a"))

    peer.freeze()
    try:
        with pytest.raises(ConnectionLost, match=r"sent nothing for 1\.5 s"):
            sender.send(payload("b"))
    finally:
        peer.thaw()

    sender.send(payload("c"))
    assert client.generation == 2


def test_calls_to_a_frozen_server_time_out(peer: PeerServer, open_client: OpenClient) -> None:
    client = open_client(peer)
    sender = Sender(client, "q")
    sender.send(payload("a"))

    peer.freeze()
    try:
        with pytest.raises(OperationTimeout, match="'q' to accept"):
            sender.send(payload("b"), timeout_s=0.3)
        with pytest.raises(OperationTimeout, match="the open of"):
            open_client(peer).connect(timeout_s=0.3)
    finally:
        peer.thaw()

    sender.send(payload("c"))
    assert received_texts(peer, 3) == ["a", "b", "c"]
    assert client.generation == 1


def test_engine_closes_the_connection_to_a_frozen_server(peer: PeerServer) -> None:
    with EngineClient(peer.port, idle_timeout_s=2.5) as engine:
        engine.begin()
        peer.freeze()
        try:
            closed = engine.next(Closed)
            engine.flush()
        finally:
            peer.thaw()

        assert not closed.by_peer
        assert closed.error.condition == "amqp:resource-limit-exceeded"
        assert peer.next_error().error.condition == "amqp:resource-limit-exceeded"


def test_client_without_calls_notices_that_the_server_is_alive(
    peer: PeerServer, open_client: OpenClient
) -> None:
    client = open_client(peer, idle_timeout_s=1)
    sender = Sender(client, "q")
    sender.send(payload("a"))
    start, before = time.monotonic(), peer.frames_out

    wait_until(lambda: time.monotonic() > start + 1.2)

    assert peer.frames_out > before
    sender.send(payload("b"))
    assert client.generation == 1


def test_next_call_connects_again_after_a_peer_closed_an_idle_connection(
    start_peer: StartPeer, open_client: OpenClient
) -> None:
    peer = start_peer(idle_timeout_s=0.8)
    client = open_client(peer)
    sender = Sender(client, "q")
    sender.send(payload("a"))

    if peer.name == "proton":
        peer.wait_for(lambda: peer.closed_connections)
    else:
        peer.process.next("disconnected")

    sender.send(payload("b"))
    assert client.generation == 2


def test_deliveries_in_flight_fail_when_the_connection_is_cut(
    peer: PeerServer, open_client: OpenClient
) -> None:
    client = open_client(peer)
    sender = Sender(client, "q")
    sender.send(payload("a"))
    peer.cut_on_message("q")

    pending = [sender.post(payload(str(number))) for number in range(3)]
    sender.wait(pending)

    assert {type(delivery.error) for delivery in pending} == {ConnectionLost}
    assert sender.in_flight == 0
    peer.cut_on_message("q", False)
    sender.send(payload("b"))
    assert client.generation >= 2


def test_receiver_continues_after_a_cut_without_its_locks(
    peer: PeerServer, open_client: OpenClient
) -> None:
    peer.put("q", text("a"))
    client = open_client(peer)
    receiver = Receiver(client, "q")
    [delivery] = receiver.receive()

    peer.cut()
    assert isinstance(wait_for_loss(receiver), ConnectionLost)
    with pytest.raises(LockLost, match="the link to 'q' that held the locks ended"):
        receiver.settle([delivery])

    receiver.open()
    peer.put("q", text("b"))
    assert texts_of(receiver.receive()) == ["b"]
    assert client.generation == 2


def test_cut_between_calls_does_not_fail_the_next_call(
    peer: PeerServer, open_client: OpenClient
) -> None:
    client = open_client(peer)
    sender = Sender(client, "q")
    sender.send(payload("a"))

    peer.cut()
    readable, _, _ = select.select([client._transport._sock], [], [], DEADLINE_S)
    assert readable, "the end of the connection did not arrive"

    sender.send(payload("b"))
    assert received_texts(peer, 2) == ["a", "b"]
    assert client.generation == 2


def test_client_connects_to_a_server_that_was_restarted(
    start_peer: StartPeer, open_client: OpenClient
) -> None:
    first = start_peer()
    client = open_client(first)
    sender, receiver = Sender(client, "q"), Receiver(client, "other")
    sender.send(payload("a"))
    receiver.open()

    first.close()
    assert isinstance(wait_for_loss(receiver), ConnectionLost)
    with pytest.raises(ConnectionLost, match="cannot connect to"):
        sender.send(payload("b"))
    second = start_peer(port=first.port)

    sender.send(payload("c"))
    assert received_texts(second, 1) == ["c"]
    second.put("other", text("d"))
    assert texts_of(receiver.receive()) == ["d"]


@needs("server: own process")
def test_connection_is_lost_when_the_server_is_killed(
    peer: PeerServer, open_client: OpenClient
) -> None:
    client = open_client(peer)
    Sender(client, "q").send(payload())

    peer.process.kill()

    assert peer.process.exit_code == -9
    with pytest.raises(ConnectionLost):
        client.run_until(lambda: False, client.deadline(None), "the loss of the connection")


def test_client_has_many_links_on_one_connection(peer: PeerServer, open_client: OpenClient) -> None:
    client = open_client(peer)
    senders = [Sender(client, f"q{number}") for number in range(30)]
    receivers = [Receiver(client, sender.path) for sender in senders]

    for sender, receiver in zip(senders, receivers, strict=True):
        sender.send(payload(sender.path))
        [delivery] = receiver.receive()
        assert texts_of([delivery]) == [receiver.path]
        receiver.settle([delivery])
    assert peer.link_count == 60
    for link in [*senders, *receivers]:
        link.close()

    assert peer.link_count == 0
    assert client.generation == 1


def test_engine_has_several_sessions_on_one_connection(peer: PeerServer) -> None:
    with EngineClient(peer.port) as engine:
        sessions = [engine.begin() for _ in range(4)]
        links = [
            engine.sender(session, f"{number}-{n}")
            for number, session in enumerate(sessions)
            for n in range(10)
        ]
        for link in links:
            link.send(payload(link.name))
        answered = 0
        while answered < len(links):
            update = engine.next(OutgoingDeliveriesUpdated)
            assert (update.state, update.settled) == (Accepted(), True)
            answered += len(update.deliveries)

        assert sorted(received_texts(peer, 40)) == sorted(link.name for link in links)
        sessions[0].end()
        engine.next(Ended)
        links[-1].send(payload("other sessions continue"))
        engine.next(OutgoingDeliveriesUpdated)


def test_session_sends_and_receives_at_the_same_time(peer: PeerServer) -> None:
    with EngineClient(peer.port) as engine:
        session = engine.begin()
        sender = engine.sender(session, "up")
        engine.receiver(session, "down").flow(100)
        engine.flush()
        for number in range(50):
            sender.send(payload(f"up {number}"))
            engine.flush()
            peer.put("down", text(f"down {number}"))

        deliveries = [engine.next(Delivery) for _ in range(50)]
        session.settle(deliveries[0].id, deliveries[-1].id, Accepted())
        engine.flush()

        assert texts_of(deliveries) == [f"down {number}" for number in range(50)]
        assert received_texts(peer, 50) == [f"up {number}" for number in range(50)]
        assert [state for state, _ in peer.outcomes(50)] == [Accepted()] * 50


def test_detached_link_can_be_attached_again_under_its_name(peer: PeerServer) -> None:
    with EngineClient(peer.port) as engine:
        session = engine.begin()
        for _ in range(3):
            link = engine.sender(session, "q", "name")
            engine.next(Attached)
            link.detach()
            detached = engine.next(Detached)
            assert (detached.link, detached.error) == (link, None)


@needs("server: reports fields")
def test_fields_of_open_and_attach_are_read_by_a_peer(peer: PeerServer) -> None:
    from proton import Terminus, symbol
    from proton.reactor import Selector

    selector = Described(Symbol("apache.org:selector-filter:string"), "color='red'")
    source = Source(
        "q",
        durable=2,
        expiry_policy="never",
        distribution_mode="copy",
        filter={Symbol("selector"): selector},
        capabilities=("queue",),
    )
    settings: dict[str, Any] = {
        "hostname": "vhost",
        "properties": {Symbol("product"): "pairbus"},
        "offered_capabilities": ("x", "y"),
    }

    def fields() -> dict[str, Any]:
        [connection], [link] = peer.connections, peer.links
        source, filters = link.remote_source, link.remote_source.filter
        filters.next()
        return {
            "container": connection.remote_container,
            "host": connection.remote_hostname,
            "properties": connection.remote_properties,
            "capabilities": connection.remote_offered_capabilities,
            "link": link.remote_properties,
            "size": link.remote_max_message_size,
            "terminus": (source.address, source.durability, source.expiry_policy),
            "mode": source.distribution_mode,
            "filter": filters.get_object(),
        }

    with EngineClient(peer.port, **settings) as engine:
        engine.receiver(
            engine.begin(),
            "q",
            source=source,
            properties={Symbol("a"): Int32(1)},
            max_message_size=12345,
        )

        assert peer.call(fields) == {
            "container": "engine",
            "host": "vhost",
            "properties": {symbol("product"): "pairbus"},
            "capabilities": [symbol("x"), symbol("y")],
            "link": {symbol("a"): 1},
            "size": 12345,
            "terminus": ("q", Terminus.DELIVERIES, Terminus.EXPIRE_NEVER),
            "mode": Terminus.DIST_MODE_COPY,
            "filter": Selector("color='red'").filter_set,
        }
