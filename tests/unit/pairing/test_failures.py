"""The meaning of failed SDK calls, and pins of the SDK details that it depends on."""

import inspect
import logging
import socket
import ssl
import struct
from types import SimpleNamespace

import pytest
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseTimeoutError,
)
from azure.servicebus import exceptions as sdk
from azure.servicebus._common import constants
from azure.servicebus._pyamqp import management_operation
from azure.servicebus._pyamqp.aio import _management_operation_async
from azure.servicebus._pyamqp.error import (
    AMQPConnectionError,
    AMQPLinkError,
    AuthenticationException,
    ErrorCondition,
    MessageSendFailed,
    TokenAuthFailure,
    TokenExpired,
)
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from pairbus.errors import OperationTimeout
from pairbus.options import FailureKind
from pairbus.pairing.effects import timed_out
from pairbus.pairing.failures import (
    CLASSES,
    CONDITIONS,
    HIDDEN,
    MANAGEMENT_LINK_LOST,
    NOT_ENCODABLE,
    BacklogFailure,
    backlog_failure_of,
    classify_failure,
)

LOGGER = logging.getLogger(__name__)


def raised_by_sdk(original: Exception, **options: str) -> sdk.ServiceBusError:
    """Return the exception that the SDK creates from an error of its AMQP client."""
    return PyamqpTransport.create_servicebus_exception(LOGGER, original, **options)


def answered(status: int, condition: bytes | None = None) -> sdk.ServiceBusError:
    """Return the exception that the SDK creates from a management response."""
    with pytest.raises(sdk.ServiceBusError) as caught:
        PyamqpTransport.handle_amqp_mgmt_error(LOGGER, "It failed.", condition, None, status)
    return caught.value


def from_http(status: int | None, kind: type[HttpResponseError] = HttpResponseError) -> AzureError:
    error = kind("no token")
    error.status_code = status
    return error


def make_error(kind: type[Exception]) -> Exception:
    """Return an error of a class of the SDK, without condition and cause."""
    takes_message = "message" in inspect.signature(kind).parameters
    return kind("x") if takes_message else kind()


# The class.

SDK_CLASSES = {
    value
    for value in vars(sdk).values()
    if inspect.isclass(value) and value.__module__ == sdk.__name__
}


@pytest.mark.rule("S2")
def test_every_class_of_the_sdk_has_a_kind():
    missing = {cls.__name__ for cls in SDK_CLASSES - CLASSES.keys()}
    assert not missing, f"the SDK has new exceptions {missing}: add them to CLASSES"
    removed = {cls.__name__ for cls in CLASSES.keys() - SDK_CLASSES}
    assert not removed, f"the SDK has no exceptions {removed}: remove them from CLASSES"
    assert len(SDK_CLASSES) >= 19


@pytest.mark.rule("S2")
@pytest.mark.parametrize("cls", sorted(CLASSES, key=lambda cls: cls.__name__))
def test_class_decides_about_a_plain_error(cls: type[Exception]):
    assert classify_failure(make_error(cls)) is CLASSES[cls]


@pytest.mark.rule("S2")
@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        (sdk.ServiceBusConnectionError, FailureKind.UNAVAILABLE),
        (sdk.ServiceBusCommunicationError, FailureKind.UNAVAILABLE),
        (sdk.OperationTimeoutError, FailureKind.UNAVAILABLE),
        (sdk.MessagingEntityDisabledError, FailureKind.UNAVAILABLE),
        (sdk.ServiceBusServerBusyError, FailureKind.BUSY),
        (sdk.MessagingEntityNotFoundError, FailureKind.CALLER),
        (sdk.ServiceBusAuthorizationError, FailureKind.CALLER),
        (sdk.ServiceBusQuotaExceededError, FailureKind.CALLER),
        (sdk.MessageSizeExceededError, FailureKind.CALLER),
    ],
)
def test_classes_that_a_send_raises_have_the_documented_kinds(
    cls: type[Exception], kind: FailureKind
):
    assert CLASSES[cls] is kind


def test_derived_class_has_the_kind_of_its_base():
    class Mine(sdk.ServiceBusServerBusyError):
        pass

    class Plain(sdk.ServiceBusError):
        pass

    assert classify_failure(Mine()) is FailureKind.BUSY
    assert classify_failure(Plain("x")) is FailureKind.UNAVAILABLE
    assert classify_failure(Plain("x", error=TypeError())) is FailureKind.CALLER


# The condition.


@pytest.mark.rule("S2")
@pytest.mark.parametrize(("condition", "kind"), CONDITIONS.items())
@pytest.mark.parametrize("form", [str, str.encode])
def test_condition_decides_before_the_class(condition: str, kind: FailureKind, form):
    for cls in (sdk.ServiceBusConnectionError, sdk.ServiceBusServerBusyError):
        assert classify_failure(cls(condition=form(condition))) is kind
    assert classify_failure(sdk.ServiceBusError("x", condition=form(condition))) is kind


@pytest.mark.parametrize("condition", ErrorCondition)
def test_every_amqp_condition_has_a_kind_in_every_form(condition: ErrorCondition):
    error = sdk.ServiceBusError("x")
    kinds = set()
    for form in (condition, condition.value, condition.value.decode()):
        error._condition = form
        kinds.add(classify_failure(error))
    assert len(kinds) == 1


@pytest.mark.rule("S2")
@pytest.mark.parametrize(
    "name",
    [
        "not-allowed",
        "argument-error",
        "argument-out-of-range",
        "not-implemented",
        "decode-error",
        "invalid-field",
        "precondition-failed",
    ],
)
def test_documented_conditions_are_of_kind_caller(name: str):
    conditions = [text for text in CONDITIONS if text.partition(":")[2] == name]
    assert conditions
    assert {CONDITIONS[text] for text in conditions} == {FailureKind.CALLER}


def test_conditions_are_spelled_as_in_the_sdk():
    known = {condition.value for condition in ErrorCondition}
    known |= {value for name, value in vars(constants).items() if name.startswith("ERROR_CODE_")}
    unknown = {text for text in (*CONDITIONS, HIDDEN) if text.encode() not in known}
    assert not unknown, f"the SDK does not define the conditions {unknown}"


@pytest.mark.rule("S2")
def test_link_that_ends_during_a_send_is_of_unknown_kind():
    error = raised_by_sdk(MessageSendFailed(ErrorCondition.UnknownError))
    assert type(error) is sdk.ServiceBusConnectionError
    assert classify_failure(error) is FailureKind.UNKNOWN


def test_refused_management_link_is_of_unknown_kind():
    error = raised_by_sdk(AMQPLinkError(ErrorCondition.ClientError, description="not opened"))
    assert type(error) is sdk.ServiceBusError
    assert classify_failure(error) is FailureKind.UNKNOWN


def test_management_link_that_ends_during_a_request_is_of_unknown_kind():
    assert classify_failure(raised_by_sdk(ValueError(MANAGEMENT_LINK_LOST))) is FailureKind.UNKNOWN
    assert classify_failure(raised_by_sdk(ValueError("another value"))) is FailureKind.CALLER


def test_deleted_namespace_is_unavailable_and_deleted_entity_is_of_kind_caller():
    assert (
        classify_failure(raised_by_sdk(AMQPConnectionError(ErrorCondition.NotFound)))
        is FailureKind.UNAVAILABLE
    )
    assert (
        classify_failure(raised_by_sdk(AMQPLinkError(ErrorCondition.NotFound)))
        is FailureKind.CALLER
    )


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        (ErrorCondition.ConnectionCloseForced, FailureKind.UNAVAILABLE),
        (ErrorCondition.SocketError, FailureKind.UNAVAILABLE),
        (ErrorCondition.UnauthorizedAccess, FailureKind.CALLER),
        (ErrorCondition.ResourceLimitExceeded, FailureKind.CALLER),
        (b"com.microsoft:server-busy", FailureKind.BUSY),
    ],
)
def test_condition_decides_about_a_connection_closed_while_it_opens(
    condition: bytes, kind: FailureKind
):
    error = raised_by_sdk(AMQPConnectionError(condition))
    assert type(error) is sdk.ServiceBusConnectionError
    assert classify_failure(error) is kind


# Tokens.

STATUSES = [
    (400, FailureKind.CALLER),
    (401, FailureKind.CALLER),
    (403, FailureKind.CALLER),
    (404, FailureKind.CALLER),
    (408, FailureKind.UNAVAILABLE),
    (429, FailureKind.BUSY),
    (500, FailureKind.UNAVAILABLE),
    (503, FailureKind.UNAVAILABLE),
    (0, FailureKind.UNAVAILABLE),
    (None, FailureKind.UNAVAILABLE),
]


@pytest.mark.rule("S2")
@pytest.mark.parametrize(
    ("status", "kind"), [*STATUSES, (ErrorCondition.ClientError, FailureKind.UNAVAILABLE)]
)
def test_status_decides_about_a_token_refused_by_cbs(status: int | None, kind: FailureKind):
    error = raised_by_sdk(TokenAuthFailure(status, b"said so"))
    assert type(error) is sdk.ServiceBusAuthenticationError
    assert classify_failure(error) is kind


@pytest.mark.rule("S2")
@pytest.mark.parametrize(("status", "kind"), STATUSES)
def test_status_decides_about_a_token_refused_at_a_custom_endpoint(
    status: int | None, kind: FailureKind
):
    failure = TokenAuthFailure(status, b"said so")
    error = raised_by_sdk(failure, custom_endpoint_address="sb://elsewhere")
    assert type(error) is sdk.ServiceBusConnectionError
    assert classify_failure(error) is kind


@pytest.mark.parametrize("cls", [AuthenticationException, TokenExpired])
@pytest.mark.parametrize("condition", [ErrorCondition.InternalError, ErrorCondition.ClientError])
def test_authentication_without_a_response_is_unavailable(
    cls: type[AuthenticationException], condition: ErrorCondition
):
    assert classify_failure(raised_by_sdk(cls(condition))) is FailureKind.UNAVAILABLE


@pytest.mark.rule("S2")
@pytest.mark.parametrize(("status", "kind"), STATUSES)
@pytest.mark.parametrize("cls", [HttpResponseError, ClientAuthenticationError])
def test_status_decides_about_a_credential_without_a_token(
    cls: type[HttpResponseError], status: int | None, kind: FailureKind
):
    failure = from_http(status, cls)
    assert classify_failure(failure) is kind
    assert classify_failure(raised_by_sdk(failure)) is kind


@pytest.mark.parametrize("cls", [ServiceRequestError, ServiceResponseTimeoutError])
def test_credential_that_cannot_reach_its_authority_is_unavailable(cls: type[AzureError]):
    assert classify_failure(cls("no server")) is FailureKind.UNAVAILABLE
    assert classify_failure(raised_by_sdk(cls("no server"))) is FailureKind.UNAVAILABLE


def test_token_failure_is_found_behind_several_errors():
    wrapped = sdk.OperationTimeoutError(message="too late")
    wrapped.__cause__ = raised_by_sdk(TokenAuthFailure(401, b"no"))
    assert classify_failure(wrapped) is FailureKind.CALLER


# Wrapped exceptions.


@pytest.mark.rule("S2")
@pytest.mark.parametrize(
    "original",
    [
        TypeError(),
        ValueError(),
        KeyError(),
        struct.error(),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogate"),
        RecursionError(),
    ],
)
def test_message_that_cannot_be_encoded_is_of_kind_caller(
    original: Exception,
):
    assert isinstance(original, NOT_ENCODABLE)
    assert classify_failure(raised_by_sdk(original)) is FailureKind.CALLER
    assert classify_failure(original) is FailureKind.CALLER


@pytest.mark.parametrize(
    "original",
    [
        TimeoutError(),
        ConnectionResetError(),
        socket.gaierror(),
        ssl.SSLCertVerificationError(),  # also a ValueError
        AttributeError("'NoneType' object has no attribute 'send'"),
        RuntimeError(),
    ],
)
def test_plain_error_around_any_other_exception_is_unavailable(original: Exception):
    assert classify_failure(raised_by_sdk(original)) is FailureKind.UNAVAILABLE


def test_specific_class_decides_before_the_wrapped_exception():
    assert (
        classify_failure(sdk.ServiceBusConnectionError(error=ValueError()))
        is FailureKind.UNAVAILABLE
    )
    assert classify_failure(sdk.ServiceBusServerBusyError(error=TypeError())) is FailureKind.BUSY


@pytest.mark.parametrize(("status", "kind"), [entry for entry in STATUSES if entry[0] is not None])
def test_status_decides_about_a_management_response_without_a_condition(
    status: int, kind: FailureKind
):
    error = answered(status)
    assert type(error) is sdk.ServiceBusError
    assert classify_failure(error) is kind


def test_condition_decides_about_a_management_response():
    assert classify_failure(answered(500, b"amqp:not-implemented")) is FailureKind.CALLER
    assert (
        classify_failure(answered(403, b"com.microsoft:entity-disabled")) is FailureKind.UNAVAILABLE
    )
    assert classify_failure(answered(503, b"com.microsoft:server-busy")) is FailureKind.BUSY


# Errors of other libraries.


@pytest.mark.rule("S2")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), FailureKind.UNAVAILABLE),
        (OperationTimeout("ours"), FailureKind.UNAVAILABLE),
        (ConnectionRefusedError(), FailureKind.UNAVAILABLE),
        (socket.gaierror(), FailureKind.UNAVAILABLE),
        (ssl.SSLCertVerificationError(), FailureKind.UNAVAILABLE),
        (AzureError("x"), FailureKind.UNAVAILABLE),
        (ValueError("The handler has already been shutdown."), FailureKind.CALLER),
        (TypeError(), FailureKind.CALLER),
        (struct.error(), FailureKind.CALLER),
        (ImportError("websocket-client"), FailureKind.CALLER),
        (RuntimeError(), FailureKind.CALLER),
    ],
)
def test_kinds_of_errors_of_other_libraries(error: Exception, kind: FailureKind):
    assert classify_failure(error) is kind


# Ignored exceptions.


def test_context_of_an_error_is_ignored():
    try:
        raise from_http(401)
    except HttpResponseError:
        try:
            raise sdk.ServiceBusConnectionError
        except sdk.ServiceBusConnectionError as exc:
            error = exc

    assert isinstance(error.exc_value, HttpResponseError)
    assert isinstance(error.__context__, HttpResponseError)
    assert classify_failure(error) is FailureKind.UNAVAILABLE


def test_circular_causes_are_handled():
    first, second = sdk.ServiceBusConnectionError(), sdk.ServiceBusServerBusyError()
    first.__cause__, second.__cause__ = second, first
    assert classify_failure(first) is FailureKind.UNAVAILABLE
    assert classify_failure(second) is FailureKind.BUSY


# Pins of private SDK details. Each failure names the code to check.


def test_pin_the_condition_of_an_error():
    error = raised_by_sdk(MessageSendFailed(ErrorCondition.NotAllowed))
    assert getattr(error, "_condition", None) == "amqp:not-allowed", (
        "ServiceBusError no longer keeps the AMQP condition, as text, in _condition: "
        "see failures._condition_of"
    )


def test_pin_the_status_of_a_management_response():
    assert getattr(answered(418), "_status_code", None) == 418, (
        "ServiceBusError no longer keeps the status of a management response in _status_code: "
        "see failures._kind_of_plain"
    )


def test_pin_the_inner_exception_of_an_error():
    original = TypeError()
    assert raised_by_sdk(original).inner_exception is original, (
        "ServiceBusError no longer has the wrapped exception as inner_exception: "
        "see failures._causes"
    )


def test_pin_the_status_of_a_refused_token():
    failure = TokenAuthFailure(401, b"no")
    assert getattr(failure, "status_code", None) == 401, (
        "TokenAuthFailure no longer keeps the status of CBS in status_code: "
        "see failures._is_token_failure"
    )
    assert raised_by_sdk(failure).inner_exception is failure, (
        "ServiceBusAuthenticationError no longer wraps the TokenAuthFailure: see failures._causes"
    )


def test_pin_that_no_error_of_the_sdk_looks_like_a_token_failure():
    ambiguous = {cls.__name__ for cls in SDK_CLASSES if hasattr(make_error(cls), "status_code")}
    assert not ambiguous, (
        f"{ambiguous} have a status_code now: failures._is_token_failure would match them"
    )


async def test_pin_the_text_of_a_lost_management_link():
    sync_operation, async_operation = SimpleNamespace(), SimpleNamespace()
    management_operation.ManagementOperation._on_amqp_management_error(sync_operation)
    await _management_operation_async.ManagementOperation._on_amqp_management_error(async_operation)
    for operation in (sync_operation, async_operation):
        error = operation._mgmt_error
        assert type(error) is ValueError, (
            f"a lost management link now raises {type(error).__name__}, not ValueError: "
            "see failures._is_lost_management_link"
        )
        assert error.args == (MANAGEMENT_LINK_LOST,), (
            f"the error of a lost management link is now {error.args}: "
            "see failures.MANAGEMENT_LINK_LOST"
        )


# The backlog.

QUEUE_CLASSES = {
    sdk.ServiceBusQuotaExceededError,
    sdk.MessagingEntityNotFoundError,
    sdk.ServiceBusAuthorizationError,
}
QUEUE_CONDITIONS = {
    "amqp:resource-limit-exceeded",
    "amqp:resource-deleted",
    "amqp:unauthorized-access",
    "com.microsoft:auth-failed",
}
BY_KIND = {
    FailureKind.UNAVAILABLE: BacklogFailure.QUEUE_UNAVAILABLE,
    FailureKind.UNKNOWN: BacklogFailure.LINK_LOST,
    FailureKind.BUSY: BacklogFailure.BUSY,
    FailureKind.CALLER: BacklogFailure.MESSAGE_REJECTED,
}


def sent_to_backlog(error: Exception) -> BacklogFailure:
    """Return the meaning of an error over an open link."""
    return backlog_failure_of(error, classify_failure(error), link_open=True)


@pytest.mark.rule("S4")
@pytest.mark.parametrize("cls", sorted(CLASSES, key=lambda cls: cls.__name__))
def test_class_decides_whether_a_backlog_queue_or_a_message_is_at_fault(cls: type[Exception]):
    expected = BacklogFailure.QUEUE_UNAVAILABLE if cls in QUEUE_CLASSES else BY_KIND[CLASSES[cls]]
    assert sent_to_backlog(make_error(cls)) is expected


@pytest.mark.rule("S4")
@pytest.mark.parametrize(("condition", "kind"), CONDITIONS.items())
def test_condition_decides_whether_a_backlog_queue_or_a_message_is_at_fault(
    condition: str, kind: FailureKind
):
    of_queue = condition in QUEUE_CONDITIONS
    expected = BacklogFailure.QUEUE_UNAVAILABLE if of_queue else BY_KIND[kind]
    assert sent_to_backlog(sdk.ServiceBusError("x", condition=condition)) is expected


@pytest.mark.rule("S4")
def test_rejected_message_id_is_no_fault_of_the_backlog_queue():
    rejected = raised_by_sdk(MessageSendFailed(ErrorCondition.NotAllowed))
    assert sent_to_backlog(rejected) is BacklogFailure.MESSAGE_REJECTED


@pytest.mark.rule("S4")
@pytest.mark.parametrize("original", [TypeError(), ValueError(), KeyError(), struct.error()])
def test_message_that_cannot_be_encoded_is_no_fault_of_the_backlog_queue(original: Exception):
    assert sent_to_backlog(raised_by_sdk(original)) is BacklogFailure.MESSAGE_REJECTED
    assert sent_to_backlog(original) is BacklogFailure.MESSAGE_REJECTED


@pytest.mark.rule("S4")
@pytest.mark.parametrize(("status", "kind"), STATUSES)
def test_refused_token_is_never_the_fault_of_the_message(status: int | None, kind: FailureKind):
    busy = kind is FailureKind.BUSY
    expected = BacklogFailure.BUSY if busy else BacklogFailure.QUEUE_UNAVAILABLE
    assert sent_to_backlog(raised_by_sdk(TokenAuthFailure(status, b"said so"))) is expected
    assert sent_to_backlog(from_http(status)) is expected


@pytest.mark.rule("S4")
@pytest.mark.parametrize("kind", FailureKind)
def test_link_that_does_not_open_is_no_fault_of_the_message(kind: FailureKind):
    busy = kind is FailureKind.BUSY
    expected = BacklogFailure.BUSY if busy else BacklogFailure.QUEUE_UNAVAILABLE
    assert backlog_failure_of(ValueError(), kind, link_open=False) is expected


def opening_link(error: Exception) -> BacklogFailure:
    """Return the meaning of an error before the link is open."""
    return backlog_failure_of(error, classify_failure(error), link_open=False)


@pytest.mark.rule("S2a", "S4")
@pytest.mark.parametrize(
    "error",
    [
        raised_by_sdk(AMQPConnectionError(ErrorCondition.SocketError, description="refused")),
        raised_by_sdk(AMQPConnectionError(ErrorCondition.ConnectionCloseForced)),
        raised_by_sdk(AMQPConnectionError(ErrorCondition.NotFound)),  # the namespace was deleted
        raised_by_sdk(TimeoutError("Authentication attempt timed-out.")),
        raised_by_sdk(socket.gaierror("unknown host")),
        raised_by_sdk(ServiceRequestError("no connection to the identity provider")),
        raised_by_sdk(TokenAuthFailure(None, b"no answer")),
        sdk.OperationTimeoutError(message="late"),
        timed_out(3),
        ConnectionRefusedError(),
        ssl.SSLError("handshake"),
        from_http(None),
    ],
    ids=repr,
)
def test_connection_that_fails_before_the_link_is_open_concerns_the_host(error: Exception):
    assert opening_link(error) is BacklogFailure.HOST_UNREACHABLE
    assert sent_to_backlog(error) is BacklogFailure.QUEUE_UNAVAILABLE


@pytest.mark.rule("S2a", "S4")
@pytest.mark.parametrize(
    "error",
    [
        raised_by_sdk(AMQPLinkError(ErrorCondition.InternalError)),
        raised_by_sdk(AMQPLinkError(ErrorCondition.LinkDetachForced)),
        raised_by_sdk(AMQPLinkError(ErrorCondition.NotFound)),
        raised_by_sdk(AMQPLinkError(ErrorCondition.ResourceLimitExceeded)),
        raised_by_sdk(AMQPLinkError(b"com.microsoft:entity-disabled")),
        raised_by_sdk(AMQPLinkError(b"com.microsoft:timeout")),
        raised_by_sdk(TokenAuthFailure(401, b"unauthorized")),
        raised_by_sdk(TokenAuthFailure(503, b"unavailable")),
        raised_by_sdk(ValueError("a value")),
        ValueError("a value"),
    ],
    ids=repr,
)
def test_entity_that_does_not_open_a_link_does_not_concern_the_host(error: Exception):
    assert opening_link(error) is BacklogFailure.QUEUE_UNAVAILABLE


@pytest.mark.rule("S4")
def test_kind_from_the_classify_option_holds_for_the_backlog_too():
    error = make_error(sdk.ServiceBusQuotaExceededError)
    busy = backlog_failure_of(error, FailureKind.BUSY, link_open=True)
    assert busy is BacklogFailure.BUSY
    rejected = sdk.ServiceBusError("x", condition="amqp:not-allowed")
    unavailable = backlog_failure_of(rejected, FailureKind.UNAVAILABLE, link_open=True)
    assert unavailable is BacklogFailure.QUEUE_UNAVAILABLE
