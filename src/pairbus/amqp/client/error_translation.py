"""Translation of AMQP error conditions and response statuses to errors of `pairbus.errors`."""

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
