"""Finds the backlog queues of the secondary, and creates those that are missing.

A queue that exists is used as it is, and never altered.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from threading import Event

from pairbus.errors import (
    BacklogUnavailable,
    Busy,
    ConnectionLost,
    EntityExists,
    EntityNotFound,
    NotAuthorized,
    OperationTimeout,
    Unavailable,
)
from pairbus.servicebus.administration import AdministrationClient
from pairbus.servicebus.atom import NewQueueSettings, QueueProperties
from pairbus.servicebus.time_spans import MAX_TIME_SPAN

logger = logging.getLogger("pairbus.pairing")

QUEUE_SETTINGS: NewQueueSettings = {
    "max_size_in_megabytes": 5120,
    "max_delivery_count": 2147483647,
    "default_message_time_to_live": MAX_TIME_SPAN,
    "auto_delete_on_idle": MAX_TIME_SPAN,
    "lock_duration": timedelta(minutes=1),
    "dead_lettering_on_message_expiration": True,
    "enable_batched_operations": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationLimits:
    """Limits of retries and of time."""

    attempts: int = 3
    """The number of attempts for each queue."""
    backoff_s: float = 0.5
    """The pause before the second attempt; it doubles for each further attempt."""
    request_timeout_s: float = 10.0
    """The timeout of one request."""
    deadline_s: float = 60.0
    """The time for all queues. A request that is in progress then may still take its timeout."""


DEFAULT_LIMITS = CreationLimits()


def limits_for(operation_timeout_s: float) -> CreationLimits:
    """Return limits with which no request takes longer than an operation may. All requests together
    may: a service that answers gets the time to create many queues."""
    return CreationLimits(
        request_timeout_s=min(DEFAULT_LIMITS.request_timeout_s, operation_timeout_s)
    )


class QueueAnswer(Enum):
    """The meaning of the response to a request about a queue."""

    EXISTS = auto()
    MISSING = auto()
    CONFLICT = auto()
    """Another process creates the queue at this moment."""
    RETRY = auto()
    """The error is temporary."""
    UNREACHABLE = auto()
    """The error is temporary and does not concern this queue: requests for others would fail
    too."""
    IMPOSSIBLE = auto()
    """The same request would be refused again."""
    FORBIDDEN = auto()


def interpret(error: Exception | None, *, creating: bool) -> QueueAnswer:
    """Return the meaning of a response to a read or create request; None means success."""
    match error:
        case None:
            return QueueAnswer.EXISTS
        case NotAuthorized():
            return QueueAnswer.FORBIDDEN
        case EntityNotFound():
            return QueueAnswer.RETRY if creating else QueueAnswer.MISSING
        case EntityExists():
            return QueueAnswer.CONFLICT
        case ConnectionLost() | OperationTimeout():
            return QueueAnswer.UNREACHABLE
        case Busy() | Unavailable():
            return QueueAnswer.RETRY
        case _:  # the namespace is full, or the path is that of a topic
            return QueueAnswer.IMPOSSIBLE


def ensure_queues(
    administration: AdministrationClient,
    paths: Iterable[str],
    limits: CreationLimits = DEFAULT_LIMITS,
    *,
    stopping: Event,
    on_existing: Callable[[QueueProperties], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[str, ...]:
    """Find or create the queues at these paths, and return the paths that exist. `on_existing` is
    called with each queue that was not created here. After `stopping` is set, no further request
    is sent.

    A queue that cannot be found or created is left out, with a warning. When the namespace could
    not be reached in all attempts for one queue, the others are not tried. Raises
    BacklogUnavailable if no queue is left, and immediately if a right is missing.
    """
    namespace = administration.options.namespace
    deadline = clock() + limits.deadline_s
    existing: list[str] = []
    left_out: dict[str, Exception] = {}
    unreachable: Exception | None = None
    for path in paths:
        error = unreachable
        if error is None:
            error = _ensure_queue(
                administration, path, limits, deadline, stopping, on_existing, clock
            )
        if error is None:
            existing.append(path)
            continue
        left_out[path] = error
        if interpret(error, creating=False) is QueueAnswer.UNREACHABLE:
            unreachable = error
    if left_out and not existing:
        path, cause = next(reversed(left_out.items()))
        raise BacklogUnavailable(
            f"Could not find or create any of {len(left_out)} backlog queues in {namespace}. Last "
            f"error ({path!r}): {_describe(cause)}"
        ) from cause
    for path, error in left_out.items():
        logger.warning("Backlog queue %r of %s is left out: %s", path, namespace, _describe(error))
    return tuple(existing)


def _ensure_queue(
    administration: AdministrationClient,
    path: str,
    limits: CreationLimits,
    deadline: float,
    stopping: Event,
    on_existing: Callable[[QueueProperties], None] | None,
    clock: Callable[[], float],
) -> Exception | None:
    """Find one queue, or create it. Return the error if neither is possible."""

    def request(*, create: bool = False) -> tuple[Exception | None, QueueAnswer]:
        timeout_s = max(min(limits.request_timeout_s, deadline - clock()), 0.001)
        error: Exception | None = None
        try:
            if create:
                administration.create_queue(path, timeout_s=timeout_s, **QUEUE_SETTINGS)
            else:
                queue = administration.get_queue(path, timeout_s=timeout_s)
                if on_existing is not None:
                    on_existing(queue)
        except Exception as exc:  # noqa: BLE001  `interpret` decides
            error = exc
        return error, interpret(error, creating=create)

    error: Exception | None = None
    for attempt in range(limits.attempts):
        pause_s = limits.backoff_s * 2 ** (attempt - 1) if attempt else 0.0
        if clock() + pause_s >= deadline or stopping.wait(pause_s):
            late = OperationTimeout(
                f"the time for all backlog queues ({limits.deadline_s:g} s) is over"
            )
            late.__cause__ = error
            return late
        error, answer = request()
        if answer is QueueAnswer.MISSING:
            error, answer = request(create=True)
        if answer is QueueAnswer.CONFLICT:
            # The other process may have created a topic, or may not be ready.
            error, answer = request()
        if answer is QueueAnswer.FORBIDDEN:
            namespace = administration.options.namespace
            raise BacklogUnavailable(
                f"The credential for {namespace} may neither read nor create the backlog queue "
                f"{path!r}. Use a credential with the Manage right, or create the queues "
                f"beforehand and pair with create_backlog=False. {_describe(error)}"
            ) from error
        if answer in (QueueAnswer.EXISTS, QueueAnswer.IMPOSSIBLE):
            break
    return error


def _describe(error: Exception | None) -> str:
    return f"{type(error).__name__}: {str(error).strip() or 'no description'}"
