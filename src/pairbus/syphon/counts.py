"""Message counts of the backlog, from the administration API of its namespace.

They need the Manage right, and are for display only: without the right there are no counts.
"""

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.discovery import listing_of
from pairbus.errors import EntityNotFound, PairbusError
from pairbus.servicebus.administration import AdministrationClient
from pairbus.spark.usage import NO_USAGE, UsageRecorder
from pairbus.usage.operations import OperationKind

TIMEOUT_S = 5.0


def backlog_size(
    options: ClientOptions, queues: tuple[str, ...], usage: UsageRecorder = NO_USAGE
) -> int | None:
    """Return the number of messages in some queues, locked ones included. None: at least one count
    is not known. A queue that does not exist counts as empty."""
    counts = [message_count(options, queue) for queue in queues]
    for queue, count in zip(queues, counts, strict=True):
        usage.add(OperationKind.MANAGEMENT, queue, answered=count is not None)
    usage.flush()
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


def existing_queues(
    options: ClientOptions, primary_name: str, count: int, usage: UsageRecorder = NO_USAGE
) -> tuple[int, ...] | None:
    """Return the indexes of the backlog queues that exist, also beyond the first `count`. None: the
    queues cannot be listed."""
    answers: list[bool] = []
    try:
        with AdministrationClient(
            options.administration(timeout_s=TIMEOUT_S),
            on_request=lambda _, answered: answers.append(answered),
        ) as administration:
            listing = listing_of(administration, primary_name, count)
    except PairbusError:  # no token
        return None
    for answered in answers:
        usage.add(OperationKind.MANAGEMENT, None, answered=answered)
    usage.flush()
    return listing.indexes
