"""Answers to requests for metrics."""

import pytest

from pairbus.telemetry.metrics_request import respond
from pairbus.telemetry.prometheus import ExpositionFormat

pytestmark = pytest.mark.rule("O1")

TOKEN = "a-token.of-tests"


def ask(
    line: str = "GET /metrics HTTP/1.1",
    *headers: str,
    host: str | None = "127.0.0.1:9465",
    token: str | None = None,
    content: bytes | None = b"metric 1.0\n",
) -> tuple[int, dict[str, str], bytes]:
    """Return the status, headers and body of an answer."""
    fields = [line, *([] if host is None else [f"Host: {host}"]), *headers, "", ""]
    answer = respond("\r\n".join(fields).encode("latin-1"), token, lambda _: content)
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *rest = head.decode().split("\r\n")
    return int(status.split(" ")[1]), dict(field.split(": ", 1) for field in rest), body


def test_metrics_are_plain_text_by_default() -> None:
    status, headers, body = ask()

    assert (status, body) == (200, b"metric 1.0\n")
    assert headers == {
        "Content-Type": ExpositionFormat.PROMETHEUS.value,
        "Content-Length": "11",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
    }


def test_format_is_that_of_the_accept_header() -> None:
    def render(exposition: ExpositionFormat) -> bytes:
        return exposition.name.encode()

    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nACCEPT: application/openmetrics-text"
    answer = respond(request + b"\r\n\r\n", None, render)

    assert answer.endswith(b"\r\n\r\nOPENMETRICS")
    assert b"Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n" in answer


@pytest.mark.parametrize("line", ["HEAD /metrics HTTP/1.1", "HEAD /other HTTP/1.1"])
def test_head_has_no_body(line: str) -> None:
    _, headers, body = ask(line)

    assert body == b""
    assert int(headers["Content-Length"]) > 0


def test_query_is_ignored() -> None:
    assert ask("GET /metrics?name=x HTTP/1.0")[0] == 200


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metricsx", "/../metrics", "http://x/metrics"])
def test_other_paths_are_not_found(path: str) -> None:
    assert ask(f"GET {path} HTTP/1.1")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_other_methods_are_not_allowed(method: str) -> None:
    status, headers, _ = ask(f"{method} /metrics HTTP/1.1")

    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("line", ["", "GET", "GET /metrics", "GET /metrics HTTP/2", "\x16\x03\x01"])
def test_what_is_not_http_is_a_bad_request(line: str) -> None:
    assert ask(line)[0] == 400


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.0.1:9465", "[::1]:9465", "localhost."]
)
def test_hosts_of_this_machine_need_no_token(host: str) -> None:
    assert ask(host=host)[0] == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("evil.example:9465", 421),
        ("localhost.evil.example", 421),
        ("10.0.0.1", 421),
        ("", 400),
        (None, 400),
        ("localhost:port", 400),
    ],
)
def test_other_hosts_are_rejected_without_a_token(host: str | None, expected: int) -> None:
    status, _, body = ask(host=host)

    assert status == expected
    assert b"metric 1.0" not in body


@pytest.mark.parametrize("host", ["localhost", "syphon.example", None])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_token_is_enough_for_any_host(host: str | None, scheme: str) -> None:
    header = f"Authorization: {scheme} {TOKEN}"

    assert ask("GET /metrics HTTP/1.1", header, host=host, token=TOKEN)[0] == 200


@pytest.mark.parametrize(
    "header",
    [
        "Accept: */*",
        "Authorization: Bearer",
        "Authorization: Bearer ",
        f"Authorization: Basic {TOKEN}",
        f"Authorization: Bearer {TOKEN}x",
        f"Authorization: Bearer {TOKEN[:-1]}",
        f"Authorization: {TOKEN}",
        "Authorization: Bearer \xff\xfe",
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_wrong_token_is_rejected_on_every_path(header: str, path: str) -> None:
    status, headers, body = ask(f"GET {path} HTTP/1.1", header, token=TOKEN)

    assert status == 401
    assert headers["WWW-Authenticate"].startswith("Bearer ")
    assert TOKEN.encode() not in body
    assert b"1.0" not in body


def test_metrics_that_are_not_up_to_date_are_unavailable() -> None:
    assert ask(content=None)[0] == 503
