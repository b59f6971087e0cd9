"""Injected faults occur on their entity, at their occasion and as often as requested.

The clients are the SDK and that of `pairbus.amqp`.
"""

import contextlib
import gc
import logging
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from pairbus.amqp.client import Client, Receiver, Sender
from pairbus.emulator.faults import KINDS, Fault
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import (
    Busy,
    ConfigurationError,
    ConnectionLost,
    EntityDisabled,
    LinkLost,
    NotAuthorized,
    OperationTimeout,
    PairbusError,
    Unavailable,
)
from tests.integration.emulator_kit import (
    BRISK,
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

ON_A_SEND = {
    "cut": (ServiceBusConnectionError, ConnectionLost),
    "lose-answer": (ServiceBusConnectionError, ConnectionLost),
    "throttle": (ServiceBusServerBusyError, Busy),
    "internal-error": (ServiceBusError, Unavailable),
    "detach": (ServiceBusConnectionError, LinkLost),
    "disable": (MessagingEntityDisabledError, EntityDisabled),
}
"""The errors that the SDK and our client raise for a send that triggers the fault."""

STORES = {"lose-answer"}
"""Faults after which the message is stored."""


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


# Errors of senders.


@pytest.mark.parametrize("kind", ON_A_SEND)
def test_sdk_without_retries_raises_the_error_of_the_fault(
    namespace: LocalNamespace, kind: str
) -> None:
    with sdk_sender(namespace) as sender:
        fault = namespace.add_fault(kind, "q", count=1)
        with pytest.raises(ServiceBusError) as caught:
            send(sender)
    assert fault.fired == 1
    assert type(caught.value) is ON_A_SEND[kind][0]
    assert stored(namespace) == (["x"] if kind in STORES else [])


@pytest.mark.parametrize("kind", ON_A_SEND)
def test_sdk_with_a_retry_recovers_from_a_fault_that_occurs_once(
    namespace: LocalNamespace, kind: str
) -> None:
    with sdk_sender(namespace, retries=1) as sender:
        fault = namespace.add_fault(kind, "q", count=1)
        send(sender)
    assert fault.fired == 1
    # A message that was stored without a reply is sent again, and so becomes a duplicate.
    assert stored(namespace) == (["x", "x"] if kind in STORES else ["x"])


@pytest.mark.parametrize("kind", ON_A_SEND)
def test_our_client_raises_the_error_of_the_fault_and_recovers(
    namespace: LocalNamespace, client: Client, kind: str
) -> None:
    with Sender(client, "q") as sender:
        fault = namespace.add_fault(kind, "q", count=1)
        with pytest.raises(PairbusError) as caught:
            sender.send(payload("first"))
        assert fault.fired == 1
        assert type(caught.value) is ON_A_SEND[kind][1]
        sender.send(payload("second"))
    assert fault.fired == 1
    assert stored(namespace) == (["first", "second"] if kind in STORES else ["second"])


@pytest.mark.parametrize("kind", [*ON_A_SEND, "stop-reading", "answer-late"])
def test_fault_of_one_entity_does_not_affect_others(
    namespace: LocalNamespace, client: Client, kind: str
) -> None:
    fault = namespace.add_fault(kind, "q", seconds=60)
    with Sender(client, "other") as sender:
        sender.send(payload())
    assert fault.fired == 0
    assert stored(namespace, "other") == ["x"]


def test_fault_matches_its_entity_regardless_of_case(
    namespace: LocalNamespace, client: Client
) -> None:
    fault = namespace.add_fault("throttle", "/Q")
    with Sender(client, "q") as sender, pytest.raises(Busy):
        sender.send(payload())
    assert fault.fired == 1


def test_fault_without_an_entity_applies_to_all(namespace: LocalNamespace, client: Client) -> None:
    fault = namespace.add_fault("throttle", count=2)
    for path in ("q", "other"):
        with Sender(client, path) as sender, pytest.raises(Busy):
            sender.send(payload())
    assert fault.fired == 2


def test_fault_skips_its_first_occasions_and_stops_after_its_count(
    namespace: LocalNamespace, client: Client
) -> None:
    fault = namespace.add_fault("internal-error", "q", after=2, count=3)
    failed = []
    with Sender(client, "q") as sender:
        for number in range(8):
            try:
                sender.send(payload(str(number)))
            except Unavailable:
                failed.append(number)
    assert fault.fired == 3
    assert failed == [2, 3, 4]
    assert stored(namespace) == ["0", "1", "5", "6", "7"]


def test_fault_without_a_count_occurs_until_it_is_removed(
    namespace: LocalNamespace, client: Client
) -> None:
    fault = namespace.add_fault("throttle", "q")
    with Sender(client, "q") as sender:
        for _ in range(5):
            with pytest.raises(Busy):
                sender.send(payload())
        assert fault.fired == 5
        namespace.clear_faults()
        sender.send(payload())
    assert fault.fired == 5


def test_two_faults_of_one_entity_occur_one_after_the_other(
    namespace: LocalNamespace, client: Client
) -> None:
    busy = namespace.add_fault("throttle", "q", count=1)
    broken = namespace.add_fault("internal-error", "q", count=1)
    with Sender(client, "q") as sender:
        with pytest.raises(Busy):
            sender.send(payload())
        assert (busy.fired, broken.fired) == (1, 0)
        with pytest.raises(Unavailable):
            sender.send(payload())
        assert (busy.fired, broken.fired) == (1, 1)
        sender.send(payload())


def test_fault_applies_to_a_whole_batch(namespace: LocalNamespace, client: Client) -> None:
    fault = namespace.add_fault("throttle", "q", count=1)
    with Sender(client, "q") as sender:
        with pytest.raises(Busy):
            sender.send_batch([payload(str(number)) for number in range(10)])
        assert fault.fired == 1
        assert stored(namespace) == []


# Effects of single kinds.


def test_message_with_a_lost_reply_is_received_although_its_sender_failed(
    namespace: LocalNamespace,
) -> None:
    with sdk_sender(namespace) as sender:
        fault = namespace.add_fault("lose-answer", "q", count=1)
        with pytest.raises(ServiceBusConnectionError):
            send(sender, "kept")
    assert fault.fired == 1
    with client_of(namespace) as client, Receiver(client, "q", settled=True) as receiver:
        assert b"kept" in receiver.receive()[0].payload


@pytest.mark.parametrize(("kind", "error"), [("cut", ConnectionLost), ("detach", LinkLost)])
def test_fault_at_the_nth_message_in_flight_stores_none_of_the_later_ones(
    namespace: LocalNamespace, client: Client, kind: str, error: type[Exception]
) -> None:
    with Sender(client, "q") as sender:
        fault = namespace.add_fault(kind, "q", after=5, count=1)
        deadline = client.deadline(None)
        posted = [sender.enqueue(payload(str(number)), 0, deadline) for number in range(20)]
        try:
            sender.wait(posted)
        except ConnectionLost:
            assert kind == "cut"
    assert fault.fired == 1
    assert stored(namespace) == ["0", "1", "2", "3", "4"]
    assert all(delivery.done for delivery in posted)
    assert {type(delivery.error) for delivery in posted[5:]} == {error}


def test_connection_that_is_no_longer_read_gets_no_reply(
    namespace: LocalNamespace,
) -> None:
    with client_of(namespace) as client, Sender(client, "q") as sender:
        fault = namespace.add_fault("stop-reading", "q", count=1)
        with pytest.raises(OperationTimeout):
            sender.send(payload(), timeout_s=0.2)
        wait_until(lambda: fault.fired == 1, "the fault")
        with pytest.raises(OperationTimeout):  # nothing on this connection is answered
            sender.send(payload(), timeout_s=0.2)
        assert fault.fired == 1
        client.close(timeout_s=0.1)
    assert stored(namespace) == []
    with client_of(namespace) as client, Sender(client, "q") as sender:
        sender.send(payload())
    assert stored(namespace) == ["x"]


def test_late_reply_is_sent_after_the_message_is_stored(
    namespace: LocalNamespace, client: Client
) -> None:
    with Sender(client, "q") as sender:
        fault = namespace.add_fault("answer-late", "q", count=1, seconds=0.3)
        posted = sender.post(payload())
        wait_until(lambda: fault.fired == 1, "the fault")
        wait_until(lambda: stored(namespace) == ["x"], "the message")
        sender.wait([posted])
        assert posted.error is None


def test_reply_after_the_timeout_of_the_sender_leaves_the_message_stored(
    namespace: LocalNamespace, client: Client
) -> None:
    with Sender(client, "q") as sender:
        fault = namespace.add_fault("answer-late", "q", count=1, seconds=60)
        with pytest.raises(OperationTimeout):
            sender.send(payload("late"), timeout_s=0.1)
        wait_until(lambda: fault.fired == 1, "the fault")
        sender.send(payload("next"))
    assert stored(namespace) == ["late", "next"]


def test_sdk_waits_for_a_late_reply(namespace: LocalNamespace) -> None:
    with sdk_sender(namespace) as sender:
        fault = namespace.add_fault("answer-late", "q", count=1, seconds=0.3)
        send(sender)
        assert fault.fired == 1
    assert stored(namespace) == ["x"]


def test_late_reply_to_a_lost_connection_is_dropped(
    namespace: LocalNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    fault = namespace.add_fault("answer-late", "q", count=2, seconds=0.2)
    with client_of(namespace) as client, Sender(client, "q") as sender:
        sender.post(payload("left"))
        wait_until(lambda: fault.fired == 1, "the fault")
    with client_of(namespace) as client, Sender(client, "q") as sender:
        sender.send(payload("stayed"))  # its reply is due after the other
    assert fault.fired == 2
    assert stored(namespace) == ["left", "stayed"]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_connections_are_accepted_after_the_count_of_refusals(
    namespace: LocalNamespace,
) -> None:
    fault = namespace.add_fault("refuse-connections", count=2)
    for refused in (1, 2):
        with pytest.raises(ConnectionLost):
            client_of(namespace).connect()
        assert fault.fired == refused
    with client_of(namespace) as client, Sender(client, "q") as sender:
        sender.send(payload())
    assert fault.fired == 2


def test_sdk_raises_a_connection_error_or_retries_refused_connections(
    namespace: LocalNamespace,
) -> None:
    fault = namespace.add_fault("refuse-connections", count=1)
    with pytest.raises(ServiceBusConnectionError), sdk_sender(namespace):
        pass
    assert fault.fired == 1
    fault = namespace.add_fault("refuse-connections", count=1)
    with sdk_sender(namespace, retries=1) as sender:
        send(sender)
    assert fault.fired == 1


def test_open_connection_is_not_affected_by_refused_ones(
    namespace: LocalNamespace, client: Client
) -> None:
    with Sender(client, "q") as sender:
        namespace.add_fault("refuse-connections")
        sender.send(payload())
    assert stored(namespace) == ["x"]


def test_expired_tokens_detach_the_links_of_their_entity_only(
    namespace: LocalNamespace,
) -> None:
    with client_of(namespace) as client, client_of(namespace) as bystander:
        with Sender(client, "q") as sender, Sender(bystander, "other") as other:
            fault = namespace.add_fault("expire-tokens", "q", count=1)
            wait_until(lambda: fault.fired == 1, "the fault")
            client.run_until(lambda: sender.error is not None, client.deadline(None), "a detach")
            assert isinstance(sender.error, NotAuthorized)
            other.send(payload())
            assert bystander.generation == 1
        assert fault.fired == 1
    with client_of(namespace) as client, Sender(client, "q") as sender:
        sender.send(payload())  # a new token is accepted


def test_expiry_without_a_link_to_detach_is_not_counted(
    namespace: LocalNamespace,
) -> None:
    fault = namespace.add_fault("expire-tokens", count=1)
    with client_of(namespace) as client:
        sender = Sender(client, "q")
        with contextlib.suppress(
            NotAuthorized
        ):  # the link may be detached as soon as it is attached
            sender.open()
        client.run_until(lambda: sender.error is not None, client.deadline(None), "a detach")
    assert isinstance(sender.error, NotAuthorized)
    assert fault.fired == 1


def test_sdk_sends_a_new_token_after_expiry(namespace: LocalNamespace) -> None:
    with sdk_sender(namespace, retries=1) as sender:
        send(sender, "before")
        fault = namespace.add_fault("expire-tokens", "q", count=1)
        wait_until(lambda: fault.fired == 1, "the fault")
        send(sender, "after")
    assert fault.fired == 1
    assert stored(namespace) == ["before", "after"]


def test_sdk_without_retries_reports_an_expired_token_as_a_lost_link(
    namespace: LocalNamespace,
) -> None:
    with sdk_sender(namespace) as sender:
        fault = namespace.add_fault("expire-tokens", "q", count=1)
        wait_until(lambda: fault.fired == 1, "the fault")
        with pytest.raises(ServiceBusConnectionError):
            send(sender)
    assert stored(namespace) == []


def test_entity_disabled_by_a_fault_refuses_links_and_detaches_receivers(
    namespace: LocalNamespace, client: Client
) -> None:
    with Receiver(client, "q") as receiver:
        fault = namespace.add_fault("disable", "q", count=3)
        with pytest.raises(EntityDisabled):
            receiver.receive()
        assert fault.fired == 1
        with pytest.raises(EntityDisabled):
            Receiver(client, "q").open()
        with pytest.raises(EntityDisabled):
            Sender(client, "q").open()
        assert fault.fired == 3
        Sender(client, "q").open()
    assert fault.fired == 3


def test_sdk_reports_a_disabled_entity_when_sending_and_receiving(
    namespace: LocalNamespace,
) -> None:
    fault = namespace.add_fault("disable", "q", count=2)
    with pytest.raises(MessagingEntityDisabledError), sdk_sender(namespace):
        pass
    assert fault.fired == 1
    with (
        ServiceBusClient.from_connection_string(
            namespace.connection_string, retry_total=0
        ) as client,
        pytest.raises(MessagingEntityDisabledError),
        client.get_queue_receiver("q", **BRISK),
    ):
        pass
    assert fault.fired == 2


def test_sdk_with_default_retries_recovers_from_throttling(
    namespace: LocalNamespace,
) -> None:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender("q", **BRISK) as sender,
    ):
        fault = namespace.add_fault("throttle", "q", count=1)
        sender.send_messages(ServiceBusMessage("x"))
        assert fault.fired == 1
    assert stored(namespace) == ["x"]


# Over HTTP.


@pytest.mark.parametrize("kind", ON_A_SEND)
def test_fault_added_over_http_occurs_and_is_listed_as_fired(
    namespace: LocalNamespace, client: Client, kind: str
) -> None:
    status, added = ask(
        namespace, "POST", "faults", {"kind": kind, "entity": "q", "count": 1, "after": 1}
    )
    assert status == 201
    assert fired_by_http(namespace) == [(added["number"], kind, 0)]
    with Sender(client, "q") as sender:  # the attach triggers the fault
        if kind != "disable":
            sender.send(payload())
        with pytest.raises(ON_A_SEND[kind][1]):
            sender.send(payload())
        assert fired_by_http(namespace) == [(added["number"], kind, 1)]
        sender.send(payload())
    assert fired_by_http(namespace) == [(added["number"], kind, 1)]


def fired_by_http(namespace: LocalNamespace) -> list[tuple[int, str, int]]:
    status, faults = ask(namespace, "GET", "faults")
    assert status == 200
    return [(fault["number"], fault["kind"], fault["fired"]) for fault in faults]


@pytest.mark.parametrize(
    ("kind", "more"),
    [("answer-late", {"seconds": 0.2}), ("stop-reading", {}), ("expire-tokens", {})],
)
def test_fault_with_a_delay_can_be_added_over_http(
    namespace: LocalNamespace, client: Client, kind: str, more: dict[str, float]
) -> None:
    with Sender(client, "q") as sender:
        _, added = ask(
            namespace, "POST", "faults", {"kind": kind, "entity": "q", "count": 1, **more}
        )
        posted = sender.post(payload())
        wait_until(lambda: fired_by_http(namespace) == [(added["number"], kind, 1)], "the fault")
        if kind == "answer-late":
            sender.wait([posted])
        client.close(timeout_s=0.1)


def test_refused_connections_over_http_include_the_http_connection(
    namespace: LocalNamespace,
) -> None:
    ask(namespace, "POST", "faults", {"kind": "refuse-connections", "count": 1})
    with pytest.raises(ConnectionLost):
        client_of(namespace).connect()
    ((_, kind, fired),) = fired_by_http(namespace)
    assert (kind, fired) == ("refuse-connections", 1)


def test_faults_are_listed_and_removed_singly_or_together(
    namespace: LocalNamespace,
) -> None:
    numbers = [
        ask(namespace, "POST", "faults", {"kind": kind, "entity": "q"})[1]["number"]
        for kind in ("cut", "detach", "throttle")
    ]
    status, left = ask(namespace, "DELETE", f"faults/{numbers[1]}")
    assert status == 200
    assert [fault["number"] for fault in left] == [numbers[0], numbers[2]]
    assert left[0] == {
        "number": numbers[0],
        "kind": "cut",
        "entity": "q",
        "count": None,
        "after": 0,
        "seconds": 0.0,
        "status": 401,
        "fired": 0,
    }
    assert ask(namespace, "DELETE", f"faults/{numbers[1]}")[0] == 404
    assert ask(namespace, "DELETE", "faults") == (200, [])
    assert ask(namespace, "GET", "faults") == (200, [])


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "flood"},
        {"entity": "q"},
        {"kind": "cut", "fired": 3},
        {"kind": "cut", "count": 0},
        {"kind": "cut", "count": "many"},
        {"kind": "cut", "entity": 5},
        {"kind": "cut", "after": -1},
        {"kind": "answer-late", "seconds": float("nan")},
        {"kind": "refuse-connections", "entity": "q"},
        {"kind": ["cut"]},
        ["cut"],
        "cut",
    ],
)
def test_invalid_fault_is_refused_with_a_reason(namespace: LocalNamespace, body: object) -> None:
    status, answer = ask(namespace, "POST", "faults", body)
    assert status == 400
    assert answer["error"]
    assert ask(namespace, "GET", "faults") == (200, [])


def test_faults_cannot_be_added_without_a_token(namespace: LocalNamespace) -> None:
    status, _ = ask(namespace, "POST", "faults", {"kind": "cut"}, key="wrong")
    assert status == 401
    assert ask(namespace, "GET", "faults") == (200, [])


def test_fault_of_an_unknown_kind_is_refused() -> None:
    assert set(KINDS) == {
        *ON_A_SEND,
        "answer-late",
        "stop-reading",
        "refuse-connections",
        "expire-tokens",
        "ignore-tokens",
        "refuse-tokens",
    }
    with pytest.raises(ConfigurationError, match="flood"):
        Fault("flood")
