"""The messages that a dry run counts."""

from typing import Any

import pytest

from pairbus.amqp.sections import Header, Message
from pairbus.amqp.types import Symbol, Timestamp, UInt
from pairbus.backlog.message import read_message
from pairbus.servicebus.application_properties import TTL_EXPIRED
from pairbus.syphon.dry_run import would_move
from pairbus.syphon.options import SyphonOptions
from pairbus.transfer import MISSING_PATH, to_backlog

PRIMARY = "Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
SECONDARY = "Endpoint=sb://two.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
NOW_MS = 10_000


def stored(path: str, ttl_ms: int) -> bytes:
    payload = Message.build(header=Header(ttl=UInt(ttl_ms)), data=b"body").encode()
    message = Message.parse(to_backlog(payload, path))
    message.edit_message_annotations({Symbol("x-opt-enqueued-time"): Timestamp(1_000)})
    return message.encode()


MESSAGES = [
    read_message("q", stored("orders", ttl_ms=60_000)),
    read_message("q", stored("orders", ttl_ms=500)),
    read_message("q", stored("bills", ttl_ms=60_000)),
    read_message("q", Message.build(data=b"without a destination").encode()),
]


@pytest.mark.rule("Y8")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [("orders", None), ("orders", None), ("bills", None), (None, MISSING_PATH)]),
        ({"only": ("bills",)}, [("bills", None), (None, MISSING_PATH)]),
        (
            {"ttl": "deduct"},
            [("orders", None), ("orders", TTL_EXPIRED), ("bills", None), (None, MISSING_PATH)],
        ),
    ],
    ids=["all", "only", "deduct"],
)
def test_dry_run_counts_the_messages_that_the_syphon_would_move(
    changes: dict[str, Any], expected: list[tuple[str | None, str | None]]
) -> None:
    options = SyphonOptions(primary=PRIMARY, secondary=SECONDARY, **changes)  # type: ignore[arg-type]

    messages = would_move(MESSAGES, options, NOW_MS)

    assert [(message.destination, message.problem) for message in messages] == expected
