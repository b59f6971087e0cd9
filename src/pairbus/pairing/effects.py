"""The effects that operations yield and that drivers carry out.

An operation is a generator that decides and does no I/O. It yields an effect, is resumed with the
result or with the exception that the effect raised, and returns the result of the call. The driver
of threads is `pairing.driver`, that of an event loop is `pairing.aio.driver`.

A driver throws every exception into the operation, CancelledError and KeyboardInterrupt included,
so that the operation can yield further effects to clean up.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.errors import SenderInUse

T = TypeVar("T")

CLOSE_TIMEOUT_S = 10.0
"""The longest time to wait for something to close."""
MIN_CALL_SHARE = 0.25
"""The fraction of its time that a call must have left when its turn comes. With less, it could fail
only because it waited for others, which would look like an outage."""


class CallTimedOut(OperationTimeoutError):
    """An SDK call was interrupted, because it took too long. The messages may have arrived."""


def timed_out(seconds: float) -> CallTimedOut:
    """Return the error for a call that took longer than its timeout."""
    return CallTimedOut(message=f"The call was interrupted: no answer within {seconds:g} s")


def lock_timed_out(seconds: float) -> SenderInUse:
    """Return the error for a call that waited too long for other calls of the same sender."""
    return SenderInUse(
        f"The call timed out: other calls used this sender for the last {seconds:.1f} s. Use one "
        "sender for each thread or task, or a longer timeout."
    )


def is_too_late(left_s: float, timeout_s: float) -> bool:
    """Return whether a call spent too much of its time waiting for its turn."""
    return left_s <= timeout_s * MIN_CALL_SHARE


def check_time_left(left_s: float, timeout_s: float) -> None:
    """Raise SenderInUse if a call spent too much of its time waiting for its turn."""
    if is_too_late(left_s, timeout_s):
        raise lock_timed_out(timeout_s - left_s)


class CallSdk(NamedTuple):
    """Call a function with a sender or receiver of the SDK. The result is that of the function.
    Raises CallTimedOut; the sender or receiver must not be used again then."""

    link: Any
    function: Callable[[Any], Any]
    timeout_s: float


class AcquireLock(NamedTuple):
    """Acquire a lock for a call. The result is a HeldLock. The timeout is that of the wait and the
    call together. Raises SenderInUse; without a timeout the wait is unlimited."""

    lock: Any
    timeout_s: float | None = None


class HeldLock:
    """A lock that was acquired. It is released at the end of the `with` block, which gets the time
    that is left of the timeout."""

    __slots__ = ("_left_s", "_lock")

    def __init__(self, lock: Any, left_s: float) -> None:
        self._lock = lock
        self._left_s = left_s

    def __enter__(self) -> float:
        return self._left_s

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


class CloseObject(NamedTuple):
    """Close an object of the SDK in a bounded time, and ignore errors."""

    target: Any


class CloseAll(NamedTuple):
    """Close objects of the SDK side by side, in a bounded time for all of them, and ignore
    errors."""

    targets: tuple[Any, ...]


class Discard(NamedTuple):
    """Close a sender or receiver of the SDK that failed or is not needed any more. This does not
    delay the operation."""

    link: Any


class StopBackground(NamedTuple):
    """Wait for the operations that run in the background, and stop the driver."""


class WaitForChange(NamedTuple):
    """Wait until `changed` returns True, at most so many seconds. It is called at the beginning and
    after each change of the shared state."""

    changed: Callable[[], bool]
    seconds: float


class RunBlocking(NamedTuple):
    """Call a function that blocks for a bounded time, such as a request to the administration API.
    In an event loop it runs in another thread. The result is that of the function."""

    function: Callable[[], Any]


Effect: TypeAlias = (
    CallSdk
    | AcquireLock
    | CloseObject
    | CloseAll
    | Discard
    | WaitForChange
    | RunBlocking
    | StopBackground
)
Operation: TypeAlias = Generator[Effect, Any, T]
