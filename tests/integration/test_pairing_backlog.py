"""Creation of backlog queues in a local namespace, with both flavours and every credential."""

import asyncio
import json
import logging
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from threading import Event
from typing import Any

import azure.servicebus
import azure.servicebus.aio
import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import TransportType

from pairbus.emulator.admin.api import AdministrationApi
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.entities.descriptions import QueueDescription, TopicDescription
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import (
    BacklogUnavailable,
    ConnectionLost,
    EntityExists,
    EntityNotFound,
    NotAuthorized,
    OperationTimeout,
    Unavailable,
)
from pairbus.pairing.backlog_queues import CreationLimits, ensure_queues
from pairbus.pairing.sdk_clients import administration_options
from pairbus.servicebus.administration import AdministrationClient, AdministrationOptions
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.time_spans import MAX_TIME_SPAN
from pairbus.servicebus.tokens import sign_token

LONGEST = b"P10675199DT2H48M5.4775807S"
"""The longest time span, as the service writes it."""
SEND = SharedAccessRule(name="sends", primary_key="key-of-sends", rights=frozenset({Right.SEND}))
QUICK = CreationLimits(backoff_s=0.01)

numbers = count(1)


Answer = Callable[[AdministrationApi, HttpRequest], HttpResponse | None]


class FakeStopEvent:
    """The event `stopping` of `ensure_queues`: calls a function instead of waiting."""

    def __init__(self, on_wait: Callable[[float], None]) -> None:
        self._on_wait = on_wait

    def wait(self, seconds: float) -> bool:
        if seconds:
            self._on_wait(seconds)
        return False


class Flavour:
    """One flavour of the SDK and of our drivers with a common interface, and unused paths."""

    def __init__(self, name: str, namespace: LocalNamespace) -> None:
        self.sync = name == "sync"
        self.Client = (azure.servicebus if self.sync else azure.servicebus.aio).ServiceBusClient
        self.namespace = namespace
        self.client = self.connect(namespace.connection_string)
        """A client without TLS, with a connection string and a key."""
        self.primary = f"primary-{next(numbers)}"
        self.paths = backlog_paths(self.primary, 3)
        self.waits: list[float] = []
        self.on_wait: Callable[[], None] = lambda: None
        self.read_paths: list[str] = []

    def connect(self, text: str, **options: Any) -> Any:
        return self.Client.from_connection_string(text, **options)

    def administration(self, client: Any = None) -> AdministrationClient:
        client = self.client if client is None else client
        loop = None if self.sync else asyncio.get_running_loop()
        return AdministrationClient(administration_options(client, loop=loop))

    async def ensure(self, client: Any = None, limits: CreationLimits = QUICK) -> list[str]:
        with self.administration(client) as administration:
            self._watch(administration)
            queues = await asyncio.to_thread(
                ensure_queues,
                administration,
                self.paths,
                limits,
                stopping=FakeStopEvent(self._wait),
            )
            return list(queues)

    def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.on_wait()

    def _watch(self, admin: Any) -> None:
        get_queue = admin.get_queue
        admin.get_queue = lambda path, **kw: (self.read_paths.append(path), get_queue(path, **kw))[
            1
        ]

    def token_credential(self) -> Any:
        return Bearer() if self.sync else AsyncBearer()


class Bearer:
    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken(f"token-for-{scopes[0]}", int(time.time()) + 3600)


class AsyncBearer:
    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return Bearer().get_token(*scopes)

    async def close(self) -> None: ...

    async def __aenter__(self) -> "AsyncBearer":
        return self

    async def __aexit__(self, *exc: object) -> None: ...


class RequestLog:
    """Records the requests to the administration API, and can answer them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[HttpRequest] = []
        self.schemes: set[str] = set()
        self.answers: list[HttpResponse] = []
        self.answer: Callable[[AdministrationApi, HttpRequest], HttpResponse | None] = (
            lambda admin, request: None
        )
        handle = AdministrationApi.handle

        def logged(
            admin: AdministrationApi,
            request: HttpRequest,
            now_ms: int,
            *,
            scheme: str,
            **times: int,
        ) -> HttpResponse:
            self.requests.append(request)
            self.schemes.add(scheme)
            answer = self.answer(admin, request)
            if answer is None:
                answer = handle(admin, request, now_ms, scheme=scheme, **times)
            self.answers.append(answer)
            return answer

        monkeypatch.setattr(AdministrationApi, "handle", logged)

    @property
    def statuses(self) -> list[int]:
        return [answer.status for answer in self.answers]

    def methods_and_names(self) -> list[tuple[str, str]]:
        """Return the methods and the last segments of the paths."""
        return [(request.method, request.path.rpartition("/")[2]) for request in self.requests]


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace(
        "secondary",
        rules=[SEND],
        trust_bearer_tokens=True,
        host_names=["orders.servicebus.invalid"],
    ) as namespace:
        yield namespace


@pytest.fixture(params=["sync", "aio"])
def flavour(request: pytest.FixtureRequest, namespace: LocalNamespace) -> Flavour:
    """Each flavour in turn."""
    return Flavour(request.param, namespace)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> RequestLog:
    return RequestLog(monkeypatch)


def description(namespace: LocalNamespace, path: str) -> Any:
    return namespace.call(lambda core: core.entities.get(path).description)


def queues(namespace: LocalNamespace, primary: str) -> list[str]:
    """Return the paths of all entities below a name."""
    return namespace.call(
        lambda core: sorted(
            entity.path for entity in core.entities.all() if entity.path.startswith(f"{primary}/")
        )
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "pairbus.pairing"]


# Creating.


@pytest.mark.rule("P3", "P4")
async def test_queues_are_created_with_the_documented_settings(
    flavour: Flavour, log: RequestLog
) -> None:
    assert await flavour.ensure() == flavour.paths

    assert queues(flavour.namespace, flavour.primary) == [
        f"{flavour.primary}/x-servicebus-transfer/{index}" for index in range(3)
    ]
    for path in flavour.paths:
        # Everything else is the service's default.
        assert description(flavour.namespace, path) == QueueDescription(
            name=path,
            max_size_in_megabytes=5120,
            max_delivery_count=2147483647,
            default_message_time_to_live=MAX_TIME_SPAN,
            auto_delete_on_idle=MAX_TIME_SPAN,
            lock_duration=timedelta(minutes=1),
            dead_lettering_on_message_expiration=True,
            enable_batched_operations=True,
            support_ordering=True,
        )
        created = next(r for r in log.requests if (r.method, r.path) == ("PUT", path))
        with flavour.administration() as administration:
            await asyncio.to_thread(administration.get_queue, path)
        # Both requests and responses have the longest time span to the last digit.
        for document in (created.body, log.answers[-1].body):
            for setting in (b"DefaultMessageTimeToLive", b"AutoDeleteOnIdle"):
                assert b"<%b>%b</%b>" % (setting, LONGEST, setting) in document


@pytest.mark.rule("P5")
async def test_existing_queues_are_used_unchanged(flavour: Flavour, log: RequestLog) -> None:
    extra = f"{flavour.primary}/x-servicebus-transfer/7"
    flavour.namespace.create_queue(flavour.paths[0], requires_session=True, max_delivery_count=3)
    flavour.namespace.create_queue(extra)
    before = [description(flavour.namespace, path) for path in (flavour.paths[0], extra)]

    assert await flavour.ensure() == flavour.paths
    assert await flavour.ensure() == flavour.paths

    assert [description(flavour.namespace, path) for path in (flavour.paths[0], extra)] == before
    assert queues(flavour.namespace, flavour.primary) == [*flavour.paths, extra]
    first = [("GET", "0"), ("GET", "1"), ("PUT", "1"), ("GET", "2"), ("PUT", "2")]
    assert log.methods_and_names() == [*first, ("GET", "0"), ("GET", "1"), ("GET", "2")]


@pytest.mark.rule("P5")
async def test_queue_that_another_process_creates_meanwhile_is_used(
    flavour: Flavour, log: RequestLog
) -> None:
    def overtake(admin: AdministrationApi, request: HttpRequest) -> None:
        if request.method == "PUT" and request.path == flavour.paths[1]:
            admin._entities.create(QueueDescription(name=flavour.paths[1], max_delivery_count=3), 0)

    log.answer = overtake

    assert await flavour.ensure() == flavour.paths

    assert log.statuses.count(409) == 1
    assert description(flavour.namespace, flavour.paths[1]).max_delivery_count == 3
    assert flavour.waits == []


QUEUE_CREATOR = """
import sys, json
from threading import Event
from pairbus.pairing.backlog_queues import ensure_queues
from pairbus.servicebus.administration import AdministrationClient, AdministrationOptions
from pairbus.servicebus.backlog_paths import backlog_paths

options = AdministrationOptions.from_connection_string(sys.argv[1])
with AdministrationClient(options) as administration:
    print("ready", flush=True)
    while primary := sys.stdin.readline().strip():
        queues = ensure_queues(administration, backlog_paths(primary, 10), stopping=Event())
        print(json.dumps(queues), flush=True)
"""


@pytest.mark.rule("P5")
def test_two_processes_that_create_the_same_queues_both_succeed(
    namespace: LocalNamespace, log: RequestLog
) -> None:
    command = [sys.executable, "-c", QUEUE_CREATOR, namespace.connection_string]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as first, subprocess.Popen(command, **pipes) as second:
        for process in (first, second):
            assert process.stdout.readline() == "ready\n"
        # Repeat until one process was refused a queue that the other had just created.
        for attempt in range(20):
            name = f"raced-{attempt}"
            for process in (first, second):
                process.stdin.write(f"{name}\n")
                process.stdin.flush()
            results = [json.loads(process.stdout.readline()) for process in (first, second)]

            assert results == [backlog_paths(name, 10)] * 2
            assert queues(namespace, name) == backlog_paths(name, 10)
            if 409 in log.statuses:
                break
        for process in (first, second):
            process.stdin.close()

    assert 409 in log.statuses
    assert (first.returncode, second.returncode) == (0, 0)


# Queues that cannot be created.


@pytest.mark.rule("P6")
async def test_path_of_a_topic_is_left_out_with_a_warning(
    flavour: Flavour, caplog: pytest.LogCaptureFixture
) -> None:
    flavour.namespace.create_topic(flavour.paths[1])

    assert await flavour.ensure() == [flavour.paths[0], flavour.paths[2]]

    (warning,) = warnings(caplog)
    assert flavour.paths[1] in warning
    assert "is a topic, not a queue" in warning
    assert flavour.waits == []


@pytest.mark.rule("P6")
async def test_topic_created_meanwhile_is_not_used(flavour: Flavour, log: RequestLog) -> None:
    def overtake(admin: AdministrationApi, request: HttpRequest) -> None:
        if request.method == "PUT" and request.path == flavour.paths[0]:
            admin._entities.create(TopicDescription(name=flavour.paths[0]), 0)

    log.answer = overtake

    assert await flavour.ensure() == flavour.paths[1:]
    assert log.statuses.count(409) == 1


@pytest.mark.rule("P6")
async def test_temporary_failure_is_retried(flavour: Flavour, log: RequestLog) -> None:
    failures = iter([503, 429, 500])

    def fail(admin: AdministrationApi, request: HttpRequest) -> HttpResponse | None:
        status = next(failures, None) if request.path != flavour.paths[0] else None
        return None if status is None else HttpResponse(status=status)

    log.answer = fail

    assert await flavour.ensure(limits=CreationLimits(attempts=4)) == flavour.paths
    assert [status for status in log.statuses if status >= 400] == [503, 429, 500]
    assert flavour.waits == [0.5, 1.0, 2.0]


@pytest.mark.rule("P6")
async def test_queue_that_keeps_failing_is_left_out(
    flavour: Flavour, log: RequestLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.answer = lambda _, request: (
        HttpResponse(status=500) if request.path == flavour.paths[1] else None
    )

    assert await flavour.ensure() == [flavour.paths[0], flavour.paths[2]]

    assert log.statuses.count(500) == flavour.read_paths.count(flavour.paths[1]) == 3
    (warning,) = warnings(caplog)
    assert flavour.paths[1] in warning


@pytest.mark.rule("P6")
async def test_full_namespace_creates_as_many_queues_as_it_can(
    flavour: Flavour, log: RequestLog
) -> None:
    log.answer = lambda _, request: (
        HttpResponse(status=403)
        if request.method == "PUT" and request.path != flavour.paths[0]
        else None
    )

    assert await flavour.ensure() == flavour.paths[:1]
    assert log.statuses.count(403) == 2  # each creation was tried once


@pytest.mark.rule("P6")
async def test_no_queue_at_all_raises_backlog_unavailable(
    flavour: Flavour, log: RequestLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.answer = lambda _, request: HttpResponse(status=500)

    with pytest.raises(BacklogUnavailable, match="any of 3 backlog queues") as caught:
        await flavour.ensure()

    assert type(caught.value.__cause__) is Unavailable
    assert f"localhost:{flavour.namespace.port}" in str(caught.value)
    assert warnings(caplog) == []
    assert len(log.requests) == 9


@pytest.mark.rule("P6")
async def test_missing_right_fails_immediately(flavour: Flavour, log: RequestLog) -> None:
    client = flavour.connect(flavour.namespace.connection_string_of(SEND.name, SEND.primary_key))

    with pytest.raises(BacklogUnavailable, match="Manage right") as caught:
        await flavour.ensure(client)

    assert isinstance(caught.value.__cause__, NotAuthorized)
    assert log.statuses == [401]
    assert flavour.waits == []
    assert queues(flavour.namespace, flavour.primary) == []


@pytest.mark.rule("P6")
async def test_unreachable_namespace_fails_after_the_attempts_for_one_queue(
    flavour: Flavour,
) -> None:
    with LocalNamespace("down") as namespace:
        client = flavour.connect(namespace.connection_string)
        namespace.stop()

        with pytest.raises(BacklogUnavailable) as caught:
            await flavour.ensure(client)

    assert isinstance(caught.value.__cause__, ConnectionLost)
    assert flavour.read_paths == flavour.paths[:1] * 3


@pytest.mark.rule("P6", "S2a")
async def test_frozen_namespace_fails_in_bounded_time(flavour: Flavour) -> None:
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as frozen:  # it accepts connections and never answers
        key = "SharedAccessKeyName=root;SharedAccessKey=x;UseDevelopmentEmulator=true"
        port = frozen.getsockname()[1]
        client = flavour.connect(f"Endpoint=sb://127.0.0.1:{port}/;{key}")

        with pytest.raises(BacklogUnavailable) as caught:
            await flavour.ensure(client, CreationLimits(attempts=2, request_timeout_s=0.2))

    assert isinstance(caught.value.__cause__, OperationTimeout)
    assert flavour.read_paths == flavour.paths[:1] * 2


@pytest.mark.rule("P6")
async def test_namespace_that_goes_down_keeps_the_queues_created_before(
    flavour: Flavour, log: RequestLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.answer = lambda _, request: (
        HttpResponse(status=503) if request.path == flavour.paths[1] else None
    )
    with LocalNamespace("vanishes") as namespace:
        flavour.on_wait = namespace.stop
        client = flavour.connect(namespace.connection_string)
        assert await flavour.ensure(client) == flavour.paths[:1]

    assert flavour.read_paths == [flavour.paths[0]] + [flavour.paths[1]] * 3
    of_one, of_two = warnings(caplog)
    assert flavour.paths[1] in of_one
    assert flavour.paths[2] in of_two


# Decisions, without a namespace.


class ScriptedAdministration:
    """An administration client that answers requests from a list, and a fake clock."""

    options = AdministrationOptions(host="secondary")

    def __init__(self, *answers: Exception | None, seconds: float = 0.0) -> None:
        self.answers = list(answers)
        self.seconds = seconds
        self.now = 0.0
        self.done: list[tuple[Any, ...]] = []
        self.on_answer: Callable[[], None] = lambda: None

    def get_queue(self, path: str, *, timeout_s: float) -> None:
        self._answer("get_queue", path, timeout_s)

    def create_queue(self, path: str, *, timeout_s: float, **settings: Any) -> None:
        self._answer("create_queue", path, timeout_s)

    def _answer(self, name: str, path: str, timeout_s: float) -> None:
        self.done.append((name, path, timeout_s))
        self.now += self.seconds
        error = self.answers.pop(0)
        self.on_answer()
        if error is not None:
            raise error

    def _sleep(self, seconds: float) -> None:
        self.done.append(("sleep", seconds))
        self.now += seconds

    def names(self) -> list[str]:
        return [entry[0] for entry in self.done]

    def ensure(self, paths: list[str], limits: CreationLimits) -> list[str]:
        stopping = FakeStopEvent(self._sleep)
        return list(ensure_queues(self, paths, limits, stopping=stopping, clock=lambda: self.now))


@pytest.mark.rule("P6", "S2a")
def test_no_request_gets_more_time_than_is_left() -> None:
    limits = CreationLimits(request_timeout_s=10, deadline_s=25)
    script = ScriptedAdministration(*[None] * 9, seconds=10)

    assert script.ensure(["a", "b", "c", "d"], limits) == ["a", "b", "c"]
    assert script.done == [("get_queue", "a", 10), ("get_queue", "b", 10), ("get_queue", "c", 5)]


@pytest.mark.rule("P6", "S2a")
def test_no_pause_exceeds_the_deadline() -> None:
    script = ScriptedAdministration(ConnectionLost("refused"), ConnectionLost("refused"))

    with pytest.raises(
        BacklogUnavailable, match=r"time for all backlog queues \(2 s\) is over"
    ) as caught:
        script.ensure(["a", "b"], CreationLimits(attempts=9, backoff_s=1, deadline_s=2))

    assert script.done == [("get_queue", "a", 2), ("sleep", 1), ("get_queue", "a", 1)]
    assert isinstance(caught.value.__cause__, OperationTimeout)
    assert isinstance(caught.value.__cause__.__cause__, ConnectionLost)


@pytest.mark.rule("P5")
def test_creation_whose_response_was_lost_is_detected() -> None:
    script = ScriptedAdministration(EntityNotFound("no"), ConnectionLost("reset"), None)

    assert script.ensure(["a"], CreationLimits()) == ["a"]
    assert script.names() == ["get_queue", "create_queue", "sleep", "get_queue"]


@pytest.mark.rule("P5")
def test_conflict_with_a_creation_in_progress_is_retried() -> None:
    missing, conflict = EntityNotFound("no"), EntityExists("under way")
    script = ScriptedAdministration(missing, conflict, missing, None)

    assert script.ensure(["a"], CreationLimits()) == ["a"]
    assert script.names() == [
        "get_queue",
        "create_queue",
        "get_queue",
        "sleep",
        "get_queue",
    ]


def test_no_request_is_sent_after_the_creation_was_stopped() -> None:
    script = ScriptedAdministration(EntityNotFound("no"), ConnectionLost("reset"))
    stopping = Event()
    script.on_answer = lambda: stopping.set() if not script.answers else None

    with pytest.raises(BacklogUnavailable):
        ensure_queues(script, ["a", "b"], CreationLimits(), stopping=stopping)

    assert script.names() == ["get_queue", "create_queue"]


def test_no_request_is_sent_without_paths() -> None:
    assert ScriptedAdministration().ensure([], CreationLimits()) == []


# Credentials and connections.


def signature(namespace: LocalNamespace, *, key: str | None = None) -> str:
    parsed = ConnectionString.parse(namespace.connection_string)
    address = f"sb://localhost:{namespace.port}/"
    given = parsed.key if key is None else key
    return sign_token(address, parsed.key_name, given, int(time.time()) + 600)


def with_credential(kind: str, flavour: Flavour, *, tls: bool = False, **options: Any) -> Any:
    """Return a client with one kind of credential."""
    namespace = flavour.namespace
    parsed = ConnectionString.parse(namespace.connection_string)
    emulator = "" if tls else ";UseDevelopmentEmulator=true"
    if tls:
        options |= over_tls(namespace)
    endpoint = f"Endpoint=sb://localhost:{namespace.port}/"
    if kind == "connection string with a key":
        key = f"SharedAccessKeyName={parsed.key_name};SharedAccessKey={parsed.key}"
        return flavour.connect(f"{endpoint};{key}{emulator}", **options)
    if kind == "connection string with a signature":
        shared = f"SharedAccessSignature={signature(namespace)}"
        return flavour.connect(f"{endpoint};{shared}{emulator}", **options)
    credential = {
        "named key": lambda: AzureNamedKeyCredential(parsed.key_name, parsed.key),
        "signature": lambda: AzureSasCredential(signature(namespace)),
        "token": flavour.token_credential,
    }[kind]()
    return flavour.Client(f"localhost:{namespace.port}", credential, use_tls=tls, **options)


def over_tls(namespace: LocalNamespace) -> dict[str, Any]:
    return {
        "transport_type": TransportType.Amqp,
        "custom_endpoint_address": f"sb://localhost:{namespace.port}",
    }


CREDENTIALS = [
    "connection string with a key",
    "connection string with a signature",
    "named key",
    "signature",
    "token",
]


@pytest.mark.rule("P7")
@pytest.mark.parametrize("kind", CREDENTIALS)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_every_credential_can_administer(
    flavour: Flavour, log: RequestLog, kind: str, tls: bool
) -> None:
    verify = flavour.namespace.ca_file if tls else None
    client = with_credential(kind, flavour, tls=tls, connection_verify=verify)

    assert await flavour.ensure(client) == flavour.paths

    assert log.schemes == {"https" if tls else "http"}
    scheme = "Bearer token-for-" if kind == "token" else "SharedAccessSignature sr="
    for request in log.requests:
        assert (request.header("Authorization") or "").startswith(scheme)


@pytest.mark.rule("P7")
async def test_signature_of_a_wrong_key_is_refused(flavour: Flavour) -> None:
    for credential in (
        AzureSasCredential(signature(flavour.namespace, key="another")),
        AzureNamedKeyCredential("RootManageSharedAccessKey", "another"),
    ):
        client = flavour.Client(f"localhost:{flavour.namespace.port}", credential, use_tls=False)
        with pytest.raises(BacklogUnavailable):
            await flavour.ensure(client)


@pytest.mark.rule("P7")
def test_replaced_key_or_signature_is_used_immediately(
    namespace: LocalNamespace,
) -> None:
    parsed = ConnectionString.parse(namespace.connection_string)
    namespace.create_queue("replaced")
    named = AzureNamedKeyCredential("RootManageSharedAccessKey", parsed.key)
    given = AzureSasCredential(signature(namespace))
    for credential, change in (
        (named, lambda: named.update("RootManageSharedAccessKey", "another")),
        (given, lambda: given.update(signature(namespace, key="another"))),
    ):
        client = azure.servicebus.ServiceBusClient(
            f"localhost:{namespace.port}", credential, use_tls=False
        )
        with AdministrationClient(administration_options(client)) as administration:
            administration.get_queue("replaced")
            change()
            with pytest.raises(NotAuthorized):
                administration.get_queue("replaced")


@pytest.mark.rule("P7")
async def test_certificate_is_checked_with_the_ca_of_the_client(
    flavour: Flavour, log: RequestLog
) -> None:
    client = with_credential("named key", flavour, tls=True)

    with pytest.raises(BacklogUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await flavour.ensure(client)
    assert log.requests == []


@pytest.mark.rule("P7")
async def test_ssl_context_of_the_client_is_used_unchanged(
    flavour: Flavour, log: RequestLog
) -> None:
    for ca_file in (flavour.namespace.ca_file, None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if ca_file is not None:
            context.load_verify_locations(ca_file)
        before = context.cert_store_stats()
        client = with_credential("named key", flavour, tls=True, ssl_context=context)
        if ca_file is not None:
            assert await flavour.ensure(client) == flavour.paths
        else:
            with pytest.raises(BacklogUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await flavour.ensure(client)
        assert context.cert_store_stats() == before
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert log.schemes == {"https"}


@pytest.mark.rule("P7")
async def test_custom_endpoint_gets_the_namespace_in_the_host_header(
    flavour: Flavour, log: RequestLog
) -> None:
    parsed = ConnectionString.parse(flavour.namespace.connection_string)
    credential = AzureNamedKeyCredential(parsed.key_name, parsed.key)
    options = over_tls(flavour.namespace) | {"connection_verify": flavour.namespace.ca_file}
    client = flavour.Client("orders.servicebus.invalid", credential, **options)

    assert await flavour.ensure(client) == flavour.paths
    assert {request.header("Host") for request in log.requests} == {"orders.servicebus.invalid"}


async def test_host_is_used_as_it_is_written(flavour: Flavour, log: RequestLog) -> None:
    text = flavour.namespace.connection_string.replace("localhost", "127.0.0.1")

    assert await flavour.ensure(flavour.connect(text)) == flavour.paths
    expected = f"127.0.0.1:{flavour.namespace.port}"
    assert {request.header("Host") for request in log.requests} == {expected}


@pytest.mark.rule("P7")
async def test_proxy_of_the_client_is_used(flavour: Flavour, log: RequestLog) -> None:
    parsed = ConnectionString.parse(flavour.namespace.connection_string)
    # A local namespace can act as a proxy: it accepts requests for any host.
    proxy = {"proxy_hostname": "localhost", "proxy_port": flavour.namespace.port}
    client = flavour.Client(
        "orders.servicebus.invalid:5672",
        AzureNamedKeyCredential(parsed.key_name, parsed.key),
        use_tls=False,
        http_proxy=proxy | {"username": "me@home", "password": "p/w"},
    )

    assert await flavour.ensure(client) == flavour.paths

    for request in log.requests:
        assert request.target.startswith("http://orders.servicebus.invalid:5672/")
        assert request.header("Proxy-Authorization") == "Basic bWVAaG9tZTpwL3c="


@pytest.mark.rule("P7")
async def test_proxies_of_the_environment_are_not_used_without_tls(
    flavour: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://localhost:1")
    monkeypatch.setenv("NO_PROXY", "")

    assert await flavour.ensure() == flavour.paths


async def test_no_secret_is_logged(flavour: Flavour, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    flavour.namespace.create_topic(flavour.paths[1])  # which leads to a warning
    for kind in CREDENTIALS[:4]:
        await flavour.ensure(with_credential(kind, flavour))
    parsed = ConnectionString.parse(flavour.namespace.connection_string)

    assert caplog.records
    assert parsed.key not in caplog.text
    assert "sig=" not in caplog.text
