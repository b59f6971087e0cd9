"""The operation that sends messages to the backlog."""

from datetime import datetime
from typing import Any

from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.errors import MessageTooLargeForBacklog, PairbusError, PartlyStored, SendUnavailable
from pairbus.pairing.effects import Operation
from pairbus.pairing.failures import BacklogFailure, backlog_failure_of
from pairbus.pairing.payloads import Payloads, check_size, fill_batch
from pairbus.pairing.rotation import QueueClaim
from pairbus.pairing.sdk import batch_of
from pairbus.pairing.sender_base import SenderCall


def store(
    call: SenderCall,
    messages: Payloads,
    enqueue_at: datetime | None,
    primary_error: BaseException | None,
) -> Operation[int]:
    """Store messages in the backlog, and return their number. Raises SendUnavailable,
    PartlyStored, MessageTooLargeForBacklog, or the SDK's error for a message that the backlog
    rejects."""
    path = call.path
    payloads = messages.for_backlog(call.links.entity, enqueue_at)
    stored: list[int] = []
    try:
        for queue, positions in _by_queue(call, messages, len(payloads)):
            yield from _store_in_queue(call, queue, payloads, positions, stored)
    except Exception as exc:
        if not stored:
            raise
        not_stored = tuple(sorted(set(range(len(payloads))).difference(stored)))
        error = PartlyStored(
            f"{len(stored)} of {len(payloads)} messages for {path.name!r} are in the backlog. The "
            f"messages at the positions {', '.join(map(str, not_stored))} were not sent.",
            stored=tuple(sorted(stored)),
            not_stored=not_stored,
            primary_error=path.health.cause if primary_error is None else primary_error,
            backlog_error=exc.backlog_error if isinstance(exc, SendUnavailable) else exc,
        )
        raise error from error.__cause__
    return len(payloads)


def _by_queue(
    call: SenderCall, messages: Payloads, count: int
) -> list[tuple[str | None, list[int]]]:
    """Return backlog queues with the positions of their messages. None stands for any queue."""
    if not call.pairing.after_drain:
        return [(None, list(range(count)))]
    positions: dict[str | None, list[int]] = {}
    for position, session in enumerate(messages.sessions()):
        queue = None if session is None else call.pairing.queue_of_session(call.path, session)
        positions.setdefault(queue, []).append(position)
    return list(positions.items())


def _store_in_queue(
    call: SenderCall,
    fixed_queue: str | None,
    payloads: list[bytes],
    positions: list[int],
    stored: list[int],
) -> Operation[None]:
    """Store the messages at these positions in one queue. If it fails and `fixed_queue` is None,
    try others. Positions that were stored are appended to `stored`."""
    pairing, path = call.pairing, call.path
    tried: tuple[str, ...] = ()
    error: BaseException | None = None
    # Queues whose link ended during a send. The message may be the reason, so such a queue is
    # pulled only after another accepted the message: a message that no queue accepts must not pull
    # all of them.
    links_lost: dict[str, BaseException] = {}
    while positions:
        claim = _claim(call, fixed_queue, tried) if call.left_s > 0 else None
        if claim is None:
            raise pairing.send_unavailable(path, error)
        queue = claim.queue
        is_last = fixed_queue is not None or len(tried) + 1 == len(pairing.rotation.queues)
        link_open = False
        with claim:
            try:
                # If the connection fails, no other queue is tried: opening gets all of the time.
                batch = yield from _call(call, queue, _create_batch, is_last=True)
                link_open = True
                filled = yield from _send_batch(call, queue, payloads, positions, batch, is_last)
            except PairbusError:
                raise
            except MessageSizeExceededError as exc:
                raise MessageTooLargeForBacklog(
                    f"Backlog queue {queue} rejected a message that is too large. It was not sent."
                ) from exc
            except Exception as exc:
                error = exc
                match backlog_failure_of(exc, pairing.classify(exc), link_open=link_open):
                    case BacklogFailure.HOST_UNREACHABLE:
                        claim.unreachable(exc)
                        tried += (queue,)
                    case BacklogFailure.QUEUE_UNAVAILABLE:
                        claim.failed(exc)
                        tried += (queue,)
                        links_lost.pop(queue, None)
                    case BacklogFailure.MESSAGE_REJECTED:
                        raise
                    case BacklogFailure.BUSY:
                        busy = pairing.send_unavailable(path, exc)
                        raise busy from busy.__cause__
                    case BacklogFailure.LINK_LOST:
                        if links_lost:  # the first queue is tried once more over a new link
                            tried += (queue,)
                        links_lost[queue] = exc
            else:
                claim.succeeded()
                links_lost.pop(queue, None)
                for lost_queue, cause in links_lost.items():
                    pairing.pull_queue(lost_queue, cause)
                links_lost.clear()
                stored.extend(filled)
                positions = positions[len(filled) :]


def _claim(call: SenderCall, fixed_queue: str | None, tried: tuple[str, ...]) -> QueueClaim | None:
    if fixed_queue is None:
        return call.pairing.claim_any_queue(call.path, call.links, tried)
    return None if fixed_queue in tried else call.pairing.claim_queue(fixed_queue)


def _send_batch(
    call: SenderCall,
    queue: str,
    payloads: list[bytes],
    positions: list[int],
    batch: Any,
    is_last: bool,
) -> Operation[list[int]]:
    """Send the first messages, as many as fit into one batch, and return their positions."""
    limit = batch.max_size_in_bytes
    for position in positions:
        check_size(payloads[position], limit)
    filled = fill_batch(payloads, positions, limit)
    full = batch_of((payloads[position] for position in filled), batch)
    yield from _call(call, queue, lambda sender: sender.send_messages(full), is_last)
    return filled


def _call(call: SenderCall, queue: str, function: Any, is_last: bool) -> Operation[Any]:
    """Call the sender of a backlog queue. Half of the time is kept for other queues to try."""
    timeout_s = call.left_s if is_last else call.left_s / 2
    return (yield from call.links.call_backlog(queue, function, timeout_s))


def _create_batch(sender: Any) -> Any:
    return sender.create_message_batch()
