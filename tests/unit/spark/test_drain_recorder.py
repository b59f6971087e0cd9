"""What a task moved is recorded for telemetry, with the contexts of the producers."""

from typing import Any

import pytest

from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol
from pairbus.spark.drain_recorder import DrainRecorder, trace_context
from pairbus.spark.messages import RestoredMessage
from pairbus.telemetry.drains import MAX_TRACED, DrainRecord, TracedMessage

pytestmark = pytest.mark.rule("O1")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def payload(body: bytes = b"x", **properties: Any) -> bytes:
    return Message.build(application_properties=properties or None, data=body).encode()


def restored(encoded: bytes) -> RestoredMessage:
    return RestoredMessage("q/0", None, 0, None, "orders", encoded, enqueued_time=5)


def test_record_has_the_contexts_and_times_of_messages() -> None:
    clock = Clock()
    recorder = DrainRecorder(clock)
    clock.time += 2
    recorder.delivered("orders", [restored(payload(traceparent=PARENT, tracestate="a=b"))])
    clock.time += 3
    recorder.delivered("orders", [restored(payload()), restored(payload())])

    [record] = recorder.records()
    assert record == DrainRecord(
        destination="orders",
        messages=3,
        started_at=1000.0,
        ended_at=1005.0,
        traced=(TracedMessage(PARENT, "a=b", "q/0", 5, 1_002_000_000),),
    )
    assert DrainRecord.from_json(record.to_json()) == record


def test_each_destination_has_a_record_with_a_limited_number_of_contexts() -> None:
    recorder = DrainRecorder()
    message = restored(payload(traceparent=PARENT))
    for _ in range(3):
        recorder.delivered("orders", [message] * 100)
    recorder.delivered("bills", [message])

    records = {record.destination: record for record in recorder.records()}
    assert (records["orders"].messages, len(records["orders"].traced)) == (300, MAX_TRACED)
    assert len(records["bills"].traced) == 1


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"traceparent": PARENT}, (PARENT, None)),
        ({"Diagnostic-Id": PARENT}, (PARENT, None)),
        ({"traceparent": PARENT.encode(), "tracestate": b"a=b"}, (PARENT, "a=b")),
        ({"traceparent": Symbol(PARENT)}, (PARENT, None)),
        ({"Diagnostic-Id": "|old.format.", "traceparent": PARENT}, (PARENT, None)),
        ({"traceparent": "no context", "Diagnostic-Id": PARENT}, (PARENT, None)),
        ({"Diagnostic-Id": "|old.format."}, None),
        ({"traceparent": f"00-{32 * '0'}-b7ad6b7169203331-01"}, None),
        ({"traceparent": 7}, None),
        ({"tenant": PARENT}, None),
    ],
)
def test_context_is_read_from_application_properties(
    properties: dict[str, Any], expected: tuple[str, str | None] | None
) -> None:
    assert trace_context(payload(**properties)) == expected


@pytest.mark.parametrize(
    "encoded", [payload(f"traceparent {PARENT}".encode()), b"traceparent", b""]
)
def test_text_elsewhere_is_no_context(encoded: bytes) -> None:
    assert trace_context(encoded) is None
