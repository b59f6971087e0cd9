"""Rights of tokens over CBS and HTTP, and of keys over SASL PLAIN."""

import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.amqp.client import (
    Client,
    ClientOptions,
    Credential,
    Management,
    Receiver,
    Sender,
    SharedAccessKey,
    SharedAccessSignature,
)
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.emulator.auth import GRACE_S, Right, SharedAccessRule
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConfigurationError, NotAuthorized
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.tokens import sign_token
from tests.integration.clocks import Clock
from tests.integration.emulator_clients import (
    client_of,
    round_trip,
    sdk_client,
    send_with_sdk,
)
from tests.integration.sdk_flavours import SDK_SOCKETS
from tests.waiting import DEADLINE_S, wait_until

pytestmark = SDK_SOCKETS

HELLO = Message.build(data=b"hello").encode()


def rule(name: str, *rights: Right) -> SharedAccessRule:
    return SharedAccessRule(
        name=name,
        primary_key=f"primary-key-of-{name}",
        secondary_key=f"secondary-key-of-{name}",
        rights=frozenset(rights),
    )


SEND, LISTEN = rule("sends", Right.SEND), rule("listens", Right.LISTEN)
BOTH, MANAGE = rule("both", Right.SEND, Right.LISTEN), rule("manages", *Right)
OF_ORDERS = rule("sends-orders", Right.SEND)
MANAGES_ORDERS = rule("manages-orders", *Right)


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock(time.time)


@pytest.fixture(scope="module")
def running(clock: Clock) -> Iterator[LocalNamespace]:
    with LocalNamespace(rules=[SEND, LISTEN, BOTH, MANAGE], now_ms=clock.now_ms) as namespace:
        yield namespace


@pytest.fixture
def namespace(running: LocalNamespace, clock: Clock) -> Iterator[LocalNamespace]:
    clock.ahead = 0.0
    running.reset()
    running.create_queue("orders", authorization_rules=(OF_ORDERS, MANAGES_ORDERS))
    running.create_queue("other")
    running.create_topic("news", authorization_rules=(BOTH,))
    running.create_subscription("news", "all")
    yield running
    running.clear_faults()


def client_with(namespace: LocalNamespace, rule: SharedAccessRule, **options: Any) -> Client:
    return client_of(namespace, tokens=SharedAccessKey(rule.name, rule.primary_key), **options)


def may_send(client: Client, path: str) -> bool:
    return allowed(lambda: Sender(client, path).send(HELLO))


def may_listen(client: Client, path: str) -> bool:
    def listen() -> None:
        receiver = Receiver(client, path)
        receiver.open()
        receiver.receive(timeout_s=0.05)

    return allowed(listen)


def may_peek(client: Client, path: str) -> bool:
    return allowed(lambda: Management(client, path).peek(1))


def may_schedule(client: Client, path: str) -> bool:
    return allowed(lambda: Management(client, path).schedule([SCHEDULED]))


def allowed(work: Callable[[], Any]) -> bool:
    try:
        work()
    except NotAuthorized:
        return False
    return True


def _scheduled() -> bytes:

    at = Timestamp(int((time.time() + 3600) * 1000))
    return Message.build(
        message_annotations={Symbol("x-opt-scheduled-enqueue-time"): at}, data=b"later"
    ).encode()


SCHEDULED = _scheduled()


def administration(namespace: LocalNamespace, text: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        text, connection_verify=namespace.ca_file, retry_total=0
    )


class TestRules:
    @pytest.mark.parametrize(
        ("rule", "expected"),
        [
            (SEND, (True, False, False, True)),
            (LISTEN, (False, True, True, False)),
            (BOTH, (True, True, True, True)),
            (MANAGE, (True, True, True, True)),
        ],
        ids=lambda value: value.name if isinstance(value, SharedAccessRule) else None,
    )
    def test_namespace_rule_grants_its_rights_on_all_entities(
        self, namespace: LocalNamespace, rule: SharedAccessRule, expected: tuple[bool, ...]
    ) -> None:
        with client_with(namespace, rule) as client:
            for path in ("orders", "other"):
                results = (
                    may_send(client, path),
                    may_listen(client, path),
                    may_peek(client, path),
                    may_schedule(client, path),
                )
                assert results == expected

    def test_entity_rule_grants_its_rights_on_its_entity_only(
        self, namespace: LocalNamespace
    ) -> None:
        with client_with(namespace, OF_ORDERS) as client:
            assert may_send(client, "orders")
            assert not may_listen(client, "orders")
            assert not may_send(client, "other")
        with client_with(namespace, MANAGES_ORDERS) as client:
            assert may_listen(client, "orders")
            assert may_listen(client, "orders/$DeadLetterQueue")
            assert not may_listen(client, "other")

    def test_topic_rule_covers_its_subscriptions(self, namespace: LocalNamespace) -> None:
        namespace.create_topic("papers", authorization_rules=(rule("reads", Right.LISTEN),))
        namespace.create_subscription("papers", "all")
        with client_with(namespace, rule("reads", Right.LISTEN)) as client:
            assert may_listen(client, "papers/Subscriptions/all")
            assert not may_send(client, "papers")
            assert not may_listen(client, "news/Subscriptions/all")

    def test_both_keys_of_a_rule_are_valid(self, namespace: LocalNamespace) -> None:
        for key in ("primary-key-of-sends", "secondary-key-of-sends"):
            with client_of(namespace, tokens=SharedAccessKey("sends", key)) as client:
                assert may_send(client, "orders")

    def test_administration_needs_the_manage_right(self, namespace: LocalNamespace) -> None:
        for rule in (SEND, LISTEN, BOTH):
            text = namespace.connection_string_of(rule.name, rule.primary_key)
            with (
                administration(namespace, text) as admin,
                pytest.raises((ClientAuthenticationError, HttpResponseError)) as refused,
            ):
                admin.get_queue("orders")
            assert refused.value.status_code in (401, 403)
        text = namespace.connection_string_of(MANAGE.name, MANAGE.primary_key)
        with administration(namespace, text) as admin:
            assert admin.get_queue("orders").name == "orders"

    def test_two_rules_with_the_same_name_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="same name"):
            LocalNamespace(rules=[SEND, SEND])


class TestTokens:
    def refused(self, namespace: LocalNamespace, tokens: Any) -> str:
        with client_of(namespace, tokens=tokens) as client, pytest.raises(NotAuthorized) as error:
            Sender(client, "orders").send(HELLO)
        return str(error.value)

    def signature(self, namespace: LocalNamespace, path: str = "orders", **changes: Any) -> str:
        rule = {"rule": "sends", "key": "primary-key-of-sends", "life_s": 600} | changes
        audience = f"sb://localhost:{namespace.port}/{path}"
        return sign_token(audience, rule["rule"], rule["key"], int(time.time() + rule["life_s"]))

    def test_valid_signature_is_accepted(self, namespace: LocalNamespace) -> None:
        with client_of(
            namespace, tokens=SharedAccessSignature(self.signature(namespace))
        ) as client:
            assert may_send(client, "orders")

    def test_wrong_key_is_refused(self, namespace: LocalNamespace) -> None:
        text = self.signature(namespace, key="another key")
        assert "InvalidSignature" in self.refused(namespace, SharedAccessSignature(text))

    def test_unknown_rule_is_refused(self, namespace: LocalNamespace) -> None:
        text = self.signature(namespace, rule="unknown")
        assert "InvalidSignature" in self.refused(namespace, SharedAccessSignature(text))

    def test_expired_token_is_refused(self, namespace: LocalNamespace) -> None:
        text = self.signature(namespace, life_s=-GRACE_S - 5)
        assert "ExpiredToken" in self.refused(namespace, SharedAccessSignature(text))

    def test_modified_token_is_refused(self, namespace: LocalNamespace) -> None:
        text = self.signature(namespace, path="other").replace("other", "orders")
        assert "InvalidSignature" in self.refused(namespace, SharedAccessSignature(text))

    def test_token_for_another_entity_grants_no_right(self, namespace: LocalNamespace) -> None:
        text = self.signature(namespace, path="other")
        assert "'Send' claim(s) are required" in self.refused(
            namespace, SharedAccessSignature(text)
        )

    def test_token_for_the_namespace_covers_its_entities(self, namespace: LocalNamespace) -> None:
        with client_of(
            namespace, tokens=SharedAccessSignature(self.signature(namespace, path=""))
        ) as client:
            assert may_send(client, "orders")
            assert may_send(client, "other")

    def test_nothing_is_allowed_without_a_token(self, namespace: LocalNamespace) -> None:
        with client_of(namespace, tokens=None) as client:
            assert not may_send(client, "orders")
            assert not may_listen(client, "orders")
            assert not may_peek(client, "orders")

    def test_bearer_tokens_are_refused_unless_the_namespace_trusts_them(
        self, namespace: LocalNamespace
    ) -> None:
        bearer = Credential(FakeIdentity)
        assert "InvalidIssuer" in self.refused(namespace, bearer)
        with LocalNamespace(trust_bearer_tokens=True) as trusting:
            trusting.create_queue("orders")
            with client_of(trusting, tokens=bearer) as client:
                assert may_send(client, "orders")


class FakeIdentity:
    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        return AccessToken("header.payload.signature", int(time.time()) + 600)


class TestPlain:
    def test_rule_and_key_authenticate_without_tokens(self, namespace: LocalNamespace) -> None:
        sasl = SaslClient.plain(BOTH.name, BOTH.primary_key)
        with client_of(namespace, sasl=sasl, tokens=None) as client:
            assert may_send(client, "orders")
            assert may_listen(client, "orders")

    def test_rule_grants_only_its_rights(self, namespace: LocalNamespace) -> None:
        sasl = SaslClient.plain(SEND.name, SEND.primary_key)
        with client_of(namespace, sasl=sasl, tokens=None) as client:
            assert may_send(client, "orders")
            assert not may_listen(client, "orders")

    @pytest.mark.parametrize(
        ("name", "key"),
        [("both", "another key"), ("unknown", "primary-key-of-both"), ("", ""), ("both", "")],
    )
    def test_wrong_rule_or_key_is_refused(
        self, namespace: LocalNamespace, name: str, key: str
    ) -> None:
        with pytest.raises(NotAuthorized):
            client_of(namespace, sasl=SaslClient.plain(name, key), tokens=None).connect()


class TestExpiry:
    def ended(self, client: Client, link: Sender | Receiver) -> Exception:
        client.run_until(lambda: link.error is not None, client.deadline(None), "the link to end")
        assert link.error is not None
        return link.error

    def test_expired_token_detaches_its_links_after_the_grace_period(
        self, namespace: LocalNamespace, clock: Clock
    ) -> None:
        tokens = SharedAccessKey(BOTH.name, BOTH.primary_key, lifetime_s=600)
        with client_of(namespace, tokens=tokens) as client:
            sender, receiver = Sender(client, "orders"), Receiver(client, "other")
            sender.send(HELLO)
            receiver.open()
            receiver.receive(timeout_s=0.05)

            clock.ahead = 600 + GRACE_S - 60
            sender.send(HELLO)  # expired, but within the grace period
            assert receiver.error is None

            clock.ahead = 600 + GRACE_S + 1
            assert isinstance(self.ended(client, sender), NotAuthorized)
            assert isinstance(self.ended(client, receiver), NotAuthorized)

    def test_renewed_token_keeps_its_links(self, namespace: LocalNamespace, clock: Clock) -> None:
        options = ClientOptions.from_connection_string(
            namespace.connection_string,
            tokens=SharedAccessKey(BOTH.name, BOTH.primary_key, lifetime_s=600),
            idle_timeout_s=4_000_000,  # the test moves the clock forward
        )
        with Client(
            options,
            clock=lambda: time.monotonic() + clock.ahead,
            wall_clock=lambda: time.time() + clock.ahead,
        ) as client:
            sender = Sender(client, "orders")
            sender.send(HELLO)
            for _ in range(3):
                clock.ahead += 595
                sender.send(HELLO)
            assert client.generation == 1

    def test_injected_expiry_detaches_links_without_a_grace_period(
        self, namespace: LocalNamespace
    ) -> None:
        with client_with(namespace, BOTH) as client:
            sender = Sender(client, "orders")
            sender.send(HELLO)

            fault = namespace.add_fault("expire-tokens", "orders", count=1)
            wait_until(lambda: fault.fired == 1, "the fault")

            assert isinstance(self.ended(client, sender), NotAuthorized)


@pytest.mark.parametrize(
    ("host", "accepted"),
    [
        ("localhost", True),
        ("{name}.servicebus.windows.net", True),
        ("another.servicebus.windows.net", False),
    ],
)
def test_token_must_be_for_the_host_of_the_namespace(
    namespace: LocalNamespace, host: str, accepted: bool
) -> None:
    parsed = ConnectionString.parse(namespace.connection_string)
    assert parsed.key_name is not None
    assert parsed.key is not None
    host = host.format(name=namespace.name)
    token = sign_token(f"sb://{host}/orders", parsed.key_name, parsed.key, 4_000_000_000)
    with client_of(namespace, tokens=SharedAccessSignature(token)) as client:
        assert may_send(client, "orders") is accepted
    with sdk_client(
        namespace,
        f"Endpoint=sb://localhost:{namespace.port}/;SharedAccessSignature={token};"
        "UseDevelopmentEmulator=true;",
    ) as sdk:
        if accepted:
            send_with_sdk(sdk, "orders", "x")
        else:
            with pytest.raises(ServiceBusAuthenticationError):
                send_with_sdk(sdk, "orders", "x")
    for_namespace = sign_token(f"https://{host}", parsed.key_name, parsed.key, 4_000_000_000)
    request = urllib.request.Request(
        f"http://localhost:{namespace.port}/orders?api-version=2021-05",
        headers={"Authorization": for_namespace},
    )
    if accepted:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            assert response.status == 200
    else:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=DEADLINE_S)
        with refused.value:
            assert refused.value.code == 401


def test_secrets_are_never_logged(
    namespace: LocalNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="pairbus")
    caplog.set_level(logging.DEBUG, logger="asyncio")
    root = ConnectionString.parse(namespace.connection_string).key
    assert root is not None
    good = sign_token(
        f"sb://localhost:{namespace.port}/orders", "sends", SEND.primary_key, 4_000_000_000
    )
    bad = sign_token(
        f"sb://localhost:{namespace.port}/orders", "sends", "another key", 4_000_000_000
    )

    round_trip(namespace)
    for text in (good, bad):
        with client_of(namespace, tokens=SharedAccessSignature(text)) as client:
            may_send(client, "orders")
    for key in (BOTH.primary_key, "another key"):
        client = client_of(namespace, sasl=SaslClient.plain(BOTH.name, key), tokens=None)
        allowed(client.connect)
        client.close()
    with administration(namespace, namespace.connection_string) as admin:
        admin.get_queue("orders")
        admin.list_queues()
    wrong = namespace.connection_string_of("sends", "another key")
    with (
        administration(namespace, wrong) as admin,
        pytest.raises((ClientAuthenticationError, HttpResponseError)),
    ):
        admin.get_queue("orders")

    logged = "\n".join(
        f"{record.getMessage()} {record.args} {record.exc_text}"
        for record in caplog.records
        if record.name.startswith(("pairbus", "asyncio"))
    )
    assert "SASL PLAIN" in logged  # the log was captured
    signatures = [text.split("sig=")[1].split("&")[0] for text in (good, bad)]
    for secret in (root, SEND.primary_key, BOTH.primary_key, "another key", *signatures):
        assert secret not in logged
