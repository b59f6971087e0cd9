"""Tokens that the driver acquires for workers."""

import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.errors import NotAuthorized, Unavailable
from pairbus.spark import driver_tokens
from pairbus.spark.driver_tokens import (
    DriverTokens,
    TokenServer,
    deliver_tokens,
    request_tokens,
)
from pairbus.spark.messages import ReceivedMessage
from pairbus.spark.plans import BatchPlan

SECRET = "header.payload"


class Identity:
    def __init__(self, lifetime_s: float = 600) -> None:
        self.lock = threading.Lock()  # cannot be pickled
        self.lifetime_s = lifetime_s
        self.calls = 0
        self.error: Exception | None = None

    def get_token(self, *scopes: str, **kwargs: Any) -> Any:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return type(
            "AccessToken",
            (),
            {"token": f"{SECRET}.{self.calls}", "expires_on": time.time() + self.lifetime_s},
        )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TokenServer]:
    server = TokenServer(tmp_path)
    yield server
    server.close()
    driver_tokens._delivered.clear()


def options_for(server: TokenServer, identity: Identity) -> ClientOptions:
    options = ClientOptions.from_host("contoso.servicebus.windows.net", identity)
    return server.replace_credential(options)


@pytest.mark.rule("A1")
def test_options_for_workers_have_no_credential_and_no_token(server: TokenServer) -> None:
    identity = Identity()
    options = options_for(server, identity)

    copy = pickle.loads(pickle.dumps(options))

    assert copy == options
    assert SECRET.encode() not in pickle.dumps(options)
    assert copy.tokens.token("sb://any/", time.time()).text == f"{SECRET}.1"
    assert copy.tokens.token("sb://other/", time.time()).text == f"{SECRET}.1"
    assert identity.calls == 1


def test_namespaces_with_one_credential_share_a_token(server: TokenServer) -> None:
    identity = Identity()
    primary, secondary = options_for(server, identity), options_for(server, identity)
    other = options_for(server, Identity())

    assert len(request_tokens([primary, secondary])) == 1
    assert len(request_tokens([primary, other])) == 2


def test_token_is_renewed_after_half_of_its_lifetime(server: TokenServer) -> None:
    identity = Identity(lifetime_s=0.1)
    tokens = options_for(server, identity).tokens
    assert isinstance(tokens, DriverTokens)
    until = time.monotonic() + 20
    while tokens.request().text == f"{SECRET}.1":
        assert time.monotonic() < until
    assert identity.calls > 1


@pytest.mark.rule("A1")
def test_task_on_another_machine_uses_the_token_that_it_brought(server: TokenServer) -> None:
    options = options_for(server, Identity())
    first_messages = {"q": ReceivedMessage("q", b"payload", b"token")}
    [plan] = BatchPlan(10, first_messages).split(["q"], 1, 1, request_tokens([options]))
    source = options.tokens
    assert isinstance(source, DriverTokens)
    remote = DriverTokens(source.key, "/no/such/socket")
    with pytest.raises(Unavailable, match="no token from the driver"):
        remote.token("sb://any/", time.time())

    task = pickle.loads(pickle.dumps(plan))
    assert SECRET not in repr(task)
    deliver_tokens(task.tokens)

    assert remote.token("sb://any/", time.time()).text == f"{SECRET}.1"
    with pytest.raises(Unavailable):
        remote.token("sb://any/", time.time() + 3600)


def test_failure_of_the_credential_is_that_of_the_task(server: TokenServer) -> None:
    identity = Identity()
    options = options_for(server, identity)
    assert isinstance(options.tokens, DriverTokens)
    identity.error = ConnectionError("the identity server is down")
    with pytest.raises(Unavailable, match="is down"):
        options.tokens.request()
    identity.error.status_code = 401  # type: ignore[attr-defined]
    with pytest.raises(NotAuthorized, match="is down"):
        options.tokens.request()

    assert request_tokens([options]) == ()


def test_closed_server_answers_nothing(server: TokenServer) -> None:
    tokens = options_for(server, Identity()).tokens
    server.close()
    server.close()

    assert isinstance(tokens, DriverTokens)
    with pytest.raises(Unavailable):
        tokens.request()
