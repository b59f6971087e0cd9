"""Error conditions of AMQP 1.0 and of Service Bus.

The conditions that an error class of `pairbus.errors` has by default are spelled there, because
`errors` is below this package.
"""

from typing import Final

from pairbus.errors import (
    AmqpError,
    Busy,
    ConnectionLost,
    DecodeError,
    EntityDisabled,
    EntityExists,
    EntityNotFound,
    LinkLost,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    NotAuthorized,
    OperationTimeout,
    QuotaExceeded,
    Refused,
)

# AMQP 1.0, part 2, section 2.8.15 and following.
INTERNAL_ERROR: Final = AmqpError.default_condition
NOT_FOUND: Final = EntityNotFound.default_condition
UNAUTHORIZED_ACCESS: Final = NotAuthorized.default_condition
DECODE_ERROR: Final = DecodeError.default_condition
RESOURCE_LIMIT_EXCEEDED: Final = QuotaExceeded.default_condition
NOT_ALLOWED: Final = Refused.default_condition
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"

CONNECTION_FORCED: Final = ConnectionLost.default_condition
FRAMING_ERROR: Final = "amqp:connection:framing-error"

WINDOW_VIOLATION: Final = "amqp:session:window-violation"
ERRANT_LINK: Final = "amqp:session:errant-link"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"

DETACH_FORCED: Final = LinkLost.default_condition
LINK_STOLEN: Final = "amqp:link:stolen"
MESSAGE_SIZE_EXCEEDED: Final = MessageTooLarge.default_condition
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"

# Service Bus.
ARGUMENT_ERROR: Final = "com.microsoft:argument-error"
ARGUMENT_OUT_OF_RANGE: Final = "com.microsoft:argument-out-of-range"
AUTH_FAILED: Final = "com.microsoft:auth-failed"
ENTITY_ALREADY_EXISTS: Final = EntityExists.default_condition
ENTITY_DISABLED: Final = EntityDisabled.default_condition
MESSAGE_LOCK_LOST: Final = LockLost.default_condition
MESSAGE_NOT_FOUND: Final = MessageNotFound.default_condition
SERVER_BUSY: Final = Busy.default_condition
SERVICE_PRECONDITION_FAILED: Final = "com.microsoft:precondition-failed"
SESSION_CANNOT_BE_LOCKED: Final = "com.microsoft:session-cannot-be-locked"
SESSION_LOCK_LOST: Final = "com.microsoft:session-lock-lost"
TIMEOUT: Final = OperationTimeout.default_condition

# Made up by the Azure SDK; no service sends them.
SDK_UNKNOWN_ERROR: Final = "amqp:unknown-error"
SDK_CLIENT_ERROR: Final = "amqp:client-error"
SDK_SOCKET_ERROR: Final = "amqp:socket-error"
