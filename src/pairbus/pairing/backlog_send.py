"""The operation that sends messages to the backlog."""

from datetime import datetime
from functools import partial
from typing import NamedTuple

from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.errors import MessageTooLargeForBacklog, PairbusError, SendUnavailable
from pairbus.pairing.effects import Operation
from pairbus.pairing.failures import BacklogFailure, backlog_failure_of
from pairbus.pairing.outcomes import CallOutcomes
from pairbus.pairing.payloads import Payloads, check_size, fill_batch
from pairbus.pairing.queue_claim import QueueClaim
from pairbus.pairing.sdk import LinkLimits
from pairbus.pairing.sdk_payloads import send_payloads
from pairbus.pairing.sdk_transfers import may_have_arrived
from pairbus.pairing.sender_base import SenderCall
from pairbus.telemetry.senders import SEND


class QueueFailure(NamedTuple):
    """The error of a send of all messages of a call to a backlog queue over an open link."""

    queue: str
    error: Exception


def store(
    call: SenderCall,
    messages: Payloads,
    enqueue_at: datetime | None,
    primary_error: BaseException | None,
    queue_failure: QueueFailure | None = None,
) -> Operation[int]:
    """Store messages in the backlog, and return their number. `primary_error` is the error of the
    primary in the same call, if it was called, `queue_failure` that of a first send to the backlog.

    Raises SendUnavailable or PartlyStored with the outcome of each message. If it is certain that
    no message was sent, also MessageTooLargeForBacklog, the SDK's error for a message that the
    backlog rejects, or StateError.
    """
    path = call.path
    outcomes = CallOutcomes(messages)
    if primary_error is not None and may_have_arrived(primary_error):
        outcomes.transferred.update(range(len(messages.encoded())))
    if queue_failure is not None and may_have_arrived(queue_failure.error):
        outcomes.transferred.update(range(len(messages.encoded())))
    try:
        with call.links.storing(call.messages, primary_error) as span:
            try:
                messages.add_trace_context(call.pairing.primary.name, call.links.entity)
                payloads = messages.for_backlog(call.links.entity, enqueue_at)
                for queue, positions in _by_queue(call, messages, len(payloads)):
                    yield from _store_in_queue(
                        call,
                        queue,
                        payloads,
                        positions,
                        outcomes,
                        traced=messages.traced,
                        failure=queue_failure,
                    )
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
    *,
    traced: bool,
    failure: QueueFailure | None,
) -> Operation[None]:
    """Store the messages at these positions in one queue. If it fails and `fixed_queue` is None,
    try others. `traced`: the application has enabled the tracing of the SDK. `failure`: the first
    send has failed already."""
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
                if failure is not None and failure.queue == queue:
                    link_open, first_error, failure = True, failure.error, None
                    raise first_error
                limits = call.links.backlog_limits(queue)
                if limits is None:
                    # If the connection fails, no other queue is tried: opening gets all of the
                    # time.
                    limits = yield from call.links.open_backlog(queue, attempt.left_s)
                link_open = True
                filled = _first_batch(payloads, positions, limits)
                # Half of the time is kept for other queues to try.
                timeout_s = attempt.left_s if is_last else attempt.left_s / 2
                batch = [payloads[position] for position in filled]
                send_batch = partial(send_payloads, payloads=batch, traced=traced)
                try:
                    yield from call.links.call_backlog(queue, send_batch, timeout_s, SEND)
                except Exception as exc:
                    if may_have_arrived(exc):
                        outcomes.transferred.update(filled)
                    raise
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
    return fill_batch(payloads, positions, limits.max_batch_size)
