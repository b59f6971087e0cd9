"""How many messages the backlog holds, as its namespace's administration API says it.

It needs the right to manage, and is only for showing: whoever has no such right sees no count.
"""

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.discovery import listing_of
from pairbus.errors import EntityNotFound, PairbusError
from pairbus.servicebus.administration import AdministrationClient
from pairbus.syphon.usage import SyphonUsage
from pairbus.usage.operations import OperationKind

TIMEOUT_S = 5.0


def backlog_size(
    options: ClientOptions, queues: tuple[str, ...], books: SyphonUsage | None = None
) -> int | None:
    """Return the number of messages in some queues, locked messages included, or None if it is not
    known for one of them. A queue that does not exist has no messages."""
    counts = [message_count(options, queue) for queue in queues]
    if books:
        for queue, count in zip(queues, counts, strict=True):
            books.add(OperationKind.MANAGEMENT, queue, answered=count is not None)
        books.flush()
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def message_count(options: ClientOptions, queue: str) -> int | None:
    """Return the number of messages in a queue, or None if it is not known."""
    try:
        with AdministrationClient(options.administration(timeout_s=TIMEOUT_S)) as administration:
            return administration.get_queue(queue).active_message_count
    except EntityNotFound:
        return 0
    except PairbusError:
        return None


def unread_queues(
    options: ClientOptions, primary_name: str, count: int, books: SyphonUsage | None = None
) -> tuple[int, ...]:
    """Return the indexes of backlog queues that exist beyond a number of them. Empty: there are
    none, or they cannot be listed."""
    answers: list[bool] = []
    try:
        with AdministrationClient(
            options.administration(timeout_s=TIMEOUT_S),
            on_request=lambda _, answered: answers.append(answered),
        ) as administration:
            listing = listing_of(administration, primary_name, count)
    except PairbusError:  # no token
        return ()
    if books:
        for answered in answers:
            books.add(OperationKind.MANAGEMENT, None, answered=answered)
        books.flush()
    return tuple(index for index in listing.indexes or () if index >= count)
