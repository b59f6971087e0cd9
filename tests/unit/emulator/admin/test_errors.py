"""Invalid requests to the administration API, and the exceptions that the SDK raises for them."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus._base_handler import _generate_sas_token
from azure.servicebus.management import (
    ApiVersion,
    AuthorizationRule,
    SqlRuleAction,
    SqlRuleFilter,
)
from azure.servicebus.management import ServiceBusAdministrationClient as Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus.emulator.admin.xml import parse_xml
from pairbus.emulator.connections.http import MAX_BODY, HttpRequest, HttpResponse
from tests.unit.emulator.admin.harness import LISTEN_KEY, AdminHarness
from tests.unit.emulator.admin.sdk_client import KEY

HOST = "localhost:5671"
READER = f"SharedAccessKeyName=reader;SharedAccessKey={LISTEN_KEY}"
OTHER_KEY = "b3RoZXI="


def sas(path: str, name: str = "root", key: str = KEY) -> str:
    return _generate_sas_token(f"https://{HOST}/{path}", name, key).token


def send_raw(
    harness: AdminHarness,
    method: str,
    target: str,
    body: bytes = b"",
    *,
    token: str | None = None,
    **headers: str,
) -> HttpResponse:
    all_headers = {"host": HOST, "authorization": sas("") if token is None else token, **headers}
    request = HttpRequest(
        method=method,
        target=target,
        headers=tuple((name.replace("_", "-"), value) for name, value in all_headers.items()),
        body=body,
    )
    return harness(request)


def entry(content: str) -> bytes:
    return f"<entry><content>{content}</content></entry>".encode()


def create_entities(harness: AdminHarness) -> Client:
    client = harness.client()
    client.create_queue("q")
    client.create_topic("t")
    client.create_subscription("t", "s")
    client.create_rule("t", "s", "r")
    return client


CALLS: dict[str, Callable[[Client], Any]] = {
    "create a queue": lambda client: client.create_queue("q"),
    "create a topic": lambda client: client.create_topic("t"),
    "create a subscription": lambda client: client.create_subscription("t", "s"),
    "create a rule": lambda client: client.create_rule("t", "s", "r"),
    "get a queue": lambda client: client.get_queue("q"),
    "get a topic": lambda client: client.get_topic("t"),
    "get a subscription": lambda client: client.get_subscription("t", "s"),
    "get a rule": lambda client: client.get_rule("t", "s", "r"),
    "get a missing queue": lambda client: client.get_queue("nothing"),
    "list queues": lambda client: list(client.list_queues()),
    "list topics": lambda client: list(client.list_topics()),
    "list subscriptions": lambda client: list(client.list_subscriptions("t")),
    "list rules": lambda client: list(client.list_rules("t", "s")),
    "delete a queue": lambda client: client.delete_queue("q"),
    "delete a topic": lambda client: client.delete_topic("t"),
    "delete a subscription": lambda client: client.delete_subscription("t", "s"),
    "delete a rule": lambda client: client.delete_rule("t", "s", "r"),
    "describe the namespace": lambda client: client.get_namespace_properties(),
}


@pytest.mark.parametrize(
    "credential",
    [
        f"SharedAccessKeyName=root;SharedAccessKey={OTHER_KEY}",
        f"SharedAccessKeyName=unknown;SharedAccessKey={KEY}",
    ],
)
@pytest.mark.parametrize("call", CALLS)
def test_request_with_a_wrong_key_is_unauthorized(
    harness: AdminHarness, call: str, credential: str
):
    create_entities(harness)
    harness.metered.clear()

    with pytest.raises(ClientAuthenticationError):
        CALLS[call](harness.client(credential))

    assert harness.responses[-1].status == 401
    assert "InvalidSignature" in harness.last_body
    assert len(harness.entities.all()) == 3
    assert harness.metered == []


@pytest.mark.parametrize("call", CALLS)
def test_client_without_the_manage_right_can_only_read_rules(harness: AdminHarness, call: str):
    create_entities(harness)
    reader = harness.client(READER)

    if call in ("get a rule", "list rules"):
        CALLS[call](reader)
        return
    with pytest.raises(ClientAuthenticationError):
        CALLS[call](reader)

    assert "'Manage" in harness.last_body
    assert len(harness.entities.all()) == 3


def test_expired_token_is_refused_after_the_grace_period(harness: AdminHarness):
    expiry = _generate_sas_token(f"https://{HOST}", "root", KEY).expires_on
    client = harness.client()
    harness.now_ms = (expiry + 200) * 1000
    client.create_queue("q")
    harness.now_ms = (expiry + 400) * 1000

    with pytest.raises(ClientAuthenticationError):
        client.get_queue("q")

    assert "ExpiredToken" in harness.last_body


def test_request_without_a_token_is_unauthorized(harness: AdminHarness):
    assert send_raw(harness, "GET", "/q", token="").status == 401
    assert "MissingToken" in harness.last_body


def test_rule_of_an_entity_grants_rights_on_that_entity_only(harness: AdminHarness):
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=["Manage", "Send", "Listen"],
        key_name="own",
        primary_key=OTHER_KEY,
    )
    root = harness.client()
    root.create_topic("t", authorization_rules=[rule])
    root.create_queue("q")

    owner = harness.client(f"SharedAccessSignature={sas('t', 'own', OTHER_KEY)}")
    owner.create_subscription("t", "s")
    owner.create_rule("t", "s", "r")
    owner.update_topic(owner.get_topic("t"))

    for call in ("get a queue", "list queues", "list topics", "describe the namespace"):
        with pytest.raises(ClientAuthenticationError):
            CALLS[call](owner)
    with pytest.raises(ClientAuthenticationError):
        CALLS["get a queue"](harness.client(f"SharedAccessKeyName=own;SharedAccessKey={OTHER_KEY}"))


NOT_FOUND: dict[str, Callable[[Client], Any]] = {
    "queue": lambda client: client.get_queue("nothing"),
    "runtime properties of a queue": lambda client: client.get_queue_runtime_properties("nothing"),
    "topic": lambda client: client.get_topic("nothing"),
    "runtime properties of a topic": lambda client: client.get_topic_runtime_properties("nothing"),
    "subscription": lambda client: client.get_subscription("t", "nothing"),
    "subscription of a missing topic": lambda client: client.get_subscription("nothing", "s"),
    "runtime properties of a subscription": lambda client: (
        client.get_subscription_runtime_properties("t", "x")
    ),
    "rule": lambda client: client.get_rule("t", "s", "nothing"),
    "rule of a missing subscription": lambda client: client.get_rule("t", "nothing", "r"),
    "list of subscriptions": lambda client: list(client.list_subscriptions("nothing")),
    "list of subscriptions of a queue": lambda client: list(client.list_subscriptions("q")),
    "list of rules": lambda client: list(client.list_rules("t", "nothing")),
    "delete a queue": lambda client: client.delete_queue("nothing"),
    "delete a topic": lambda client: client.delete_topic("nothing"),
    "delete a subscription": lambda client: client.delete_subscription("t", "nothing"),
    "delete a rule": lambda client: client.delete_rule("t", "s", "nothing"),
    "update a queue": lambda client: client.update_queue({**client.get_queue("q"), "name": "x"}),
    "update a topic": lambda client: client.update_topic({**client.get_topic("t"), "name": "x"}),
    "update a subscription": lambda client: client.update_subscription(
        "t", {**client.get_subscription("t", "s"), "name": "x"}
    ),
    "update a rule": lambda client: client.update_rule(
        "t", "s", {**client.get_rule("t", "s", "r"), "name": "x"}
    ),
    "subscribe to a missing topic": lambda client: client.create_subscription("nothing", "s"),
    "subscribe to a queue": lambda client: client.create_subscription("q", "s"),
    "create a rule of a missing subscription": lambda client: client.create_rule(
        "t", "nothing", "r"
    ),
}


@pytest.mark.parametrize("call", NOT_FOUND)
def test_missing_entity_or_rule_is_not_found(harness: AdminHarness, call: str):
    client = create_entities(harness)

    with pytest.raises(ResourceNotFoundError):
        NOT_FOUND[call](client)

    assert len(harness.entities.all()) == 3


EXISTS: dict[str, Callable[[Client], Any]] = {
    "queue": lambda client: client.create_queue("Q"),
    "topic": lambda client: client.create_topic("T"),
    "topic named as a queue": lambda client: client.create_topic("q"),
    "queue named as a topic": lambda client: client.create_queue("t"),
    "subscription": lambda client: client.create_subscription("T", "S"),
    "rule": lambda client: client.create_rule("t", "s", "R"),
    "first rule": lambda client: client.create_rule("t", "s", "$default"),
}


@pytest.mark.parametrize("call", EXISTS)
def test_creating_an_existing_entity_or_rule_is_a_conflict(harness: AdminHarness, call: str):
    client = create_entities(harness)

    with pytest.raises(ResourceExistsError):
        EXISTS[call](client)

    assert harness.responses[-1].status == 409


def update_with(kind: str, name: str, value: object) -> Callable[[Client], Any]:
    topic = ["t"] if kind == "subscription" else []
    path = {"queue": ["q"], "topic": ["t"], "subscription": ["t", "s"]}[kind]

    def update(client: Client) -> None:
        old = getattr(client, f"get_{kind}")(*path)
        getattr(client, f"update_{kind}")(*topic, old, **{name: value})

    return update


INVALID: dict[str, tuple[Callable[[Client], Any], str]] = {
    "lock": (lambda c: c.create_queue("x", lock_duration=timedelta(days=25)), "LockDuration"),
    "time span": (lambda c: c.create_topic("x", auto_delete_on_idle="PT1S"), "AutoDeleteOnIdle"),
    "delivery count": (lambda c: c.create_queue("x", max_delivery_count=0), "MaxDeliveryCount"),
    "status": (lambda c: c.create_queue("x", status="Odd"), "Status: 'Odd' is not a status"),
    "metadata": (lambda c: c.create_topic("x", user_metadata="x" * 1025), "UserMetadata"),
    "queue name": (lambda c: c.create_queue("a b"), "'a b' cannot be a queue"),
    "queue name with two slashes": (lambda c: c.create_queue("a//b"), "cannot be a queue"),
    "queue name too long": (lambda c: c.create_queue("x" * 261), "1 to 260 characters"),
    "reserved queue name": (lambda c: c.create_topic("a$b"), "cannot be a topic"),
    "subscription name": (lambda c: c.create_subscription("t", "a/b"), "cannot be a subscription"),
    "long subscription name": (lambda c: c.create_subscription("t", "x" * 51), "50 characters"),
    "rule name": (lambda c: c.create_rule("t", "s", "a/b"), "cannot be a rule"),
    "filter": (
        lambda c: c.create_rule("t", "s", "x", filter=SqlRuleFilter("a = = b")),
        "Bad Request",
    ),
    "action": (
        lambda c: c.create_rule("t", "s", "x", action=SqlRuleAction("DELETE everything")),
        "Bad Request",
    ),
    "changed filter": (
        lambda c: c.update_rule("t", "s", c.get_rule("t", "s", "r"), filter=SqlRuleFilter("a =")),
        "Bad Request",
    ),
    "session of a queue": (update_with("queue", "requires_session", True), "RequiresSession"),
    "session of a subscription": (
        update_with("subscription", "requires_session", True),
        "RequiresSession property of an existing Subscription",
    ),
    "partitions": (update_with("topic", "enable_partitioning", True), "EnablePartitioning"),
    "duplicates": (
        update_with("queue", "requires_duplicate_detection", True),
        "RequiresDuplicateDetection property of an existing Queue cannot be changed",
    ),
    "changed lock": (update_with("queue", "lock_duration", timedelta(hours=1)), "LockDuration"),
    "update of a queue with a topic": (
        lambda c: c.update_topic({**c.get_topic("t"), "name": "q"}),
        "'q' is a Queue. It cannot be updated with a TopicDescription",
    ),
    "forward to a missing entity": (
        lambda c: c.create_queue("x", forward_to="nothing"),
        "SubCode=40400. The auto forwarding destination entity 'nothing' does not exist",
    ),
    "forward to a subscription": (
        lambda c: c.create_queue("x", forward_dead_lettered_messages_to="t/subscriptions/s"),
        "does not exist",
    ),
    "negative skip": (lambda c: list(c.list_queues(start_index=-1)), "'skip' should be"),
    "negative top": (lambda c: list(c.list_topics(max_page_size=-1)), "'top' should be"),
}


@pytest.mark.parametrize("call", INVALID)
def test_invalid_value_is_refused_with_the_reason_and_changes_nothing(
    harness: AdminHarness, call: str
):
    client = create_entities(harness)
    before = [entity.description for entity in harness.entities.all()]
    operation, reason = INVALID[call]

    with pytest.raises(HttpResponseError) as raised:
        operation(client)

    assert type(raised.value) is HttpResponseError
    assert raised.value.status_code == 400
    assert reason in raised.value.message
    assert [entity.description for entity in harness.entities.all()] == before
    assert len(harness.entities.get("t/subscriptions/s").rules) == 2


def test_old_api_version_refuses_newer_properties(harness: AdminHarness):
    client = harness.client(api_version=ApiVersion.V2017_04)

    with pytest.raises(HttpResponseError, match="unsupported properties for api-version '2017-04'"):
        client.create_queue("q", max_message_size_in_kilobytes=1024)


@pytest.mark.parametrize("version", ["", "1", "latest", "2021-05'", "2021-05%0A", "9" * 100])
def test_invalid_api_version_is_refused(harness: AdminHarness, version: str):
    assert send_raw(harness, "GET", f"/q?api-version={version}").status == 400
    assert "is not an api-version" in harness.last_body


def test_request_without_a_version_gets_the_newest(harness: AdminHarness):
    harness.client().create_queue("q")

    assert send_raw(harness, "GET", "/q").status == 200
    assert "MaxMessageSizeInKilobytes" in harness.last_body


QUEUE = entry("<QueueDescription><ForwardTo>target</ForwardTo></QueueDescription>")
HEADER = "servicebussupplementaryauthorization"


@pytest.mark.parametrize(
    "tokens",
    [
        {},
        {HEADER: ""},
        {HEADER: "garbage"},
        {HEADER: sas("other")},
        {HEADER: sas("target", "reader", LISTEN_KEY)},
        {"servicebusdlqsupplementaryauthorization": sas("target")},
    ],
)
def test_forwarding_requires_a_token_for_the_target(harness: AdminHarness, tokens: dict[str, str]):
    harness.client().create_queue("target")

    assert send_raw(harness, "PUT", "/q", QUEUE, **tokens).status == 401
    assert harness.entities.find("q") is None
    assert send_raw(harness, "PUT", "/q", QUEUE, **{HEADER: sas("Target")}).status == 201


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("POST", "/q", "GET, PUT, DELETE"),
        ("POST", "/q/messages", "GET, PUT, DELETE"),
        ("HEAD", "/q", "GET, PUT, DELETE"),
        ("PATCH", "/t/subscriptions/s/rules/r", "GET, PUT, DELETE"),
        ("PUT", "/$Resources/queues", "GET"),
        ("DELETE", "/t/subscriptions", "GET"),
        ("PUT", "/t/subscriptions/s/rules", "GET"),
        ("DELETE", "/$namespaceinfo", "GET"),
    ],
)
def test_unsupported_method_is_not_allowed(
    harness: AdminHarness, method: str, target: str, allowed: str
):
    create_entities(harness)

    response = send_raw(harness, method, target)

    assert (response.status, dict(response.headers)) == (405, {"Allow": allowed})
    assert len(harness.entities.all()) == 3


@pytest.mark.parametrize("target", ["/$Resources/relays", "/$other", "/$pairbus/meter", "/$"])
def test_unknown_reserved_path_is_not_found(harness: AdminHarness, target: str):
    assert send_raw(harness, "GET", target).status == 404


def test_if_match_with_an_entity_tag_fails(harness: AdminHarness):
    create_entities(harness)
    body = entry("<QueueDescription/>")

    assert send_raw(harness, "PUT", "/q", body, if_match='"638000"').status == 412
    assert send_raw(harness, "PUT", "/q", body, if_match="*").status == 200


@pytest.mark.parametrize("host", ["", "a b", "a/b", "h:x", "[::1", "<h>"])
def test_invalid_host_header_is_refused(harness: AdminHarness, host: str):
    assert send_raw(harness, "GET", "/q", host=host).status == 400


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:5671", "my-host.example:443"])
def test_links_contain_the_host_of_the_request(harness: AdminHarness, host: str):
    assert send_raw(harness, "GET", "/$Resources/queues", host=host).status == 200
    assert f"<id>https://{host}/$Resources/queues?" in harness.last_body


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/x", b""),
        ("/x", b"<entry/>"),
        ("/x", entry("<SubscriptionDescription/>")),
        ("/x", entry("<RuleDescription/>")),
        ("/t/subscriptions/x", entry("<QueueDescription/>")),
        ("/t/subscriptions/s/rules/x", entry("<QueueDescription/>")),
        ("/t/subscriptions/s/rules/x", b"\xff"),
        ("/", entry("<QueueDescription/>")),
        ("/%ff", entry("<QueueDescription/>")),
        ("/a/../b", entry("<QueueDescription/>")),
        ("/$x/y", entry("<QueueDescription/>")),
    ],
)
def test_body_that_does_not_match_the_path_is_refused(
    harness: AdminHarness, target: str, body: bytes
):
    create_entities(harness)

    assert send_raw(harness, "PUT", target, body).status in (400, 404)
    assert len(harness.entities.all()) == 3
    assert len(harness.entities.get("t/subscriptions/s").rules) == 2


def test_too_large_body_is_refused(harness: AdminHarness):
    with pytest.raises(HttpResponseError) as raised:
        harness.client().create_queue("q", user_metadata="x" * MAX_BODY)

    assert raised.value.status_code == 413
    assert send_raw(harness, "PUT", "/q", b" " * (MAX_BODY + 1)).status == 413
    assert harness.entities.all() == []


def test_authorized_requests_are_metered_even_if_they_fail(harness: AdminHarness):
    create_entities(harness)
    harness.metered.clear()

    for target in ("/nothing", "/$other", "/q?api-version=x", "/t/subscriptions/s/rules/nothing"):
        send_raw(harness, "GET", target)
    send_raw(harness, "PUT", "/q", b"garbage")

    expected = ["", "", "q", "t/Subscriptions/s", "q"]
    assert harness.metered == [(path, "management") for path in expected]


@pytest.fixture
def extended(tmp_path: Path) -> Iterator[AdminHarness]:
    def respond_with(body: bytes) -> Callable[[HttpRequest], HttpResponse]:
        return lambda request: HttpResponse(status=202, body=body + request.target.encode())

    harness = AdminHarness(
        tmp_path / "namespace.db",
        extensions={
            "/$pairbus": respond_with(b"all "),
            "$pairbus/Faults": respond_with(b"faults "),
        },
    )
    yield harness
    harness.store.close()


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/$pairbus/faults?x=1", b"faults /$pairbus/faults?x=1"),
        ("/$PAIRBUS/faults/3", b"faults /$PAIRBUS/faults/3"),
        ("/$pairbus/faultsome", b"all /$pairbus/faultsome"),
        ("/$pairbus", b"all /$pairbus"),
    ],
)
def test_extension_paths_go_to_their_handlers_and_are_not_metered(
    extended: AdminHarness, target: str, body: bytes
):
    response = send_raw(extended, "POST", target, b"anything")

    assert (response.status, response.body) == (202, body)
    assert extended.metered == []


@pytest.mark.parametrize("token", ["", sas("", "reader", LISTEN_KEY), sas("q"), sas("$pairbus")])
def test_extensions_require_the_manage_right_on_the_namespace(extended: AdminHarness, token: str):
    assert send_raw(extended, "GET", "/$pairbus/faults", token=token).status == 401


METHODS = st.sampled_from(["GET", "PUT", "DELETE", "POST", "HEAD", "X"])
PATH_PARTS = st.sampled_from(
    [
        *("q", "t", "/", "//", "subscriptions", "rules", "$", "$Resources", "queues", "%2F", "%00"),
        *("\\", "%FF", "..", "?", "$skip=", "$top=", "&", "=", "api-version=", "2021-05", "-1"),
        "x" * 300,
    ]
)
BODIES = st.binary(max_size=60) | st.sampled_from(
    [entry("<QueueDescription/>"), entry("<RuleDescription/>"), entry("<TopicDescription/>")]
)


@given(METHODS, st.lists(PATH_PARTS, max_size=8).map("".join), BODIES, st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_request_gets_a_valid_response(
    harness: AdminHarness, method: str, target: str, body: bytes, update: bool
):
    headers = {"if_match": "*"} if update else {}

    response = send_raw(harness, method, f"/{target}", body, **headers)

    assert response.status in (200, 201, 400, 404, 405, 409)
    if response.body:
        assert parse_xml(response.body).tag
    assert send_raw(harness, "GET", "/$Resources/queues").status == 200
