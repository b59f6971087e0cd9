"""Translation of AMQP error conditions and response statuses to errors of `pairbus.errors`."""

from pairbus.amqp.violations import LinkError, SessionError
from pairbus.errors import (
    AmqpError,
    Busy,
    ConnectionLost,
    EntityDisabled,
    EntityExists,
    EntityNotFound,
    LinkLost,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    NotAuthorized,
    OperationTimeout,
    ProtocolError,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from pairbus.servicebus import conditions

BY_CONDITION: dict[str, type[AmqpError]] = {
    conditions.NOT_FOUND: EntityNotFound,
    conditions.UNAUTHORIZED_ACCESS: NotAuthorized,
    conditions.RESOURCE_LIMIT_EXCEEDED: QuotaExceeded,
    conditions.MESSAGE_SIZE_EXCEEDED: MessageTooLarge,
    conditions.DETACH_FORCED: LinkLost,
    conditions.LINK_STOLEN: LinkLost,
    conditions.CONNECTION_FORCED: ConnectionLost,
    conditions.INTERNAL_ERROR: Unavailable,
    conditions.NOT_ALLOWED: Refused,
    conditions.NOT_IMPLEMENTED: Refused,
    conditions.DECODE_ERROR: Refused,
    conditions.INVALID_FIELD: Refused,
    conditions.PRECONDITION_FAILED: Refused,
    conditions.ARGUMENT_ERROR: Refused,
    conditions.ARGUMENT_OUT_OF_RANGE: Refused,
    conditions.SERVICE_PRECONDITION_FAILED: Refused,
    conditions.ENTITY_ALREADY_EXISTS: EntityExists,
    conditions.AUTH_FAILED: NotAuthorized,
    conditions.ENTITY_DISABLED: EntityDisabled,
    conditions.MESSAGE_LOCK_LOST: LockLost,
    conditions.SESSION_LOCK_LOST: LockLost,
    conditions.SESSION_CANNOT_BE_LOCKED: LockLost,
    conditions.MESSAGE_NOT_FOUND: MessageNotFound,
    conditions.SERVER_BUSY: Busy,
    conditions.TIMEOUT: OperationTimeout,
}

_BY_STATUS: dict[int, type[AmqpError]] = {
    401: NotAuthorized,
    403: NotAuthorized,
    404: EntityNotFound,
    408: OperationTimeout,
    410: LockLost,
    429: Busy,
    503: Unavailable,
}


def translate_error(
    error: AmqpError | None, failure: str, *, link: bool = False, connection: bool = False
) -> AmqpError:
    """Return the error for an error of the peer. Its message starts with `failure`.

    None means that the peer detached the link or closed the connection without an error. An unknown
    condition becomes Unavailable, which can be retried.
    """
    if error is None:
        return LinkLost(failure) if link else ConnectionLost(failure)
    if isinstance(error, LinkError | SessionError):
        # Our engine raised it. It refers to the link, so it cannot be pickled for the Spark driver.
        return ProtocolError(f"{failure}: {error.description}", condition=error.condition)
    if type(error) is not AmqpError:  # Our engine raised it, or it is already translated.
        return error
    error_type = BY_CONDITION.get(error.condition, Unavailable)
    if connection and error_type is QuotaExceeded:
        error_type = ConnectionLost  # An idle timeout or too many connections, not a full queue.
    return error_type(
        f"{failure}: {error.description or error.condition}",
        condition=error.condition,
        info=error.info,
    )


def error_from_status(
    status: int, description: str, condition: str | None, failure: str
) -> AmqpError:
    """Return the error for a response of `$cbs` or `$management` that is not a success."""
    if condition is not None and condition in BY_CONDITION:
        error_type = BY_CONDITION[condition]
    else:
        error_type = _BY_STATUS.get(status, Unavailable if status >= 500 else Refused)
    return error_type(
        f"{failure}: {description or 'no description'} (status {status})", condition=condition
    )
