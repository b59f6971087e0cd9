"""Every error that pairbus raises, in one tree.

    PairbusError
    ├── ConfigurationError (ValueError)   a wrong option, address or connection string
    │   ├── OptionsMissing                pair_namespace was called without options
    │   ├── SecondaryMissing              the options name no secondary
    │   ├── SameNamespace                 primary and secondary are the same namespace
    │   ├── AlreadyPaired                 the client is already paired
    │   ├── SecondaryIsPrimary            the secondary is the primary of another pairing
    │   ├── SecondaryInUse                the secondary serves another primary
    │   └── ReservedProperty              a message uses a reserved application property name
    ├── EncodeError (ValueError)          a value that AMQP cannot carry; nothing was sent
    ├── StateError (RuntimeError)         a call that is invalid now: closed, or no credit
    │   ├── PairingFaulted                the pairing was faulted; the cause says why
    │   ├── PairingForked                 the pairing was made in the parent of this process
    │   └── CannotCancel                  the message was scheduled into the backlog
    ├── NotTransferable (ValueError)      a backlog message that cannot be restored
    ├── BacklogUnavailable                no backlog queue exists or could be created
    ├── SenderInUse                       other calls used the sender until this call timed out
    ├── SendUnavailable                   no acknowledgement from the primary or the backlog
    │   └── PartlyStored                  the backlog accepted only some messages of a call
    ├── MessageTooLargeForBacklog (ValueError)   it fits the primary, but not the backlog
    └── AmqpError                         an AMQP error: condition, description, info
        ├── ProtocolError                 a peer violated the protocol
        │   └── DecodeError               bytes that are not AMQP
        ├── Unavailable                   retry: the request itself is not known to be wrong
        │   ├── ConnectionLost            refused, reset, closed, or TLS failed
        │   ├── OperationTimeout          no answer in time (also a TimeoutError)
        │   ├── LinkLost                  a link or session was ended, or not granted
        │   └── EntityDisabled            the entity is disabled for this operation
        ├── Busy                          throttled: retry later, at a lower rate
        └── Refused                       the same request would be refused again
            ├── NotAuthorized             a right is missing, or the token is invalid
            ├── EntityNotFound            no queue, topic or subscription of this name
            ├── EntityExists              an entity of this name exists already
            ├── MessageTooLarge           larger than the link allows
            ├── QuotaExceeded             the entity is full
            ├── LockLost                  the lock of a message or session has expired
            └── MessageNotFound           no such message, or not in a state to be received

The type tells whether to retry: `Unavailable` and `Busy` may pass, `Refused` does not pass by
itself. An `AmqpError` is also the value of the error field of detach, end and close.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

__all__ = [
    "AlreadyPaired",
    "AmqpError",
    "BacklogUnavailable",
    "Busy",
    "CannotCancel",
    "ConfigurationError",
    "ConnectionLost",
    "DecodeError",
    "EncodeError",
    "EntityDisabled",
    "EntityNotFound",
    "LinkLost",
    "LockLost",
    "MessageNotFound",
    "MessageOutcome",
    "MessageTooLarge",
    "MessageTooLargeForBacklog",
    "NotAuthorized",
    "NotTransferable",
    "OperationTimeout",
    "OptionsMissing",
    "PairbusError",
    "PairingFaulted",
    "PairingForked",
    "PartlyStored",
    "ProtocolError",
    "QuotaExceeded",
    "Refused",
    "ReservedProperty",
    "SameNamespace",
    "SecondaryInUse",
    "SecondaryIsPrimary",
    "SecondaryMissing",
    "SendOutcome",
    "SendUnavailable",
    "SenderInUse",
    "StateError",
    "Unavailable",
]


class PairbusError(Exception):
    """The base class of all errors of pairbus."""


class ConfigurationError(PairbusError, ValueError):
    """An option, an address or a connection string is wrong. The message names it and says what
    is valid."""


class EncodeError(PairbusError, ValueError):
    """A value has no AMQP encoding or exceeds a limit. Raised before anything is sent."""


class StateError(PairbusError, RuntimeError):
    """The call is invalid in the current state: an object is closed, or there is no credit."""


class OptionsMissing(ConfigurationError):
    """`pair_namespace` was called without options."""


class SecondaryMissing(ConfigurationError):
    """The options name no secondary namespace."""


class SameNamespace(ConfigurationError):
    """Primary and secondary have the same host and port: one outage would affect both."""


class AlreadyPaired(ConfigurationError):
    """The client is already paired. Close that pairing first, or use another client."""


class SecondaryIsPrimary(ConfigurationError):
    """The secondary is itself the primary of a pairing of this process."""


class SecondaryInUse(ConfigurationError):
    """The secondary serves another primary in this process."""


class ReservedProperty(ConfigurationError):
    """An application property of a message has a name that is reserved for the backlog. Nothing
    was sent. Raised while the primary is healthy too, so that the mistake is found before an
    outage."""


class PairingFaulted(StateError):
    """The pairing was faulted; `__cause__` says why. Every later call raises this error."""


class PairingForked(StateError):
    """The pairing was made before this process was forked, so it belongs to the process with the
    id `pid`. Every call in this process raises this error. Pair in each worker process."""

    def __init__(self, description: str, *, pid: int = 0) -> None:
        super().__init__(description)
        self.pid = pid


class CannotCancel(StateError):
    """The message was scheduled in failover and is in the backlog. It has no sequence number in
    the primary, so it cannot be cancelled."""


class NotTransferable(PairbusError, ValueError):
    """The destination of a backlog message is missing or invalid. `reason` is a short code for the
    dead-letter reason."""

    def __init__(self, description: str, *, reason: str = "") -> None:
        super().__init__(description)
        self.reason = reason


class BacklogUnavailable(PairbusError):
    """No backlog queue exists and none could be created, so the namespaces are not paired."""


class SenderInUse(PairbusError):
    """Other calls used the sender until this call timed out. It says nothing about the namespaces,
    so it does not lead to failover. Use one sender for each thread or task, or a longer timeout."""


class SendOutcome(Enum):
    """The result of a failed call for one of its messages."""

    STORED = "stored"
    """A backlog queue accepted the message. Do not send it again."""
    NOT_SENT = "not sent"
    """The message is in no queue: it was not transferred, or the service rejected it."""
    UNKNOWN = "unknown"
    """The message was transferred, but no answer came. It may be in the primary or in the backlog.
    Send it again with the same message id, so that duplicate detection removes one of two copies.
    """


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """The outcome of one message of a failed call."""

    position: int
    """The position of the message in the list or batch; 0 for a single message."""
    message_id: str | int | UUID | bytes | None
    """The message id that was sent. If the message had none, the paired sender assigned it. None
    only in a batch that the paired sender did not create."""
    outcome: SendOutcome


class SendUnavailable(PairbusError):
    """Neither the primary nor the backlog acknowledged the messages of a call.

    This does not mean that nothing was sent: `messages` has the outcome of each message. A message
    was not sent, or its answer was lost and it may have been stored; send it again with the same
    message id then. `messages` is empty if the call sends none, such as cancelling.

    `primary_error` is the reason for the failover of the path, `backlog_error` the reason why the
    backlog did not acknowledge the messages; either may be None. Both are in `__cause__`.
    """

    def __init__(
        self,
        description: str,
        *,
        messages: tuple[MessageOutcome, ...] = (),
        primary_error: BaseException | None = None,
        backlog_error: BaseException | None = None,
    ) -> None:
        super().__init__(description)
        self.messages = messages
        self.primary_error = primary_error
        self.backlog_error = backlog_error
        causes = [error for error in (primary_error, backlog_error) if isinstance(error, Exception)]
        if causes:
            self.__cause__ = ExceptionGroup("errors of the primary and of the backlog", causes)

    @property
    def stored(self) -> tuple[int, ...]:
        """The positions of the messages that are in the backlog."""
        return self._positions(SendOutcome.STORED)

    @property
    def not_sent(self) -> tuple[int, ...]:
        """The positions of the messages that are in no queue."""
        return self._positions(SendOutcome.NOT_SENT)

    @property
    def unknown(self) -> tuple[int, ...]:
        """The positions of the messages that may have been stored."""
        return self._positions(SendOutcome.UNKNOWN)

    def _positions(self, outcome: SendOutcome) -> tuple[int, ...]:
        return tuple(each.position for each in self.messages if each.outcome is outcome)


class PartlyStored(SendUnavailable):
    """The backlog accepted some messages of a call, at least one. The others were not sent, or may
    have been stored: `messages` has the outcome of each."""


class MessageTooLargeForBacklog(PairbusError, ValueError):
    """A message fits the primary, but not the backlog, where it carries additional properties. No
    message of the call was sent; otherwise it is the `backlog_error` of SendUnavailable."""


class AmqpError(PairbusError):
    """An AMQP error: a symbolic condition, a description, and a map of further information."""

    default_condition = "amqp:internal-error"

    def __init__(
        self,
        description: str = "",
        *,
        condition: str | None = None,
        info: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(description)
        self.description = description
        self.condition = self.default_condition if condition is None else condition
        self.info: Mapping[str, object] = {} if info is None else info

    def __str__(self) -> str:
        return f"{self.description or 'no description'} ({self.condition})"


class ProtocolError(AmqpError):
    """A peer violated AMQP. The connection, session or link concerned is closed."""

    default_condition = "amqp:not-allowed"


class DecodeError(ProtocolError):
    """Bytes are not well-formed AMQP, or exceed a limit of the decoder."""

    default_condition = "amqp:decode-error"


class Unavailable(AmqpError):
    """The peer could not be reached or could not answer. The same request may succeed later."""


class ConnectionLost(Unavailable):
    """The connection failed or ended. A request without an answer may have been carried out."""

    default_condition = "amqp:connection:forced"


class OperationTimeout(Unavailable, TimeoutError):
    """There was no answer within the timeout. The request may have been carried out."""

    default_condition = "com.microsoft:timeout"


class LinkLost(Unavailable):
    """The peer detached the link or ended its session. Attaching again may help."""

    default_condition = "amqp:link:detach-forced"


class EntityDisabled(Unavailable):
    """The entity is disabled for this operation."""

    default_condition = "com.microsoft:entity-disabled"


class Busy(AmqpError):
    """The peer throttles. Wait, and then send at a lower rate."""

    default_condition = "com.microsoft:server-busy"


class Refused(AmqpError):
    """The peer refused the request, and would refuse the same request again."""

    default_condition = "amqp:not-allowed"


class NotAuthorized(Refused):
    """A right is missing, or the token or key is invalid."""

    default_condition = "amqp:unauthorized-access"


class EntityNotFound(Refused):
    """No entity exists at this address."""

    default_condition = "amqp:not-found"


class EntityExists(Refused):
    """An entity or rule of this name exists already."""

    default_condition = "com.microsoft:entity-already-exists"


class MessageTooLarge(Refused):
    """The message is larger than the link or the entity allows."""

    default_condition = "amqp:link:message-size-exceeded"


class QuotaExceeded(Refused):
    """The entity is full, or another quota is exhausted."""

    default_condition = "amqp:resource-limit-exceeded"


class LockLost(Refused):
    """The lock of the message or session has expired, or another receiver holds it."""

    default_condition = "com.microsoft:message-lock-lost"


class MessageNotFound(Refused):
    """The message does not exist, or cannot be received in its current state."""

    default_condition = "com.microsoft:message-not-found"
