"""Parts of the client without a socket: connection strings, tokens, options and errors."""

import copy
import functools
import pickle
import time
from typing import Any, NamedTuple

import pytest
from azure.servicebus._base_handler import _generate_sas_token, _parse_conn_str
from azure.servicebus._pyamqp.utils import generate_sas_token

from pairbus import errors
from pairbus.amqp.client import ClientOptions, Credential, SharedAccessKey, SharedAccessSignature
from pairbus.amqp.client.error_translation import BY_CONDITION, error_from_status, translate_error
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import Symbol
from pairbus.amqp.violations import LinkError, SessionError
from pairbus.errors import (
    AmqpError,
    Busy,
    ConfigurationError,
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
    PairbusError,
    ProtocolError,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.tokens import JWT_TYPE, SAS_TYPE, SCOPE, Token, sign_token

SECRET = "c2VjcmV0LWtleS1vZi10aGUtbmFtZXNwYWNl"
KEY = f"SharedAccessKeyName=root;SharedAccessKey={SECRET}="
SIGNED = f"SharedAccessSignature sr=sb%3A%2F%2Fhost&sig={SECRET}%3D&se=1900000000&skn=root"


# Connection strings.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"Endpoint=sb://ns.servicebus.windows.net/;{KEY}",
            ConnectionString("ns.servicebus.windows.net", None, "root", f"{SECRET}="),
        ),
        (
            f"Endpoint=sb://ns.servicebus.windows.net;{KEY};EntityPath=orders/eu;",
            ConnectionString(
                "ns.servicebus.windows.net", None, "root", f"{SECRET}=", entity_path="orders/eu"
            ),
        ),
        (
            f"Endpoint=sb://localhost:5673/;{KEY};UseDevelopmentEmulator=true",
            ConnectionString("localhost", 5673, "root", f"{SECRET}=", emulator=True),
        ),
        (
            f"Endpoint=sb://host/;{KEY};UseDevelopmentEmulator=false",
            ConnectionString("host", None, "root", f"{SECRET}="),
        ),
        (
            f"Endpoint=amqps://host:1/;SharedAccessSignature={SIGNED}",
            ConnectionString("host", 1, signature=SIGNED),
        ),
        (
            f"  endpoint = sb://HOST/ ; sharedaccesskeyname = root ;; SHAREDACCESSKEY={SECRET}= \n",
            ConnectionString("host", None, "root", f"{SECRET}="),
        ),
        ("Endpoint=sb://[::1]:5672/", ConnectionString("::1", 5672)),
    ],
)
def test_connection_string_is_parsed(text: str, expected: ConnectionString):
    assert ConnectionString.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "no Endpoint", id="empty"),
        pytest.param(" ; ;", "no Endpoint", id="blank"),
        pytest.param(KEY, "no Endpoint", id="no endpoint"),
        pytest.param(f"Endpoint=;{KEY}", "no Endpoint", id="empty endpoint"),
        pytest.param(f"Endpoint=ns.servicebus.windows.net;{KEY}", "sb://", id="no scheme"),
        pytest.param(f"Endpoint=https://host/;{KEY}", "sb://", id="another scheme"),
        pytest.param(f"Endpoint=sb:///path;{KEY}", "sb://", id="no host"),
        pytest.param(f"Endpoint=sb://host:port/;{KEY}", "sb://", id="port that is not a number"),
        pytest.param(f"Endpoint=sb://host:70000/;{KEY}", "sb://", id="port out of range"),
        pytest.param(f"Endpoint=sb://[::1/;{KEY}", "sb://", id="incomplete address"),
        pytest.param(f"Endpoint=sb://root:{SECRET}=;{KEY}", "sb://", id="key in the endpoint"),
        pytest.param(f"Endpoint=sb://h/;SharedAccessKey={SECRET}=", "together", id="key alone"),
        pytest.param("Endpoint=sb://h/;SharedAccessKeyName=r", "together", id="name alone"),
        pytest.param(
            "Endpoint=sb://h/;SharedAccessKeyName=r;SharedAccessKey=", "together", id="empty key"
        ),
        pytest.param(
            f"Endpoint=sb://h/;{KEY};SharedAccessSignature={SIGNED}", "not both", id="two secrets"
        ),
        pytest.param(f"Endpoint=sb://h/;{KEY};Timeout=5", "part 4", id="unknown part"),
        pytest.param(f"Endpoint=sb://h/;{SECRET}=", "part 2", id="key without its name"),
        pytest.param(f"{SECRET}", "part 1", id="key only"),
        pytest.param(f"{SECRET}==", "part 1", id="key with padding only"),
        pytest.param(f"Endpoint=sb://h/;SharedAccessKey {SECRET}", "part 2", id="no equals sign"),
    ],
)
def test_invalid_connection_string_is_refused_without_its_secret(text: str, message: str):
    with pytest.raises(ConfigurationError, match=message) as caught:
        ClientOptions.from_connection_string(text)

    assert SECRET[:6] not in str(caught.value)
    assert SECRET[:6] not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "text",
    [
        f"Endpoint=sb://ns.servicebus.windows.net/;{KEY}",
        f"Endpoint=sb://localhost:5673/;{KEY};EntityPath=q;UseDevelopmentEmulator=true",
        f"Endpoint=sb://ns.servicebus.windows.net/;SharedAccessSignature={SIGNED}",
    ],
)
def test_connection_string_is_parsed_like_in_the_azure_sdk(text: str):
    host, name, key, entity, signature, expiry, emulator = _parse_conn_str(text)

    parsed = ConnectionString.parse(text)

    port = "" if parsed.port is None else f":{parsed.port}"
    assert parsed.host + port == host
    assert (parsed.key_name, parsed.key, parsed.signature) == (name, key, signature)
    assert parsed.entity_path == entity
    assert parsed.emulator == emulator
    if signature is not None:
        assert SharedAccessSignature(signature).token("sb://host/q", 0).expires_at == expiry


def test_options_come_from_a_connection_string_and_keyword_arguments():
    options = ClientOptions.from_connection_string(
        f"Endpoint=sb://host:5673/;{KEY};UseDevelopmentEmulator=true", operation_timeout_s=5
    )

    assert options == ClientOptions(
        host="host",
        port=5673,
        tls=False,
        tokens=SharedAccessKey("root", f"{SECRET}="),
        operation_timeout_s=5,
    )


def test_keyword_argument_overrides_the_connection_string():
    options = ClientOptions.from_connection_string(
        f"Endpoint=sb://host/;{KEY}", tokens=None, tls=False
    )

    assert options.tokens is None
    assert not options.tls


def test_signature_of_a_connection_string_is_used_unchanged():
    options = ClientOptions.from_connection_string(
        f"Endpoint=sb://host/;SharedAccessSignature={SIGNED}"
    )

    assert options.tokens == SharedAccessSignature(SIGNED)


# Options.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": ""}, "host"),
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"port": -1}, "port"),
        ({"connect_timeout_s": 0}, "connect_timeout_s"),
        ({"operation_timeout_s": -1}, "operation_timeout_s"),
        ({"idle_timeout_s": 0}, "idle_timeout_s"),
        ({"idle_timeout_s": float("nan")}, "idle_timeout_s"),
        ({"operation_timeout_s": float("inf")}, "operation_timeout_s"),
        ({"idle_timeout_s": 10_000_000}, "idle_timeout_s"),
        ({"max_frame_size": 511}, "max_frame_size"),
        ({"max_frame_size": 2**32}, "max_frame_size"),
    ],
)
def test_invalid_option_is_refused_on_creation(options: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        ClientOptions(**{"host": "host", **options})


@pytest.mark.parametrize(
    ("options", "address"),
    [
        ({}, ("host", 5671)),
        ({"tls": False}, ("host", 5672)),
        ({"port": 1}, ("host", 1)),
        ({"endpoint_host": "127.0.0.1"}, ("127.0.0.1", 5671)),
        ({"endpoint_host": "127.0.0.1", "port": 2, "tls": False}, ("127.0.0.1", 2)),
    ],
)
def test_address_follows_from_the_options(options: dict[str, Any], address: tuple[str, int]):
    assert ClientOptions(host="host", **options).address == address


@pytest.mark.parametrize(
    ("port", "audience"),
    [(None, "sb://host/a/b"), (5671, "sb://host/a/b"), (5673, "sb://host:5673/a/b")],
)
def test_audience_names_the_entity(port: int | None, audience: str):
    assert ClientOptions(host="host", port=port).audience("a/b") == audience


@pytest.mark.parametrize("name", ["ca_file", "certificate_file"])
def test_certificate_that_cannot_be_read_is_named(name: str, tmp_path: Any):
    path = tmp_path / "missing.pem"
    with pytest.raises(ConfigurationError, match=r"missing\.pem"):
        ClientOptions(host="host", **{name: str(path)}).ssl_context()

    path.write_text("not a certificate")
    with pytest.raises(ConfigurationError, match=r"missing\.pem"):
        ClientOptions(host="host", **{name: str(path)}).ssl_context()


def test_without_tls_there_is_no_ssl_context():
    assert ClientOptions(host="host", tls=False).ssl_context() is None


# Tokens.


@pytest.mark.parametrize(
    "audience",
    ["sb://ns.servicebus.windows.net/orders", "sb://localhost:5673/a b/Subscriptions/ä"],
)
def test_signature_is_that_of_the_azure_sdk(audience: str):
    token = sign_token(audience, "root", SECRET, 1_900_000_000)

    assert token == generate_sas_token(audience, "root", SECRET, 1_900_000_000)


def test_shared_key_token_equals_that_of_the_azure_sdk(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.0)
    sdk_token = _generate_sas_token("sb://host/q", "root", SECRET)

    token = SharedAccessKey("root", SECRET).token("sb://host/q", 1_800_000_000.0)

    assert token == Token(sdk_token.token, SAS_TYPE, sdk_token.expires_on)
    assert token.expires_at == 1_800_003_600


def test_lifetime_of_a_shared_key_token_can_be_set():
    token = SharedAccessKey("root", SECRET, lifetime_s=60).token("sb://host/q", 1000.0)

    assert token.expires_at == 1060
    assert "&se=1060&" in token.text


def test_ready_made_signature_has_its_own_expiry():
    token = SharedAccessSignature(SIGNED).token("sb://host/q", 0)

    assert token == Token(SIGNED, SAS_TYPE, 1_900_000_000.0)


@pytest.mark.parametrize(
    "text", ["", "garbage", "SharedAccessSignature sr=a&sig=b", "SharedAccessSignature se=soon"]
)
def test_ready_made_signature_without_an_expiry_is_refused(text: str):
    with pytest.raises(ConfigurationError, match="expiry"):
        SharedAccessSignature(text).token("sb://host/q", 0)


class AccessToken(NamedTuple):
    token: str
    expires_on: int


class FakeCredential:
    """A credential with the interface of azure-identity."""

    instances = 0

    def __init__(self, text: str = SECRET) -> None:
        FakeCredential.instances += 1
        self.text = text
        self.scopes: list[str] = []

    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        self.scopes += scopes
        return AccessToken(self.text, 1_900_000_000)


def make_credential() -> FakeCredential:
    return FakeCredential()


def test_credential_is_created_once_for_the_first_token(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FakeCredential, "instances", 0)
    source = Credential(make_credential)
    assert FakeCredential.instances == 0

    tokens = [source.token("sb://host/q", 0), source.token("sb://host/r", 0)]

    assert FakeCredential.instances == 1
    assert tokens == [Token(SECRET, JWT_TYPE, 1_900_000_000.0)] * 2


def test_credential_gets_the_scope_of_service_bus():
    credential = FakeCredential()

    Credential(lambda: credential).token("sb://host/q", 0)

    assert credential.scopes == [SCOPE]


# Secrets and pickling.

SECRET_HOLDERS = [
    SharedAccessKey("root", SECRET),
    SharedAccessSignature(SIGNED),
    Token(SECRET, JWT_TYPE, 5.0),
    SaslClient.plain("user", SECRET),
    ConnectionString.parse(f"Endpoint=sb://host/;{KEY}"),
    ConnectionString.parse(f"Endpoint=sb://host/;SharedAccessSignature={SIGNED}"),
    ClientOptions.from_connection_string(f"Endpoint=sb://host/;{KEY}"),
    ClientOptions.from_connection_string(f"Endpoint=sb://host/;SharedAccessSignature={SIGNED}"),
    ClientOptions(host="host", sasl=SaslClient.plain("user", SECRET)),
]


@pytest.mark.parametrize("holder", SECRET_HOLDERS, ids=lambda holder: type(holder).__name__)
def test_repr_does_not_contain_secrets(holder: Any):
    assert SECRET not in repr(holder)
    assert SECRET not in str(holder)


def test_repr_of_a_used_credential_does_not_contain_secrets():
    source = Credential(make_credential)
    source.token("sb://host/q", 0)

    assert SECRET not in repr(ClientOptions(host="host", tokens=source))


@pytest.mark.parametrize(
    "options",
    [
        ClientOptions(host="host"),
        ClientOptions(host="host", tokens=SharedAccessKey("root", SECRET)),
        ClientOptions(host="host", tokens=SharedAccessSignature(SIGNED), idle_timeout_s=5),
        ClientOptions(host="host", tokens=Credential(make_credential)),
        ClientOptions(host="host", tokens=Credential(functools.partial(FakeCredential, "text"))),
        ClientOptions(host="host", sasl=SaslClient.plain("user", "password")),
    ],
    ids=["bare", "shared key", "signature", "factory", "partial", "plain"],
)
def test_options_can_be_pickled(options: ClientOptions):
    sent = pickle.loads(pickle.dumps(options))

    if isinstance(options.tokens, Credential):
        # Partial functions are equal only to themselves.
        assert sent.tokens.token("sb://host/q", 0) == options.tokens.token("sb://host/q", 0)
    else:
        assert sent == options
        assert repr(sent) == repr(options)


def test_used_credential_is_pickled_without_its_object(monkeypatch: pytest.MonkeyPatch):
    source = Credential(make_credential)
    source.token("sb://host/q", 0)
    sent = pickle.loads(pickle.dumps(source))
    monkeypatch.setattr(FakeCredential, "instances", 0)

    sent.token("sb://host/q", 0)

    assert FakeCredential.instances == 1
    assert sent == source


# Translation of conditions and statuses.

CONDITIONS: dict[str, type[AmqpError]] = {
    "amqp:not-found": EntityNotFound,
    "amqp:unauthorized-access": NotAuthorized,
    "com.microsoft:auth-failed": NotAuthorized,
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
    "com.microsoft:entity-already-exists": EntityExists,
    "com.microsoft:entity-disabled": EntityDisabled,
    "com.microsoft:message-lock-lost": LockLost,
    "com.microsoft:session-lock-lost": LockLost,
    "com.microsoft:session-cannot-be-locked": LockLost,
    "com.microsoft:message-not-found": MessageNotFound,
    "com.microsoft:server-busy": Busy,
    "com.microsoft:timeout": OperationTimeout,
}
STATUSES: dict[int, type[AmqpError]] = {
    400: Refused,
    401: NotAuthorized,
    403: NotAuthorized,
    404: EntityNotFound,
    408: OperationTimeout,
    409: Refused,
    410: LockLost,
    429: Busy,
    500: Unavailable,
    501: Unavailable,
    503: Unavailable,
    0: Refused,
    302: Refused,
}


def test_every_condition_that_is_translated_is_listed_here():
    assert BY_CONDITION == CONDITIONS


def test_every_error_condition_of_the_azure_sdk_is_translated():
    from azure.servicebus._common import constants

    sdk_conditions = {
        value.decode() for name, value in vars(constants).items() if name.startswith("ERROR_CODE_")
    }

    assert sdk_conditions <= BY_CONDITION.keys()


@pytest.mark.parametrize(("condition", "kind"), CONDITIONS.items())
def test_condition_is_translated_to_its_class(condition: str, kind: type[AmqpError]):
    info = {Symbol("tracking-id"): "abc"}
    peer_error = AmqpError("because", condition=condition, info=info)

    error = translate_error(peer_error, "the link was refused")

    assert type(error) is kind
    assert error.description == "the link was refused: because"
    assert error.condition == condition
    assert error.info == info


@pytest.mark.parametrize("condition", ["com.microsoft:something-new", "amqp:illegal-state", ""])
def test_unknown_condition_is_unavailable(condition: str):
    error = translate_error(AmqpError("", condition=condition), "the link was refused")

    assert type(error) is Unavailable
    assert error.condition == condition


def test_error_without_a_description_has_its_condition_as_message():
    error = translate_error(AmqpError("", condition="amqp:not-found"), "no link")

    assert str(error) == "no link: amqp:not-found (amqp:not-found)"


def test_without_an_error_the_link_or_the_connection_is_lost():
    assert type(translate_error(None, "detached", link=True)) is LinkLost
    assert type(translate_error(None, "closed", connection=True)) is ConnectionLost
    assert str(translate_error(None, "closed")) == "closed (amqp:connection:forced)"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLost("reset"),
        DecodeError("garbage"),
        NotAuthorized("no"),
        OperationTimeout("slow"),
    ],
)
def test_error_of_our_engine_is_not_translated(error: AmqpError):
    assert translate_error(error, "otherwise") is error


def test_idle_timeout_of_a_connection_is_not_quota_exceeded():
    peer_error = AmqpError("local-idle-timeout expired", condition="amqp:resource-limit-exceeded")

    assert type(translate_error(peer_error, "closed", connection=True)) is ConnectionLost
    assert type(translate_error(peer_error, "rejected")) is QuotaExceeded


@pytest.mark.parametrize(
    "violation",
    [
        LinkError(object(), "amqp:link:transfer-limit-exceeded", "too many"),
        SessionError("amqp:session:window-violation", "too many"),
    ],
)
def test_protocol_violation_can_be_pickled_after_translation(violation: ProtocolError):
    error = translate_error(violation, "the session was ended")

    sent = pickle.loads(pickle.dumps(error))
    assert type(sent) is ProtocolError
    assert sent.description == "the session was ended: too many"
    assert sent.condition == violation.condition


@pytest.mark.parametrize(("status", "kind"), STATUSES.items())
def test_status_is_translated_to_its_class(status: int, kind: type[AmqpError]):
    error = error_from_status(status, "because", None, "it failed")

    assert type(error) is kind
    assert error.description == f"it failed: because (status {status})"
    assert error.condition == kind.default_condition


@pytest.mark.parametrize(("condition", "kind"), CONDITIONS.items())
def test_condition_takes_precedence_over_the_status(condition: str, kind: type[AmqpError]):
    error = error_from_status(404, "", condition, "it failed")

    assert type(error) is kind
    assert error.condition == condition


def test_unknown_condition_falls_back_to_the_status():
    error = error_from_status(410, "", "com.microsoft:something-new", "it failed")

    assert type(error) is LockLost
    assert error.condition == "com.microsoft:something-new"


# The tree of errors.


def all_errors(root: type[PairbusError] = PairbusError) -> list[type[PairbusError]]:
    own = [root] if root.__module__ == errors.__name__ else []
    return own + [error for child in root.__subclasses__() for error in all_errors(child)]


AMQP_ERRORS = [kind for kind in all_errors() if issubclass(kind, AmqpError)]


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_error_can_be_pickled(kind: type[PairbusError]):
    sent = pickle.loads(pickle.dumps(kind("because")))

    assert type(sent) is kind
    assert str(sent) == str(kind("because"))


@pytest.mark.parametrize("copied", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
@pytest.mark.parametrize("kind", AMQP_ERRORS, ids=lambda kind: kind.__name__)
def test_error_keeps_its_condition_description_and_info(kind: type[AmqpError], copied: Any):
    info = {Symbol("tracking-id"): "abc", "count": 5}

    sent = copied(kind("because", condition="com.example:condition", info=info))

    assert type(sent) is kind
    assert sent.description == "because"
    assert sent.condition == "com.example:condition"
    assert sent.info == info
    assert type(next(iter(sent.info))) is Symbol
    assert str(sent) == "because (com.example:condition)"


def test_error_pickles_with_every_protocol():
    error = OperationTimeout("because", condition="com.example:condition", info={"a": 1})

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        sent = pickle.loads(pickle.dumps(error, protocol))
        assert (sent.description, sent.condition, sent.info) == (
            "because",
            "com.example:condition",
            {"a": 1},
        )


@pytest.mark.parametrize("kind", AMQP_ERRORS, ids=lambda kind: kind.__name__)
def test_error_class_has_a_default_condition(kind: type[AmqpError]):
    error = kind()

    assert error.condition == kind.default_condition
    assert error.info == {}
    assert str(error) == f"no description ({kind.default_condition})"


def test_operation_timeout_is_a_timeout_error():
    assert issubclass(OperationTimeout, TimeoutError)
    with pytest.raises(TimeoutError):
        raise OperationTimeout("slow")


@pytest.mark.parametrize("kind", [ConnectionLost, OperationTimeout, LinkLost, EntityDisabled])
def test_retryable_errors_are_a_type(kind: type[AmqpError]):
    assert issubclass(kind, Unavailable)
    assert not issubclass(kind, Refused)


@pytest.mark.parametrize(
    "kind",
    [NotAuthorized, EntityNotFound, MessageTooLarge, QuotaExceeded, LockLost, MessageNotFound],
)
def test_permanent_errors_are_not_retryable(kind: type[AmqpError]):
    assert issubclass(kind, Refused)
    assert not issubclass(kind, Unavailable | Busy)


def test_every_error_is_in_the_module_docstring():
    drawn = errors.__doc__ or ""

    for kind in all_errors():
        assert kind.__name__ in drawn
