"""Messages of a queue, looked at in order of their sequence numbers. Each is billed as an
operation; none is taken or locked."""

from collections.abc import Iterator

from pairbus.amqp.client import Client, Management
from pairbus.backlog.message import BacklogMessage, read_message
from pairbus.errors import ProtocolError
from pairbus.servicebus.entity_paths import dead_letter_path

AT_ONCE = 250


def peek(
    client: Client,
    queue: str,
    *,
    dead_letters: bool = False,
    from_sequence: int = 1,
    count: int | None = None,
) -> Iterator[list[BacklogMessage]]:
    """Messages from a sequence number on, in lots, at most `count`. Needs the right to listen.
    Raises EntityNotFound and the other errors of the client."""
    path = dead_letter_path(queue) if dead_letters else queue
    left = count
    management = Management(client, path)
    while left is None or left > 0:
        wanted = AT_ONCE if left is None else min(left, AT_ONCE)
        found = [read_message(queue, payload) for payload in management.peek(from_sequence, wanted)]
        if not found:
            break
        left = None if left is None else left - len(found)
        yield found
        from_sequence = _after(path, from_sequence, found)
    # Not where it failed: somebody who is silent would not answer a detach either.
    management.close()


def _after(path: str, from_sequence: int, found: list[BacklogMessage]) -> int:
    """Where to go on."""
    known = [one.sequence_number for one in found if one.sequence_number is not None]
    after = max(known, default=0) + 1
    if after <= from_sequence and len(known) < len(found):
        raise ProtocolError(
            f"{path!r} gave messages without sequence numbers: what lies behind {from_sequence} "
            "cannot be looked at"
        )
    return max(after, from_sequence + 1)
