"""Large and slow requests, and clients that do not read."""

import socket
import time

import pytest

from pairbus.console import routes, server
from pairbus.console.routes import MAX_BODY_BYTES
from tests.console_client import report
from tests.integration.console.raw_connections import is_closed, raw
from tests.integration.console.sites import Site, Sites
from tests.waiting import wait_until

pytestmark = pytest.mark.rule("O3")


def test_large_body_is_refused_before_it_is_sent(site: Site):
    for path in ("/login", "/api/reports", "/api/syphon"):
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {site.token('operator')}\r\nContent-Length: 10485760\r\n\r\n"
        )
        with raw(site, head.encode()) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_large_body_without_a_length_is_refused(site: Site):
    head = (
        "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    with raw(site, head.encode()) as connection:
        for _ in range(MAX_BODY_BYTES // 0x4000 + 1):
            connection.sendall(chunk)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_body_of_ten_megabytes_does_not_stop_the_console(site: Site):
    try:
        status = site.client("operator").post("/api/syphon", b"x" * 10 * 2**20).status
    except ConnectionError:  # the console closes the connection while the body is being sent
        status = 413

    assert status == 413
    assert site.client().get("/healthz").status == 200


def test_headers_that_do_not_end_are_refused(site: Site):
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000
    with raw(site, head) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("start", "status"),
    [
        pytest.param("GET / HTTP/1.1\r\nX: {}", 200, id="header"),
        pytest.param("GET /{} HTTP/1.1", 404, id="path"),
        pytest.param("GET /?{} HTTP/1.1", 200, id="query"),
    ],
)
def test_long_headers_are_refused(start: str, status: int, site: Site):
    for size, expected in ((15_000, status), (20_000, 431)):
        head = start.format("x" * size) + "\r\nHost: localhost\r\n\r\n"
        with raw(site, head.encode()) as connection:
            assert connection.recv(100).startswith(f"HTTP/1.1 {expected} ".encode())


def test_client_that_sends_nothing_is_closed(sites: Sites, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "FIRST_BYTE_TIMEOUT_S", 0.3)
    site = sites.start()

    with raw(site, b"") as connection:
        assert is_closed(connection)


def test_connection_may_be_opened_long_before_its_request(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "HEADER_TIMEOUT_S", 0.1)
    site = sites.start()

    with raw(site, b"") as connection:
        time.sleep(0.5)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("part", [b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_client_that_sends_no_complete_headers_is_closed(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, part: bytes
):
    monkeypatch.setattr(server, "HEADER_TIMEOUT_S", 0.3)
    site = sites.start()

    with raw(site, part) as connection:
        assert is_closed(connection)


def test_headers_that_trickle_in_do_not_extend_their_time(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "HEADER_TIMEOUT_S", 0.5)
    site = sites.start()

    with raw(site, b"GET / HTTP/1.1\r\n") as connection:

        def is_refused() -> bool:
            try:
                connection.sendall(b"x")
            except ConnectionError:
                return True
            time.sleep(0.02)
            return False

        wait_until(is_refused, "the connection to be closed")


def test_body_that_trickles_in_is_refused(sites: Sites, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(routes, "BODY_TIMEOUT_S", 0.3)
    site = sites.start()
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"

    with raw(site, head) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_page_that_does_not_read_is_closed(sites: Sites, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "WRITE_TIMEOUT_S", 0.3)
    site = sites.start()
    sender = site.client("sender")
    paths = [
        {"path": f"{n}-" + "x" * 250, "state": "failover", "since": "2026-11-17", "cause": None}
        for n in range(150)
    ]
    for n in range(12):
        named = [{**path, "path": f"{n}-{path['path']}"} for path in paths]
        values = report(primary_name=site.backlog.name, sender=f"s{n}", paths=named)
        assert sender.post("/api/reports", values).status == 200
    head = (
        f"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {site.token('viewer')}\r\n\r\n"
    )

    with raw(site, head.encode(), receive_buffer=4096):
        wait_until(lambda: site.application.watchers == 1, "the stream to start")
        count = 0

        def is_dropped() -> bool:
            nonlocal count
            count += 1
            values = report(primary_name=site.backlog.name, sender=f"s{count % 12}")
            values["paths"] = [{**path, "cause": str(count)} for path in paths]
            sender.post("/api/reports", values)
            time.sleep(0.1)
            return site.application.watchers == 0

        wait_until(is_dropped, "the stream to be closed")


def test_connections_are_bounded(sites: Sites, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 60)
    monkeypatch.setattr(server, "SPARE_FILES", 20)
    site = sites.start()
    address = "127.0.0.1", site.port
    opened = [socket.create_connection(address, timeout=10) for _ in range(75)]
    try:
        closed = wait_until(
            lambda: [connection for connection in opened if is_closed(connection, 0.0)],
            "connections to be closed",
        )
        assert len(closed) < 75
    finally:
        for connection in opened:
            connection.close()

    wait_until(lambda: site.client().get("/healthz").status == 200, "the console to answer again")
