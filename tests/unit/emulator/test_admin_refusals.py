"""Every mistake that a client of the administration API can make, and the error that the SDK makes
of it."""

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
from tests.unit.emulator.admin_bench import KEY
from tests.unit.emulator.admin_namespace import LISTEN_KEY, Namespace, namespace

__all__ = ["namespace"]

HOST = "localhost:5671"
READER = f"SharedAccessKeyName=reader;SharedAccessKey={LISTEN_KEY}"
OTHER_KEY = "b3RoZXI="


def sas(path: str, name: str = "root", key: str = KEY) -> str:
    return _generate_sas_token(f"https://{HOST}/{path}", name, key).token


def raw(
    namespace: Namespace,
    method: str,
    target: str,
    body: bytes = b"",
    *,
    token: str | None = None,
    **headers: str,
) -> HttpResponse:
    named = {"host": HOST, "authorization": sas("") if token is None else token, **headers}
    request = HttpRequest(
        method=method,
        target=target,
        headers=tuple((name.replace("_", "-"), value) for name, value in named.items()),
        body=body,
    )
    return namespace(request)


def entry(content: str) -> bytes:
    return f"<entry><content>{content}</content></entry>".encode()


def filled(namespace: Namespace) -> Client:
    client = namespace.client()
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
    "get what is not": lambda client: client.get_queue("nothing"),
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
        f"SharedAccessKeyName=nobody;SharedAccessKey={KEY}",
    ],
)
@pytest.mark.parametrize("call", CALLS)
def test_whoever_has_no_key_can_do_nothing(namespace: Namespace, call: str, credential: str):
    filled(namespace)
    namespace.metered.clear()

    with pytest.raises(ClientAuthenticationError):
        CALLS[call](namespace.client(credential))

    assert namespace.responses[-1].status == 401
    assert "InvalidSignature" in namespace.last
    assert len(namespace.entities.all()) == 3
    assert namespace.metered == []


@pytest.mark.parametrize("call", CALLS)
def test_whoever_may_not_manage_can_only_read_rules(namespace: Namespace, call: str):
    filled(namespace)
    reader = namespace.client(READER)

    if call in ("get a rule", "list rules"):
        CALLS[call](reader)
        return
    with pytest.raises(ClientAuthenticationError):
        CALLS[call](reader)

    assert "'Manage" in namespace.last
    assert len(namespace.entities.all()) == 3


def test_an_expired_token_is_refused_after_its_grace(namespace: Namespace):
    expiry = _generate_sas_token(f"https://{HOST}", "root", KEY).expires_on
    client = namespace.client()
    namespace.now_ms = (expiry + 200) * 1000
    client.create_queue("q")
    namespace.now_ms = (expiry + 400) * 1000

    with pytest.raises(ClientAuthenticationError):
        client.get_queue("q")

    assert "ExpiredToken" in namespace.last


def test_a_request_without_a_token_is_refused(namespace: Namespace):
    assert raw(namespace, "GET", "/q", token="").status == 401
    assert "MissingToken" in namespace.last


def test_a_rule_of_an_entity_gives_rights_over_that_entity_only(namespace: Namespace):
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=["Manage", "Send", "Listen"],
        key_name="own",
        primary_key=OTHER_KEY,
    )
    root = namespace.client()
    root.create_topic("t", authorization_rules=[rule])
    root.create_queue("q")

    owner = namespace.client(f"SharedAccessSignature={sas('t', 'own', OTHER_KEY)}")
    owner.create_subscription("t", "s")
    owner.create_rule("t", "s", "r")
    owner.update_topic(owner.get_topic("t"))

    for call in ("get a queue", "list queues", "list topics", "describe the namespace"):
        with pytest.raises(ClientAuthenticationError):
            CALLS[call](owner)
    with pytest.raises(ClientAuthenticationError):
        CALLS["get a queue"](
            namespace.client(f"SharedAccessKeyName=own;SharedAccessKey={OTHER_KEY}")
        )


NOT_FOUND: dict[str, Callable[[Client], Any]] = {
    "queue": lambda client: client.get_queue("nothing"),
    "queue at run time": lambda client: client.get_queue_runtime_properties("nothing"),
    "topic": lambda client: client.get_topic("nothing"),
    "topic at run time": lambda client: client.get_topic_runtime_properties("nothing"),
    "subscription": lambda client: client.get_subscription("t", "nothing"),
    "subscription of nothing": lambda client: client.get_subscription("nothing", "s"),
    "subscription at run time": lambda client: client.get_subscription_runtime_properties("t", "x"),
    "rule": lambda client: client.get_rule("t", "s", "nothing"),
    "rule of nothing": lambda client: client.get_rule("t", "nothing", "r"),
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
    "subscribe to nothing": lambda client: client.create_subscription("nothing", "s"),
    "subscribe to a queue": lambda client: client.create_subscription("q", "s"),
    "rule for nothing": lambda client: client.create_rule("t", "nothing", "r"),
}


@pytest.mark.parametrize("call", NOT_FOUND)
def test_what_is_not_there_is_not_found(namespace: Namespace, call: str):
    client = filled(namespace)

    with pytest.raises(ResourceNotFoundError):
        NOT_FOUND[call](client)

    assert len(namespace.entities.all()) == 3


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
def test_what_is_there_is_not_made_again(namespace: Namespace, call: str):
    client = filled(namespace)

    with pytest.raises(ResourceExistsError):
        EXISTS[call](client)

    assert namespace.responses[-1].status == 409


def changing(kind: str, name: str, value: object) -> Callable[[Client], Any]:
    above = ["t"] if kind == "subscription" else []
    of = {"queue": ["q"], "topic": ["t"], "subscription": ["t", "s"]}[kind]

    def change(client: Client) -> None:
        old = getattr(client, f"get_{kind}")(*of)
        getattr(client, f"update_{kind}")(*above, old, **{name: value})

    return change


BAD: dict[str, tuple[Callable[[Client], Any], str]] = {
    "lock": (lambda c: c.create_queue("x", lock_duration=timedelta(days=25)), "LockDuration"),
    "text": (lambda c: c.create_topic("x", auto_delete_on_idle="PT1S"), "AutoDeleteOnIdle"),
    "number": (lambda c: c.create_queue("x", max_delivery_count=0), "MaxDeliveryCount"),
    "status": (lambda c: c.create_queue("x", status="Odd"), "Status: 'Odd' is not a status"),
    "long": (lambda c: c.create_topic("x", user_metadata="x" * 1025), "UserMetadata"),
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
    "session of a queue": (changing("queue", "requires_session", True), "RequiresSession"),
    "session of a subscription": (
        changing("subscription", "requires_session", True),
        "RequiresSession property of an existing Subscription",
    ),
    "partitions": (changing("topic", "enable_partitioning", True), "EnablePartitioning"),
    "duplicates": (
        changing("queue", "requires_duplicate_detection", True),
        "RequiresDuplicateDetection property of an existing Queue cannot be changed",
    ),
    "changed lock": (changing("queue", "lock_duration", timedelta(hours=1)), "LockDuration"),
    "a topic in place of a queue": (
        lambda c: c.update_topic({**c.get_topic("t"), "name": "q"}),
        "'q' is a Queue. It cannot be updated with a TopicDescription",
    ),
    "forward to nothing": (
        lambda c: c.create_queue("x", forward_to="nothing"),
        "SubCode=40400. The auto forwarding destination entity 'nothing' does not exist",
    ),
    "forward to a subscription": (
        lambda c: c.create_queue("x", forward_dead_lettered_messages_to="t/subscriptions/s"),
        "does not exist",
    ),
    "forward to itself": (changing("queue", "forward_to", "Q"), "itself"),
    "forward with sessions": (
        lambda c: c.create_queue("x", requires_session=True, forward_to="q"),
        "both RequiresSession and ForwardTo",
    ),
    "negative skip": (lambda c: list(c.list_queues(start_index=-1)), "'skip' should be"),
    "negative top": (lambda c: list(c.list_topics(max_page_size=-1)), "'top' should be"),
}


@pytest.mark.parametrize("call", BAD)
def test_a_bad_value_is_refused_with_what_is_bad_and_changes_nothing(
    namespace: Namespace, call: str
):
    client = filled(namespace)
    before = [entity.description for entity in namespace.entities.all()]
    make, why = BAD[call]

    with pytest.raises(HttpResponseError) as raised:
        make(client)

    assert type(raised.value) is HttpResponseError
    assert raised.value.status_code == 400
    assert why in raised.value.message
    assert [entity.description for entity in namespace.entities.all()] == before
    assert len(namespace.entities.get("t/subscriptions/s").rules) == 2


def test_an_old_version_of_the_api_takes_nothing_newer(namespace: Namespace):
    client = namespace.client(api_version=ApiVersion.V2017_04)

    with pytest.raises(HttpResponseError, match="unsupported properties for api-version '2017-04'"):
        client.create_queue("q", max_message_size_in_kilobytes=1024)


@pytest.mark.parametrize("version", ["", "1", "latest", "2021-05'", "2021-05%0A", "9" * 100])
def test_a_version_that_is_none_is_refused(namespace: Namespace, version: str):
    assert raw(namespace, "GET", f"/q?api-version={version}").status == 400
    assert "is not an api-version" in namespace.last


def test_a_request_without_a_version_is_taken_for_the_newest(namespace: Namespace):
    namespace.client().create_queue("q")

    assert raw(namespace, "GET", "/q").status == 200
    assert "MaxMessageSizeInKilobytes" in namespace.last


QUEUE = entry("<QueueDescription><ForwardTo>target</ForwardTo></QueueDescription>")
HEADER = "servicebussupplementaryauthorization"


@pytest.mark.parametrize(
    "tokens",
    [
        {},
        {HEADER: ""},
        {HEADER: "rubbish"},
        {HEADER: sas("other")},
        {HEADER: sas("target", "reader", LISTEN_KEY)},
        {"servicebusdlqsupplementaryauthorization": sas("target")},
    ],
)
def test_forwarding_needs_a_token_for_the_target(namespace: Namespace, tokens: dict[str, str]):
    namespace.client().create_queue("target")

    assert raw(namespace, "PUT", "/q", QUEUE, **tokens).status == 401
    assert namespace.entities.find("q") is None
    assert raw(namespace, "PUT", "/q", QUEUE, **{HEADER: sas("Target")}).status == 201


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
def test_a_method_that_makes_no_sense_is_not_allowed(
    namespace: Namespace, method: str, target: str, allowed: str
):
    filled(namespace)

    response = raw(namespace, method, target)

    assert (response.status, dict(response.headers)) == (405, {"Allow": allowed})
    assert len(namespace.entities.all()) == 3


@pytest.mark.parametrize("target", ["/$Resources/relays", "/$other", "/$pairbus/meter", "/$"])
def test_a_path_of_ours_that_is_none_is_not_found(namespace: Namespace, target: str):
    assert raw(namespace, "GET", target).status == 404


def test_a_condition_that_cannot_hold_fails(namespace: Namespace):
    filled(namespace)
    body = entry("<QueueDescription/>")

    assert raw(namespace, "PUT", "/q", body, if_match='"638000"').status == 412
    assert raw(namespace, "PUT", "/q", body, if_match="*").status == 200


@pytest.mark.parametrize("host", ["", "a b", "a/b", "h:x", "[::1", "<h>"])
def test_a_host_that_is_none_is_refused(namespace: Namespace, host: str):
    assert raw(namespace, "GET", "/q", host=host).status == 400


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:5671", "my-host.example:443"])
def test_links_have_the_host_of_the_request(namespace: Namespace, host: str):
    assert raw(namespace, "GET", "/$Resources/queues", host=host).status == 200
    assert f"<id>https://{host}/$Resources/queues?" in namespace.last


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
def test_a_body_that_does_not_belong_there_is_refused(
    namespace: Namespace, target: str, body: bytes
):
    filled(namespace)

    assert raw(namespace, "PUT", target, body).status in (400, 404)
    assert len(namespace.entities.all()) == 3
    assert len(namespace.entities.get("t/subscriptions/s").rules) == 2


def test_a_body_that_is_too_large_is_refused(namespace: Namespace):
    with pytest.raises(HttpResponseError) as raised:
        namespace.client().create_queue("q", user_metadata="x" * MAX_BODY)

    assert raised.value.status_code == 413
    assert raw(namespace, "PUT", "/q", b" " * (MAX_BODY + 1)).status == 413
    assert namespace.entities.all() == []


def test_requests_that_were_let_in_are_metered_whatever_the_answer(namespace: Namespace):
    filled(namespace)
    namespace.metered.clear()

    for target in ("/nothing", "/$other", "/q?api-version=x", "/t/subscriptions/s/rules/nothing"):
        raw(namespace, "GET", target)
    raw(namespace, "PUT", "/q", b"rubbish")

    wanted = ["", "", "q", "t/Subscriptions/s", "q"]
    assert namespace.metered == [(path, "management") for path in wanted]


@pytest.fixture
def extended(tmp_path: Path) -> Iterator[Namespace]:
    def answering(body: bytes) -> Callable[[HttpRequest], HttpResponse]:
        return lambda request: HttpResponse(status=202, body=body + request.target.encode())

    made = Namespace(
        tmp_path / "namespace.db",
        extensions={"/$pairbus": answering(b"all "), "$pairbus/Faults": answering(b"faults ")},
    )
    yield made
    made.store.close()


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("/$pairbus/faults?x=1", b"faults /$pairbus/faults?x=1"),
        ("/$PAIRBUS/faults/3", b"faults /$PAIRBUS/faults/3"),
        ("/$pairbus/faultsome", b"all /$pairbus/faultsome"),
        ("/$pairbus", b"all /$pairbus"),
    ],
)
def test_paths_of_our_own_go_to_their_handlers_and_are_not_metered(
    extended: Namespace, target: str, answer: bytes
):
    response = raw(extended, "POST", target, b"anything")

    assert (response.status, response.body) == (202, answer)
    assert extended.metered == []


@pytest.mark.parametrize("token", ["", sas("", "reader", LISTEN_KEY), sas("q"), sas("$pairbus")])
def test_paths_of_our_own_need_the_manage_right_over_the_namespace(extended: Namespace, token: str):
    assert raw(extended, "GET", "/$pairbus/faults", token=token).status == 401


METHODS = st.sampled_from(["GET", "PUT", "DELETE", "POST", "HEAD", "X"])
PIECES = st.sampled_from(
    [
        *("q", "t", "/", "//", "subscriptions", "rules", "$", "$Resources", "queues", "%2F", "%00"),
        *("\\", "%FF", "..", "?", "$skip=", "$top=", "&", "=", "api-version=", "2021-05", "-1"),
        "x" * 300,
    ]
)
BODIES = st.binary(max_size=60) | st.sampled_from(
    [entry("<QueueDescription/>"), entry("<RuleDescription/>"), entry("<TopicDescription/>")]
)


@given(METHODS, st.lists(PIECES, max_size=8).map("".join), BODIES, st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_anything_is_answered(
    namespace: Namespace, method: str, target: str, body: bytes, update: bool
):
    headers = {"if_match": "*"} if update else {}

    response = raw(namespace, method, f"/{target}", body, **headers)

    assert response.status in (200, 201, 400, 404, 405, 409)
    if response.body:
        assert parse_xml(response.body).tag
    assert raw(namespace, "GET", "/$Resources/queues").status == 200
