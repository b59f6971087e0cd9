"""Injected faults for messages scheduled over the management link, and for tokens."""

import datetime
import gc
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSender
from azure.servicebus._pyamqp import client as sdk_amqp
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from pairbus.amqp.client import Client, Management, Sender
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.emulator.faults import Fault
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import (
    Busy,
    ConfigurationError,
    ConnectionLost,
    EntityDisabled,
    EntityNotFound,
    LinkLost,
    NotAuthorized,
    OperationTimeout,
    PairbusError,
    Unavailable,
)
from tests.integration.emulator_kit import (
    ask,
    client_of,
    payload,
    sdk_sender,
    send,
    stored,
    wait_until,
)

# The SDK does not close its socket when a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

LATER = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)

ON_SCHEDULE = {
    "cut": (ServiceBusConnectionError, ConnectionLost),
    "lose-answer": (ServiceBusConnectionError, ConnectionLost),
    "throttle": (ServiceBusServerBusyError, Busy),
    "internal-error": (ServiceBusError, Unavailable),
    "detach": (ServiceBusError, LinkLost),
    "disable": (MessagingEntityDisabledError, EntityDisabled),
}
"""The errors that the SDK and our client raise when scheduling triggers the fault."""

STORES = {"lose-answer"}
NO_RETRY = {"detach"}
"""The SDK reports the loss of its management link as an internal error."""


@pytest.fixture(autouse=True)
def forgotten_sockets() -> Iterator[None]:
    """Collect sockets of the SDK within the test that ignores their warnings."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def running() -> Iterator[LocalNamespace]:
    with LocalNamespace("faulty") as namespace:
        yield namespace


@pytest.fixture
def namespace(running: LocalNamespace) -> LocalNamespace:
    """A namespace with two empty queues and no faults."""
    running.reset()
    running.clear_faults()
    running.create_queue("q")
    running.create_queue("other")
    return running


@pytest.fixture
def client(namespace: LocalNamespace) -> Iterator[Client]:
    with client_of(namespace) as client:
        yield client


def schedule(sender: ServiceBusSender, *bodies: str, timeout: float | None = None) -> list[int]:
    messages = [ServiceBusMessage(body) for body in bodies]
    return sender.schedule_messages(messages, LATER, timeout=timeout)


def for_later(body: str = "x") -> bytes:
    at = Timestamp(int(LATER.timestamp() * 1000))
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): at}
    return Message.build(message_annotations=annotations, data=body.encode()).encode()


# Messages that are scheduled.


@pytest.mark.parametrize("kind", ON_SCHEDULE)
def test_sdk_without_retries_raises_the_error_of_the_fault_when_scheduling(
    namespace: LocalNamespace, kind: str
) -> None:
    with sdk_sender(namespace) as sender:
        fault = namespace.add_fault(kind, "q", count=1)
        with pytest.raises(ServiceBusError) as caught:
            schedule(sender, "a", "b")
    assert fault.fired == 1
    assert type(caught.value) is ON_SCHEDULE[kind][0]
    assert stored(namespace) == (["a", "b"] if kind in STORES else [])


@pytest.mark.parametrize("kind", sorted(set(ON_SCHEDULE) - NO_RETRY))
def test_sdk_with_a_retry_schedules_despite_a_fault_that_occurs_once(
    namespace: LocalNamespace, kind: str
) -> None:
    with sdk_sender(namespace, retries=1) as sender:
        fault = namespace.add_fault(kind, "q", count=1)
        assert len(schedule(sender, "x")) == 1
    assert fault.fired == 1
    assert stored(namespace) == (["x", "x"] if kind in STORES else ["x"])


@pytest.mark.parametrize("kind", ON_SCHEDULE)
def test_our_client_raises_the_error_of_the_fault_when_scheduling_and_recovers(
    namespace: LocalNamespace, client: Client, kind: str
) -> None:
    management = Management(client, "q")
    fault = namespace.add_fault(kind, "q", count=1)
    with pytest.raises(PairbusError) as caught:
        management.schedule([for_later("first")])
    assert fault.fired == 1
    assert type(caught.value) is ON_SCHEDULE[kind][1]
    management.schedule([for_later("second")])
    assert fault.fired == 1
    assert stored(namespace) == (["first", "second"] if kind in STORES else ["second"])


@pytest.mark.parametrize("kind", [*ON_SCHEDULE, "stop-reading", "answer-late"])
def test_scheduling_on_another_entity_does_not_trigger_the_fault(
    namespace: LocalNamespace, client: Client, kind: str
) -> None:
    fault = namespace.add_fault(kind, "q", seconds=60)
    Management(client, "other").schedule([for_later()])
    assert fault.fired == 0
    assert stored(namespace, "other") == ["x"]


@pytest.mark.parametrize("kind", ["cut", "throttle", "detach", "lose-answer", "disable"])
def test_other_requests_do_not_trigger_a_fault(
    namespace: LocalNamespace, client: Client, kind: str
) -> None:
    management = Management(client, "q")
    numbers = management.schedule([for_later(), for_later()])
    fault = namespace.add_fault(kind, "q")
    assert len(management.peek(1, 10)) == 2
    management.cancel(numbers)
    assert fault.fired == 0
    assert stored(namespace) == []


def test_sent_and_scheduled_messages_share_the_count_of_a_fault(
    namespace: LocalNamespace, client: Client
) -> None:
    management = Management(client, "q")
    fault = namespace.add_fault("throttle", "q", after=1, count=2)
    with Sender(client, "q") as sender:
        sender.send(payload("0"))
        with pytest.raises(Busy):
            management.schedule([for_later("1")])
        with pytest.raises(Busy):
            sender.send(payload("2"))
        management.schedule([for_later("3")])
    assert fault.fired == 2
    assert stored(namespace) == ["0", "3"]


def test_sdk_waits_for_late_sequence_numbers_of_scheduled_messages(
    namespace: LocalNamespace,
) -> None:
    with sdk_sender(namespace) as sender:
        fault = namespace.add_fault("answer-late", "q", count=1, seconds=0.3)
        assert len(schedule(sender, "x")) == 1
    assert fault.fired == 1
    assert stored(namespace) == ["x"]


def test_response_after_the_timeout_leaves_scheduled_messages_stored(
    namespace: LocalNamespace, client: Client
) -> None:
    management = Management(client, "q")
    management.peek(1)  # attach the links first, which takes time
    fault = namespace.add_fault("answer-late", "q", count=1, seconds=60)
    with pytest.raises(OperationTimeout):
        management.schedule([for_later("late")], timeout_s=0.1)
    wait_until(lambda: fault.fired == 1, "the fault")
    management.schedule([for_later("next")])
    assert stored(namespace) == ["late", "next"]


def test_connection_that_is_no_longer_read_schedules_nothing(
    namespace: LocalNamespace,
) -> None:
    with sdk_sender(namespace) as sender:
        schedule(sender, "before")  # attach the links first, which takes time
        fault = namespace.add_fault("stop-reading", "q", count=1)
        with pytest.raises(OperationTimeoutError):
            schedule(sender, "x", timeout=1)
        wait_until(lambda: fault.fired == 1, "the fault")
    assert stored(namespace) == ["before"]


def test_throttled_messages_do_not_use_up_the_credit_of_their_sender(
    namespace: LocalNamespace, client: Client
) -> None:
    fault = namespace.add_fault("throttle", "q", count=1500)
    with Sender(client, "q") as sender:
        for _ in range(15):
            deadline = client.deadline(None)
            sender.wait([sender.enqueue(payload(), 0, deadline) for _ in range(100)])
        assert fault.fired == 1500
        sender.send(payload())
    assert stored(namespace) == ["x"]


# Tokens.

REFUSED = {401: NotAuthorized, 404: EntityNotFound, 500: Unavailable, 503: Busy}
"""The error of our client for a status."""


@pytest.mark.parametrize("status", REFUSED)
def test_refused_token_is_an_error_with_its_status_and_the_next_is_accepted(
    namespace: LocalNamespace, status: int
) -> None:
    fault = namespace.add_fault("refuse-tokens", "q", count=1, status=status)
    with client_of(namespace) as client:
        sender = Sender(client, "q")
        with pytest.raises(REFUSED[status], match=f"status {status}"):
            sender.open()
        assert fault.fired == 1
        sender.send(payload())
    assert fault.fired == 1
    assert stored(namespace) == ["x"]


@pytest.mark.parametrize("status", REFUSED)
def test_sdk_raises_an_authentication_error_or_retries_a_refused_token(
    namespace: LocalNamespace, status: int
) -> None:
    fault = namespace.add_fault("refuse-tokens", "q", count=2, status=status)
    with pytest.raises(ServiceBusAuthenticationError), sdk_sender(namespace):
        pass
    assert fault.fired == 1
    with sdk_sender(namespace, retries=1) as sender:
        send(sender)
    assert fault.fired == 2
    assert stored(namespace) == ["x"]


def test_ignored_token_gets_no_response_and_grants_no_right(
    namespace: LocalNamespace,
) -> None:
    fault = namespace.add_fault("ignore-tokens", "q", count=1)
    with client_of(namespace) as client:
        Sender(client, "other").open()  # which attaches links to `$cbs`
        sender = Sender(client, "q")
        with pytest.raises(OperationTimeout):
            sender.send(payload(), timeout_s=0.3)
        wait_until(lambda: fault.fired == 1, "the fault")
        sender.send(payload())
    assert stored(namespace) == ["x"]


def test_sdk_times_out_waiting_for_the_response_to_its_token(
    namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_amqp, "DEFAULT_AUTH_TIMEOUT", 1)
    fault = namespace.add_fault("ignore-tokens", "q", count=1)
    with pytest.raises(ServiceBusError, match="timed-out"), sdk_sender(namespace):
        pass
    # The SDK counts whole seconds: the first one may be short.
    wait_until(lambda: fault.fired == 1, "the fault")


@pytest.mark.parametrize("kind", ["refuse-tokens", "ignore-tokens"])
def test_tokens_for_another_entity_are_accepted(namespace: LocalNamespace, kind: str) -> None:
    fault = namespace.add_fault(kind, "q")
    with client_of(namespace) as client, Sender(client, "other") as sender:
        sender.send(payload())
    assert fault.fired == 0


def test_tokens_are_refused_by_a_fault_added_over_http(namespace: LocalNamespace) -> None:
    body = {"kind": "refuse-tokens", "entity": "q", "count": 1, "status": 503}
    status, _ = ask(namespace, "POST", "faults", body)
    assert status == 201
    with client_of(namespace) as client, pytest.raises(Busy):
        Sender(client, "q").open()
    _, [fault_json] = ask(namespace, "GET", "faults")
    assert (fault_json["status"], fault_json["fired"]) == (503, 1)


@pytest.mark.parametrize("status", [200, 399, 600, "401", None])
def test_status_of_a_refused_token_must_be_an_error(status: object) -> None:
    with pytest.raises(ConfigurationError, match="status"):
        Fault("refuse-tokens", status=status)  # type: ignore[arg-type]
