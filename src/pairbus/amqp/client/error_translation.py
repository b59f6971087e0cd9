"""From what a namespace says to an error of our tree: the one place that looks at conditions."""

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
    error: AmqpError | None, otherwise: str, *, link: bool = False, connection: bool = False
) -> AmqpError:
    """The error of our tree for what a peer said. Without an error: it hung up or detached, and
    `otherwise` says what was lost. A condition that is not known may pass: it is Unavailable."""
    if error is None:
        return LinkLost(otherwise) if link else ConnectionLost(otherwise)
    if isinstance(error, LinkError | SessionError):
        # The engine's own. They hold on to what they ended, and could not be sent to the driver.
        return ProtocolError(f"{otherwise}: {error.description}", condition=error.condition)
    if type(error) is not AmqpError:  # our own engine's, or translated already
        return error
    kind = BY_CONDITION.get(error.condition, Unavailable)
    if connection and kind is QuotaExceeded:
        kind = ConnectionLost  # an idle time-out or too many connections, not a full queue
    return kind(
        f"{otherwise}: {error.description or error.condition}",
        condition=error.condition,
        info=error.info,
    )


def error_from_status(status: int, description: str, condition: str | None, what: str) -> AmqpError:
    """The error for a response of `$cbs` or `$management` that is not a success."""
    if condition is not None and condition in BY_CONDITION:
        kind = BY_CONDITION[condition]
    else:
        kind = _BY_STATUS.get(status, Unavailable if status >= 500 else Refused)
    return kind(f"{what}: {description or 'no description'} (status {status})", condition=condition)
