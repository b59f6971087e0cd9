"""What a failed call of the SDK means: the one place that decides (rule S2).

The SDK's class alone does not tell. CBS says 401 and 503 by the same class; a rejected message, an
internal error and a message that cannot be encoded are all a plain ServiceBusError. So the first of
these that has something to say decides:

1. a token failure among the causes, by its status;
2. the AMQP condition;
3. the class;
4. where the class is ServiceBusError itself: what it wraps, then the status of a management answer.

All that is private in the SDK and read by us is read here; tests/unit/pairing/test_failures.py pins
each piece. docs/failures.md is the same for people.
"""

import struct
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType

from azure.core.exceptions import AzureError
from azure.servicebus import exceptions as sdk

from pairbus.servicebus import conditions


class FailureKind(Enum):
    """What the caller's send, and the health of the path, learn from a failure."""

    UNAVAILABLE = "unavailable"
    """The primary cannot be reached or cannot answer: starts the failover timer."""
    UNKNOWN = "unknown"
    """As unavailable, but it is hidden why a link ended: one fresh look decides before failover."""
    BUSY = "busy"
    """Throttled: the caller gets the error."""
    CALLER = "caller"
    """The caller's own: too large, not encodable, not found, no rights, bad arguments, quota."""


class BacklogFailure(Enum):
    """The meaning of a failed send to a backlog queue: which part is at fault."""

    QUEUE_UNAVAILABLE = "queue unavailable"
    """The queue or its namespace takes no messages: the queue leaves the rotation."""
    LINK_LOST = "link lost"
    """The link ended for a hidden reason: a new link to the queue decides."""
    BUSY = "busy"
    """Throttled: the queue stays in the rotation, and the caller gets SendUnavailable."""
    MESSAGE_REJECTED = "message rejected"
    """Any queue would reject this message: the caller gets the error, and no queue is pulled."""


CLASSES: Mapping[type[BaseException], FailureKind] = MappingProxyType(
    {
        sdk.ServiceBusConnectionError: FailureKind.UNAVAILABLE,
        sdk.ServiceBusCommunicationError: FailureKind.UNAVAILABLE,
        sdk.OperationTimeoutError: FailureKind.UNAVAILABLE,
        sdk.MessagingEntityDisabledError: FailureKind.UNAVAILABLE,
        sdk.ServiceBusAuthenticationError: FailureKind.UNAVAILABLE,  # without a status
        sdk.ServiceBusError: FailureKind.UNAVAILABLE,  # after what it wraps
        sdk.ServiceBusServerBusyError: FailureKind.BUSY,
        sdk.ServiceBusAuthorizationError: FailureKind.CALLER,
        sdk.ServiceBusQuotaExceededError: FailureKind.CALLER,
        sdk.MessageSizeExceededError: FailureKind.CALLER,
        sdk.MessagingEntityNotFoundError: FailureKind.CALLER,
        sdk.MessagingEntityAlreadyExistsError: FailureKind.CALLER,
        # Of receivers: a send does not raise them.
        sdk.MessageAlreadySettled: FailureKind.CALLER,
        sdk.MessageLockLostError: FailureKind.CALLER,
        sdk.MessageNotFoundError: FailureKind.CALLER,
        sdk.SessionLockLostError: FailureKind.CALLER,
        sdk.SessionCannotBeLockedError: FailureKind.CALLER,
        sdk.AutoLockRenewFailed: FailureKind.CALLER,
        sdk.AutoLockRenewTimeout: FailureKind.CALLER,
    }
)
"""Every class of azure.servicebus.exceptions."""

CONDITIONS: Mapping[str, FailureKind] = MappingProxyType(
    {
        conditions.NOT_ALLOWED: FailureKind.CALLER,
        conditions.ARGUMENT_ERROR: FailureKind.CALLER,
        conditions.ARGUMENT_OUT_OF_RANGE: FailureKind.CALLER,
        conditions.NOT_IMPLEMENTED: FailureKind.CALLER,
        conditions.DECODE_ERROR: FailureKind.CALLER,
        conditions.INVALID_FIELD: FailureKind.CALLER,
        conditions.PRECONDITION_FAILED: FailureKind.CALLER,
        conditions.SERVICE_PRECONDITION_FAILED: FailureKind.CALLER,
        conditions.RESOURCE_DELETED: FailureKind.CALLER,
        conditions.INTERNAL_ERROR: FailureKind.UNAVAILABLE,
        conditions.CONNECTION_FORCED: FailureKind.UNAVAILABLE,
        conditions.DETACH_FORCED: FailureKind.UNAVAILABLE,
        conditions.SDK_UNKNOWN_ERROR: FailureKind.UNKNOWN,
        # These have classes of their own, but where a connection is closed with them while it
        # opens, the SDK raises ServiceBusConnectionError all the same.
        conditions.UNAUTHORIZED_ACCESS: FailureKind.CALLER,
        conditions.AUTH_FAILED: FailureKind.CALLER,
        conditions.RESOURCE_LIMIT_EXCEEDED: FailureKind.CALLER,
        conditions.SERVER_BUSY: FailureKind.BUSY,
    }
)
"""The conditions that decide. `amqp:not-found` is not among them: a connection closed with it is a
namespace that is gone, a ServiceBusCommunicationError."""

QUEUE_CLASSES = (
    sdk.ServiceBusQuotaExceededError,
    sdk.MessagingEntityNotFoundError,
    sdk.ServiceBusAuthorizationError,
)
"""The classes of kind CALLER that are about the entity, whatever the message."""

QUEUE_CONDITIONS = frozenset(
    {
        conditions.RESOURCE_LIMIT_EXCEEDED,
        conditions.RESOURCE_DELETED,
        conditions.UNAUTHORIZED_ACCESS,
        conditions.AUTH_FAILED,
    }
)
"""The conditions of kind CALLER that are about the entity, whatever the message."""

NOT_ENCODABLE = (TypeError, ValueError, KeyError, struct.error, RecursionError)
"""What the SDK's encoder raises for a message; a RecursionError for one that contains itself."""

HIDDEN = conditions.SDK_CLIENT_ERROR
"""On a plain ServiceBusError: the SDK's own word, for a management link that was refused or closed.
The service's reason is lost."""

MANAGEMENT_LINK_LOST = "Management Operation error occurred."
"""The text of a ValueError, all that is left of a link or connection that ended in mid-request. No
type or field tells it from a value that cannot be encoded."""


def classify_failure(error: BaseException) -> FailureKind:
    """What a failed call means. Never raises; an error of nobody's that we know is the caller's.

    Causes are followed, contexts are not: an application that sends while it handles an error of
    its own must not have that one judged.
    """
    for cause in _causes(error):
        if _is_token_failure(cause):
            return _kind_of_status(_number(cause, "status_code"))
    if isinstance(error, sdk.ServiceBusError):
        decided = CONDITIONS.get(_condition_of(error))
        return _kind_of_class(error) if decided is None else decided
    if isinstance(error, OSError | AzureError):  # TimeoutError and a bad certificate are OSErrors
        return FailureKind.UNAVAILABLE
    return FailureKind.CALLER


def backlog_failure_of(
    error: BaseException, kind: FailureKind, *, link_open: bool
) -> BacklogFailure:
    """Return the meaning of a failed send to a backlog queue; `kind` is what `classify` returned.

    On the primary the kind is enough: a full queue and a bad message both go back to the caller.
    Here there are other queues to try, so the fault of a queue and that of a message differ. While
    the link is not open yet, no message was offered and none can be at fault.
    """
    if kind is FailureKind.BUSY:
        return BacklogFailure.BUSY
    if kind is FailureKind.UNAVAILABLE or not link_open:
        return BacklogFailure.QUEUE_UNAVAILABLE
    if kind is FailureKind.UNKNOWN:
        return BacklogFailure.LINK_LOST
    if _is_about_entity(error):
        return BacklogFailure.QUEUE_UNAVAILABLE
    return BacklogFailure.MESSAGE_REJECTED


def _is_about_entity(error: BaseException) -> bool:
    """Return whether an error of kind CALLER would meet any other message, too."""
    if any(_is_token_failure(cause) for cause in _causes(error)):
        return True
    if not isinstance(error, sdk.ServiceBusError):
        return False
    return isinstance(error, QUEUE_CLASSES) or _condition_of(error) in QUEUE_CONDITIONS


def _kind_of_class(error: sdk.ServiceBusError) -> FailureKind:
    known = next(one for one in type(error).__mro__ if one in CLASSES)
    return _kind_of_plain(error) if known is sdk.ServiceBusError else CLASSES[known]


def _kind_of_plain(error: sdk.ServiceBusError) -> FailureKind:
    inner = error.inner_exception
    if _condition_of(error) == HIDDEN or _is_lost_management_link(inner):
        return FailureKind.UNKNOWN
    if isinstance(inner, NOT_ENCODABLE) and not isinstance(inner, OSError):
        return FailureKind.CALLER
    status = _number(error, "_status_code")
    if inner is None and status is not None:
        return _kind_of_status(status)
    return CLASSES[sdk.ServiceBusError]


def _kind_of_status(status: int | None) -> FailureKind:
    """Of a token or a management request. None: there was no answer."""
    match status:
        case 408:
            return FailureKind.UNAVAILABLE
        case 429:
            return FailureKind.BUSY
        case int() if 400 <= status < 500:
            return FailureKind.CALLER
        case _:
            return FailureKind.UNAVAILABLE


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it says that it comes from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        # Not `exc_value`: that is whatever was being handled, the application's error too.
        waiting += [one.__cause__, one.inner_exception if isinstance(one, AzureError) else None]


def _is_token_failure(error: BaseException) -> bool:
    """The SDK's private TokenAuthFailure, and HttpResponseError from a credential: both have a
    status."""
    return hasattr(error, "status_code")


def _number(error: BaseException, field: str) -> int | None:
    """CBS puts None or an AMQP condition there where the service gave no status."""
    value = getattr(error, field, None)
    return value if isinstance(value, int) else None


def _condition_of(error: sdk.ServiceBusError) -> str:
    condition = getattr(error, "_condition", None)
    return condition.decode(errors="replace") if isinstance(condition, bytes) else str(condition)


def _is_lost_management_link(error: BaseException | None) -> bool:
    return type(error) is ValueError and error.args == (MANAGEMENT_LINK_LOST,)
