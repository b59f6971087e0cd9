"""The upgrade of an HTTP connection to a WebSocket."""

import pytest

from pairbus.emulator.connections.http import HttpConnection, HttpRequest, HttpResponse
from pairbus.emulator.connections.websocket import (
    AcceptedUpgrade,
    accept_upgrade,
    is_websocket_request,
)

HEADERS = {
    "host": "localhost",
    "upgrade": "websocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
    "sec-websocket-protocol": "AMQPWSB10",
}
PATH = "/$servicebus/websocket"


def request(method: str = "GET", target: str = PATH, **changes: str | None) -> HttpRequest:
    headers = HEADERS | {name.replace("_", "-"): value for name, value in changes.items()}
    present = tuple((name, value) for name, value in headers.items() if value is not None)
    return HttpRequest(method=method, target=target, headers=present)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("AMQPWSB10", b"AMQPWSB10"),
        ("amqp", b"amqp"),
        ("binary, AMQPWSB10, amqp", b"AMQPWSB10"),
    ],
)
def test_subprotocol_of_the_service_or_the_standard_is_accepted(offered: str, chosen: bytes):
    accepted = accept_upgrade(request(sec_websocket_protocol=offered))

    assert isinstance(accepted, AcceptedUpgrade)
    assert accepted.response.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"\r\nSec-WebSocket-Protocol: " + chosen + b"\r\n" in accepted.response
    # The example of RFC 6455, section 1.3.
    assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in accepted.response


@pytest.mark.parametrize(
    ("invalid", "status"),
    [
        (request(sec_websocket_protocol=None), 400),
        (request(sec_websocket_protocol="mqtt"), 400),
        (request(sec_websocket_key=None), 400),
        (request(sec_websocket_key="short"), 400),
        (request(sec_websocket_version="8"), 400),
        (request(connection="close"), 426),
        (request(upgrade="h2c"), 426),
        (request("POST"), 405),
    ],
)
def test_invalid_upgrade_is_refused_with_a_sentence(invalid: HttpRequest, status: int):
    refused = accept_upgrade(invalid)

    assert isinstance(refused, HttpResponse)
    assert refused.status == status
    assert refused.body.endswith(b".\n")


def test_refusal_can_be_written_as_a_response():
    connection = HttpConnection()
    received = connection.receive(
        b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n"
    )
    assert received is not None
    refused = accept_upgrade(received)
    assert isinstance(refused, HttpResponse)

    connection.respond(refused)

    assert connection.output().startswith(b"HTTP/1.1 426 Upgrade Required\r\n")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (PATH, True),
        ("/%24servicebus/websocket", True),
        ("/$ServiceBus/WebSocket/", True),
        ("/$servicebus/websocket?x=1", True),
        ("/orders", False),
        ("/", False),
    ],
)
def test_path_of_the_service_is_recognized(target: str, expected: bool):
    assert is_websocket_request(request(target=target)) == expected


def test_request_without_an_upgrade_is_not_for_a_websocket():
    assert not is_websocket_request(request(upgrade=None))
