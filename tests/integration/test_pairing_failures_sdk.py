"""The errors of the real SDK for each failure of a send, and their kinds.

Each test covers both flavours, which raise the same errors. Independent calls run concurrently,
because the SDK takes half a second to open a link.
"""

import asyncio
import datetime
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, TransportType
from azure.servicebus._pyamqp import client as sdk_amqp
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from examples.engine.memory_server import MemoryServer, Response
from pairbus.amqp import events as ev
from pairbus.emulator.entities.descriptions import EntityStatus
from pairbus.emulator.namespace import LocalNamespace
from pairbus.emulator.root_key import ROOT_RULE
from pairbus.errors import AmqpError
from pairbus.pairing.failures import CONDITIONS, FailureKind, classify_failure
from tests.integration.emulator_clients import QUICK_CLOSE
from tests.integration.pairs import LISTENS, QUICK, until
from tests.integration.sdk_flavours import FLAVOURS, Awaited
from tests.interop.sdk_cases import connection_string

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("_threads")]

LATER = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)
UNENCODABLE = {"x": object()}

Failure = tuple[type[Exception], FailureKind]
CONNECTION: Failure = (ServiceBusConnectionError, FailureKind.UNAVAILABLE)
DISABLED: Failure = (MessagingEntityDisabledError, FailureKind.UNAVAILABLE)
INTERNAL: Failure = (ServiceBusError, FailureKind.UNAVAILABLE)
DETACHED: Failure = (ServiceBusConnectionError, FailureKind.UNKNOWN)
MANAGEMENT_LOST: Failure = (ServiceBusError, FailureKind.UNKNOWN)
BUSY: Failure = (ServiceBusServerBusyError, FailureKind.BUSY)
NOT_FOUND: Failure = (MessagingEntityNotFoundError, FailureKind.CALLER)
REFUSED: Failure = (ServiceBusError, FailureKind.CALLER)


def message(**options: Any) -> ServiceBusMessage:
    return ServiceBusMessage("x", **options)


def batch() -> ServiceBusMessageBatch:
    """A batch that was created without a link."""
    made = ServiceBusMessageBatch(max_size_in_bytes=1000)
    made.add_message(message())
    return made


SENDS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "single": lambda sender: sender.send_messages(message()),
    "list": lambda sender: sender.send_messages([message(), message()]),
    "batch": lambda sender: sender.send_messages(batch()),
    "schedule": lambda sender: sender.schedule_messages(message(), LATER),
}
OPENS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "enter": lambda sender: sender.__aenter__(),
    "create batch": lambda sender: sender.create_message_batch(),
    **SENDS,
}


@asynccontextmanager
async def sender_of(client: Any, path: str, *, opened: bool = False) -> AsyncIterator[Any]:
    """Yield a sender of either flavour, whose methods are awaited."""
    sync = isinstance(client, FLAVOURS["sync"][0])
    sender = client.get_queue_sender(path, **QUICK_CLOSE)
    sender = Awaited(sender) if sync else sender
    try:
        if opened:
            await sender.__aenter__()
        yield sender
    finally:
        await sender.close()
        await (Awaited(client) if sync else client).close()


def sender_at(
    flavour: str, address: str, path: str, *, opened: bool = False, retries: int = 0
) -> Any:
    """Return a sender with its own client and connection."""
    options = QUICK | {"retry_total": retries}
    client = FLAVOURS[flavour][0].from_connection_string(address, **options)
    return sender_of(client, path, opened=opened)


async def failure_of(work: Awaitable[Any]) -> Failure:
    """Return the class of the raised error, and its kind."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  the test compares the class
        await work
    return type(caught.value), classify_failure(caught.value)


async def failures_of(attempts: dict[str, Awaitable[Failure]]) -> dict[str, Failure]:
    return dict(zip(attempts, await asyncio.gather(*attempts.values()), strict=True))


async def failures_on_opening(flavour: str, address: str, path: str = "q") -> dict[str, Failure]:
    """Return the errors of all operations of a sender without a link."""

    async def attempt(name: str) -> Failure:
        async with sender_at(flavour, address, path) as sender:
            return await failure_of(OPENS[name](sender))

    return await failures_of({name: attempt(name) for name in OPENS})


@pytest.fixture(scope="module", autouse=True)
def _collect_sockets() -> Iterator[None]:
    """Collect the sockets of the SDK, whose warnings other test modules do not ignore."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def running() -> Iterator[LocalNamespace]:
    with LocalNamespace("failing", rules=[LISTENS]) as namespace:
        namespace.create_queue("q")
        yield namespace


@pytest.fixture
def namespace(running: LocalNamespace) -> Iterator[LocalNamespace]:
    """Remove all faults after each test."""
    yield running
    running.clear_faults()


# The primary cannot be reached, or refuses access: all operations raise the same error.


@pytest.mark.rule("S2")
@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [("refuse-connections", None, CONNECTION), ("disable", "q", DISABLED)],
)
async def test_refused_connection_and_disabled_entity_are_unavailable(
    namespace: LocalNamespace, flavour: str, kind: str, path: str | None, expected: Failure
) -> None:
    fault = namespace.add_fault(kind, path)
    raised = await failures_on_opening(flavour, namespace.connection_string)
    assert fault.fired == len(OPENS)
    assert raised == dict.fromkeys(OPENS, expected)


@pytest.mark.rule("S2")
async def test_stopped_namespace_is_unavailable(flavour: str) -> None:
    with LocalNamespace("stopped") as stopped:
        stopped.stop()
        raised = await failures_on_opening(flavour, stopped.connection_string)
    assert raised == dict.fromkeys(OPENS, CONNECTION)


@pytest.mark.rule("S2")
async def test_missing_entity_or_right_and_wrong_key_are_of_kind_caller(
    namespace: LocalNamespace, flavour: str
) -> None:
    for error, rule, key, path in (
        (ServiceBusAuthenticationError, None, None, "nowhere"),
        (ServiceBusAuthorizationError, LISTENS.name, LISTENS.primary_key, "q"),
        (ServiceBusAuthenticationError, ROOT_RULE, "wrong", "q"),
    ):
        address = namespace.connection_string
        if rule is not None:
            address = namespace.connection_string_of(rule, key)
        raised = await failures_on_opening(flavour, address, path)
        assert raised == dict.fromkeys(OPENS, (error, FailureKind.CALLER))


# Faults over an open link.

ON_SEND = {
    "cut": (CONNECTION, CONNECTION),
    "lose-answer": (CONNECTION, CONNECTION),
    "throttle": (BUSY, BUSY),
    "internal-error": (INTERNAL, INTERNAL),
    "detach": (DETACHED, MANAGEMENT_LOST),
    "disable": (DISABLED, DISABLED),
}
"""The errors of a send, and of scheduling, which uses the management link."""


@pytest.mark.rule("S2")
async def test_fault_during_a_send(namespace: LocalNamespace, flavour: str) -> None:
    expected, faults = {}, {}

    async def attempt(kind: str, name: str, path: str) -> Failure:
        async with sender_at(flavour, namespace.connection_string, path, opened=True) as sender:
            faults[path] = namespace.add_fault(kind, path, count=1)
            return await failure_of(SENDS[name](sender))

    attempts = {}
    for kind, (sending, scheduling) in ON_SEND.items():
        for name in SENDS:
            path = f"{kind}-{name}-{flavour}"
            namespace.create_queue(path)
            attempts[path] = attempt(kind, name, path)
            expected[path] = scheduling if name == "schedule" else sending
    raised = await failures_of(attempts)
    assert {path: fault.fired for path, fault in faults.items()} == dict.fromkeys(attempts, 1)
    assert raised == expected


@pytest.mark.rule("S2")
@pytest.mark.parametrize(
    ("kind", "send", "fired", "expected"),
    [
        ("throttle", "single", 2, BUSY),
        ("detach", "single", 2, DETACHED),
        ("detach", "schedule", 1, MANAGEMENT_LOST),  # the SDK does not retry
    ],
)
async def test_error_after_the_retries_of_the_sdk_is_of_the_same_kind(
    namespace: LocalNamespace, flavour: str, kind: str, send: str, fired: int, expected: Failure
) -> None:
    address = namespace.connection_string
    async with sender_at(flavour, address, "q", opened=True, retries=1) as sender:
        fault = namespace.add_fault(kind, "q")
        raised = await failure_of(SENDS[send](sender))
    assert fault.fired == fired
    assert raised == expected


@pytest.mark.rule("S2")
async def test_timeout_is_unavailable(namespace: LocalNamespace, flavour: str) -> None:
    async with sender_at(flavour, namespace.connection_string, "q", opened=True) as sender:
        fault = namespace.add_fault("answer-late", "q", count=1, seconds=60)
        raised = await failure_of(sender.send_messages(message(), timeout=0.2))
    await until(lambda: fault.fired == 1, "the fault")
    assert raised == (OperationTimeoutError, FailureKind.UNAVAILABLE)


@pytest.mark.rule("S2")
@pytest.mark.parametrize("deleted", [True, False])
async def test_entity_deleted_or_disabled_while_a_link_is_open(
    namespace: LocalNamespace, flavour: str, deleted: bool
) -> None:
    path, change = f"held-{flavour}-{deleted}", {"status": EntityStatus.SEND_DISABLED}
    namespace.create_queue(path)

    def end(core: Any) -> None:
        if deleted:
            core.entities.delete(path)
        else:
            core.entities.update(path, change, core.now_ms())

    async with sender_at(flavour, namespace.connection_string, path, opened=True) as sender:
        namespace.call(end)
        raised = await failure_of(sender.send_messages(message()))
    assert raised == (NOT_FOUND if deleted else DISABLED)


# Tokens.


@pytest.mark.rule("S2")
async def test_status_decides_about_a_refused_token(
    namespace: LocalNamespace, flavour: str
) -> None:
    kinds = {
        400: FailureKind.CALLER,
        401: FailureKind.CALLER,
        403: FailureKind.CALLER,
        404: FailureKind.CALLER,
        429: FailureKind.BUSY,
        500: FailureKind.UNAVAILABLE,
        503: FailureKind.UNAVAILABLE,
    }
    faults = {
        status: namespace.add_fault("refuse-tokens", f"for-{status}", status=status)
        for status in kinds
    }

    async def attempt(status: int) -> Failure:
        async with sender_at(flavour, namespace.connection_string, f"for-{status}") as sender:
            return await failure_of(sender.send_messages(message()))

    raised = await failures_of({str(status): attempt(status) for status in kinds})
    assert {fault.fired for fault in faults.values()} == {1}
    assert raised == {
        str(status): (ServiceBusAuthenticationError, kind) for status, kind in kinds.items()
    }


@pytest.mark.rule("S2")
async def test_token_request_without_a_response_is_unavailable(
    namespace: LocalNamespace, flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_amqp, "DEFAULT_AUTH_TIMEOUT", 1)  # the default is a minute
    fault = namespace.add_fault("ignore-tokens", "q")
    async with sender_at(flavour, namespace.connection_string, "q") as sender:
        raised = await failure_of(sender.send_messages(message()))
    # It counts whole seconds, so the first may be short.
    await until(lambda: fault.fired == 1, "the fault")
    assert raised == (ServiceBusError, FailureKind.UNAVAILABLE)


class Answer:
    """The attributes of a response that azure-core uses."""

    reason = "no"

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code

    def text(self) -> str:
        return ""


class NoToken:
    """A credential that fails to get a token."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def get_token(self, *scopes: str, **options: Any) -> Any:
        raise self.error


class AsyncNoToken(NoToken):
    async def get_token(self, *scopes: str, **options: Any) -> Any:
        raise self.error


def sender_with(flavour: str, namespace: LocalNamespace, credential: Any) -> Any:
    """Return a sender over TLS at a custom endpoint."""
    client = FLAVOURS[flavour][0](
        "localhost",
        credential,
        custom_endpoint_address=f"sb://localhost:{namespace.port}",
        connection_verify=namespace.ca_file,
        transport_type=TransportType.Amqp,
        **QUICK,
    )
    return sender_of(client, "q")


@pytest.mark.rule("S2")
async def test_status_decides_about_a_credential_without_a_token(
    namespace: LocalNamespace, flavour: str
) -> None:
    errors = {
        "401": (ClientAuthenticationError(response=Answer(401)), FailureKind.CALLER),
        "429": (HttpResponseError(response=Answer(429)), FailureKind.BUSY),
        "503": (HttpResponseError(response=Answer(503)), FailureKind.UNAVAILABLE),
        "no answer": (ServiceRequestError("no server"), FailureKind.UNAVAILABLE),
        "no status": (ClientAuthenticationError("nothing configured"), FailureKind.UNAVAILABLE),
    }
    credential = {"sync": NoToken, "aio": AsyncNoToken}[flavour]

    async def attempt(error: Exception) -> Failure:
        async with sender_with(flavour, namespace, credential(error)) as sender:
            return await failure_of(sender.send_messages(message()))

    raised = await failures_of({name: attempt(error) for name, (error, _) in errors.items()})
    assert raised == {name: (ServiceBusError, kind) for name, (_, kind) in errors.items()}


@pytest.mark.rule("S2")
async def test_wrong_key_at_a_custom_endpoint_is_of_kind_caller(
    namespace: LocalNamespace, flavour: str
) -> None:
    credential = AzureNamedKeyCredential(ROOT_RULE, "wrong")
    async with sender_with(flavour, namespace, credential) as sender:
        raised = await failure_of(sender.send_messages(message()))
    assert raised == (ServiceBusConnectionError, FailureKind.CALLER)


# Errors of the caller.


@pytest.mark.rule("S2")
async def test_message_that_is_too_large_is_of_kind_caller(
    namespace: LocalNamespace, flavour: str
) -> None:
    large = ServiceBusMessage("x" * 300_000)
    async with sender_at(flavour, namespace.connection_string, "q", opened=True) as sender:
        raised = [
            await failure_of(sender.send_messages(large)),
            await failure_of(sender.send_messages([large])),
            await failure_of(sender.schedule_messages(large, LATER)),
        ]
    assert raised == [(MessageSizeExceededError, FailureKind.CALLER)] * 3


@pytest.mark.rule("S2")
async def test_message_that_cannot_be_encoded_is_of_kind_caller(
    namespace: LocalNamespace, flavour: str
) -> None:
    bad = message(application_properties=UNENCODABLE)
    async with sender_at(flavour, namespace.connection_string, "q") as sender:
        raised = [
            await failure_of(sender.send_messages(bad)),  # this closes the link
            await failure_of(sender.send_messages([bad])),
            await failure_of(sender.schedule_messages(bad, LATER)),
        ]
    assert raised == [REFUSED, (TypeError, FailureKind.CALLER), (TypeError, FailureKind.CALLER)]


@pytest.mark.rule("S2")
async def test_bad_arguments_and_a_closed_sender_are_of_kind_caller(
    namespace: LocalNamespace, flavour: str
) -> None:
    async with sender_at(flavour, namespace.connection_string, "q") as sender:
        assert await failure_of(sender.send_messages(5)) == (TypeError, FailureKind.CALLER)
        assert await failure_of(sender.send_messages(message(), timeout=-1)) == (
            ValueError,
            FailureKind.CALLER,
        )
        await sender.close()
        for send in SENDS.values():
            assert await failure_of(send(sender)) == (ValueError, FailureKind.CALLER)


@pytest.mark.rule("S2")
async def test_full_entity_is_of_kind_caller(namespace: LocalNamespace, flavour: str) -> None:
    namespace.create_queue(f"small-{flavour}", max_size_in_megabytes=1)
    path, large = f"small-{flavour}", "x" * 250_000
    async with sender_at(flavour, namespace.connection_string, path, opened=True) as sender:
        for _ in range(4):
            await sender.send_messages(ServiceBusMessage(large))
        raised = await failure_of(sender.send_messages(ServiceBusMessage(large)))
    assert raised == (ServiceBusQuotaExceededError, FailureKind.CALLER)


# Errors that the emulator never sends, from a scripted server.

CLASSES_OF = {
    "amqp:unauthorized-access": ServiceBusAuthorizationError,
    "com.microsoft:auth-failed": ServiceBusAuthorizationError,
    "amqp:resource-limit-exceeded": ServiceBusQuotaExceededError,
    "com.microsoft:server-busy": ServiceBusServerBusyError,
    "amqp:link:detach-forced": ServiceBusConnectionError,
    "amqp:unknown-error": ServiceBusConnectionError,
}
"""The classes of rejected messages; other conditions raise a plain ServiceBusError."""


def error_with(condition: str) -> AmqpError:
    return AmqpError("an error of the test", condition=condition, info={"why": "a test"})


@pytest.mark.rule("S2")
async def test_condition_decides_about_a_rejected_message(
    server: MemoryServer, flavour: str
) -> None:
    server.call(
        lambda: server.rejections.update(
            {condition: error_with(condition) for condition in CONDITIONS}
        )
    )

    async def attempt(condition: str) -> Failure:
        async with sender_at(flavour, connection_string(server), condition) as sender:
            return await failure_of(sender.send_messages(message()))

    raised = await failures_of({condition: attempt(condition) for condition in CONDITIONS})
    assert {received.address for received in server.received} == CONDITIONS.keys()
    assert raised == {
        condition: (CLASSES_OF.get(condition, ServiceBusError), kind)
        for condition, kind in CONDITIONS.items()
    }


@pytest.mark.rule("S2")
@pytest.mark.parametrize(
    "end",
    [
        lambda link: link.detach(error_with("amqp:not-found")),
        lambda link: link.session.connection.close(error_with("com.microsoft:server-busy")),
    ],
    ids=["link", "connection"],
)
async def test_link_or_connection_that_ends_during_a_send_is_of_unknown_kind(
    server: MemoryServer, flavour: str, end: Callable[[Any], None]
) -> None:
    ended = []

    def intercept(peer: Any, event: ev.Event) -> bool:
        if not isinstance(event, ev.Delivery) or event.link.context.address == "$cbs":
            return False
        ended.append(event.link.context.address)
        end(event.link)
        return True

    server.call(lambda: setattr(server, "intercept", intercept))

    async def attempt(name: str) -> Failure:
        async with sender_at(flavour, connection_string(server), "q") as sender:
            return await failure_of(SENDS[name](sender))

    raised = await failures_of({name: attempt(name) for name in SENDS})
    assert sorted(ended) == ["q", "q", "q", "q/$management"]
    assert raised == dict.fromkeys(SENDS, DETACHED) | {"schedule": MANAGEMENT_LOST}


@pytest.mark.rule("S2")
async def test_new_link_reveals_the_hidden_reason(server: MemoryServer, flavour: str) -> None:
    gone = error_with("amqp:not-found")

    def delete() -> None:
        server.attach_errors["q"] = gone
        for end in server.endpoints:
            if end.address == "q":
                end.link.detach(gone)

    async with sender_at(flavour, connection_string(server), "q", opened=True) as sender:
        server.call(delete)
        raised = [await failure_of(sender.send_messages(message())) for _ in range(2)]
    assert raised == [DETACHED, NOT_FOUND]


@pytest.mark.rule("S2")
async def test_a_connection_that_is_closed_while_it_opens_is_judged_by_the_condition(
    start_server: Callable[..., MemoryServer], flavour: str
) -> None:
    async def attempt(condition: str) -> Failure:
        server = start_server()

        def intercept(peer: Any, event: ev.Event) -> bool:
            if isinstance(event, ev.Opened):
                peer.engine.close(error_with(condition))
                return True
            return False

        server.call(lambda: setattr(server, "intercept", intercept))
        async with sender_at(flavour, connection_string(server), "q") as sender:
            return await failure_of(sender.send_messages(message()))

    raised = await failures_of(
        {
            condition: attempt(condition)
            for condition in (
                "amqp:connection:forced",
                "amqp:internal-error",
                "amqp:not-found",
                "amqp:unauthorized-access",
                "com.microsoft:server-busy",
            )
        }
    )
    assert raised == {
        "amqp:connection:forced": CONNECTION,
        "amqp:internal-error": CONNECTION,
        "amqp:not-found": (ServiceBusCommunicationError, FailureKind.UNAVAILABLE),
        "amqp:unauthorized-access": (ServiceBusConnectionError, FailureKind.CALLER),
        "com.microsoft:server-busy": (ServiceBusConnectionError, FailureKind.BUSY),
    }


@pytest.mark.rule("S2")
async def test_refused_management_link_is_of_unknown_kind(
    server: MemoryServer, flavour: str
) -> None:
    refused = error_with("amqp:unauthorized-access")
    server.call(lambda: server.attach_errors.update({"q/$management": refused}))
    async with sender_at(flavour, connection_string(server), "q") as sender:
        raised = await failure_of(sender.schedule_messages(message(), LATER))
    assert raised == MANAGEMENT_LOST


@pytest.mark.rule("S2")
async def test_status_decides_about_a_management_response_without_a_condition(
    server: MemoryServer, flavour: str
) -> None:
    kinds = {401: REFUSED, 404: REFUSED, 429: (ServiceBusError, FailureKind.BUSY), 500: INTERNAL}
    server.call(
        lambda: server.handlers.update(
            {"$management": lambda request: Response(int(request.address.partition("/")[0]))}
        )
    )

    async def attempt(status: int) -> Failure:
        async with sender_at(flavour, connection_string(server), str(status)) as sender:
            return await failure_of(sender.schedule_messages(message(), LATER))

    raised = await failures_of({str(status): attempt(status) for status in kinds})
    assert raised == {str(status): expected for status, expected in kinds.items()}
