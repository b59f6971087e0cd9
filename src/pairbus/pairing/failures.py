"""The meaning of a failed SDK call. All decisions about it are in this module.

The class of the SDK's exception is not sufficient: CBS reports 401 and 503 with the same class; a
rejected message, an internal error and a message that cannot be encoded are all a plain
ServiceBusError. The first of these that applies decides:

1. a token failure among the causes, by its status;
2. the AMQP condition;
3. the class;
4. for ServiceBusError itself: the wrapped exception, then the status of a management response.

The page Failure classification of the documentation has the same rules as a table.
"""

import struct
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType

from azure.core.exceptions import AzureError
from azure.servicebus import exceptions as sdk

from pairbus.options import FailureKind
from pairbus.pairing.sdk import condition_of, management_status_of
from pairbus.servicebus import conditions


class BacklogFailure(Enum):
    """The meaning of a failed send to a backlog queue: the part that is at fault."""

    HOST_UNREACHABLE = "host unreachable"
    """The connection failed before the link was open: no other queue of the host is tried."""
    QUEUE_UNAVAILABLE = "queue unavailable"
    """The queue or its namespace accepts no messages: the queue is pulled from the rotation."""
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
        sdk.ServiceBusAuthenticationError: FailureKind.UNAVAILABLE,  # if it has no status
        sdk.ServiceBusError: FailureKind.UNAVAILABLE,  # if the wrapped exception does not decide
        sdk.ServiceBusServerBusyError: FailureKind.BUSY,
        sdk.ServiceBusAuthorizationError: FailureKind.CALLER,
        sdk.ServiceBusQuotaExceededError: FailureKind.CALLER,
        sdk.MessageSizeExceededError: FailureKind.CALLER,
        sdk.MessagingEntityNotFoundError: FailureKind.CALLER,
        sdk.MessagingEntityAlreadyExistsError: FailureKind.CALLER,
        # Raised by receivers only.
        sdk.MessageAlreadySettled: FailureKind.CALLER,
        sdk.MessageLockLostError: FailureKind.CALLER,
        sdk.MessageNotFoundError: FailureKind.CALLER,
        sdk.SessionLockLostError: FailureKind.CALLER,
        sdk.SessionCannotBeLockedError: FailureKind.CALLER,
        sdk.AutoLockRenewFailed: FailureKind.CALLER,
        sdk.AutoLockRenewTimeout: FailureKind.CALLER,
    }
)
"""The kind of every class of azure.servicebus.exceptions."""

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
        # The SDK has classes for these, but raises ServiceBusConnectionError when the service
        # closes a connection with them while it is being opened.
        conditions.UNAUTHORIZED_ACCESS: FailureKind.CALLER,
        conditions.AUTH_FAILED: FailureKind.CALLER,
        conditions.RESOURCE_LIMIT_EXCEEDED: FailureKind.CALLER,
        conditions.SERVER_BUSY: FailureKind.BUSY,
    }
)
"""The conditions that decide. `amqp:not-found` is not among them: a connection that is closed with
it means a deleted namespace, which the SDK reports as ServiceBusCommunicationError."""

QUEUE_CLASSES = (
    sdk.ServiceBusQuotaExceededError,
    sdk.MessagingEntityNotFoundError,
    sdk.ServiceBusAuthorizationError,
)
"""The classes of kind CALLER that concern the entity and not the message."""

QUEUE_CONDITIONS = frozenset(
    {
        conditions.RESOURCE_LIMIT_EXCEEDED,
        conditions.RESOURCE_DELETED,
        conditions.UNAUTHORIZED_ACCESS,
        conditions.AUTH_FAILED,
    }
)
"""The conditions of kind CALLER that concern the entity and not the message."""

CONNECTION_CLASSES = (
    sdk.ServiceBusConnectionError,
    sdk.ServiceBusCommunicationError,
    sdk.OperationTimeoutError,
    sdk.ServiceBusAuthenticationError,
)
"""The classes of kind UNAVAILABLE that can concern the connection."""

CONNECTION_CONDITIONS = frozenset(
    {
        str(None),  # the SDK or pairbus raised the error, without an answer of the service
        conditions.CONNECTION_FORCED,
        conditions.FRAMING_ERROR,
        conditions.NOT_FOUND,  # of a connection: the namespace was deleted
        conditions.SDK_CLIENT_ERROR,
        conditions.SDK_SOCKET_ERROR,
    }
)
"""The conditions of kind UNAVAILABLE that concern the connection and not an entity."""

NOT_ENCODABLE = (TypeError, ValueError, KeyError, struct.error, RecursionError)
"""The exceptions of the SDK's encoder; RecursionError for a message that contains itself."""

HIDDEN = conditions.SDK_CLIENT_ERROR
"""The condition that the SDK sets on a plain ServiceBusError when a management link was refused or
closed. The reason of the service is lost."""

MANAGEMENT_LINK_LOST = "Management Operation error occurred."
"""The text of the ValueError that the SDK raises when a link or connection ends during a management
request. No type or field distinguishes it from a value that cannot be encoded."""


def classify_failure(error: BaseException) -> FailureKind:
    """Return the meaning of a failed call. An unknown exception counts as the caller's fault.

    Causes are followed, contexts are not: an application may send while it handles an unrelated
    exception.
    """
    for cause in _causes(error):
        if _is_token_failure(cause):
            status = getattr(cause, "status_code", None)
            # CBS sets None or an AMQP condition when the service returned no status.
            return _kind_of_status(status if isinstance(status, int) else None)
    if isinstance(error, sdk.ServiceBusError):
        kind = CONDITIONS.get(condition_of(error))
        return _kind_of_class(error) if kind is None else kind
    if isinstance(error, OSError | AzureError):  # TimeoutError and SSLError are OSErrors
        return FailureKind.UNAVAILABLE
    return FailureKind.CALLER


def backlog_failure_of(
    error: BaseException, kind: FailureKind, *, link_open: bool
) -> BacklogFailure:
    """Return the meaning of a failed send to a backlog queue; `kind` is the result of `classify`.

    For the primary the kind is sufficient: a full queue and a bad message are both reported to the
    caller. For the backlog there are other queues to try, so it matters whether the queue or the
    message is at fault. Before the link is open no message was sent, so none can be at fault.
    """
    if kind is FailureKind.BUSY:
        return BacklogFailure.BUSY
    if not link_open and is_connection_failure(error, kind):
        return BacklogFailure.HOST_UNREACHABLE
    if kind is FailureKind.UNAVAILABLE or not link_open:
        return BacklogFailure.QUEUE_UNAVAILABLE
    if kind is FailureKind.UNKNOWN:
        return BacklogFailure.LINK_LOST
    if _is_about_entity(error):
        return BacklogFailure.QUEUE_UNAVAILABLE
    return BacklogFailure.MESSAGE_REJECTED


def is_connection_failure(error: BaseException, kind: FailureKind) -> bool:
    """Return whether a failed call is about the connection to the host, and not about one entity:
    there was no connection, no answer, or no token."""
    if kind is not FailureKind.UNAVAILABLE:
        return False
    for cause in _causes(error):
        if _is_token_failure(cause):
            return not isinstance(getattr(cause, "status_code", None), int)
    if not isinstance(error, sdk.ServiceBusError):
        return isinstance(error, OSError | AzureError)
    if type(error) is sdk.ServiceBusError:
        return isinstance(error.inner_exception, OSError | AzureError)
    return isinstance(error, CONNECTION_CLASSES) and condition_of(error) in CONNECTION_CONDITIONS


def _is_about_entity(error: BaseException) -> bool:
    """Return whether an error of kind CALLER would occur for any other message too."""
    if any(_is_token_failure(cause) for cause in _causes(error)):
        return True
    if not isinstance(error, sdk.ServiceBusError):
        return False
    return isinstance(error, QUEUE_CLASSES) or condition_of(error) in QUEUE_CONDITIONS


def _kind_of_class(error: sdk.ServiceBusError) -> FailureKind:
    known = next(cls for cls in type(error).__mro__ if cls in CLASSES)
    return _kind_of_plain(error) if known is sdk.ServiceBusError else CLASSES[known]


def _kind_of_plain(error: sdk.ServiceBusError) -> FailureKind:
    inner = error.inner_exception
    if condition_of(error) == HIDDEN or _is_lost_management_link(inner):
        return FailureKind.UNKNOWN
    if isinstance(inner, NOT_ENCODABLE) and not isinstance(inner, OSError):
        return FailureKind.CALLER
    status = management_status_of(error)
    if inner is None and status is not None:
        return _kind_of_status(status)
    return CLASSES[sdk.ServiceBusError]


def _kind_of_status(status: int | None) -> FailureKind:
    """Return the kind for the status of a token or management request; None means no response."""
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
    """Iterate over an exception and its causes."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        cause = pending.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        # Not `exc_value`, which is any exception being handled, the application's included.
        inner = cause.inner_exception if isinstance(cause, AzureError) else None
        pending += [cause.__cause__, inner]


def _is_token_failure(error: BaseException) -> bool:
    """Return whether this is the SDK's private TokenAuthFailure, or an HttpResponseError of a
    credential: both have a status."""
    return hasattr(error, "status_code")


def _is_lost_management_link(error: BaseException | None) -> bool:
    return type(error) is ValueError and error.args == (MANAGEMENT_LINK_LOST,)
