"""Inspect the backlog queues: by the counts of the namespace or, without the Manage right, by
peeking at some messages."""

from pairbus.amqp.client import Client
from pairbus.backlog.contents import BacklogContents, QueueContents
from pairbus.backlog.discovery import QueueListing
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import connected, peek
from pairbus.backlog.target import InspectionTarget
from pairbus.errors import AmqpError, EntityNotFound, NotAuthorized, PairbusError
from pairbus.servicebus.administration import AdministrationClient


def inspect_backlog(
    target: InspectionTarget, listing: QueueListing, *, peek_count: int
) -> BacklogContents:
    """Inspect the listed backlog queues or, without a list, all that can be found. If the namespace
    returns no counts, peek at `peek_count` messages and as many dead letters of each queue.

    Errors are part of the result. After an error of the connection the namespace is not contacted
    again."""
    search = listing.search()
    contents: dict[int, QueueContents] = {}
    failure: PairbusError | None = None
    with (
        connected(target.secondary) as client,
        AdministrationClient(target.secondary.administration()) as administration,
    ):
        inspector = _QueueInspector(administration, client, peek_count)
        if not listing.unauthorized:  # a key that may not list may still be allowed to count
            inspector.counting_error = listing.listing_error
        for index in search:
            path = search.path(index)
            try:
                if failure is None:
                    contents[index] = inspector.inspect(path, index)
                else:
                    contents[index] = QueueContents(path=path, index=index, problem=_text(failure))
            except EntityNotFound:
                search.missing()
            except PairbusError as exc:
                search.stop()
                unauthorized = isinstance(exc, NotAuthorized)
                failure = None if unauthorized else exc
                known = index < listing.expected or listing.indexes is not None
                if known or not unauthorized:  # the key may be restricted to the expected queues
                    contents[index] = QueueContents(
                        path=path, index=index, exists=known, problem=_text(exc)
                    )
    for index in range(listing.expected):
        if index not in contents:
            contents[index] = QueueContents(path=search.path(index), index=index, exists=False)
    return BacklogContents(
        queues=tuple(queue for _, queue in sorted(contents.items())),
        expected=listing.expected,
        counting_error=inspector.counting_error,
        listing_error=listing.listing_error,
        searched_to=search.searched_to,
    )


def _text(exc: PairbusError) -> str:
    return exc.description if isinstance(exc, AmqpError) else str(exc)


class _QueueInspector:
    """Counts messages. Once counting has failed, it peeks instead."""

    def __init__(
        self, administration: AdministrationClient, client: Client, peek_count: int
    ) -> None:
        self._administration = administration
        self._client = client
        self._peek_count = peek_count
        self.counting_error: str | None = None

    def inspect(self, path: str, index: int) -> QueueContents:
        if self.counting_error is None:
            try:
                return self._count(path, index)
            except EntityNotFound:
                raise
            except AmqpError as exc:
                self.counting_error = exc.description
        return self._peek(path, index)

    def _count(self, path: str, index: int) -> QueueContents:
        queue = self._administration.get_queue(path)
        oldest_ms = None
        if queue.active_message_count:
            try:
                oldest_ms = _oldest(self._messages(path, 1))
            except AmqpError:
                oldest_ms = None  # the age is optional, and it needs the Listen right
        return QueueContents(
            path=path,
            index=index,
            messages=queue.active_message_count,
            dead_lettered=queue.dead_letter_message_count,
            size=queue.size_in_bytes,
            oldest_ms=oldest_ms,
        )

    def _peek(self, path: str, index: int) -> QueueContents:
        active = self._messages(path, self._peek_count)
        dead_lettered = self._messages(path, self._peek_count, dead_letters=True)
        return QueueContents(
            path=path,
            index=index,
            messages=len(active),
            dead_lettered=len(dead_lettered),
            more_messages=len(active) == self._peek_count,
            more_dead_lettered=len(dead_lettered) == self._peek_count,
            oldest_ms=_oldest(active),
        )

    def _messages(
        self, path: str, count: int, *, dead_letters: bool = False
    ) -> list[BacklogMessage]:
        batches = peek(self._client, path, count=count, dead_letters=dead_letters)
        return [message for batch in batches for message in batch]


def _oldest(messages: list[BacklogMessage]) -> int | None:
    times = [message.enqueued_ms for message in messages if message.enqueued_ms is not None]
    return min(times, default=None)
