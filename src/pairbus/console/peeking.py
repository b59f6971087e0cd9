"""Peeks at messages of the backlog queues, for the page. Bodies are hidden unless asked for."""

import json
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from pairbus.backlog.json_values import amqp_to_json, iso_time
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import connected, peek
from pairbus.backlog.target import InspectionTarget, is_index
from pairbus.console.operations import CountedOperations
from pairbus.console.text import clean, shorten
from pairbus.errors import ConfigurationError
from pairbus.servicebus.backlog_paths import backlog_index
from pairbus.spark.usage import UsageRecorder

MAX_PEEK: Final = 100
MAX_PER_MINUTE: Final = 1_000
"""Messages that all users together may peek at in a minute. A Standard namespace has 1,000 credits
a second, and a drain needs them."""
MAX_BODY: Final = 16_384
"""Characters of a body that the page gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekRequest:
    """A peek that a user asked for."""

    path: str
    count: int
    dead_letters: bool
    bodies: bool

    @classmethod
    def parse(
        cls, target: InspectionTarget, queue: str, count: str, *, dead_letters: bool, bodies: bool
    ) -> "PeekRequest":
        """Return the request for a backlog queue, which is given by its path or index. Raises
        ConfigurationError."""
        path = target.queue_path(queue) if is_index(queue) and len(queue) < 7 else queue
        if backlog_index(target.known_primary_name(), path) is None:
            raise ConfigurationError("This is not a backlog queue of the pairing.")
        if not (count.isascii() and count.isdecimal() and 1 <= int(count[:9]) <= MAX_PEEK):
            raise ConfigurationError(f"The number of messages must be 1 to {MAX_PEEK}.")
        return cls(path=path, count=int(count), dead_letters=dead_letters, bodies=bodies)

    @property
    def description(self) -> str:
        """A sentence about the peek."""
        kind = "dead letters" if self.dead_letters else "messages"
        what = "with their bodies" if self.bodies else "without their bodies"
        return f"Shows up to {self.count} {kind} of {self.path} {what}, and leaves them there."


class PeekBudget:
    """Bounds the messages that are peeked in a minute. The caller passes the time."""

    def __init__(self) -> None:
        self._peeks: deque[tuple[float, int]] = deque()

    def take(self, count: int, now: float) -> bool:
        """Return True if `count` more messages may be peeked."""
        while self._peeks and not now - 60 < self._peeks[0][0] <= now:
            self._peeks.popleft()
        if sum(taken for _, taken in self._peeks) + count > MAX_PER_MINUTE:
            return False
        self._peeks.append((now, count))
        return True


def peek_messages(
    target: InspectionTarget, usage: UsageRecorder, request: PeekRequest
) -> dict[str, Any]:
    """Return the first messages of a backlog queue. Each is billed. Raises the errors of the
    client."""
    operations = CountedOperations(usage)
    messages: list[dict[str, Any]] = []
    now_ms = int(time.time() * 1000)
    try:
        with connected(target.secondary) as client:
            for batch in peek(
                client,
                request.path,
                dead_letters=request.dead_letters,
                count=request.count,
                on_peek=lambda payloads: operations.add_peek(request.path, payloads),
                patience_s=0,  # the person at the page can repeat it
            ):
                messages += [_to_json(message, request, now_ms) for message in batch]
    finally:
        operations.flush()
    return {
        "messages": messages,
        "text": f"{len(messages)} shown, {operations.count} operations billed.",
    }


def _to_json(message: BacklogMessage, request: PeekRequest, now_ms: int) -> dict[str, Any]:
    enqueued = message.enqueued_ms
    values = {
        "sequence_number": message.sequence_number,
        "message_id": _text(amqp_to_json(message.message_id)),
        "destination": _text(message.destination),
        "enqueued_at": None if enqueued is None else iso_time(enqueued),
        "size": message.size,
        "reason": _text(message.dead_letter_reason) if request.dead_letters else None,
        "description": _text(message.dead_letter_description) if request.dead_letters else None,
        "problem": _text(message.problem),
    }
    if request.bodies:
        fields = message.to_json(now_ms)
        body = fields["body"]
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        values["body"] = shorten(text, MAX_BODY)
        values["body_encoding"] = fields["body_encoding"]
    return values


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
