"""Reports with any content are refused, or shown without harm."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.console.metrics import console_samples
from pairbus.console.sender_report import InvalidReport, parse_report
from pairbus.console.senders import SenderRegistry
from pairbus.console.snapshot import Knowledge, build_snapshot
from pairbus.console.stream import encode_event
from pairbus.console.text import clean
from pairbus.telemetry.prometheus import render_metrics
from tests.console_client import report

NOW = 1_800_000_000.0
TEXT = st.text(st.characters(), max_size=400)
"""Text with any character, also those that UTF-8 cannot encode."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
MARKS = str.maketrans("", "", "\u200e\u200f\u200c\u200d")
KEYS = st.sampled_from(sorted(report()))
STATES = st.sampled_from(["healthy", "suspect", "failover", "draining"])


@pytest.mark.rule("O3", "O4")
@given(st.dictionaries(KEYS, JSON, max_size=3), JSON)
def test_report_with_any_value_is_valid_or_refused(changes: dict[str, Any], whole: Any):
    for values in (whole, report() | changes):
        try:
            parsed = parse_report(values)
        except InvalidReport:
            continue
        SenderRegistry("orders").accept(parsed, NOW)


@pytest.mark.rule("O3")
@given(TEXT, TEXT, TEXT, STATES)
def test_names_of_a_report_are_encoded_as_one_line(path: str, host: str, text: str, state: str):
    registry = SenderRegistry("orders")
    values = report(path=path, state=state)
    values["sender"]["host"] = host
    values["paths"][0]["cause"] = text
    values["events"] = [{"time": "2026-11-17T17:00:00Z", "kind": text, "text": text}]
    registry.accept(parse_report(values), NOW)
    knowledge = Knowledge(
        now=NOW,
        paths=tuple(registry.paths()),
        senders=tuple(registry.senders()),
        events=tuple(registry.events),
    )

    snapshot = build_snapshot(knowledge)
    event = encode_event(snapshot)

    kind, data, *rest = event.decode().split("\n")
    assert (kind, rest) == ("event: state", ["", ""])
    assert json.loads(data.removeprefix("data: ")) == json.loads(json.dumps(snapshot))
    for line in (snapshot["sentence"], *snapshot["problems"]):
        assert line.translate(MARKS).replace("\u202f", " ").isprintable()
    for line in render_metrics(console_samples(knowledge, "p")).decode().split("\n")[:-1]:
        assert line.startswith(("#", "pairbus_"))


@pytest.mark.rule("O3")
@given(TEXT)
def test_clean_text_is_printable_apart_from_marks_of_direction(text: str):
    assert clean(text).translate(MARKS).isprintable()
