"""Names, messages and bodies of requests are untrusted."""

import json

import pytest

from tests.console_client import report
from tests.integration.console.raw_connections import raw
from tests.integration.console.sites import Site

pytestmark = pytest.mark.rule("O3")

NAMES = (
    '<img src=x onerror="alert(1)">',
    "</script><script>alert(1)</script>",
    "a\r\nevent: state\r\ndata: {}\r\n\r\n",
    "\x00\x1b[31m\u202e\u2066",
    "x" * 1_000,
)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_are_shown_as_text(site: Site, name: str):
    values = report(primary_name=site.backlog.name, state="failover", path=name)
    values["sender"]["host"] = name
    values["paths"][0]["cause"] = name
    values["events"] = [{"time": "2026-11-17T17:00:00Z", "kind": name, "text": name}]
    assert site.client("sender").post("/api/reports", values).status == 200
    viewer = site.client("viewer")

    answer = viewer.get("/api/state")
    with viewer.events() as events:
        streamed = next(iter(events))

    assert answer.headers["content-type"] == "application/json"
    shown = answer.json["paths"][0]["path"]
    assert shown == name or shown.startswith(name[:300])
    assert streamed["paths"] == answer.json["paths"]
    for text in (answer.json["sentence"], *answer.json["problems"]):
        assert text.isprintable()
    assert all(event["text"].isprintable() for event in answer.json["events"])
    assert len(answer.body) < 20_000


def test_report_of_a_megabyte_is_refused(site: Site):
    values = report(primary_name=site.backlog.name, path="x" * 2**20)

    body = json.dumps(values).encode()
    head = (
        f"POST /api/reports HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {site.token('sender')}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with raw(site, head.encode()) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("body", [b"[" * 60_000, b"{", b"nul", b"[]", b"\xff\xfe", b'"x"'])
def test_body_that_is_no_json_object_is_refused(site: Site, body: bytes):
    answer = site.client("operator").post("/api/syphon", body, Content_Type="application/json")

    assert answer.status == 400
    assert "error" in answer.json
