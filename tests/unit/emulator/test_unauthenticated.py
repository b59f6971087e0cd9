"""Connections without a token: their number and their time are limited."""

from pairbus.emulator.connections.unauthenticated import (
    MAX_UNAUTHENTICATED,
    UnauthenticatedConnections,
)


class Recorder:
    """Records which connections are ended, and how."""

    def __init__(self, connections: UnauthenticatedConnections) -> None:
        self.ended: list[str] = []
        self._connections = connections

    def open(self, name: str, now: float = 0.0, *, detected: bool = False):
        connection = self._connections.add(now, lambda: self.ended.append(f"abort {name}"))
        if detected:
            connection.close = lambda reason: self.ended.append(f"close {name}: {reason}")
        return connection


def test_oldest_connection_is_aborted_beyond_the_limit():
    connections = UnauthenticatedConnections(limit=2)
    recorder = Recorder(connections)
    for name in "abcd":
        recorder.open(name, detected=True)

    assert recorder.ended == ["abort a", "abort b"]
    assert len(connections) == 2


def test_connection_that_shows_a_token_is_not_limited():
    connections = UnauthenticatedConnections(limit=2, timeout_s=10)
    recorder = Recorder(connections)
    first = recorder.open("a")
    first.remove()
    first.remove()
    for name in "bcd":
        recorder.open(name, now=5.0)

    connections.tick(14.0)
    assert recorder.ended == ["abort b"]
    connections.tick(15.0)
    assert recorder.ended == ["abort b", "abort c", "abort d"]
    assert len(connections) == 0


def test_connections_are_closed_with_the_reason_when_their_time_is_over():
    connections = UnauthenticatedConnections(limit=9, timeout_s=10)
    recorder = Recorder(connections)
    recorder.open("a", 0.0, detected=True)
    recorder.open("b", 1.0)
    recorder.open("c", 9.0)

    connections.tick(9.9)
    assert recorder.ended == []
    connections.tick(11.0)

    assert recorder.ended == [
        "close a: The client showed no valid token within 10 seconds.",
        "abort b",
    ]
    assert len(connections) == 1


def test_stages_replace_how_a_connection_is_aborted():
    connections = UnauthenticatedConnections(limit=1)
    recorder = Recorder(connections)
    connection = recorder.open("a")
    connection.abort = lambda: recorder.ended.append("abort the transport")
    recorder.open("b")

    assert recorder.ended == ["abort the transport"]


def test_default_limit_is_a_small_part_of_the_file_descriptors():
    assert 1 <= UnauthenticatedConnections()._limit <= MAX_UNAUTHENTICATED
