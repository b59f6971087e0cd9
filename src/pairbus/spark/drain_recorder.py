"""Records what a task moved, for the telemetry of the process that started the syphon."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pairbus.amqp.sections import Message
from pairbus.errors import DecodeError
from pairbus.spark.messages import RestoredMessage
from pairbus.telemetry.drains import MAX_TRACED, DrainRecord, TracedMessage

_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_NAMES = ("traceparent", "Diagnostic-Id")


class DrainRecorder:
    """Makes one record for each destination of a task."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._started_at = now()
        self._messages: dict[str, int] = {}
        self._ended_at: dict[str, float] = {}
        self._traced: dict[str, list[TracedMessage]] = {}

    def delivered(self, destination: str, messages: Sequence[RestoredMessage]) -> None:
        """Add messages that their destination has accepted."""
        now = self._ended_at[destination] = self._now()
        self._messages[destination] = self._messages.get(destination, 0) + len(messages)
        traced = self._traced.setdefault(destination, [])
        for message in messages:
            if len(traced) == MAX_TRACED:
                return
            context = trace_context(message.payload)
            if context is not None:
                moved_time = int(now * 1_000_000)
                traced.append(
                    TracedMessage(*context, message.queue, message.enqueued_time, moved_time)
                )

    def records(self) -> list[DrainRecord]:
        """Return the records so far."""
        return [
            DrainRecord(
                destination=destination,
                messages=messages,
                started_at=self._started_at,
                ended_at=self._ended_at[destination],
                traced=tuple(self._traced[destination]),
            )
            for destination, messages in self._messages.items()
        ]


def trace_context(payload: bytes) -> tuple[str, str | None] | None:
    """Return `traceparent` and `tracestate` of an encoded message, or None if it has no context."""
    if not any(name.encode() in payload for name in _NAMES):
        return None
    try:
        properties = Message.parse(payload).read_application_properties()
    except DecodeError:
        return None
    for name in _NAMES:
        parent = _text(properties, name)
        if parent is not None and _TRACE_PARENT.fullmatch(parent):
            return parent, _text(properties, "tracestate")
    return None


def _text(properties: Mapping[Any, Any], name: str) -> str | None:
    value = properties.get(name)
    if isinstance(value, bytes):
        return value.decode("ascii", "replace")
    return value if isinstance(value, str) else None
