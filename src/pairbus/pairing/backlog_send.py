"""The operation that sends messages to the backlog."""

from datetime import datetime
from typing import Any

from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.amqp.batch import size_in_batch
from pairbus.errors import MessageTooLargeForBacklog, PairbusError, SendUnavailable
from pairbus.pairing.effects import Operation
from pairbus.pairing.failures import BacklogFailure, backlog_failure_of
from pairbus.pairing.outcomes import CallOutcomes
from pairbus.pairing.payloads import Payloads, check_size, fill_batch
from pairbus.pairing.rotation import QueueClaim
from pairbus.pairing.sdk import LinkLimits, batch_of, link_limits
from pairbus.pairing.sdk_transfers import may_have_arrived, single_message
from pairbus.pairing.sender_base import SenderCall
from pairbus.telemetry.senders import SEND


def store(
    call: SenderCall,
    messages: Payloads,
    enqueue_at: datetime | None,
    primary_error: BaseException | None,
) -> Operation[int]:
    """Store messages in the backlog, and return their number. `primary_error` is the error of the
    primary in the same call, if it was called.

    Raises SendUnavailable or PartlyStored with the outcome of each message. If it is certain that
    no message was sent, also MessageTooLargeForBacklog, the SDK's error for a message that the
    backlog rejects, or StateError.
    """
    path = call.path
    outcomes = CallOutcomes(messages)
    if primary_error is not None and may_have_arrived(primary_error):
        outcomes.transferred.update(range(len(messages.encoded())))
    try:
        with call.links.storing(call.messages, primary_error) as span:
            try:
                messages.add_trace_context(call.pairing.primary.name, call.links.entity)
                payloads = messages.for_backlog(call.links.entity, enqueue_at)
                for queue, positions in _by_queue(call, messages, len(payloads)):
                    yield from _store_in_queue(call, queue, payloads, positions, outcomes)
            finally:
                span.set_queues(outcomes.queues)
    except Exception as exc:
        backlog_error: BaseException | None = exc
        if isinstance(exc, SendUnavailable):
            reason, backlog_error = str(exc), exc.backlog_error
        elif outcomes.nothing_sent:
            raise
        else:
            reason = f"the backlog failed with {type(exc).__name__}"
        error = outcomes.error(
            path.name,
            reason,
            primary_error=path.health.cause if primary_error is None else primary_error,
            backlog_error=backlog_error,
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
        queue = (
            None if session is None else call.pairing.backlog.queue_of_session(call.path, session)
        )
        positions.setdefault(queue, []).append(position)
    return list(positions.items())


def _store_in_queue(
    call: SenderCall,
    fixed_queue: str | None,
    payloads: list[bytes],
    positions: list[int],
    outcomes: CallOutcomes,
) -> Operation[None]:
    """Store the messages at these positions in one queue. If it fails and `fixed_queue` is None,
    try others."""
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
        is_last = (
            claim.is_trial
            or fixed_queue is not None
            or len(tried) + 1 == len(pairing.rotation.queues)
        )
        attempt = call.until(claim.deadline)
        link_open = False
        with claim:
            try:
                # If the connection fails, no other queue is tried: opening gets all of the time.
                limits = yield from _call(attempt, queue, link_limits, is_last=True)
                link_open = True
                call.links.factory.note_message_limit(queue, limits.max_message_size)
                filled = _first_batch(payloads, positions, limits)
                full = _make_batch([payloads[position] for position in filled], limits.batch)
                yield from _send_batch(attempt, queue, full, is_last, filled, outcomes)
            except PairbusError:
                raise
            except MessageSizeExceededError as exc:
                claim.rejected(exc)
                raise MessageTooLargeForBacklog(
                    f"Backlog queue {queue} rejected a message that is too large. Send a smaller "
                    "message."
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
                        claim.rejected(exc)
                        raise
                    case BacklogFailure.BUSY:
                        claim.rejected(exc)
                        pairing.throttled_by_backlog(path, exc, len(positions))
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
                    pairing.backlog.pull(lost_queue, cause)
                links_lost.clear()
                outcomes.stored.update(filled)
                outcomes.queues.add(queue)
                pairing.recorder.stored(path, len(filled))
                positions = positions[len(filled) :]


def _claim(call: SenderCall, fixed_queue: str | None, tried: tuple[str, ...]) -> QueueClaim | None:
    if fixed_queue is None:
        return call.pairing.backlog.claim_any(call.path, call.links, tried)
    return None if fixed_queue in tried else call.pairing.backlog.claim(fixed_queue)


def _first_batch(payloads: list[bytes], positions: list[int], limits: LinkLimits) -> list[int]:
    """Return the first positions, as many as fit into one batch, or one whose message fits into
    none. Raises MessageTooLargeForBacklog if one of the messages is too large by itself."""
    for position in positions:
        check_size(payloads[position], limits.max_message_size)
    return fill_batch(payloads, positions, limits.batch.max_size_in_bytes)


def _make_batch(payloads: list[bytes], empty: Any) -> Any:
    """Return a batch, or a single message if it is too large for a batch."""
    if len(payloads) == 1 and size_in_batch(len(payloads[0])) > empty.max_size_in_bytes:
        return single_message(payloads[0], empty)
    return batch_of(payloads, empty)


def _send_batch(
    call: SenderCall,
    queue: str,
    batch: Any,
    is_last: bool,
    positions: list[int],
    outcomes: CallOutcomes,
) -> Operation[None]:
    """Send a batch, which has the messages at these positions."""
    try:
        yield from _call(call, queue, lambda sender: sender.send_messages(batch), is_last, SEND)
    except Exception as exc:
        if may_have_arrived(exc):
            outcomes.transferred.update(positions)
        raise


def _call(
    call: SenderCall, queue: str, function: Any, is_last: bool, operation: str | None = None
) -> Operation[Any]:
    """Call the sender of a backlog queue. Half of the time is kept for other queues to try."""
    timeout_s = call.left_s if is_last else call.left_s / 2
    return (yield from call.links.call_backlog(queue, function, timeout_s, operation))
