"""What the backlog queues hold: as the namespace counts it or, without the right to manage, as far
as some messages that are peeked show it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pairbus.amqp.client import Client, ClientOptions
from pairbus.backlog.counts import Administration
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import peek
from pairbus.backlog.plain import moment
from pairbus.errors import AmqpError, EntityNotFound, NotAuthorized, PairbusError

CLOSE_S = 1.0
"""How long to wait for a good-bye to be answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLook:
    """One backlog queue."""

    path: str
    there: bool = True
    messages: int | None = None
    """Waiting; those that are locked among them. None: nobody may say."""
    dead_lettered: int | None = None
    more_messages: bool = False
    """Whether there may be more than were counted: they were peeked."""
    more_dead_lettered: bool = False
    size: int | None = None
    oldest_ms: int | None = None
    """When the oldest that waits was enqueued."""
    problem: str | None = None

    def as_json(self, now_ms: int) -> dict[str, Any]:
        return {
            "queue": self.path,
            "there": self.there,
            "messages": self.messages,
            "dead_lettered": self.dead_lettered,
            "more_messages": self.more_messages,
            "more_dead_lettered": self.more_dead_lettered,
            "size": self.size,
            **oldest_as_json(self.oldest_ms, now_ms),
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogLook:
    """All of them."""

    queues: tuple[QueueLook, ...]
    not_counted: str | None = None
    """Why the namespace gave no counts; then messages were peeked."""

    @property
    def there(self) -> int:
        return sum(queue.there for queue in self.queues)

    @property
    def messages(self) -> int | None:
        """None: of no queue is it known."""
        return self._sum([queue.messages for queue in self.queues])

    @property
    def dead_lettered(self) -> int | None:
        return self._sum([queue.dead_lettered for queue in self.queues])

    @property
    def more_messages(self) -> bool:
        """Whether there may be more than are known of."""
        return self.problem is not None or any(queue.more_messages for queue in self.queues)

    @property
    def more_dead_lettered(self) -> bool:
        return self.problem is not None or any(queue.more_dead_lettered for queue in self.queues)

    def _sum(self, numbers: list[int | None]) -> int | None:
        known = [number for number in numbers if number is not None]
        return sum(known) if known or self.problem is None else None

    @property
    def oldest_ms(self) -> int | None:
        known = [queue.oldest_ms for queue in self.queues if queue.oldest_ms is not None]
        return min(known, default=None)

    @property
    def problem(self) -> str | None:
        """The first that there is."""
        return next((queue.problem for queue in self.queues if queue.problem is not None), None)

    def as_json(self, now_ms: int) -> dict[str, Any]:
        return {
            "asked_for": len(self.queues),
            "there": self.there,
            "messages": self.messages,
            "dead_lettered": self.dead_lettered,
            "more_messages": self.more_messages,
            "more_dead_lettered": self.more_dead_lettered,
            **oldest_as_json(self.oldest_ms, now_ms),
            "not_counted": self.not_counted,
            "problem": self.problem,
            "queues": [queue.as_json(now_ms) for queue in self.queues],
        }


def oldest_as_json(oldest_ms: int | None, now_ms: int) -> dict[str, Any]:
    if oldest_ms is None:
        return {"oldest_time": None, "oldest_age_seconds": None}
    return {
        "oldest_time": moment(oldest_ms),
        "oldest_age_seconds": max(now_ms - oldest_ms, 0) / 1000,
    }


def look_at(options: ClientOptions, queues: Iterable[str], *, peeked: int) -> BacklogLook:
    """Look at queues. Without counts, `peeked` messages of each are looked at, and as many of its
    dead letters. What goes wrong is in the result; a namespace that stops answering is not asked
    again."""
    looks: list[QueueLook] = []
    not_counted: str | None = None
    failed: PairbusError | None = None
    client = Client(options)
    try:
        with Administration(options) as administration:
            for path in queues:
                if failed is not None:
                    looks.append(QueueLook(path=path, problem=_words(failed)))
                    continue
                look: QueueLook | None = None
                try:
                    if not_counted is None:
                        try:
                            look = _counted(administration, client, path)
                        except EntityNotFound:
                            raise
                        except AmqpError as exc:
                            not_counted = exc.description
                    looks.append(_peeked(client, path, peeked) if look is None else look)
                except EntityNotFound:
                    looks.append(QueueLook(path=path, there=False))
                except PairbusError as exc:
                    looks.append(QueueLook(path=path, problem=_words(exc)))
                    failed = None if isinstance(exc, NotAuthorized) else exc
    finally:
        client.close(CLOSE_S)
    return BacklogLook(queues=tuple(looks), not_counted=not_counted)


def _words(exc: PairbusError) -> str:
    return exc.description if isinstance(exc, AmqpError) else str(exc)


def _counted(administration: Administration, client: Client, path: str) -> QueueLook:
    counts = administration.counts(path)
    oldest = None
    if counts.messages:
        try:
            oldest = _oldest(_some(client, path, 1))
        except AmqpError:
            oldest = None  # moved meanwhile, or no right to listen: the counts are what counts
    return QueueLook(
        path=path,
        messages=counts.messages,
        dead_lettered=counts.dead_lettered,
        size=counts.size,
        oldest_ms=oldest,
    )


def _peeked(client: Client, path: str, count: int) -> QueueLook:
    waiting = _some(client, path, count)
    buried = _some(client, path, count, dead_letters=True)
    return QueueLook(
        path=path,
        messages=len(waiting),
        dead_lettered=len(buried),
        more_messages=len(waiting) == count,
        more_dead_lettered=len(buried) == count,
        oldest_ms=_oldest(waiting),
    )


def _some(
    client: Client, path: str, count: int, *, dead_letters: bool = False
) -> list[BacklogMessage]:
    lots = peek(client, path, count=count, dead_letters=dead_letters)
    return [one for lot in lots for one in lot]


def _oldest(messages: list[BacklogMessage]) -> int | None:
    return min((one.enqueued_ms for one in messages if one.enqueued_ms is not None), default=None)
