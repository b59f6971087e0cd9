"""The operation that finds the backlog queues of the secondary, and creates those that are missing.

A queue that exists is used as it is, and never altered.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)

from pairbus.errors import BacklogUnavailable
from pairbus.pairing.effects import Operation, SendRequest, Sleep

logger = logging.getLogger("pairbus.pairing")

# DefaultMessageTimeToLive and AutoDeleteOnIdle are not set: the default of the service is exactly
# the longest time span, P10675199DT2H48M5.4775807S. The SDK cannot express it: it rounds a text up
# to …5.477581S, which is longer than the longest, and a timedelta to …5.477539S.
QUEUE_SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "max_size_in_megabytes": 5120,
        "max_delivery_count": 2147483647,
        "lock_duration": timedelta(minutes=1),
        "dead_lettering_on_message_expiration": True,
        "enable_batched_operations": True,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationLimits:
    """Limits of retries and of time."""

    attempts: int = 3
    """The number of attempts for each queue."""
    backoff_s: float = 0.5
    """The pause before the second attempt; it doubles for each further attempt."""
    request_timeout_s: float = 10.0
    """The timeout of one request: for connecting, and again for the response."""
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
    if error is None:
        return QueueAnswer.EXISTS
    if isinstance(error, ClientAuthenticationError):
        return QueueAnswer.FORBIDDEN
    if isinstance(error, ResourceNotFoundError):
        return QueueAnswer.RETRY if creating else QueueAnswer.MISSING
    if isinstance(error, ResourceExistsError):
        return QueueAnswer.CONFLICT if creating else QueueAnswer.RETRY
    if isinstance(error, HttpResponseError):
        status = error.status_code
        if status == 401 or (status == 403 and not creating):
            return QueueAnswer.FORBIDDEN
        # A credential that may read may also create, so a 403 for a creation means that a quota of
        # the namespace is exceeded.
        temporary = status is None or status in (408, 409, 429) or status >= 500
        return QueueAnswer.RETRY if temporary else QueueAnswer.IMPOSSIBLE
    if isinstance(error, AzureError | OSError):
        return QueueAnswer.UNREACHABLE
    # For example the AttributeError that the SDK raises when the path is that of a topic.
    return QueueAnswer.IMPOSSIBLE


def ensure_queues(
    administration: Any,
    paths: Iterable[str],
    limits: CreationLimits = DEFAULT_LIMITS,
    clock: Callable[[], float] = time.monotonic,
) -> Operation[tuple[str, ...]]:
    """Find or create the queues at these paths, and return the paths that exist.

    A queue that cannot be found or created is left out, with a warning. When the namespace could
    not be reached in all attempts for one queue, the others are not tried. Raises
    BacklogUnavailable if no queue is left, and immediately if a right is missing.
    """
    namespace: str = administration.fully_qualified_namespace
    deadline = clock() + limits.deadline_s
    existing: list[str] = []
    left_out: dict[str, Exception] = {}
    unreachable: Exception | None = None
    for path in paths:
        error = unreachable
        if error is None:
            error = yield from _ensure_queue(administration, path, limits, deadline, clock)
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
    administration: Any,
    path: str,
    limits: CreationLimits,
    deadline: float,
    clock: Callable[[], float],
) -> Operation[Exception | None]:
    """Find one queue, or create it. Return the error if neither is possible."""

    def request(send: Callable[..., Any], **settings: Any) -> Operation[Exception | None]:
        timeout_s = max(min(limits.request_timeout_s, deadline - clock()), 0.001)
        options = request_options(timeout_s)
        try:
            yield SendRequest(lambda: send(path, **settings, **options), timeout_s)
        except Exception as exc:  # noqa: BLE001  `interpret` decides
            return exc
        return None

    error: Exception | None = None
    for attempt in range(limits.attempts):
        pause_s = limits.backoff_s * 2 ** (attempt - 1) if attempt else 0.0
        if clock() + pause_s >= deadline:
            late = TimeoutError(
                f"the time for all backlog queues ({limits.deadline_s:g} s) is over"
            )
            late.__cause__ = error
            return late
        if attempt:
            yield Sleep(pause_s)
        error = yield from request(administration.get_queue)
        answer = interpret(error, creating=False)
        if answer is QueueAnswer.MISSING:
            error = yield from request(administration.create_queue, **QUEUE_SETTINGS)
            answer = interpret(error, creating=True)
        if answer is QueueAnswer.CONFLICT:
            # The other process may have created a topic, or may not be ready.
            error = yield from request(administration.get_queue)
            answer = interpret(error, creating=False)
        if answer is QueueAnswer.FORBIDDEN:
            namespace = administration.fully_qualified_namespace
            raise BacklogUnavailable(
                f"The credential for {namespace} may neither read nor create the backlog queue "
                f"{path!r}. Use a credential with the Manage right, or create the queues "
                f"beforehand and pair with create_backlog=False. {_describe(error)}"
            ) from error
        if answer in (QueueAnswer.EXISTS, QueueAnswer.IMPOSSIBLE):
            break
    return error


def _describe(error: Exception | None) -> str:
    if isinstance(error, AttributeError):
        return f"an entity of this name exists that is not a queue ({error})"
    return f"{type(error).__name__}: {str(error).strip() or 'no description'}"


def request_options(timeout_s: float) -> dict[str, Any]:
    """Return the options of one request. They hold for an administration client of the user too:
    retries are made here."""
    return {"connection_timeout": timeout_s, "read_timeout": timeout_s, "retry_total": 0}
