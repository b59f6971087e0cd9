"""The server for metrics, over real sockets, with clients that misbehave."""

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pairbus.emulator.connections.certificates import ensure_certificates
from pairbus.errors import ConfigurationError
from pairbus.listeners import open_listener, tls_context
from pairbus.telemetry import metrics_server
from pairbus.telemetry.metrics import DRAIN_RATE
from pairbus.telemetry.metrics_server import MAX_AGE_S, MetricsServer, PublishedMetrics
from pairbus.telemetry.samples import Sample
from tests.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.rule("O1")

HOST = "127.0.0.1"
REQUEST = f"GET /metrics HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> PublishedMetrics:
    published = PublishedMetrics(clock)
    published.publish([rate(1.5)])
    return published


@pytest.fixture
def port(metrics: PublishedMetrics) -> Iterator[int]:
    with serving(metrics) as served:
        yield served


@contextlib.contextmanager
def serving(
    metrics: PublishedMetrics, *, token: str | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    listener = open_listener(HOST, 0)
    port: int = listener.getsockname()[1]
    with MetricsServer(metrics, listener, token=token, tls=tls):
        yield port


def rate(value: float) -> Sample:
    return Sample(DRAIN_RATE, value, {"pairing": "one"})


def scrape(port: int, **headers: str) -> tuple[int, str]:
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=DEADLINE_S)) as client:
        client.request("GET", "/metrics", headers=headers)
        response = client.getresponse()
        return response.status, response.read().decode()


def is_scraped(port: int) -> bool:
    """Return True if a scrape succeeds. It may be too slow for a limit of a test."""
    try:
        return scrape(port)[0] == 200
    except ConnectionError:
        return False


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), DEADLINE_S)


def has_closed(connection: socket.socket) -> bool:
    """Wait until the server closes a connection."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "pairbus metrics"]


def test_scrape_returns_what_was_published_last(metrics: PublishedMetrics, port: int) -> None:
    assert scrape(port)[1].endswith('pairbus_drain_rate_per_second{pairing="one"} 1.5\n')
    metrics.publish([rate(2.5)])
    status, text = scrape(port)

    assert (status, text.splitlines()[-1]) == (
        200,
        'pairbus_drain_rate_per_second{pairing="one"} 2.5',
    )
    assert scrape(port, Accept="application/openmetrics-text")[1].endswith("# EOF\n")


def test_process_that_publishes_nothing_any_more_cannot_be_scraped(
    metrics: PublishedMetrics, clock: Clock, port: int
) -> None:
    clock.now += MAX_AGE_S + 1
    assert scrape(port)[0] == 503
    metrics.publish([rate(2.5)])
    assert scrape(port)[0] == 200


def test_nothing_published_is_unavailable(clock: Clock) -> None:
    with serving(PublishedMetrics(clock)) as port:
        assert scrape(port)[0] == 503


def test_token_is_required(metrics: PublishedMetrics) -> None:
    with serving(metrics, token="secret") as port:
        assert scrape(port)[0] == 401
        assert scrape(port, Authorization="Bearer wrong")[0] == 401
        assert scrape(port, Authorization="Bearer secret", Host="syphon.example")[0] == 200


def test_metrics_over_tls(metrics: PublishedMetrics, tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, ["localhost"], now=datetime.now(UTC))
    with serving(metrics, token="secret", tls=tls_context(str(files.server_file), None)) as port:
        with connect(port) as plain:
            plain.sendall(REQUEST)
            assert has_closed(plain)
        trust = ssl.create_default_context(cafile=str(files.ca_file))
        client = http.client.HTTPSConnection("localhost", port, timeout=DEADLINE_S, context=trust)
        with contextlib.closing(client):
            client.request("GET", "/metrics", headers={"Authorization": "Bearer secret"})
            assert client.getresponse().status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /metrics HTTP/1.1\r\nName: " + b"x" * 1000,
        b"\x00" * 5000,
    ],
    ids=["nothing", "part of a line", "TLS", "part of the headers", "zeros"],
)
def test_client_that_ends_in_the_middle_does_no_harm(port: int, sent: bytes) -> None:
    with connect(port) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert has_closed(client)

    assert scrape(port)[0] == 200


def test_endless_headers_are_rejected(port: int) -> None:
    answer = b""
    with connect(port) as client, contextlib.suppress(ConnectionError):
        client.sendall(REQUEST[:-2])
        for _ in range(40):
            client.sendall(b"Name: " + b"x" * 1000 + b"\r\n")
        while part := client.recv(65_536):
            answer += part

    assert answer == b"" or b" 431 " in answer  # the answer is lost if the client still writes
    assert scrape(port)[0] == 200


def test_slow_clients_are_closed_and_do_not_block_others_for_ever(
    metrics: PublishedMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(metrics_server, "CONNECTION_S", 1.0)
    with serving(metrics) as port, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(port)) for _ in range(6)]
        for client in slow:
            client.sendall(b"GET ")
        wait_until(lambda: is_scraped(port), "a scrape")
        assert all(has_closed(client) for client in slow)


def test_client_that_reads_nothing_is_closed(
    metrics: PublishedMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(metrics_server, "CONNECTION_S", 1.0)
    metrics.publish([Sample(DRAIN_RATE, 1, {"pairing": "x" * 20_000_000})])
    with serving(metrics) as port, connect(port) as client:
        client.sendall(REQUEST)
        assert client.recv(1) == b"H"
        metrics.publish([rate(1)])
        # It waits until the connection of the first client has ended.
        wait_until(lambda: is_scraped(port), "a scrape")


def test_error_of_a_sample_does_not_end_the_server(
    metrics: PublishedMetrics, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    metrics.publish([Sample("no.such.metric", 1, {})])
    with pytest.raises(ConnectionError):
        scrape(port)
    wait_until(lambda: "Metrics could not be served" in caplog.text, "the error in the log")
    metrics.publish([rate(1)])

    assert scrape(port)[0] == 200


def test_end_of_the_server_closes_open_connections_and_the_port(
    metrics: PublishedMetrics,
) -> None:
    with contextlib.ExitStack() as stack:
        with serving(metrics) as port:
            clients = [stack.enter_context(connect(port)) for _ in range(3)]
            assert scrape(port)[0] == 200
            assert threads()
        wait_until(lambda: not threads(), "the thread of the server to end")
        assert all(has_closed(client) for client in clients)
    open_listener(HOST, port).close()


def test_port_that_is_taken_is_an_error() -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"^The metrics cannot listen .* port {port}"):
            open_listener(HOST, port, "The metrics")
