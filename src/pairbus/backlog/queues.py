"""What the backlog queues hold: as the namespace counts it or, without the right to manage, as far
as some messages that are peeked show it."""

from dataclasses import dataclass
from typing import Any

from pairbus.amqp.client import Client
from pairbus.backlog.discovery import QueueListing, queue_mismatch
from pairbus.backlog.json_values import iso_time
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import peek
from pairbus.backlog.target import Target
from pairbus.errors import AmqpError, EntityNotFound, NotAuthorized, PairbusError
from pairbus.servicebus.administration import AdministrationClient

CLOSE_S = 1.0
"""How long to wait for a good-bye to be answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContents:
    """One backlog queue."""

    path: str
    index: int
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
            "index": self.index,
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
class BacklogContents:
    """All backlog queues: those that are expected, and others that exist."""

    queues: tuple[QueueContents, ...]
    """In the order of their indexes."""
    expected: int
    """The number of backlog queues that the pairing is said to have."""
    not_counted: str | None = None
    """Why the namespace gave no counts; then messages were peeked."""
    not_listed: str | None = None
    """Why the namespace gave no list of queues; then they were tried index by index."""
    searched_to: int | None = None
    """The highest index that was tried. None: all queues that exist are known."""

    @property
    def complete(self) -> bool:
        """All queues that exist are known, so that none can hold messages unseen."""
        return self.searched_to is None

    @property
    def there(self) -> int:
        return len(self.found)

    @property
    def found(self) -> tuple[int, ...]:
        """Indexes of the queues that exist."""
        return tuple(queue.index for queue in self.queues if queue.there)

    @property
    def missing(self) -> tuple[int, ...]:
        """Indexes of expected queues that do not exist."""
        return tuple(
            queue.index for queue in self.queues if not queue.there and queue.index < self.expected
        )

    @property
    def unexpected(self) -> tuple[int, ...]:
        """Indexes of queues that exist beyond the expected number."""
        return tuple(index for index in self.found if index >= self.expected)

    @property
    def queue_mismatch(self) -> str | None:
        """The difference between the expected and the existing queues, in words."""
        return queue_mismatch(self.expected, self.found)

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
        return self._uncertain or any(queue.more_messages for queue in self.queues)

    @property
    def more_dead_lettered(self) -> bool:
        return self._uncertain or any(queue.more_dead_lettered for queue in self.queues)

    @property
    def _uncertain(self) -> bool:
        return self.problem is not None or not self.complete

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
            "asked_for": self.expected,
            "there": self.there,
            "missing": list(self.missing),
            "unexpected": list(self.unexpected),
            "queue_mismatch": self.queue_mismatch,
            "not_listed": self.not_listed,
            "searched_to": self.searched_to,
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
        "oldest_time": iso_time(oldest_ms),
        "oldest_age_seconds": max(now_ms - oldest_ms, 0) / 1000,
    }


def inspect_backlog(pair: Target, listing: QueueListing, *, peeked: int) -> BacklogContents:
    """Look at the backlog queues that were listed or, without a list, at all that can be found.
    Without counts, `peeked` messages of each are looked at, and as many of its dead letters. What
    goes wrong is in the result; a namespace that stops answering is not asked again."""
    walk = listing.walk()
    looks: dict[int, QueueContents] = {}
    failed: PairbusError | None = None
    client = Client(pair.secondary)
    try:
        with AdministrationClient(pair.secondary.administration()) as administration:
            reader = _QueueReader(administration, client, peeked)
            if not listing.refused:  # it may still count queues that the key is for
                reader.not_counted = listing.not_listed
            for index in walk:
                path = walk.path(index)
                try:
                    if failed is None:
                        looks[index] = reader.look(path, index)
                    else:
                        looks[index] = QueueContents(path=path, index=index, problem=_words(failed))
                except EntityNotFound:
                    walk.missing()
                except PairbusError as exc:
                    walk.stop()
                    refused = isinstance(exc, NotAuthorized)
                    failed = None if refused else exc
                    known = index < listing.expected or listing.indexes is not None
                    if known or not refused:  # a key may be for the expected queues alone
                        looks[index] = QueueContents(
                            path=path, index=index, there=known, problem=_words(exc)
                        )
    finally:
        client.close(CLOSE_S)
    for index in range(listing.expected):
        if index not in looks:
            looks[index] = QueueContents(path=walk.path(index), index=index, there=False)
    return BacklogContents(
        queues=tuple(look for _, look in sorted(looks.items())),
        expected=listing.expected,
        not_counted=reader.not_counted,
        not_listed=listing.not_listed,
        searched_to=walk.searched_to,
    )


def _words(exc: PairbusError) -> str:
    return exc.description if isinstance(exc, AmqpError) else str(exc)


class _QueueReader:
    """Counts messages, or peeks at some once counting has failed."""

    def __init__(self, administration: AdministrationClient, client: Client, peeked: int) -> None:
        self._administration = administration
        self._client = client
        self._peeked = peeked
        self.not_counted: str | None = None

    def look(self, path: str, index: int) -> QueueContents:
        if self.not_counted is None:
            try:
                return self._count(path, index)
            except EntityNotFound:
                raise
            except AmqpError as exc:
                self.not_counted = exc.description
        return self._peek(path, index)

    def _count(self, path: str, index: int) -> QueueContents:
        queue = self._administration.get_queue(path)
        oldest = None
        if queue.active_message_count:
            try:
                oldest = _oldest(_some(self._client, path, 1))
            except AmqpError:
                oldest = None  # moved meanwhile, or no right to listen: the counts are what counts
        return QueueContents(
            path=path,
            index=index,
            messages=queue.active_message_count,
            dead_lettered=queue.dead_letter_message_count,
            size=queue.size_in_bytes,
            oldest_ms=oldest,
        )

    def _peek(self, path: str, index: int) -> QueueContents:
        waiting = _some(self._client, path, self._peeked)
        buried = _some(self._client, path, self._peeked, dead_letters=True)
        return QueueContents(
            path=path,
            index=index,
            messages=len(waiting),
            dead_lettered=len(buried),
            more_messages=len(waiting) == self._peeked,
            more_dead_lettered=len(buried) == self._peeked,
            oldest_ms=_oldest(waiting),
        )


def _some(
    client: Client, path: str, count: int, *, dead_letters: bool = False
) -> list[BacklogMessage]:
    lots = peek(client, path, count=count, dead_letters=dead_letters)
    return [one for lot in lots for one in lot]


def _oldest(messages: list[BacklogMessage]) -> int | None:
    return min((one.enqueued_ms for one in messages if one.enqueued_ms is not None), default=None)
