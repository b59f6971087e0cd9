"""How many messages the backlog holds, as its namespace's administration API says it.

It needs the right to manage, and is only for showing: whoever has no such right sees no count.
"""

from dataclasses import replace

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.counts import Administration
from pairbus.backlog.discovery import listing_of
from pairbus.errors import EntityNotFound, PairbusError
from pairbus.syphon.usage import SyphonUsage
from pairbus.usage.operations import OperationKind

TIMEOUT_S = 5.0


def backlog_size(
    options: ClientOptions, queues: tuple[str, ...], books: SyphonUsage | None = None
) -> int | None:
    """All messages of some queues, those that are locked included. None: not known, of one of them
    at least. A queue that is not there has none."""
    counts = [message_count(options, queue) for queue in queues]
    if books:
        for queue, count in zip(queues, counts, strict=True):
            books.add(OperationKind.MANAGEMENT, queue, answered=count is not None)
        books.flush()
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def message_count(options: ClientOptions, queue: str) -> int | None:
    """The messages of a queue. None: not known."""
    try:
        with Administration(replace(options, operation_timeout_s=TIMEOUT_S)) as administration:
            return administration.counts(queue).messages
    except EntityNotFound:
        return 0
    except PairbusError:
        return None


def unread_queues(
    options: ClientOptions, primary_name: str, count: int, books: SyphonUsage | None = None
) -> tuple[int, ...]:
    """Return the indexes of backlog queues that exist beyond a number of them. Empty: there are
    none, or they cannot be listed."""
    try:
        with Administration(replace(options, operation_timeout_s=TIMEOUT_S)) as administration:
            listing = listing_of(administration, primary_name, count)
            requests = administration.requests
    except PairbusError:  # no token
        return ()
    if books:
        for _ in range(requests):
            books.add(OperationKind.MANAGEMENT, None, answered=listing.error is None)
        books.flush()
    return tuple(index for index in listing.indexes or () if index >= count)
