"""The exceptions of the Azure SDK for errors of AMQP (see docs/reference/failures.md)."""

from typing import Any

from azure.servicebus import exceptions as sdk
from azure.servicebus._pyamqp.error import TokenAuthFailure

from pairbus.errors import (
    AmqpError,
    Busy,
    ConnectionLost,
    EntityDisabled,
    EntityNotFound,
    LinkLost,
    MessageNotFound,
    MessageTooLarge,
    NotAuthorized,
    OperationTimeout,
    QuotaExceeded,
)
from pairbus.pairing.failures import HIDDEN, MANAGEMENT_LINK_LOST
from pairbus.servicebus import conditions

REFUSED_TOKEN = "the token for"
"""The beginning of the text of errors of our client for a token that was refused."""
UNAUTHORIZED = 401


def opening_error(error: AmqpError) -> sdk.ServiceBusError:
    """Return the exception of the SDK for a link that could not be opened."""
    text, condition = str(error), error.condition
    if isinstance(error, OperationTimeout | ConnectionLost):
        return sdk.ServiceBusConnectionError(message=text, condition=conditions.SDK_SOCKET_ERROR)
    if isinstance(error, NotAuthorized) and text.startswith(REFUSED_TOKEN):
        refused = TokenAuthFailure(UNAUTHORIZED, text)
        return sdk.ServiceBusAuthenticationError(message=text, error=refused)
    if isinstance(error, EntityNotFound):
        return sdk.MessagingEntityNotFoundError(message=text, condition=condition)
    return _by_condition(error)


def sending_error(error: AmqpError, *, rejected: bool) -> sdk.ServiceBusError:
    """Return the exception of the SDK for a send that failed."""
    if isinstance(error, OperationTimeout):
        return sdk.OperationTimeoutError(message=str(error))
    if not rejected:
        return sdk.ServiceBusConnectionError(
            message=str(error), condition=conditions.SDK_UNKNOWN_ERROR
        )
    return _by_condition(error)


def request_error(error: AmqpError, *, transferred: bool, answered: bool) -> sdk.ServiceBusError:
    """Return the exception of the SDK for a management request that failed. `transferred`: its
    link was open."""
    if isinstance(error, ConnectionLost) and not transferred:
        return opening_error(error)
    if isinstance(error, OperationTimeout):
        return sdk.OperationTimeoutError(message=str(error))
    if not transferred:  # the link was refused
        return sdk.ServiceBusError(str(error), condition=HIDDEN)
    if not answered:
        return sdk.ServiceBusError(str(error), error=ValueError(MANAGEMENT_LINK_LOST))
    return _by_condition(error)


def _by_condition(error: AmqpError) -> sdk.ServiceBusError:
    text, condition = str(error), error.condition
    classes: tuple[tuple[type[AmqpError], Any], ...] = (
        (Busy, sdk.ServiceBusServerBusyError),
        (EntityDisabled, sdk.MessagingEntityDisabledError),
        (NotAuthorized, sdk.ServiceBusAuthorizationError),
        (QuotaExceeded, sdk.ServiceBusQuotaExceededError),
        (MessageTooLarge, sdk.MessageSizeExceededError),
        (EntityNotFound, sdk.MessagingEntityNotFoundError),
        (MessageNotFound, sdk.MessageNotFoundError),
        (LinkLost, sdk.ServiceBusConnectionError),
        (OperationTimeout, sdk.OperationTimeoutError),
    )
    for kind, exception in classes:
        if isinstance(error, kind):
            result: sdk.ServiceBusError = exception(message=text, condition=condition)
            return result
    # A plain error, as for `amqp:internal-error`, which the SDK tries again.
    retryable = condition == conditions.INTERNAL_ERROR
    return sdk.ServiceBusError(text, condition=condition, retryable=retryable)
