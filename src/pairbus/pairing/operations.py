"""The calls of a paired sender as operations, which decide and do no I/O (see `pairing.effects`).

A call goes to the primary or, in failover, to the backlog. While a path is healthy, `send_messages`
calls the SDK directly; the operation `send` starts when that failed, or in any other state.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessageBatch

from pairbus.errors import CannotCancel, PairbusError, SendUnavailable
from pairbus.options import FailureKind
from pairbus.pairing.backlog_send import QueueFailure, store
from pairbus.pairing.effects import Operation, WaitForChange
from pairbus.pairing.failures import BacklogFailure, backlog_failure_of
from pairbus.pairing.health import FailureAction, InFlightSend
from pairbus.pairing.outcomes import CallOutcomes
from pairbus.pairing.payloads import (
    Payloads,
    check_backlog_size,
    message_count,
    not_a_message,
    prepare,
)
from pairbus.pairing.recovery import ping
from pairbus.pairing.sdk_transfers import may_have_arrived
from pairbus.pairing.sender_base import SenderCall
from pairbus.pairing.sender_links import FailedOver
from pairbus.pairing.state import Hold
from pairbus.pairing.usage import ManagementUsage
from pairbus.telemetry.senders import CANCEL, SCHEDULE, SEND
from pairbus.usage.operations import OperationKind

T = TypeVar("T")


def send(
    call: SenderCall,
    messages: Any,
    timeout: float | None,
    options: dict[str, Any],
    failure: Exception | None = None,
    queue_failure: QueueFailure | None = None,
) -> Operation[None]:
    """Send prepared messages (`send_messages`). `failure` is the error of the primary, if it was
    called already, `queue_failure` that of a backlog queue."""
    call = call.of(message_count(messages))
    payloads = Payloads(messages)
    with _failures_counted(call), _queue_failure_reported(call, payloads, queue_failure):
        yield from _send_to_primary_or_backlog(
            call,
            lambda sender: sender.send_messages(messages, timeout=timeout, **options),
            lambda error: store(call, payloads, None, error, queue_failure),
            messages=payloads,
            failure=failure,
            operation=SEND,
        )


def schedule(
    call: SenderCall,
    messages: Any,
    enqueue_at: datetime,
    timeout: float | None,
    options: dict[str, Any],
) -> Operation[list[int | None]]:
    """Schedule messages (`schedule_messages`). The result has None for each message that went to
    the backlog."""
    if isinstance(messages, ServiceBusMessageBatch):  # the SDK cannot schedule a batch
        raise not_a_message(messages)
    prepared = prepare(messages)
    if call.pairing.options.check_backlog_size:
        limit = call.links.factory.backlog_message_limit
        check_backlog_size(prepared, call.links.entity, limit, enqueue_at)
    payloads = Payloads(prepared)
    call = call.of(message_count(prepared))

    def store_scheduled(error: BaseException | None) -> Operation[list[int | None]]:
        count = yield from store(call, payloads, enqueue_at, error)
        return [None] * count

    usage = ManagementUsage(
        OperationKind.SCHEDULE, lambda: [len(payload) for payload in payloads.encoded()]
    )
    with _failures_counted(call):
        result: list[int | None] = yield from _send_to_primary_or_backlog(
            call,
            lambda sender: sender.schedule_messages(
                prepared, enqueue_at, timeout=timeout, **options
            ),
            store_scheduled,
            messages=payloads,
            usage=usage,
            operation=SCHEDULE,
        )
    return result


@contextmanager
def _failures_counted(call: SenderCall) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        call.pairing.recorder.call_failed(call.path, error, call.messages)
        raise


@contextmanager
def _queue_failure_reported(
    call: SenderCall, messages: Payloads, failure: QueueFailure | None
) -> Iterator[None]:
    """Report messages as unknown that a backlog queue may have accepted, if the call could not go
    on: the path has become healthy meanwhile, and no time is left to send to the primary."""
    try:
        yield
    except SendUnavailable:
        raise
    except PairbusError as exc:
        if failure is None or not may_have_arrived(failure.error):
            raise
        outcomes = CallOutcomes(messages)
        outcomes.transferred.update(range(len(messages.encoded())))
        raise outcomes.error(
            call.path.name,
            "a backlog queue did not acknowledge it, and it could not be sent to the primary",
            backlog_error=failure.error,
        ) from exc


def cancel(
    call: SenderCall,
    sequence_numbers: int | Iterable[int | None] | None,
    timeout: float | None,
    options: dict[str, Any],
) -> Operation[None]:
    """Cancel scheduled messages (`cancel_scheduled_messages`)."""
    if sequence_numbers is None or isinstance(sequence_numbers, int):
        numbers = [sequence_numbers]
    else:
        numbers = list(sequence_numbers)
    if None in numbers:
        raise CannotCancel(
            "A message that was scheduled in failover is in the backlog and has no sequence number "
            "yet. It will be scheduled when the backlog is drained."
        )

    def refuse(error: BaseException | None) -> Operation[None]:
        yield from ()
        raise SendUnavailable(
            f"{call.path.name!r} is in failover. Cancel the messages when the primary is back.",
            primary_error=call.path.health.cause if error is None else error,
        )

    yield from _send_to_primary_or_backlog(
        call,
        lambda sender: sender.cancel_scheduled_messages(numbers, timeout=timeout, **options),
        refuse,
        proves_health=False,
        usage=ManagementUsage(OperationKind.CANCEL, lambda: [0] * len(numbers)),
        operation=CANCEL,
    )


def open_link(call: SenderCall, function: Callable[[Any], Any]) -> Operation[None]:
    """Open the link of a sender that is entered. It is no error that the primary is down."""

    def do_nothing(error: BaseException | None) -> Operation[None]:
        yield from ()

    yield from _tolerate_outage(call, function, do_nothing)


def create_batch(call: SenderCall, function: Callable[[Any], Any]) -> Operation[Any]:
    """Create a batch of the SDK with the limits of the primary or, in failover, of the backlog.
    The result is None if neither answers."""

    def create_for_backlog(error: BaseException | None) -> Operation[Any]:
        claim = call.pairing.backlog.claim_any(call.path, call.links)
        if claim is None:
            return None
        with claim:
            try:
                left_s = call.until(claim.deadline).left_s
                return (yield from call.links.call_backlog(claim.queue, function, left_s))
            except (AzureError, OSError) as exc:
                match backlog_failure_of(exc, call.pairing.classify(exc), link_open=False):
                    case BacklogFailure.HOST_UNREACHABLE:
                        claim.unreachable(exc)
                    case BacklogFailure.QUEUE_UNAVAILABLE:
                        claim.failed(exc)
                return None

    return (yield from _tolerate_outage(call, function, create_for_backlog))


def _tolerate_outage(
    call: SenderCall,
    on_primary: Callable[[Any], Any],
    on_backlog: Callable[[BaseException | None], Operation[T]],
) -> Operation[T | None]:
    """Do something that sends no message. The result is None if the primary is down and the path
    has not failed over yet, or if the backlog does not answer either."""
    try:
        return (
            yield from _send_to_primary_or_backlog(
                call, on_primary, on_backlog, proves_health=False
            )
        )
    except SendUnavailable:
        return None
    except PairbusError:
        raise
    except Exception as error:
        if call.pairing.classify(error) in (FailureKind.UNAVAILABLE, FailureKind.UNKNOWN):
            return None
        raise


def _send_to_primary_or_backlog(
    call: SenderCall,
    on_primary: Callable[[Any], Any],
    on_backlog: Callable[[BaseException | None], Operation[T]],
    *,
    messages: Payloads | None = None,
    proves_health: bool = True,
    failure: Exception | None = None,
    usage: ManagementUsage | None = None,
    operation: str | None = None,
) -> Operation[T]:
    """Call the primary or, in failover, the backlog. `messages` are those that the call sends,
    `operation` is its name in telemetry.

    `proves_health`: a success stops the failover timer. Creating a batch does not: while the link
    is open, the SDK does that without contacting the service.
    """
    pairing, path = call.pairing, call.path
    in_flight: InFlightSend | None = None
    while failure is None:
        in_flight = yield from _route(call, messages)
        if in_flight is not None:
            break
        try:
            result: T = yield from call.links.call_primary(
                on_primary, call.left_s * pairing.primary_share, usage, operation
            )
        except FailedOver:
            continue
        except PairbusError:
            raise
        except Exception as error:  # noqa: BLE001  handled below, outside of this block
            failure = error
        else:
            if proves_health:
                pairing.recorder.sent(path, call.messages)
                pairing.send_succeeded(path)
            return result
    if failure is not None:
        in_flight = yield from _handle_failure(call, failure)
    if in_flight is None:
        assert failure is not None
        raise failure
    with in_flight:
        return (yield from on_backlog(failure))


def _route(call: SenderCall, messages: Payloads | None) -> Operation[InFlightSend | None]:
    """Decide between primary (None) and backlog, and wait while sends are held."""
    pairing = call.pairing
    while isinstance(route := pairing.route(call.path), Hold):
        if call.left_s == 0:
            raise CallOutcomes(Payloads([]) if messages is None else messages).error(
                call.path.name,
                "the call timed out while sends wait for the rest of the backlog to be drained",
                primary_error=call.path.health.cause,
            )
        changed = pairing.changed_since(route.version)
        yield WaitForChange(changed, min(route.seconds, call.left_s))
    return route


def _handle_failure(call: SenderCall, failure: Exception) -> Operation[InFlightSend | None]:
    """Record a failure of the primary. Return None if the caller gets the error."""
    action = call.pairing.send_failed(call.path, failure, call.messages)
    if isinstance(action, InFlightSend):
        return action
    if action is FailureAction.PROBE:
        with call.links.probing() as is_open:
            if not is_open:
                return None
            # Half of the time that is left is kept for the backlog.
            error = yield from ping(call.pairing, call.links.factory, call.path, call.left_s / 2)
        return call.pairing.probed(call.path, failure, error)
    return None
