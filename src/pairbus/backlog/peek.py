"""Peek at messages in the order of their sequence numbers. Each message is billed as an operation.
No message is received or locked."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pairbus.amqp.client import Client, ClientOptions, Management
from pairbus.backlog.discovery import QueueSearch
from pairbus.backlog.message import BacklogMessage, read_message
from pairbus.errors import AmqpError, EntityNotFound, NotAuthorized, ProtocolError
from pairbus.servicebus.entity_paths import dead_letter_path
from pairbus.spark.throttled_requests import PATIENCE_S, retry_throttled

BATCH_SIZE = 250
"""The number of messages in a request."""
CLOSE_TIMEOUT_S = 1.0
"""The time to wait for the namespace to confirm that a connection is closed."""


@contextmanager
def connected(options: ClientOptions) -> Iterator[Client]:
    """Yield a client, and close it."""
    client = Client(options)
    try:
        yield client
    finally:
        client.close(CLOSE_TIMEOUT_S)


def peek(
    client: Client,
    queue: str,
    *,
    dead_letters: bool = False,
    from_sequence: int = 1,
    count: int | None = None,
    read: Callable[[str, bytes], BacklogMessage] = read_message,
    on_peek: Callable[[list[bytes] | None], None] | None = None,
    patience_s: float = PATIENCE_S,
) -> Iterator[list[BacklogMessage]]:
    """Yield batches of messages from a sequence number on, at most `count` messages in all. Needs
    the Listen right. Raises EntityNotFound and the other errors of the client; Busy only if the
    namespace throttles a request for `patience_s`.

    `on_peek` is called with the messages of each request, which is billed also if there are none,
    or with None instead if the request failed."""
    path = dead_letter_path(queue) if dead_letters else queue
    remaining = count
    management = Management(client, path)

    def request(limit: int) -> list[bytes]:
        try:
            payloads = management.peek(from_sequence, limit)
        except EntityNotFound:  # the link was refused, so there was no request
            raise
        except AmqpError:
            if on_peek is not None:
                on_peek(None)
            raise
        if on_peek is not None:
            on_peek(payloads)
        return payloads

    while remaining is None or remaining > 0:
        limit = BATCH_SIZE if remaining is None else min(remaining, BATCH_SIZE)
        payloads = retry_throttled(partial(request, limit), patience_s=patience_s)
        messages = [read(queue, payload) for payload in payloads]
        if not messages:
            break
        remaining = None if remaining is None else remaining - len(messages)
        yield messages
        from_sequence = _next_sequence(path, from_sequence, messages)
    # Not after an error: a namespace that does not respond would not confirm a detach either.
    management.close()


def peek_queues(
    client: Client, search: QueueSearch, *, dead_letters: bool = False, count: int | None = None
) -> Iterator[list[BacklogMessage]]:
    """Yield batches of messages of all queues of a search, at most `count` messages in all. A queue
    that does not exist is reported to the search. Raises NotAuthorized and the other errors of the
    client."""
    remaining = count
    for index in search:
        path = search.path(index)
        try:
            for messages in peek(client, path, dead_letters=dead_letters, count=remaining):
                remaining = None if remaining is None else remaining - len(messages)
                yield messages
            if remaining == 0:
                return
        except EntityNotFound:
            search.missing()
        except NotAuthorized:
            if index < search.listing.expected or search.searched_to is None:
                raise
            search.stop()  # the key may be restricted to the expected queues


def search_queues(client: Client, search: QueueSearch) -> None:
    """Complete a search, with a peek at one message of each queue if the queues are not listed.
    Raises NotAuthorized and the other errors of the client."""
    if search.listing.indexes is None:
        for index in search:
            try:
                for _ in peek(client, search.path(index), count=1):
                    pass
            except EntityNotFound:
                search.missing()
            except NotAuthorized:
                if index < search.listing.expected:
                    raise
                search.stop()  # the key may be restricted to the expected queues


def _next_sequence(path: str, from_sequence: int, messages: list[BacklogMessage]) -> int:
    """Return the sequence number to continue with."""
    numbers = [
        message.sequence_number for message in messages if message.sequence_number is not None
    ]
    following = max(numbers, default=0) + 1
    if following <= from_sequence and len(numbers) < len(messages):
        raise ProtocolError(
            f"{path!r} returned messages without sequence numbers, so messages after "
            f"{from_sequence} cannot be peeked"
        )
    return max(following, from_sequence + 1)
