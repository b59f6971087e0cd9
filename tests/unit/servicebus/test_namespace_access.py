"""Access to a namespace: a connection string, or a host with a credential."""

import pickle
from typing import Any

import pytest

from pairbus.amqp.client import ClientOptions, Credential, HeldCredential
from pairbus.amqp.client.default_credential import default_credential
from pairbus.errors import ConfigurationError, Unavailable
from pairbus.servicebus.administration import AdministrationOptions
from pairbus.servicebus.namespace_access import NamespaceAccess, token_source
from pairbus.servicebus.tokens import SharedAccessKey, acquire_token

TEXT = "Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"


class AccessToken:
    token, expires_on = "header.payload.signature", 1000


class Identity:
    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        assert scopes == ("https://servicebus.azure.net/.default",)
        return AccessToken()


class AsyncIdentity:
    async def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        return AccessToken()


class FailingIdentity(Identity):
    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        raise RuntimeError("the chain failed\nattempted: one\nattempted: two")


@pytest.mark.rule("A1")
@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("contoso.servicebus.windows.net", "contoso.servicebus.windows.net", None),
        ("Contoso.ServiceBus.windows.net:5671", "contoso.servicebus.windows.net", 5671),
        ("sb://contoso.servicebus.windows.net/", "contoso.servicebus.windows.net", None),
        ("localhost", "localhost", None),
        ("bus:5671", "bus", 5671),
        ("127.0.0.1:5671", "127.0.0.1", 5671),
        ("[::1]:5671", "::1", 5671),
    ],
)
def test_host_and_credential_are_enough(text: str, host: str, port: int | None) -> None:
    access = NamespaceAccess.parse(text, Identity())

    assert (access.host, access.port, access.tls) == (host, port, True)
    for options in (
        ClientOptions.from_host(text, Identity(), ca_file="ca.pem"),
        AdministrationOptions.from_host(text, Identity(), ca_file="ca.pem"),
    ):
        assert (options.host, options.port, options.tls) == (host, port, True)
        assert options.ca_file == "ca.pem"
        assert options.tokens is not None
        assert options.tokens.token("sb://any/", 0).text == "header.payload.signature"


def test_connection_string_has_its_own_key() -> None:
    access = NamespaceAccess.parse(TEXT, Identity())

    assert access.tokens == SharedAccessKey("n", "c2VjcmV0")
    assert "c2VjcmV0" not in repr(access)


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "c2VjcmV0c2VjcmV0", "two..dots", "a b.net", "host:0", "host:x", "h.net:70000"],
)
def test_text_that_is_neither_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a connection string nor a host") as error:
        NamespaceAccess.parse(text, Identity())

    assert not text or text not in str(error.value)


def test_host_without_a_credential_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs a credential"):
        NamespaceAccess.parse("contoso.servicebus.windows.net")


def test_credential_object_stays_in_its_process_and_a_factory_does_not() -> None:
    held, made = token_source(Identity()), token_source(Identity)

    assert isinstance(held, HeldCredential)
    with pytest.raises(TypeError, match="stays in its process"):
        pickle.dumps(held)
    assert isinstance(made, Credential)
    assert pickle.loads(pickle.dumps(made)) == made
    assert token_source(made) is made


@pytest.mark.parametrize(
    ("credential", "error"),
    [(AsyncIdentity(), "asynchronous"), (7, "a int, which has no method get_token")],
)
def test_other_credential_is_refused(credential: Any, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        token_source(credential)


def test_failure_of_a_credential_is_reported_in_one_line() -> None:
    with pytest.raises(Unavailable) as error:
        acquire_token(HeldCredential(FailingIdentity()), "sb://one/", 0)

    assert "no token for sb://one/ could be acquired: the chain failed" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.rule("A1")
def test_missing_azure_identity_is_one_sentence_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pairbus.amqp.client.default_credential.find_spec", lambda name: None)

    with pytest.raises(ConfigurationError, match=r"pip install 'pairbus\[entra\]'"):
        default_credential()
