"""Connections between our server and peers as clients: fields, heartbeats, loss and many links."""

import threading
from typing import Any

import pytest

from examples.engine.frame_log import FrameLog
from examples.engine.memory_server import MemoryServer
from pairbus.amqp.performatives import Accepted
from pairbus.amqp.types import Described, Symbol, UInt
from pairbus.errors import ConnectionLost, LinkLost
from tests.interop.fixture_types import Connect, StartServer, Watch
from tests.interop.limitations import needs
from tests.interop.messages import PeerMessage, text, texts
from tests.interop.peers import PeerClient, wait_until
from tests.interop.transfers import texts_received_by
from tests.unit.amqp.same import same


def queued_texts(server: MemoryServer) -> list[str]:
    return [PeerMessage.parse(entry.payload).text for entry in server.queues["q"]]


@needs("connection fields")
def test_fields_of_the_open_are_exchanged(start_server: StartServer, connect: Connect) -> None:
    properties = {Symbol("product"): "memory", Symbol("n"): UInt(1)}
    server = start_server(properties=properties, offered_capabilities=("x", "y"))
    peer = connect(
        server,
        container_id="me",
        hostname="vhost",
        max_frame_size=4096,
        desired_capabilities=("one", "two"),
        properties={"product": "peer"},
    )
    peer.sender("q")

    [open_] = server.opens
    assert (open_.container_id, open_.hostname, open_.max_frame_size) == ("me", "vhost", 4096)
    assert open_.desired_capabilities == ("one", "two")
    assert open_.properties == {Symbol("product"): "peer"}
    remote = remote_open(peer)
    assert remote["container_id"] == "memory-server"
    assert remote["offered_capabilities"] == ["x", "y"]
    assert remote["properties"] == properties


def remote_open(peer: Any) -> dict[str, Any]:
    if peer.name == "proton":
        connection = peer.connection
        return {
            "container_id": connection.remote_container,
            "offered_capabilities": list(connection.remote_offered_capabilities),
            "properties": dict(connection.remote_properties),
        }
    open_ = peer.remote_open()
    return {
        "container_id": open_.container_id,
        "offered_capabilities": list(open_.offered_capabilities),
        "properties": open_.properties,
    }


@needs("link fields")
def test_fields_of_an_attach_are_read(server: MemoryServer, connect: Connect) -> None:
    from proton import Terminus
    from proton.reactor import Copy, DurableSubscription, Selector

    options = [Selector("color='red'"), DurableSubscription(), Copy()]
    link = connect(server).receiver_with_fields("q", options)

    [attach] = server.attaches
    assert same(attach.properties, {Symbol("a"): 1})
    assert attach.max_message_size == 12345
    source = attach.source
    assert (source.address, source.durable, source.expiry_policy) == ("q", 2, "never")
    assert source.distribution_mode == "copy"
    selector = Described(Symbol("apache.org:selector-filter:string"), "color='red'")
    assert same(source.filter, {Symbol("selector"): selector})
    agreed = link.remote_source
    assert (agreed.address, agreed.durability) == ("q", Terminus.DELIVERIES)
    assert agreed.expiry_policy == Terminus.EXPIRE_NEVER


def count(frames: FrameLog, direction: str) -> int:
    return frames.names(direction).count("empty")


def test_heartbeats_of_a_peer_keep_the_connection_alive(
    start_server: StartServer, connect: Connect, watch: Watch
) -> None:
    server = start_server(idle_timeout_s=4.5)
    frames = watch(server)
    peer = connect(server)
    sdk = peer.name.startswith("sdk")
    receiver = peer.receiver("q")
    results: list[Any] = []
    # The SDK sends heartbeats during calls, and every 30 seconds between them.
    waiting = threading.Thread(target=lambda: results.append(receiver.receive()))
    if sdk:
        waiting.start()

    # So many heartbeats take longer than the idle timeout.
    needed = int(4.5 / peer.heartbeats_s) + 1
    peer.until(lambda: count(frames, "in") >= needed)

    server.put("q", text("a").encode())
    if sdk:
        waiting.join(20)
    else:
        results.append(receiver.receive())
    assert [message.text for message in results[0]] == ["a"]
    assert len(server.opens) == 1


@needs("own idle timeout")
def test_our_heartbeats_keep_the_connection_alive(
    server: MemoryServer, connect: Connect, watch: Watch
) -> None:
    frames = watch(server)
    peer = connect(server, idle_timeout_s=3.6)
    sender = peer.sender("q")
    assert server.opens[0].idle_time_out == 1800

    # We send one each 0.9 s: five take longer than the peer waits for the first.
    peer.until(lambda: count(frames, "out") >= 5)

    assert sender.send(text("a")) == Accepted()
    assert len(server.opens) == 1


@needs("freeze")
def test_connection_of_a_frozen_peer_is_closed(start_server: StartServer, connect: Connect) -> None:
    server = start_server(idle_timeout_s=2.5)
    peer = connect(server)
    peer.sender("q")

    peer.freeze()

    [violation] = server.wait_for(lambda: server.violations)
    assert violation.condition == "amqp:resource-limit-exceeded"
    assert "sent nothing for 2.5 seconds" in violation.description
    server.violations.clear()
    assert server.wait_for(lambda: not server.endpoints)
    peer.thaw()
    error = peer.next_error()
    assert error.error.condition == "amqp:resource-limit-exceeded"


@needs("own idle timeout")
def test_peer_closes_the_connection_of_a_frozen_server(
    server: MemoryServer, connect: Connect
) -> None:
    peer = connect(server, idle_timeout_s=2.5)
    peer.sender("q")
    frozen, thaw = threading.Event(), threading.Event()
    freezer = threading.Thread(target=server.call, args=(lambda: (frozen.set(), thaw.wait(20)),))
    freezer.start()
    try:
        assert frozen.wait(20)
        assert peer.next_error().endpoint == "transport"
    finally:
        thaw.set()
        freezer.join()
    if peer.name == "proton":
        peer.close()
    server.wait_for(lambda: server.errors)
    assert "amqp:resource-limit-exceeded" in {error.condition for error in server.errors}


@needs("reconnects after a close")
def test_sender_continues_after_its_idle_connection_was_closed(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server(idle_timeout_s=2.0)
    peer = connect(server, reconnect=True)
    sender = peer.sender("q")
    sender.send(text("a"))
    freeze(peer)

    server.wait_for(lambda: server.violations)
    server.violations.clear()
    thaw(peer)

    if not peer.name.startswith("sdk"):
        sender.wait_for_new_connection()
    assert sender.send(text("b")) == Accepted()
    assert len(server.opens) == 2
    assert queued_texts(server) == ["a", "b"]


def freeze(peer: PeerClient) -> None:
    """Stop the heartbeats. The SDK sends none between calls."""
    if not peer.name.startswith("sdk"):
        peer.freeze()


def thaw(peer: PeerClient) -> None:
    if not peer.name.startswith("sdk"):
        peer.thaw()


def test_sender_continues_after_its_connection_was_cut(
    server: MemoryServer, connect: Connect
) -> None:
    peer = connect(server, reconnect=True)
    sender = peer.sender("q")
    sender.send(text("a"))
    server.call(lambda: setattr(server, "cut_after", 1))

    if peer.name.startswith("sdk"):
        assert sender.send(text("b")) == Accepted()  # It sends the message again.
    else:
        sender.post(text("b"))
        peer.until(lambda: server.cuts == 1)
        sender.wait_for_new_connection()
        assert sender.send(text("b")) == Accepted()
    sender.send(text("c"))

    assert server.cuts == 1
    assert len(server.opens) == 2
    assert texts_received_by(server) == ["a", "b", "b", "c"]
    assert queued_texts(server) == ["a", "b", "c"]


def test_receiver_continues_after_its_connection_was_cut(
    server: MemoryServer, connect: Connect
) -> None:
    peer = connect(server, reconnect=True)
    receiver = peer.receiver("q")
    server.put("q", text("a").encode())
    [first] = receiver.receive()
    receiver.settle(first)
    peer.until(lambda: len(server.settlements) == 1)
    server.put("q", text("b").encode())
    server.call(lambda: setattr(server, "cut_after", 1))
    if peer.name == "rhea":
        receiver.grant(1)
        peer.until(lambda: len(server.attaches) == 2)
        receiver.granted = 0  # rhea does not grant the credit again.

    [second] = receiver.receive()
    receiver.settle(second)

    assert server.cuts == 1
    assert len(server.opens) == 2
    assert (first.text, second.text) == ("a", "b")


def test_sender_continues_after_the_server_was_restarted(
    start_server: StartServer, connect: Connect
) -> None:
    first = start_server()
    peer = connect(first, reconnect=True)
    sender = peer.sender("q")
    sender.send(text("a"))

    first.close()
    second = start_server(port=first.port)

    if not peer.name.startswith("sdk"):
        sender.wait_for_new_connection()
    assert sender.send(text("b")) == Accepted()
    assert (texts_received_by(first), texts_received_by(second)) == (["a"], ["b"])


@needs("resends by itself")
@pytest.mark.parametrize("level", ["link", "connection"])
def test_sender_continues_after_its_link_or_connection_was_closed_with_an_error(
    server: MemoryServer, connect: Connect, level: str
) -> None:
    sender = connect(server, reconnect=True).sender("q")
    sender.send(text("a"))
    [endpoint] = [endpoint for endpoint in server.endpoints if endpoint.address == "q"]

    if level == "link":
        server.call(lambda: endpoint.link.detach(LinkLost("moved")))
    else:
        server.call(lambda: endpoint.connection.engine.close(ConnectionLost("maintenance")))
    assert sender.send(text("b")) == Accepted()

    attaches = [attach for attach in server.attaches if str(attach.target.address)[-1:] == "q"]
    assert len(attaches) == 2
    assert queued_texts(server) == ["a", "b"]


@needs("ends with an error")
def test_cut_by_a_peer_requeues_its_unsettled_messages(
    server: MemoryServer, connect: Connect
) -> None:
    server.put("q", *(message.encode() for message in texts(2)))
    peer = connect(server)
    peer.receiver("q").receive(2)
    assert not server.queues["q"]

    peer.cut()

    wait_until(lambda: not server.connections)
    assert queued_texts(server) == ["0", "1"]


@needs("detach without closing")
def test_detached_link_can_be_attached_again(server: MemoryServer, connect: Connect) -> None:
    peer = connect(server)
    sender = peer.sender("q")
    sender.send(text("a"))
    sender.detach()
    peer.until(lambda: not server.endpoints)

    again = peer.reattach(sender, "q")

    assert again.send(text("b")) == Accepted()
    assert len({attach.name for attach in server.attaches}) == 1


@needs("several sessions", "send without waiting")
def test_many_links_on_several_sessions_share_a_connection(
    server: MemoryServer, connect: Connect
) -> None:
    peer = connect(server)
    addresses = {f"q{number}": number % 4 + 1 for number in range(40)}
    senders = {a: peer.sender(a, session=session) for a, session in addresses.items()}
    receivers = {a: peer.receiver(a, session=session) for a, session in addresses.items()}

    for address, sender in senders.items():
        sender.post(text(address))
    for address, receiver in receivers.items():
        assert [message.text for message in receiver.receive()] == [address]

    assert len(server.opens) == 1
    assert len(server.endpoints) == 80
    assert len({id(endpoint.link.session) for endpoint in server.endpoints}) == 4
    peer.end_session(1)
    peer.until(lambda: len(server.endpoints) == 60)
    assert senders["q1"].send(text("other sessions continue")) == Accepted()
    assert server.errors == []


def test_links_are_attached_and_closed_repeatedly(server: MemoryServer, connect: Connect) -> None:
    peer = connect(server)
    rounds = 3 if peer.name.startswith("sdk") else 30  # The SDK connects for each link.
    for number in range(rounds):
        sender = peer.sender("q")
        sender.send(text(str(number)))
        sender.close()

    assert len(server.received) == rounds
    peer.until(lambda: not server.endpoints)
