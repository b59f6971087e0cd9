"""Requests to a process on the same machine, over a Unix socket."""

import threading
from collections.abc import Iterator
from multiprocessing.connection import Client
from pathlib import Path

import pytest

from pairbus.spark.local_server import LocalServer, request
from tests.waiting import DEADLINE_S


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "echo", lambda payload: payload * 2, timeout_s=DEADLINE_S)
    yield server
    server.close()


def test_requests_are_answered_one_after_the_other(server: LocalServer) -> None:
    assert request(server.address, b"ab", timeout_s=DEADLINE_S) == b"abab"
    assert request(server.address, b"", timeout_s=DEADLINE_S) == b""
    assert request(server.address, b"x" * 100_000, timeout_s=DEADLINE_S) == b"x" * 200_000


def test_process_that_leaves_without_a_request_does_not_end_the_server(
    server: LocalServer,
) -> None:
    Client(server.address, family="AF_UNIX").close()

    assert request(server.address, b"ab", timeout_s=DEADLINE_S) == b"abab"


def test_closed_server_answers_nothing_and_leaves_no_socket(server: LocalServer) -> None:
    server.close()
    server.close()

    assert not Path(server.address).exists()
    with pytest.raises(OSError, match="No such file"):
        request(server.address, b"ab", timeout_s=DEADLINE_S)


def test_request_without_an_answer_raises_an_error(tmp_path: Path) -> None:
    answered = threading.Event()

    def answer(payload: bytes) -> bytes:
        answered.wait(DEADLINE_S)
        raise OSError("no answer")

    server = LocalServer(tmp_path / "slow", answer, timeout_s=DEADLINE_S)
    with pytest.raises(TimeoutError):
        request(server.address, b"ab", timeout_s=0.01)
    answered.set()
    with pytest.raises(ConnectionResetError):
        request(server.address, b"ab", timeout_s=DEADLINE_S)
    server.close()
