"""The backlog queues of the secondary: look for them, and create those that are not there.

What to do after which answer is decided in `steps`, without I/O, for the synchronous and the
asynchronous SDK; the two only make the calls.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)

from pairbus.errors import BacklogUnavailable

_log = logging.getLogger(__name__)

# DefaultMessageTimeToLive and AutoDeleteOnIdle are left out: what the service sets then is exactly
# the longest time span, P10675199DT2H48M5.4775807S. The SDK cannot say that: as a text it goes out
# rounded up, to …5.477581S, which is longer than the longest; as a timedelta as …5.477539S.
QUEUE_SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "max_size_in_megabytes": 5120,
        "max_delivery_count": 2147483647,
        "lock_duration": timedelta(minutes=1),
        "dead_lettering_on_message_expiration": True,
        "enable_batched_operations": True,
    }
)


class Administration(Protocol):
    """What is used of the SDK's administration client."""

    fully_qualified_namespace: str

    def get_queue(self, queue_name: str, **kwargs: Any) -> Any: ...

    def create_queue(self, queue_name: str, **kwargs: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long to try."""

    attempts: int = 3
    """For each queue."""
    backoff_s: float = 0.5
    """Before the second attempt; twice as long before each that follows."""
    request_timeout_s: float = 10.0
    """For one request: to connect, and again to get an answer."""
    deadline_s: float = 60.0
    """For all of it. A request that runs then may still wait for its answer as long as it would
    take to connect."""


DEFAULT_BOUNDS = Bounds()


def bounds_within(operation_timeout_s: float) -> Bounds:
    """No request takes longer than an operation may. All of them together may: a service that
    answers is given the time that it takes to create many queues."""
    return Bounds(request_timeout_s=min(Bounds().request_timeout_s, operation_timeout_s))


@dataclass(frozen=True, slots=True)
class Look:
    path: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


Step: TypeAlias = Look | Create | Wait


class Verdict(Enum):
    """What an answer means."""

    THERE = auto()
    MISSING = auto()
    RACED = auto()
    """Somebody else creates it at this moment."""
    AGAIN = auto()
    """It may pass."""
    UNREACHABLE = auto()
    """It may pass, but is not about this queue: the others would fail alike."""
    IMPOSSIBLE = auto()
    """The same request would be refused again."""
    FORBIDDEN = auto()


def verdict(error: Exception | None, *, creating: bool) -> Verdict:
    """What the answer to a look or a creation means; None is an answer without an error."""
    if error is None:
        return Verdict.THERE
    if isinstance(error, ClientAuthenticationError):
        return Verdict.FORBIDDEN
    if isinstance(error, ResourceNotFoundError):
        return Verdict.AGAIN if creating else Verdict.MISSING
    if isinstance(error, ResourceExistsError):
        return Verdict.RACED if creating else Verdict.AGAIN
    if isinstance(error, HttpResponseError):
        status = error.status_code
        if status == 401 or (status == 403 and not creating):
            return Verdict.FORBIDDEN
        # Who may look may create: that is forbidden only where a quota of the namespace is full.
        passing = status is None or status in (408, 409, 429) or status >= 500
        return Verdict.AGAIN if passing else Verdict.IMPOSSIBLE
    if isinstance(error, AzureError | OSError):
        return Verdict.UNREACHABLE
    # Such as the AttributeError that the SDK raises on a look at a topic.
    return Verdict.IMPOSSIBLE


def steps(
    paths: Iterable[str],
    where: str,
    bounds: Bounds = DEFAULT_BOUNDS,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Step, Exception | None, list[str]]:
    """What to do next; it is told the error of that, or None, and gives the paths that exist.

    A queue that cannot be had is left out, with a warning. Once one could not be reached in all its
    attempts, the rest is given up. Raises BacklogUnavailable where nothing is left, and at once
    where rights are missing. `where` is the namespace, for messages.
    """
    deadline = clock() + bounds.deadline_s
    there: list[str] = []
    left_out: dict[str, Exception] = {}
    lost: Exception | None = None
    for path in paths:
        error = lost
        if error is None:
            error = yield from _one(path, where, bounds, deadline, clock)
        if error is None:
            there.append(path)
            continue
        left_out[path] = error
        if verdict(error, creating=False) is Verdict.UNREACHABLE:
            lost = error
    if left_out and not there:
        path, cause = next(reversed(left_out.items()))
        raise BacklogUnavailable(
            f"none of the {len(left_out)} backlog queues can be had in {where}; of {path!r}: "
            f"{_said(cause)}"
        ) from cause
    for path, error in left_out.items():
        _log.warning("The backlog queue %r of %s is left out: %s", path, where, _said(error))
    return there


def _one(
    path: str, where: str, bounds: Bounds, deadline: float, clock: Callable[[], float]
) -> Generator[Step, Exception | None, Exception | None]:
    """Look for one queue, and create it if need be; the error where that cannot be done."""

    def left_s() -> float:
        return max(min(bounds.request_timeout_s, deadline - clock()), 0.001)

    error: Exception | None = None
    for attempt in range(bounds.attempts):
        pause_s = bounds.backoff_s * 2 ** (attempt - 1) if attempt else 0.0
        if clock() + pause_s >= deadline:
            late = TimeoutError(f"the {bounds.deadline_s:g} s for all backlog queues are over")
            late.__cause__ = error
            return late
        if attempt:
            yield Wait(pause_s)
        error = yield Look(path, left_s())
        what = verdict(error, creating=False)
        if what is Verdict.MISSING:
            error = yield Create(path, left_s())
            what = verdict(error, creating=True)
        if what is Verdict.RACED:
            # It may have become a topic, or not be there yet.
            error = yield Look(path, left_s())
            what = verdict(error, creating=False)
        if what is Verdict.FORBIDDEN:
            raise BacklogUnavailable(
                f"the credential for {where} has no right to look for the backlog queue {path!r} "
                "or to create it: use one with the Manage right, or create the queues beforehand "
                f"and pair with create_backlog=False; {_said(error)}"
            ) from error
        if what in (Verdict.THERE, Verdict.IMPOSSIBLE):
            break
    return error


def _said(error: Exception | None) -> str:
    if isinstance(error, AttributeError):
        return f"it seems that something else than a queue has this name ({error})"
    return f"{type(error).__name__}: {str(error).strip() or 'no description'}"


def ensure_queues(
    administration: Administration,
    paths: Iterable[str],
    *,
    bounds: Bounds = DEFAULT_BOUNDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[str]:
    """The paths at which there is a queue, in the end. One that exists is used as it is, and never
    altered; the others are created. See `steps` for what happens where that fails."""
    todo = steps(paths, administration.fully_qualified_namespace, bounds, clock)
    error: Exception | None = None
    while True:
        try:
            step = todo.send(error)
        except StopIteration as done:
            return list(done.value)
        error = None
        try:
            match step:
                case Look(path, timeout_s):
                    administration.get_queue(path, **request_options(timeout_s))
                case Create(path, timeout_s):
                    administration.create_queue(
                        path, **QUEUE_SETTINGS, **request_options(timeout_s)
                    )
                case Wait(seconds):
                    sleep(seconds)
        except Exception as exc:  # noqa: BLE001  whatever the SDK makes of an answer: `steps` decides
            error = exc


def request_options(timeout_s: float) -> dict[str, Any]:
    """For one request, also of an administration client that somebody else made: retries are
    ours."""
    return {"connection_timeout": timeout_s, "read_timeout": timeout_s, "retry_total": 0}
