"""Every error that pairbus raises, in one tree.

    PairbusError
    ├── ConfigurationError (ValueError)   a wrong option, address or connection string
    │   ├── OptionsMissing                pairing was asked for without options
    │   ├── SecondaryMissing              the options name no secondary
    │   ├── SameNamespace                 primary and secondary are one namespace
    │   ├── AlreadyPaired                 this client is paired
    │   ├── SecondaryIsPrimary            the secondary is the primary of another pairing
    │   ├── SecondaryInUse                the secondary serves another primary
    │   └── ReservedProperty              a message uses a property name that the backlog needs
    ├── EncodeError (ValueError)          a value that AMQP cannot carry; nothing was sent
    ├── StateError (RuntimeError)         a call that makes no sense now: closed, or no credit
    │   ├── PairingFaulted                the pairing was given up; the cause says why
    │   └── CannotCancel                  a message that was scheduled into the backlog
    ├── NotTransferable (ValueError)      a message in the backlog that cannot be turned back
    ├── BacklogUnavailable                no backlog queue can be had: nothing is paired
    ├── SendUnavailable                   neither the primary nor the backlog took the message
    │   └── PartlyStored                  the backlog took some of a batch; says which
    ├── MessageTooLargeForBacklog (ValueError)   it fits the primary, but not the backlog
    └── AmqpError                         what one peer says to another: condition, description,
    info
        ├── ProtocolError                 a peer broke the protocol
        │   └── DecodeError               bytes that are not AMQP
        ├── Unavailable                   try again: nothing is known to be wrong with the request
        │   ├── ConnectionLost            refused, reset, closed, or TLS failed
        │   ├── OperationTimeout          no answer in time (also a TimeoutError)
        │   ├── LinkLost                  a link or session was taken away, or never given
        │   └── EntityDisabled            the entity is switched off for this
        ├── Busy                          throttled: try again, later and slower
        └── Refused                       the same request would be refused again
            ├── NotAuthorized             no right to do this, or a token that is not valid
            ├── EntityNotFound            no queue, topic or subscription of this name
            ├── EntityExists              an entity of this name exists already
            ├── MessageTooLarge           larger than the link takes
            ├── QuotaExceeded             the entity is full
            ├── LockLost                  the lock of a message or session has expired
            └── MessageNotFound           no such message, or not in a state to be taken

Whether to try again is a type: `Unavailable` and `Busy` may pass, `Refused` will not by itself.
An `AmqpError` is also what the engine writes into the error field of detach, end and close.
"""

from collections.abc import Mapping
from typing import Any


class PairbusError(Exception):
    """The root of the tree."""


class ConfigurationError(PairbusError, ValueError):
    """An option, an address or a connection string is wrong. Says which, and what would be
    right."""


class EncodeError(PairbusError, ValueError):
    """A value has no AMQP encoding, or exceeds a limit. Raised before anything is sent."""


class StateError(PairbusError, RuntimeError):
    """A call that the present state does not allow: something is closed, or there is no credit."""


class OptionsMissing(ConfigurationError):
    """`pair_namespace` needs options."""


class SecondaryMissing(ConfigurationError):
    """The options name no secondary namespace."""


class SameNamespace(ConfigurationError):
    """Primary and secondary are the same host and port: one outage would take both."""


class AlreadyPaired(ConfigurationError):
    """This client is paired. Close that pairing first, or use another client."""


class SecondaryIsPrimary(ConfigurationError):
    """The secondary is itself the primary of a pairing of this process."""


class SecondaryInUse(ConfigurationError):
    """The secondary serves another primary in this process."""


class ReservedProperty(ConfigurationError):
    """A message has an application property of a name that the backlog needs for itself. It is
    refused when it is first sent, so that nobody learns of it in an outage. Nothing was sent."""


class PairingFaulted(StateError):
    """The pairing was given up, and every call says so; `__cause__` is why."""


class CannotCancel(StateError):
    """A message that was scheduled in failover is in the backlog, where no sequence number of the
    primary can reach it."""


class NotTransferable(PairbusError, ValueError):
    """A message in the backlog that says not, or not rightly, where it is to go. `reason` is a
    short word for a dead letter."""

    def __init__(self, description: str, *, reason: str = "") -> None:
        super().__init__(description)
        self.reason = reason


class BacklogUnavailable(PairbusError):
    """There is no backlog queue and none could be made, so nothing is paired."""


class SendUnavailable(PairbusError):
    """Neither the primary nor the backlog took the message: it was not sent.

    `primary_error` is why the path is in failover, `backlog_error` why the backlog did not take it;
    either can be None. Both are causes, in the traceback too.
    """

    def __init__(
        self,
        description: str,
        *,
        primary_error: BaseException | None = None,
        backlog_error: BaseException | None = None,
    ) -> None:
        super().__init__(description)
        self.primary_error = primary_error
        self.backlog_error = backlog_error
        causes = [one for one in (primary_error, backlog_error) if isinstance(one, Exception)]
        if causes:
            self.__cause__ = ExceptionGroup("the primary's error and the backlog's", causes)


class PartlyStored(SendUnavailable):
    """Some messages of a batch are in the backlog, the others are nowhere. `stored` and
    `not_stored` are their places in the batch."""

    def __init__(
        self,
        description: str,
        *,
        stored: tuple[int, ...] = (),
        not_stored: tuple[int, ...] = (),
        primary_error: BaseException | None = None,
        backlog_error: BaseException | None = None,
    ) -> None:
        super().__init__(description, primary_error=primary_error, backlog_error=backlog_error)
        self.stored = stored
        self.not_stored = not_stored


class MessageTooLargeForBacklog(PairbusError, ValueError):
    """A message fits the primary, but not the backlog with what it must say there besides. It was
    not sent."""


class AmqpError(PairbusError):
    """An AMQP error: a symbolic condition, a description for people, and a map for programs."""

    default_condition = "amqp:internal-error"

    def __init__(
        self,
        description: str = "",
        *,
        condition: str | None = None,
        info: Mapping[Any, Any] | None = None,
    ) -> None:
        super().__init__(description)
        self.description = description
        self.condition = self.default_condition if condition is None else condition
        self.info: Mapping[Any, Any] = {} if info is None else info

    def __str__(self) -> str:
        return f"{self.description or 'no description'} ({self.condition})"


class ProtocolError(AmqpError):
    """A peer did what AMQP does not allow; the connection, session or link it concerned is
    closed."""

    default_condition = "amqp:not-allowed"


class DecodeError(ProtocolError):
    """Bytes that are not well-formed AMQP, or that exceed a limit of the decoder."""

    default_condition = "amqp:decode-error"


class Unavailable(AmqpError):
    """The other side could not be reached or could not answer. The same request may succeed
    later."""


class ConnectionLost(Unavailable):
    """No connection could be made, or it ended. What was sent and not answered may have arrived."""

    default_condition = "amqp:connection:forced"


class OperationTimeout(Unavailable, TimeoutError):
    """No answer within the given time. The request may have been carried out."""

    default_condition = "com.microsoft:timeout"


class LinkLost(Unavailable):
    """The other side detached the link or ended its session; attaching again may help."""

    default_condition = "amqp:link:detach-forced"


class EntityDisabled(Unavailable):
    """The entity is disabled for this operation."""

    default_condition = "com.microsoft:entity-disabled"


class Busy(AmqpError):
    """The other side throttles. Wait, then send less."""

    default_condition = "com.microsoft:server-busy"


class Refused(AmqpError):
    """The other side understood and said no; the same request would be refused again."""

    default_condition = "amqp:not-allowed"


class NotAuthorized(Refused):
    """A right is missing, or the token or key is not valid."""

    default_condition = "amqp:unauthorized-access"


class EntityNotFound(Refused):
    """There is no entity at this address."""

    default_condition = "amqp:not-found"


class EntityExists(Refused):
    """An entity or rule of this name exists already."""

    default_condition = "com.microsoft:entity-already-exists"


class MessageTooLarge(Refused):
    """The message is larger than the link or the entity takes."""

    default_condition = "amqp:link:message-size-exceeded"


class QuotaExceeded(Refused):
    """The entity is full, or another quota is used up."""

    default_condition = "amqp:resource-limit-exceeded"


class LockLost(Refused):
    """The lock of the message or session has expired or is somebody else's."""

    default_condition = "com.microsoft:message-lock-lost"


class MessageNotFound(Refused):
    """There is no such message, or it cannot be taken in its present state."""

    default_condition = "com.microsoft:message-not-found"
