"""What a call does, step by step, with the I/O left to others.

Each function here is a generator. It yields what is to be done (`OnPrimary`, `OnBacklog`, …), is
given the result or the error, and returns what the caller gets. `pairing.sender` carries it out on
threads, `pairing.aio.sender` in an event loop: the decisions are the same, because they are here.
"""

from collections.abc import Callable, Generator
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.errors import (
    CannotCancel,
    MessageTooLargeForBacklog,
    PairbusError,
    PartlyStored,
    SendUnavailable,
)
from pairbus.pairing.failures import BacklogFailure, FailureKind, backlog_failure_of
from pairbus.pairing.health import FailureAction, Route
from pairbus.pairing.payloads import OutgoingMessages, check_size, fill, no_message
from pairbus.pairing.sdk import batch_of
from pairbus.pairing.state import PairingState, PathState
from pairbus.servicebus.limits import MAX_MESSAGE_SIZE_STANDARD
from pairbus.usage.operations import OperationKind

T = TypeVar("T")


class ManagementUsage(NamedTuple):
    """What a call costs that goes over a management link: an operation on each message."""

    kind: OperationKind
    sizes: Callable[[], list[int]]
    """The bytes of each message; asked for only where there is a ledger."""


class OnPrimary(NamedTuple):
    """Call the sender of the primary. The result is the call's."""

    call: Callable[[Any], Any]
    budget_s: float
    charge: ManagementUsage | None = None


class OnBacklog(NamedTuple):
    """Call the sender of a backlog queue. The result is the call's."""

    queue: str
    call: Callable[[Any], Any]
    budget_s: float


class Ping(NamedTuple):
    """Ping the path once. The result is None, or the error that the ping met."""

    budget_s: float


class Wait(NamedTuple):
    """Wait until something changes, at most so long."""

    seconds: float


Effect = OnPrimary | OnBacklog | Ping | Wait
Operation = Generator[Effect, Any, T]


class SenderCall(NamedTuple):
    """One call of one sender."""

    pairing: PairingState
    path: PathState
    who: object
    """The sender, for which a backlog queue is chosen."""
    deadline: float
    destination: str
    """The path as the sender was opened: `path` is shared by those who spell it otherwise."""

    @classmethod
    def of(
        cls,
        pairing: PairingState,
        path: PathState,
        who: object,
        timeout: float | None,
        destination: str | None = None,
        began: float | None = None,
    ) -> "SenderCall":
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
        bound = pairing.operation_timeout_s if timeout is None else timeout
        destination = path.name if destination is None else destination
        began = pairing.now() if began is None else began
        return cls(pairing, path, who, began + bound, destination)

    @property
    def left_s(self) -> float:
        return max(0.0, self.deadline - self.pairing.now())


def send(
    call: SenderCall,
    messages: Any,
    timeout: float | None,
    options: dict[str, Any],
    failure: Exception | None = None,
) -> Operation[None]:
    """`send_messages`. `failure` is what the primary said, if it was asked already."""
    outgoing = OutgoingMessages(messages)
    _check_sizes(call, outgoing, None)
    yield from _somewhere(
        call,
        lambda sender: sender.send_messages(outgoing.primary, timeout=timeout, **options),
        lambda error: store(call, outgoing, None, error),
        failure=failure,
    )


def schedule(
    call: SenderCall, messages: Any, at: datetime, timeout: float | None, options: dict[str, Any]
) -> Operation[list[int | None]]:
    """`schedule_messages`. None stands for a message that went to the backlog."""
    if isinstance(messages, ServiceBusMessageBatch):  # the SDK schedules no batches
        raise no_message(messages)
    outgoing = OutgoingMessages(messages)
    _check_sizes(call, outgoing, at)

    def stored(error: BaseException | None) -> Operation[list[int | None]]:
        count = yield from store(call, outgoing, at, error)
        return [None] * count

    result: list[int | None] = yield from _somewhere(
        call,
        lambda sender: sender.schedule_messages(outgoing.primary, at, timeout=timeout, **options),
        stored,
        charge=ManagementUsage(
            OperationKind.SCHEDULE, lambda: [len(one) for one in outgoing.encoded()]
        ),
    )
    return result


def _check_sizes(call: SenderCall, outgoing: OutgoingMessages, at: datetime | None) -> None:
    """Where that is wanted: refuse what would not fit the backlog, whether it goes there or not."""
    if call.pairing.options.check_backlog_size:
        for payload in outgoing.for_backlog(call.destination, at):
            check_size(payload, MAX_MESSAGE_SIZE_STANDARD)


def cancel(
    call: SenderCall, numbers: Any, timeout: float | None, options: dict[str, Any]
) -> Operation[None]:
    """`cancel_scheduled_messages`."""
    given = [numbers] if numbers is None or isinstance(numbers, int) else list(numbers)
    if None in given:
        raise CannotCancel(
            "a message that was scheduled while the primary was down is in the backlog, and has no "
            "sequence number yet; it will be scheduled when the backlog is moved"
        )

    def refuse(error: BaseException | None) -> Operation[None]:
        yield from ()
        call.pairing.stored(call.path)
        raise SendUnavailable(
            f"{call.path.name!r} is in failover: nothing can be cancelled until it is back",
            primary_error=call.path.health.cause if error is None else error,
        )

    yield from _somewhere(
        call,
        lambda sender: sender.cancel_scheduled_messages(given, timeout=timeout, **options),
        refuse,
        is_send=False,
        charge=ManagementUsage(OperationKind.CANCEL, lambda: [0] * len(given)),
    )


def enter(call: SenderCall, open_link: Callable[[Any], Any]) -> Operation[None]:
    """Entering a sender opens its link. That the primary is down does not fail it."""

    def ready(error: BaseException | None) -> Operation[None]:
        yield from ()
        call.pairing.stored(call.path)

    yield from _lenient(call, open_link, ready)


def make_batch(call: SenderCall, create: Callable[[Any], Any]) -> Operation[Any]:
    """A batch of the SDK, by the limits of the primary or, in failover, of the backlog. None where
    neither answers."""

    def by_backlog(error: BaseException | None) -> Operation[Any]:
        try:
            queue = call.pairing.claim(call.path, call.who, ())
            if queue is None:
                return None
            try:
                return (yield from _on_backlog(call, queue, create, last=True))
            except (AzureError, OSError) as exc:
                if call.pairing.classify(exc) is not FailureKind.BUSY:
                    call.pairing.queue_failed(queue, exc)
                return None
            finally:
                call.pairing.let_go(queue)
        finally:
            call.pairing.stored(call.path)

    return (yield from _lenient(call, create, by_backlog))


def _lenient(
    call: SenderCall,
    on_primary: Callable[[Any], Any],
    on_backlog: Callable[[BaseException | None], Operation[T]],
) -> Operation[T | None]:
    """As `_somewhere`; None where the primary is down and there is no failover yet, or the backlog
    does not answer either: what needs no answer should not fail."""
    try:
        return (yield from _somewhere(call, on_primary, on_backlog, is_send=False))
    except SendUnavailable:
        return None
    except PairbusError:
        raise
    except Exception as error:
        if call.pairing.classify(error) in (FailureKind.UNAVAILABLE, FailureKind.UNKNOWN):
            return None
        raise


def _somewhere(
    call: SenderCall,
    on_primary: Callable[[Any], Any],
    on_backlog: Callable[[BaseException | None], Operation[T]],
    *,
    is_send: bool = True,
    failure: Exception | None = None,
    charge: ManagementUsage | None = None,
) -> Operation[T]:
    """Do something on the primary or, in failover, on the backlog; `on_backlog` must tell the
    pairing `stored`. Only a send that succeeds cancels the timer: a batch is made without asking
    anybody where the link is open, and would do so for ever."""
    pairing, path = call.pairing, call.path
    if failure is None:
        route = yield from _route(call)
        if route is Route.BACKLOG:
            return (yield from on_backlog(None))
        # A call that may go on into the backlog keeps half of its time for that.
        budget_s = call.left_s / 2 if pairing.immediate else call.left_s
        try:
            result: T = yield OnPrimary(on_primary, budget_s, charge)
        except PairbusError:
            raise
        except Exception as error:  # noqa: BLE001  judged below
            failure = error
        else:
            if is_send:
                pairing.succeeded(path)
            return result
    verdict = pairing.failed(path, failure)
    if verdict is FailureAction.LOOK:
        # Half of what is left is for the backlog.
        met = yield Ping(call.left_s / 2)
        verdict = pairing.looked(path, failure, met)
    if verdict is FailureAction.RAISE:
        raise failure
    return (yield from on_backlog(failure))


def _route(call: SenderCall) -> Operation[Route]:
    """To the primary or to the backlog; while neither, wait."""
    while True:
        route, hold_s = call.pairing.route(call.path)
        if route is not Route.HOLD:
            return route
        if call.left_s == 0:
            raise SendUnavailable(
                f"{call.path.name!r} waits for the last of its backlog, and the time of this call "
                "is over; nothing was sent",
                primary_error=call.path.health.cause,
            )
        yield Wait(min(hold_s, call.left_s))


def store(
    call: SenderCall, outgoing: OutgoingMessages, at: datetime | None, error: BaseException | None
) -> Operation[int]:
    """Put messages into the backlog; how many there were. Raises SendUnavailable, PartlyStored,
    MessageTooLargeForBacklog, or the SDK's error for a message that the backlog rejects."""
    pairing, path = call.pairing, call.path
    try:
        payloads = outgoing.for_backlog(call.destination, at)
        stored: list[int] = []
        try:
            for queue, places in _shares(call, outgoing, len(payloads)):
                yield from _store_share(call, queue, payloads, places, stored)
        except Exception as exc:
            if not stored:
                raise
            left = tuple(sorted(set(range(len(payloads))).difference(stored)))
            partly = PartlyStored(
                f"{len(stored)} of {len(payloads)} messages for {path.name!r} are in the backlog; "
                f"those at {', '.join(map(str, left))} were not sent",
                stored=tuple(sorted(stored)),
                not_stored=left,
                primary_error=path.health.cause if error is None else error,
                backlog_error=exc.backlog_error if isinstance(exc, SendUnavailable) else exc,
            )
            raise partly from partly.__cause__
    finally:
        pairing.stored(path)
    return len(payloads)


def _shares(
    call: SenderCall, outgoing: OutgoingMessages, count: int
) -> list[tuple[str | None, list[int]]]:
    """Which messages go to which queue, by their places. None: to whichever the sender has."""
    if not call.pairing.after_drain:
        return [(None, list(range(count)))]
    shares: dict[str | None, list[int]] = {}
    for place, session in enumerate(outgoing.sessions()):
        queue = None if session is None else call.pairing.queue_of_session(call.path, session)
        shares.setdefault(queue, []).append(place)
    return list(shares.items())


def _store_share(
    call: SenderCall, fixed: str | None, payloads: list[bytes], places: list[int], stored: list[int]
) -> Operation[None]:
    """Store the messages at these places in one queue, or in another if that fails and may."""
    pairing, path = call.pairing, call.path
    tried: tuple[str, ...] = ()
    error: BaseException | None = None
    # Queues whose link ended in mid-send. The message may be the reason, so a queue is pulled only
    # after another has taken the message: a message that no queue takes must not pull them all.
    links_lost: dict[str, BaseException] = {}
    while places:
        if call.left_s == 0:
            raise pairing.unavailable(path, error)
        if fixed is None:
            queue = pairing.claim(path, call.who, tried)
        else:
            queue = fixed if fixed not in tried and pairing.claim_this(fixed) else None
        if queue is None:
            raise pairing.unavailable(path, error)
        last = fixed is not None or len(tried) + 1 == len(pairing.rotation.queues)
        link_open = False
        try:
            batch = yield from _on_backlog(call, queue, _create, last=last)
            link_open = True
            limit = batch.max_size_in_bytes
            for place in places:
                check_size(payloads[place], limit)
            some = fill(payloads, places, limit)
            full = batch_of((payloads[place] for place in some), batch)
            yield from _on_backlog(call, queue, partial(_send, full), last=last)
        except (MessageTooLargeForBacklog, MessageSizeExceededError) as exc:
            pairing.let_go(queue)
            if isinstance(exc, MessageTooLargeForBacklog):
                raise
            raise MessageTooLargeForBacklog(
                f"backlog queue {queue} says that a message is too large; it was not sent"
            ) from exc
        except (PairbusError, GeneratorExit):  # the latter when a call is cancelled
            pairing.let_go(queue)
            raise
        except Exception as exc:
            error = exc
            failure = backlog_failure_of(exc, pairing.classify(exc), link_open=link_open)
            if failure is BacklogFailure.QUEUE_UNAVAILABLE:
                pairing.queue_failed(queue, exc)
                tried += (queue,)
                links_lost.pop(queue, None)
                continue
            pairing.let_go(queue)
            if failure is BacklogFailure.MESSAGE_REJECTED:
                raise
            if failure is BacklogFailure.BUSY:
                busy = pairing.unavailable(path, exc)
                raise busy from busy.__cause__
            if links_lost:  # the first queue gets a new link and is tried once more
                tried += (queue,)
            links_lost[queue] = exc
        else:
            pairing.queue_succeeded(queue)
            links_lost.pop(queue, None)
            for lost, cause in links_lost.items():
                pairing.queue_failed(lost, cause)
            links_lost.clear()
            stored.extend(some)
            places = places[len(some) :]


def _on_backlog(
    call: SenderCall, queue: str, on: Callable[[Any], Any], *, last: bool
) -> Operation[Any]:
    """Call a backlog queue's sender; where there are others to try, half the time is theirs."""
    return (yield OnBacklog(queue, on, call.left_s if last else call.left_s / 2))


def _create(sender: Any) -> Any:
    return sender.create_message_batch()


def _send(batch: Any, sender: Any) -> Any:
    return sender.send_messages(batch)
