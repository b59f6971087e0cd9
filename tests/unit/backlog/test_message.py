"""What is said of a message of the backlog, however odd it is."""

import base64
import json
import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.sections import Header, Message, Properties
from pairbus.amqp.types import Array, Int32, Symbol, Timestamp, UInt
from pairbus.backlog.message import NOT_A_MESSAGE, BacklogMessage, read_message
from pairbus.transfer import MISSING_PATH, WRONG_ALIAS, to_backlog

QUEUE = "p/x-servicebus-transfer/0"
NOW_MS = 1_700_000_060_000
ENQUEUED_MS = 1_700_000_000_000


def stored(payload: bytes, sequence: int = 7) -> bytes:
    """As a namespace gives it out."""
    message = Message.parse(payload)
    message.edit_message_annotations(
        {
            "x-opt-sequence-number": sequence,
            "x-opt-enqueued-time": Timestamp(ENQUEUED_MS),
        }
    )
    return message.encode()


def plain(**changes: Any) -> bytes:
    given: dict[str, Any] = {"properties": Properties(message_id="m"), "data": b"body"}
    return Message.build(**(given | changes)).encode()


def seen(payload: bytes) -> dict[str, Any]:
    """As a program sees it: through JSON, and back."""
    return json.loads(json.dumps(read_message(QUEUE, payload).as_json(NOW_MS), allow_nan=False))


def test_an_ordinary_message_says_where_it_is_going_and_all_that_it_was() -> None:
    payload = stored(
        to_backlog(
            plain(
                header=Header(ttl=UInt(90_000)),
                properties=Properties(message_id="m-1", group_id="s-1", subject="greeting"),
                application_properties={"n": 1},
            ),
            "orders",
            scheduled_ms=1_700_000_500_000,
        )
    )

    found = read_message(QUEUE, payload)

    assert found == BacklogMessage(
        queue=QUEUE,
        payload=payload,
        sequence_number=7,
        enqueued_ms=ENQUEUED_MS,
        destination="orders",
        message_id="m-1",
        session_id="s-1",
        time_to_live_ms=90_000,
        scheduled_ms=1_700_000_500_000,
        application_properties=found.application_properties,
    )
    shown = seen(payload)
    assert shown["enqueued_time"] == "2023-11-14T22:13:20.000Z"
    assert shown["scheduled_time"] == "2023-11-14T22:21:40.000Z"
    assert shown["age_seconds"] == 60
    assert shown["size"] == len(payload)
    assert shown["subject"] == "greeting"
    assert (shown["body_kind"], shown["body"], shown["body_encoding"]) == ("data", "body", "text")
    assert shown["application_properties"]["n"] == 1


def test_a_message_without_a_path_says_nowhere_and_why_it_is_poison() -> None:
    found = read_message(QUEUE, stored(plain()))

    assert (found.destination, found.problem) == (None, MISSING_PATH)
    assert "x-ms-path" in (found.problem_description or "")
    assert (found.sequence_number, found.message_id) == (7, "m")


@pytest.mark.parametrize(
    ("alias", "value"),
    [
        ("x-ms-path", Int32(5)),
        ("x-ms-path", Symbol("orders")),
        ("x-ms-path", b"orders"),
        ("x-ms-path", ""),
        ("x-ms-sessionid", 5),
        ("x-ms-timetolive", Int32(5)),
        ("x-ms-timetolive", "soon"),
        ("x-ms-scheduledenqueuetimeutc", 5),
    ],
)
def test_an_alias_of_a_wrong_type_is_poison_and_is_not_taken_for_what_it_is_not(
    alias: str, value: Any
) -> None:
    message = Message.parse(to_backlog(plain(), "orders"))
    message.edit_application_properties({alias: value})

    found = read_message(QUEUE, stored(message.encode()))

    assert found.problem == WRONG_ALIAS
    assert alias in (found.problem_description or "")
    assert found.session_id is None
    assert found.time_to_live_ms is None
    assert found.scheduled_ms is None
    if alias != "x-ms-path":
        assert found.destination == "orders"
    else:
        assert found.destination in (None, "")
    json.dumps(found.as_json(NOW_MS))


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"\x00\x01", b"not AMQP at all", b"\x00\x53\x75\xa0\xff", b"\xff" * 99],
)
def test_what_is_not_amqp_at_all_is_shown_as_its_bytes(payload: bytes) -> None:
    found, shown = read_message(QUEUE, payload), seen(payload)

    assert found.problem in (NOT_A_MESSAGE, MISSING_PATH)  # no bytes are a message without a body
    assert (found.sequence_number, found.destination, found.message_id) == (None, None, None)
    if payload:
        assert (shown["body_kind"], shown["body_encoding"]) == ("unreadable", "base64")
        assert base64.b64decode(shown["body"]) == payload


def test_a_message_that_ends_in_nonsense_still_has_the_number_to_go_on_from() -> None:
    annotations = Message.parse(stored(plain())).message_annotations

    found = read_message(QUEUE, annotations + b"\x00\x53\xff nonsense")

    assert found.problem == NOT_A_MESSAGE
    assert (found.sequence_number, found.enqueued_ms) == (7, ENQUEUED_MS)


def test_a_dead_letter_says_its_reason_and_description() -> None:
    payload = plain(
        application_properties={"DeadLetterReason": "Gone", "DeadLetterErrorDescription": "no q"}
    )

    found = read_message(QUEUE, payload)

    assert (found.reason, found.description) == ("Gone", "no q")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"data": "é".encode()}, ("data", "é", "text")),
        ({"data": b"\xff\x00"}, ("data", "/wA=", "base64")),
        ({"data": b""}, ("data", "", "text")),
        ({"value": "text"}, ("value", "text", "json")),
        ({"value": None}, ("value", None, "json")),
        ({"value": {"k": [1, b"\xff"]}}, ("value", {"k": [1, {"base64": "/w=="}]}, "json")),
        ({"sequence": [1, "two"]}, ("sequence", [1, "two"], "json")),
    ],
)
def test_a_body_is_text_where_it_is_text_and_else_base64_or_json(
    body: dict[str, Any], shown: tuple[Any, ...]
) -> None:
    found = seen(Message.build(**body).encode())

    assert (found["body_kind"], found["body"], found["body_encoding"]) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, True),
        (UInt(5), 5),
        (1.5, 1.5),
        (math.inf, "inf"),
        (Symbol("s"), "s"),
        (b"\x01", {"base64": "AQ=="}),
        (Timestamp(0), "1970-01-01T00:00:00.000Z"),
        (Timestamp(2**62), 2**62),
        (UUID(int=5), str(UUID(int=5))),
        ([1, None], [1, None]),
        (Array(int, (1, 2)), [1, 2]),
    ],
)
def test_properties_of_every_type_can_be_written_as_json(value: Any, shown: Any) -> None:
    found = seen(plain(application_properties={"v": value}))

    assert found["application_properties"] == {"v": shown}


def test_a_message_id_need_not_be_text() -> None:
    shown = [
        seen(plain(properties=Properties(message_id=id)))["message_id"]
        for id in (UUID(int=1), b"\x01", None)
    ]

    assert shown == [str(UUID(int=1)), {"base64": "AQ=="}, None]


@given(st.binary(max_size=80), st.integers(0, 300), st.integers(0, 300))
def test_no_bytes_are_too_odd(noise: bytes, start: int, end: int) -> None:
    payload = stored(to_backlog(plain(application_properties={"n": 1}), "orders"))

    for odd in (noise, payload[:start] + noise + payload[end:], payload[:start]):
        json.dumps(read_message(QUEUE, odd).as_json(NOW_MS), allow_nan=False)
