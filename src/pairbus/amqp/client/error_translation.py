"""From what a namespace says to an error of our tree: the one place that looks at conditions."""

from pairbus.amqp.violations import LinkError, SessionError
from pairbus.errors import (
    AmqpError,
    Busy,
    ConnectionLost,
    EntityDisabled,
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

BY_CONDITION: dict[str, type[AmqpError]] = {
    "amqp:not-found": EntityNotFound,
    "amqp:unauthorized-access": NotAuthorized,
    "amqp:resource-limit-exceeded": QuotaExceeded,
    "amqp:link:message-size-exceeded": MessageTooLarge,
    "amqp:link:detach-forced": LinkLost,
    "amqp:link:stolen": LinkLost,
    "amqp:connection:forced": ConnectionLost,
    "amqp:internal-error": Unavailable,
    "amqp:not-allowed": Refused,
    "amqp:not-implemented": Refused,
    "amqp:decode-error": Refused,
    "amqp:invalid-field": Refused,
    "amqp:precondition-failed": Refused,
    "com.microsoft:argument-error": Refused,
    "com.microsoft:argument-out-of-range": Refused,
    "com.microsoft:precondition-failed": Refused,
    "com.microsoft:entity-already-exists": Refused,
    "com.microsoft:auth-failed": NotAuthorized,
    "com.microsoft:entity-disabled": EntityDisabled,
    "com.microsoft:message-lock-lost": LockLost,
    "com.microsoft:session-lock-lost": LockLost,
    "com.microsoft:session-cannot-be-locked": LockLost,
    "com.microsoft:message-not-found": MessageNotFound,
    "com.microsoft:server-busy": Busy,
    "com.microsoft:timeout": OperationTimeout,
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
