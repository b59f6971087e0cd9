"""Reading messages of the backlog, valid or not."""

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
    """Add the annotations of a namespace."""
    message = Message.parse(payload)
    message.edit_message_annotations(
        {
            "x-opt-sequence-number": sequence,
            "x-opt-enqueued-time": Timestamp(ENQUEUED_MS),
        }
    )
    return message.encode()


def encoded(**changes: Any) -> bytes:
    sections: dict[str, Any] = {"properties": Properties(message_id="m"), "data": b"body"}
    return Message.build(**(sections | changes)).encode()


def as_json(payload: bytes) -> dict[str, Any]:
    """Read a message and pass it through JSON."""
    return json.loads(json.dumps(read_message(QUEUE, payload).to_json(NOW_MS), allow_nan=False))


def test_message_has_its_destination_and_its_original_properties() -> None:
    payload = stored(
        to_backlog(
            encoded(
                header=Header(ttl=UInt(90_000)),
                properties=Properties(message_id="m-1", group_id="s-1", subject="greeting"),
                application_properties={"n": 1},
            ),
            "orders",
            scheduled_ms=1_700_000_500_000,
        )
    )

    message = read_message(QUEUE, payload)

    assert message == BacklogMessage(
        queue=QUEUE,
        payload=payload,
        sequence_number=7,
        enqueued_ms=ENQUEUED_MS,
        destination="orders",
        message_id="m-1",
        session_id="s-1",
        time_to_live_ms=90_000,
        scheduled_ms=1_700_000_500_000,
        application_properties=message.application_properties,
    )
    shown = as_json(payload)
    assert shown["enqueued_time"] == "2023-11-14T22:13:20.000Z"
    assert shown["scheduled_time"] == "2023-11-14T22:21:40.000Z"
    assert shown["age_seconds"] == 60
    assert shown["size_in_bytes"] == len(payload)
    assert shown["subject"] == "greeting"
    assert (shown["body_type"], shown["body"], shown["body_encoding"]) == ("data", "body", "text")
    assert shown["application_properties"]["n"] == 1


def test_message_without_a_path_has_no_destination_and_a_problem() -> None:
    message = read_message(QUEUE, stored(encoded()))

    assert (message.destination, message.problem) == (None, MISSING_PATH)
    assert "x-ms-path" in (message.problem_description or "")
    assert (message.sequence_number, message.message_id) == (7, "m")


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
def test_alias_of_the_wrong_type_is_a_problem_and_is_not_converted(alias: str, value: Any) -> None:
    message = Message.parse(to_backlog(encoded(), "orders"))
    message.edit_application_properties({alias: value})

    message = read_message(QUEUE, stored(message.encode()))

    assert message.problem == WRONG_ALIAS
    assert alias in (message.problem_description or "")
    assert message.session_id is None
    assert message.time_to_live_ms is None
    assert message.scheduled_ms is None
    if alias != "x-ms-path":
        assert message.destination == "orders"
    else:
        assert message.destination in (None, "")
    json.dumps(message.to_json(NOW_MS))


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"\x00\x01", b"not AMQP at all", b"\x00\x53\x75\xa0\xff", b"\xff" * 99],
)
def test_payload_that_is_not_amqp_is_shown_in_base64(payload: bytes) -> None:
    message, shown = read_message(QUEUE, payload), as_json(payload)

    assert message.problem in (
        NOT_A_MESSAGE,
        MISSING_PATH,
    )  # an empty payload is a message without a body
    assert (message.sequence_number, message.destination, message.message_id) == (None, None, None)
    if payload:
        assert (shown["body_type"], shown["body_encoding"]) == ("undecodable", "base64")
        assert base64.b64decode(shown["body"]) == payload


def test_message_with_undecodable_end_still_has_its_sequence_number() -> None:
    annotations = Message.parse(stored(encoded())).message_annotations

    message = read_message(QUEUE, annotations + b"\x00\x53\xff nonsense")

    assert message.problem == NOT_A_MESSAGE
    assert (message.sequence_number, message.enqueued_ms) == (7, ENQUEUED_MS)


def test_dead_letter_has_its_reason_and_description() -> None:
    payload = encoded(
        application_properties={"DeadLetterReason": "Gone", "DeadLetterErrorDescription": "no q"}
    )

    message = read_message(QUEUE, payload)

    assert (message.dead_letter_reason, message.dead_letter_description) == ("Gone", "no q")


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
def test_body_is_text_base64_or_json(body: dict[str, Any], shown: tuple[Any, ...]) -> None:
    message = as_json(Message.build(**body).encode())

    assert (message["body_type"], message["body"], message["body_encoding"]) == shown


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
def test_properties_of_every_type_are_converted_to_json(value: Any, shown: Any) -> None:
    message = as_json(encoded(application_properties={"v": value}))

    assert message["application_properties"] == {"v": shown}


def test_message_id_of_any_type_is_converted_to_json() -> None:
    shown = [
        as_json(encoded(properties=Properties(message_id=id)))["message_id"]
        for id in (UUID(int=1), b"\x01", None)
    ]

    assert shown == [str(UUID(int=1)), {"base64": "AQ=="}, None]


@given(st.binary(max_size=80), st.integers(0, 300), st.integers(0, 300))
def test_reading_arbitrary_bytes_never_raises(noise: bytes, start: int, end: int) -> None:
    payload = stored(to_backlog(encoded(application_properties={"n": 1}), "orders"))

    for corrupt in (noise, payload[:start] + noise + payload[end:], payload[:start]):
        json.dumps(read_message(QUEUE, corrupt).to_json(NOW_MS), allow_nan=False)
