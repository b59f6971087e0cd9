"""Token sources: their errors, and tokens in HTTP headers."""

import pytest

from pairbus.errors import ConfigurationError, NotAuthorized, PairbusError, Unavailable
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.tokens import (
    JWT_TYPE,
    SAS_TYPE,
    SharedAccessKey,
    SharedAccessSignature,
    Token,
    acquire_token,
    authorization_header,
    tokens_from,
)


class FailingSource:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def token(self, audience: str, now: float) -> Token:
        raise self.error


class HttpError(Exception):
    """An error of azure-identity with an HTTP status."""

    def __init__(self, status_code: int) -> None:
        super().__init__("the provider failed")
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (HttpError(400), NotAuthorized),
        (HttpError(401), NotAuthorized),
        (HttpError(403), NotAuthorized),
        (HttpError(404), NotAuthorized),
        (HttpError(500), Unavailable),
        (RuntimeError("no network"), Unavailable),
    ],
)
def test_error_of_a_credential_is_translated(error: Exception, expected: type[PairbusError]):
    with pytest.raises(expected, match="no token for sb://host/q could be acquired") as caught:
        acquire_token(FailingSource(error), "sb://host/q", 0)

    assert type(caught.value) is expected
    assert caught.value.__cause__ is error


def test_error_of_our_tree_is_not_translated():
    with pytest.raises(ConfigurationError, match="no expiry"):
        acquire_token(SharedAccessSignature("SharedAccessSignature sig=x"), "sb://host/q", 0)


def test_signature_is_sent_as_it_is_and_other_tokens_as_bearer_tokens():
    assert authorization_header(Token("SharedAccessSignature x", SAS_TYPE, 0)) == (
        "SharedAccessSignature x"
    )
    assert authorization_header(Token("x", JWT_TYPE, 0)) == "Bearer x"


@pytest.mark.parametrize("text", ["secret\n", "secret\r\nX: y", "secr\u00e9t"])
def test_token_that_no_header_can_carry_is_refused_without_being_quoted(text: str):
    with pytest.raises(ConfigurationError, match="line breaks") as caught:
        authorization_header(Token(text, SAS_TYPE, 0))

    assert "secr" not in str(caught.value)


def test_connection_string_gives_a_source_for_its_secret():
    assert tokens_from(ConnectionString("host", None)) is None
    assert tokens_from(ConnectionString("host", None, "name", "key")) == (
        SharedAccessKey("name", "key")
    )
    assert tokens_from(ConnectionString("host", None, signature="s")) == (
        SharedAccessSignature("s")
    )
