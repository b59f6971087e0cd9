"""HTTP without I/O: split requests, responses in order, and errors for invalid input."""

import http.client
import io

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.emulator.connections.http import HttpConnection, HttpRequest, HttpResponse
from pairbus.errors import StateError

GET = b"GET /q?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n\r\n"
PUT = b"PUT /a%2Fb HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nIf-Match: *\r\n\r\nhello"
CHUNKED = (
    b"PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: t\r\n\r\n"
)
OK = HttpResponse(status=200, body=b"<ok/>", content_type="application/xml")


def status_of(output: bytes) -> int:
    return int(output.split(b" ")[1])


@pytest.mark.parametrize(
    ("data", "method", "path", "body"),
    [(GET, "GET", "q", b""), (PUT, "PUT", "a/b", b"hello"), (CHUNKED, "PUT", "x", b"abcde")],
)
@given(data_source=st.data())
def test_request_can_arrive_in_any_pieces(
    data_source: st.DataObject, data: bytes, method: str, path: str, body: bytes
):
    cuts = sorted(data_source.draw(st.sets(st.integers(1, len(data) - 1), max_size=8)))
    connection = HttpConnection()
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    *before, last = [connection.receive(piece) for piece in pieces]

    assert before == [None] * len(before)
    assert last is not None
    assert (last.method, last.path, last.body) == (method, path, body)
    assert connection.output() == b""


def test_path_query_and_headers_are_read():
    request = HttpConnection().receive(
        b"GET /$Resources/queues?%24skip=5&$top=10&x=&x=2 HTTP/1.1\r\nHost: h\r\n"
        b"Authorization:  SharedAccessSignature sr=x  \r\nX: \xe9\r\n\r\n"
    )

    assert request is not None
    assert request.path == "$Resources/queues"
    assert request.query == {"$skip": "5", "$top": "10", "x": "2"}
    assert request.header("AUTHORIZATION") == "SharedAccessSignature sr=x"
    assert request.header("x") == "é"
    assert request.header("missing") is None


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/", "", {}),
        ("//a//b", "a//b", {}),
        ("/caf%C3%A9", "café", {}),
        ("/a?b?c=d", "a", {"b?c": "d"}),
        ("http://host:80/q?x=1", "q", {"x": "1"}),
        ("http://[bad/q", "", {}),
        ("*", "*", {}),
    ],
)
def test_target_of_every_form_has_a_path_and_a_query(target: str, path: str, query: dict[str, str]):
    request = HttpRequest(method="GET", target=target)

    assert (request.path, request.query) == (path, query)


def test_repr_of_a_request_hides_headers_and_body():
    request = HttpConnection().receive(PUT.replace(b"If-Match: *", b"Authorization: secret-token"))

    assert "secret-token" not in repr(request)
    assert "hello" not in repr(request)


def test_response_is_read_by_a_client():
    connection = HttpConnection()
    connection.receive(GET)

    assert connection.respond(OK) is None

    parsed = http.client.HTTPResponse(_Bytes(connection.output()))
    parsed.begin()
    assert (parsed.status, parsed.reason) == (200, "OK")
    assert parsed.getheader("Content-Type") == "application/xml"
    assert parsed.read() == b"<ok/>"
    assert not connection.closing


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self.data)


def test_connection_is_kept_for_several_requests():
    connection = HttpConnection()

    for _ in range(3):
        assert connection.receive(PUT) is not None
        assert connection.respond(OK) is None
        assert status_of(connection.output()) == 200

    assert not connection.closing


def test_pipelined_requests_are_returned_one_by_one():
    connection = HttpConnection()

    first = connection.receive(GET + PUT + CHUNKED)
    assert connection.receive(b"") is None
    second = connection.respond(OK)
    third = connection.respond(OK)

    assert [item.path for item in (first, second, third) if item is not None] == ["q", "a/b", "x"]
    assert not connection.closing
    assert connection.respond(OK) is None
    assert connection.closing
    assert connection.output().count(b"HTTP/1.1 200 OK") == 3


@pytest.mark.parametrize(
    "data",
    [GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), b"GET / HTTP/1.0\r\n\r\n"],
)
def test_connection_close_gets_a_response_and_is_closed(data: bytes):
    connection = HttpConnection()
    connection.receive(data)
    assert not connection.closing

    connection.respond(OK)

    assert connection.closing
    assert b"Connection: close" in connection.output()


def test_client_that_expects_100_gets_continue():
    connection = HttpConnection()
    head, body = PUT.replace(b"If-Match: *", b"Expect: 100-continue").split(b"\r\n\r\n")

    assert connection.receive(head + b"\r\n\r\n") is None
    assert connection.output() == b"HTTP/1.1 100 Continue\r\n\r\n"
    request = connection.receive(body)

    assert request is not None
    assert request.body == b"hello"
    connection.respond(OK)
    assert status_of(connection.output()) == 200


def test_head_is_answered_without_a_body():
    connection = HttpConnection()
    connection.receive(GET.replace(b"GET", b"HEAD"))
    connection.respond(OK)

    assert connection.output().endswith(b"\r\n\r\n")
    assert connection.receive(GET) is not None
    connection.respond(OK)
    assert connection.output().endswith(b"<ok/>")


def test_end_of_input_closes_without_a_response():
    connection = HttpConnection()

    assert connection.receive(b"") is None
    assert connection.closing
    assert connection.output() == b""


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"AMQP\x00\x01\x00\x00\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nBad Name: x\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 2000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 2000, 431),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2001\r\n\r\n", 413),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
        (
            b"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2001\r\n\r\n",
            413,
        ),
        (
            b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n7d1\r\n" + b"x" * 2001,
            413,
        ),
    ],
)
def test_invalid_input_gets_an_error_and_is_closed(data: bytes, status: int):
    connection = HttpConnection(max_header=1000, max_body=2000)

    assert connection.receive(data) is None

    output = connection.output()
    assert status_of(output) == status
    assert b"Connection: close" in output
    assert connection.closing
    assert connection.receive(GET) is None
    assert connection.output() == b""


def test_incomplete_request_gets_an_error_and_is_closed():
    connection = HttpConnection()

    assert connection.receive(PUT[:-1]) is None
    assert connection.receive(b"") is None

    assert status_of(connection.output()) == 400
    assert connection.closing


def test_pipelined_input_has_an_upper_bound():
    connection = HttpConnection(max_header=1000, max_body=2000)
    assert connection.receive(GET) is not None

    for _ in range(3000 // len(GET)):
        connection.receive(GET)
    assert not connection.closing
    connection.receive(GET)

    assert connection.closing


def test_invalid_input_after_a_request_does_not_lose_its_response():
    connection = HttpConnection()
    assert connection.receive(GET + b"nonsense\r\n\r\n") is not None

    assert connection.respond(OK) is None

    output = connection.output()
    assert output.startswith(b"HTTP/1.1 200 OK")
    assert b"HTTP/1.1 400 Bad Request" in output
    assert connection.closing


def test_response_without_a_request_raises():
    with pytest.raises(StateError):
        HttpConnection().respond(OK)


@given(st.lists(st.binary(max_size=60) | st.sampled_from([GET, PUT, CHUNKED[:70]]), max_size=6))
def test_arbitrary_bytes_result_in_requests_or_a_close(pieces: list[bytes]):
    connection = HttpConnection()
    for piece in [*pieces, b""]:
        request = connection.receive(piece)
        while request is not None:
            request = connection.respond(OK)

    assert connection.closing


def test_responses_to_pipelined_requests_are_read_by_an_h11_client():
    connection, client = HttpConnection(), h11.Connection(h11.CLIENT)
    for _ in range(2):
        request_head = h11.Request(method="GET", target="/q", headers=[("Host", "h")])
        data = (client.send(request_head) or b"") + (client.send(h11.EndOfMessage()) or b"")
        assert connection.receive(data) is not None
        connection.respond(OK)
        client.receive_data(connection.output())
        events = [client.next_event() for _ in range(3)]
        assert [type(event) for event in events] == [h11.Response, h11.Data, h11.EndOfMessage]
        client.start_next_cycle()


@pytest.mark.parametrize("data", [GET[:1], GET[:-1], PUT[:-1], CHUNKED[:-1]])
def test_request_that_times_out_gets_an_error_and_is_closed(data: bytes):
    connection = HttpConnection()
    connection.receive(data)
    assert connection.has_partial_request

    connection.time_out("Too slow.")

    output = connection.output()
    assert status_of(output) == 408
    assert output.endswith(b"Too slow.\n")
    assert connection.closing


def test_idle_connection_that_times_out_is_closed_without_a_response():
    connection = HttpConnection()
    assert connection.receive(GET) is not None
    connection.respond(OK)
    connection.output()
    assert not connection.has_partial_request

    connection.time_out("Too slow.")

    assert connection.output() == b""
    assert connection.closing
    assert not connection.has_unread_input


def test_client_of_a_refused_request_may_still_be_sending():
    connection = HttpConnection(max_body=10)

    connection.receive(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n")

    assert status_of(connection.output()) == 413
    assert connection.has_unread_input
