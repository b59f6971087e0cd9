"""Idle timeouts: silent peers are disconnected, and heartbeats are sent."""

import pytest

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import Closed
from pairbus.amqp.frames import EMPTY_FRAME
from pairbus.amqp.performatives import Close
from pairbus.amqp.settings import ConnectionSettings
from tests.unit.amqp.engines import EnginePair, ScriptedPeer, frames_of, only


def test_without_idle_timeouts_there_is_no_deadline() -> None:
    peer = ScriptedPeer()
    peer.open()
    peer.frames()

    assert peer.engine.deadline is None
    assert peer.engine.tick(1e9) == []
    assert peer.frames() == []


def test_there_is_no_deadline_before_the_open() -> None:
    server = Connection(
        ConnectionSettings(container_id="s", idle_timeout_s=5), client=False, now=0.0
    )

    assert server.deadline is None
    assert server.tick(1e9) == []


def test_connection_of_a_silent_peer_is_closed_with_an_error() -> None:
    peer = ScriptedPeer(ConnectionSettings(container_id="engine", idle_timeout_s=30))
    peer.open()
    peer.frames()
    assert peer.engine.deadline == 30.0

    assert peer.engine.tick(29.9) == []
    closed = only(Closed, peer.engine.tick(30.0))

    assert closed.error is not None
    assert closed.error.condition == "amqp:resource-limit-exceeded"
    assert not closed.by_peer
    (written,) = peer.performatives()
    assert isinstance(written, Close)
    assert written.error is not None
    assert written.error.condition == "amqp:resource-limit-exceeded"
    assert peer.engine.closed
    assert peer.engine.tick(100.0) == []
    assert peer.engine.deadline is None


@pytest.mark.parametrize("data", [EMPTY_FRAME, EMPTY_FRAME[:3]])
def test_received_data_postpones_the_deadline(data: bytes) -> None:
    peer = ScriptedPeer(ConnectionSettings(container_id="engine", idle_timeout_s=30))
    peer.open()

    peer.feed(data, now=20.0)

    assert peer.engine.deadline == 50.0
    assert peer.engine.tick(49.9) == []
    assert only(Closed, peer.engine.tick(50.0))


def test_empty_data_does_not_postpone_the_deadline() -> None:
    peer = ScriptedPeer(ConnectionSettings(container_id="engine", idle_timeout_s=30))
    peer.open()

    peer.feed(b"", now=20.0)

    assert peer.engine.deadline == 30.0


def test_heartbeat_is_sent_after_half_of_the_peers_idle_timeout() -> None:
    peer = ScriptedPeer()
    peer.open(idle_time_out=10_000)
    peer.engine.data_to_send(now=1.0)
    assert peer.engine.deadline == 6.0

    assert peer.engine.tick(5.9) == []
    assert not peer.engine.has_data_to_send
    assert peer.engine.tick(6.0) == []

    assert peer.engine.data_to_send(now=6.0) == EMPTY_FRAME
    assert peer.engine.deadline == 11.0


def test_heartbeat_is_not_repeated_before_it_is_written() -> None:
    peer = ScriptedPeer()
    peer.open(idle_time_out=10_000)
    peer.engine.data_to_send(now=0.0)

    for now in (5.0, 6.0, 7.0):
        peer.engine.tick(now)

    assert peer.engine.data_to_send(now=7.0) == EMPTY_FRAME


def test_pending_output_replaces_a_heartbeat() -> None:
    peer = ScriptedPeer()
    peer.open(idle_time_out=10_000)
    peer.engine.data_to_send(now=0.0)
    peer.engine.begin()

    peer.engine.tick(9.0)

    assert len(frames_of(peer.engine.data_to_send(now=9.0))) == 1
    assert peer.engine.deadline == 14.0


def test_deadline_is_the_earlier_of_both_timeouts() -> None:
    peer = ScriptedPeer(ConnectionSettings(container_id="engine", idle_timeout_s=30))
    peer.open(idle_time_out=10_000)
    peer.engine.data_to_send(now=0.0)
    assert peer.engine.deadline == 5.0

    peer.engine.data_to_send(now=29.0)
    peer.engine.tick(29.0)
    peer.engine.data_to_send(now=29.0)

    assert peer.engine.deadline == 30.0


def test_idle_timeout_of_zero_means_none() -> None:
    peer = ScriptedPeer()
    peer.open(idle_time_out=0)
    peer.frames()

    assert peer.engine.deadline is None
    peer.engine.tick(1e9)
    assert peer.frames() == []


def test_no_heartbeat_follows_a_close() -> None:
    peer = ScriptedPeer(ConnectionSettings(container_id="engine", idle_timeout_s=30))
    peer.open(idle_time_out=10_000)
    peer.engine.close()
    assert isinstance(peer.performatives()[-1], Close)

    peer.engine.tick(20.0)

    assert peer.frames() == []
    assert peer.engine.deadline == 30.0


def test_peer_that_does_not_answer_a_close_times_out() -> None:
    peer = ScriptedPeer(ConnectionSettings(container_id="engine", idle_timeout_s=30))
    peer.open()
    peer.engine.close()
    peer.frames()

    closed = only(Closed, peer.engine.tick(30.0))

    assert not closed.by_peer
    assert peer.frames() == []


def test_two_engines_keep_their_connection_alive() -> None:
    pair = EnginePair(
        client=ConnectionSettings(container_id="client", idle_timeout_s=8),
        server=ConnectionSettings(container_id="server", idle_timeout_s=20),
    )
    pair.run()

    beats = 0
    while pair.now < 100:
        deadlines = [pair.client.deadline, pair.server.deadline]
        pair.now = min(deadline for deadline in deadlines if deadline is not None)
        assert pair.client.tick(pair.now) == []
        assert pair.server.tick(pair.now) == []
        reported = pair.run()
        assert reported.client == reported.server == []
        beats += 1

    # The server sends a heartbeat every 2 s, a quarter of the client's 8 s; the client every 5 s.
    assert 50 <= beats <= 80
    assert not pair.client.closed
