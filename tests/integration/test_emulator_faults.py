"""Injected faults occur on their entity, at their occasion and as often as requested.

The client is that of `pairbus.amqp`. The errors of the SDK are in test_emulator_faults_sdk.py.
"""

import contextlib
import logging
import time

import pytest
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.amqp.client import Client, Management, Receiver, Sender
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.emulator.faults import KINDS, Fault
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
from tests.integration.emulator_clients import client_of
from tests.integration.emulator_data import stored
from tests.integration.emulator_http import send_http_request
from tests.integration.encoded_messages import payload
from tests.waiting import wait_until

ON_A_SEND = {
    "cut": ConnectionLost,
    "lose-answer": ConnectionLost,
    "throttle": Busy,
    "internal-error": Unavailable,
    "detach": LinkLost,
    "disable": EntityDisabled,
}
"""The error that our client raises when a sent or scheduled message triggers the fault."""

STORES = {"lose-answer"}
"""Faults after which the message is stored."""


def scheduled_payload(body: str = "x") -> bytes:
    at = Timestamp(int((time.time() + 3600) * 1000))
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): at}
    return Message.build(message_annotations=annotations, data=body.encode()).encode()


class Submitter:
    """Sends or schedules messages. Its links are attached when it is created."""

    def __init__(self, operation: str, client: Client, path: str) -> None:
        self._sender = Sender(client, path) if operation == "send" else None
        self._management = Management(client, path)
        if self._sender is None:
            self._management.peek(1)
        else:
            self._sender.open()

    def submit(self, body: str, timeout_s: float | None = None) -> None:
        if self._sender is None:
            self._management.schedule([scheduled_payload(body)], timeout_s=timeout_s)
        else:
            self._sender.send(payload(body), timeout_s=timeout_s)


each_operation = pytest.mark.parametrize("operation", ["send", "schedule"])


# Errors of senders.


@pytest.mark.parametrize("kind", ON_A_SEND)
@each_operation
def test_client_raises_the_error_of_the_fault_and_recovers(
    queue_namespace: LocalNamespace, client: Client, operation: str, kind: str
) -> None:
    submitter = Submitter(operation, client, "q")
    fault = queue_namespace.add_fault(kind, "q", count=1)
    with pytest.raises(PairbusError) as caught:
        submitter.submit("first")
    assert fault.fired == 1
    assert type(caught.value) is ON_A_SEND[kind]
    submitter.submit("second")
    assert fault.fired == 1
    assert stored(queue_namespace) == (["first", "second"] if kind in STORES else ["second"])


@pytest.mark.parametrize("kind", [*ON_A_SEND, "stop-reading", "answer-late"])
@each_operation
def test_fault_of_one_entity_does_not_affect_others(
    queue_namespace: LocalNamespace, client: Client, operation: str, kind: str
) -> None:
    fault = queue_namespace.add_fault(kind, "q", seconds=60)
    Submitter(operation, client, "other").submit("x")
    assert fault.fired == 0
    assert stored(queue_namespace, "other") == ["x"]


@each_operation
def test_reply_after_the_timeout_leaves_the_message_stored(
    queue_namespace: LocalNamespace, client: Client, operation: str
) -> None:
    submitter = Submitter(operation, client, "q")
    fault = queue_namespace.add_fault("answer-late", "q", count=1, seconds=60)
    with pytest.raises(OperationTimeout):
        submitter.submit("late", timeout_s=0.1)
    wait_until(lambda: fault.fired == 1, "the fault")
    submitter.submit("next")
    assert stored(queue_namespace) == ["late", "next"]


def test_fault_matches_its_entity_regardless_of_case(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    fault = queue_namespace.add_fault("throttle", "/Q")
    with Sender(client, "q") as sender, pytest.raises(Busy):
        sender.send(payload())
    assert fault.fired == 1


def test_fault_without_an_entity_applies_to_all(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    fault = queue_namespace.add_fault("throttle", count=2)
    for path in ("q", "other"):
        with Sender(client, path) as sender, pytest.raises(Busy):
            sender.send(payload())
    assert fault.fired == 2


def test_fault_skips_its_first_occasions_and_stops_after_its_count(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    fault = queue_namespace.add_fault("internal-error", "q", after=2, count=3)
    failed = []
    with Sender(client, "q") as sender:
        for number in range(8):
            try:
                sender.send(payload(str(number)))
            except Unavailable:
                failed.append(number)
    assert fault.fired == 3
    assert failed == [2, 3, 4]
    assert stored(queue_namespace) == ["0", "1", "5", "6", "7"]


def test_fault_without_a_count_occurs_until_it_is_removed(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    fault = queue_namespace.add_fault("throttle", "q")
    with Sender(client, "q") as sender:
        for _ in range(5):
            with pytest.raises(Busy):
                sender.send(payload())
        assert fault.fired == 5
        queue_namespace.clear_faults()
        sender.send(payload())
    assert fault.fired == 5


def test_two_faults_of_one_entity_occur_one_after_the_other(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    busy = queue_namespace.add_fault("throttle", "q", count=1)
    broken = queue_namespace.add_fault("internal-error", "q", count=1)
    with Sender(client, "q") as sender:
        with pytest.raises(Busy):
            sender.send(payload())
        assert (busy.fired, broken.fired) == (1, 0)
        with pytest.raises(Unavailable):
            sender.send(payload())
        assert (busy.fired, broken.fired) == (1, 1)
        sender.send(payload())


def test_fault_applies_to_a_whole_batch(queue_namespace: LocalNamespace, client: Client) -> None:
    fault = queue_namespace.add_fault("throttle", "q", count=1)
    with Sender(client, "q") as sender:
        with pytest.raises(Busy):
            sender.send_batch([payload(str(number)) for number in range(10)])
        assert fault.fired == 1
        assert stored(queue_namespace) == []


# Effects of single kinds.


@pytest.mark.parametrize(("kind", "error"), [("cut", ConnectionLost), ("detach", LinkLost)])
def test_fault_at_the_nth_message_in_flight_stores_none_of_the_later_ones(
    queue_namespace: LocalNamespace, client: Client, kind: str, error: type[Exception]
) -> None:
    with Sender(client, "q") as sender:
        fault = queue_namespace.add_fault(kind, "q", after=5, count=1)
        deadline = client.deadline(None)
        posted = [sender.enqueue(payload(str(number)), 0, deadline) for number in range(20)]
        try:
            sender.wait(posted)
        except ConnectionLost:
            assert kind == "cut"
    assert fault.fired == 1
    assert all(delivery.done for delivery in posted)
    assert isinstance(posted[5].error, error)
    assert {type(delivery.error) for delivery in posted[5:]} <= {error, type(None)}
    # A message that was enqueued after the client had noticed the detach has a new link.
    accepted = [str(number) for number in range(5, 20) if posted[number].error is None]
    assert stored(queue_namespace) == ["0", "1", "2", "3", "4", *accepted]


def test_connection_that_is_no_longer_read_gets_no_reply(
    queue_namespace: LocalNamespace,
) -> None:
    with client_of(queue_namespace) as client, Sender(client, "q") as sender:
        fault = queue_namespace.add_fault("stop-reading", "q", count=1)
        with pytest.raises(OperationTimeout):
            sender.send(payload(), timeout_s=0.2)
        wait_until(lambda: fault.fired == 1, "the fault")
        with pytest.raises(OperationTimeout):  # nothing on this connection is answered
            sender.send(payload(), timeout_s=0.2)
        assert fault.fired == 1
        client.close(timeout_s=0.1)
    assert stored(queue_namespace) == []
    with client_of(queue_namespace) as client, Sender(client, "q") as sender:
        sender.send(payload())
    assert stored(queue_namespace) == ["x"]


def test_late_reply_is_sent_after_the_message_is_stored(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    with Sender(client, "q") as sender:
        fault = queue_namespace.add_fault("answer-late", "q", count=1, seconds=0.3)
        posted = sender.post(payload())
        wait_until(lambda: fault.fired == 1, "the fault")
        wait_until(lambda: stored(queue_namespace) == ["x"], "the message")
        sender.wait([posted])
        assert posted.error is None


def test_late_reply_to_a_lost_connection_is_dropped(
    queue_namespace: LocalNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    fault = queue_namespace.add_fault("answer-late", "q", count=2, seconds=0.2)
    with client_of(queue_namespace) as client, Sender(client, "q") as sender:
        sender.post(payload("left"))
        wait_until(lambda: fault.fired == 1, "the fault")
    with client_of(queue_namespace) as client, Sender(client, "q") as sender:
        sender.send(payload("stayed"))  # its reply is due after the other
    assert fault.fired == 2
    assert stored(queue_namespace) == ["left", "stayed"]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_connections_are_accepted_after_the_count_of_refusals(
    queue_namespace: LocalNamespace,
) -> None:
    fault = queue_namespace.add_fault("refuse-connections", count=2)
    for refused in (1, 2):
        with pytest.raises(ConnectionLost):
            client_of(queue_namespace).connect()
        assert fault.fired == refused
    with client_of(queue_namespace) as client, Sender(client, "q") as sender:
        sender.send(payload())
    assert fault.fired == 2


def test_open_connection_is_not_affected_by_refused_ones(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    with Sender(client, "q") as sender:
        queue_namespace.add_fault("refuse-connections")
        sender.send(payload())
    assert stored(queue_namespace) == ["x"]


def test_expired_tokens_detach_the_links_of_their_entity_only(
    queue_namespace: LocalNamespace,
) -> None:
    with client_of(queue_namespace) as client, client_of(queue_namespace) as bystander:
        with Sender(client, "q") as sender, Sender(bystander, "other") as other:
            fault = queue_namespace.add_fault("expire-tokens", "q", count=1)
            wait_until(lambda: fault.fired == 1, "the fault")
            client.run_until(lambda: sender.error is not None, client.deadline(None), "a detach")
            assert isinstance(sender.error, NotAuthorized)
            other.send(payload())
            assert bystander.generation == 1
        assert fault.fired == 1
    with client_of(queue_namespace) as client, Sender(client, "q") as sender:
        sender.send(payload())  # a new token is accepted


def test_expiry_without_a_link_to_detach_is_not_counted(
    queue_namespace: LocalNamespace,
) -> None:
    fault = queue_namespace.add_fault("expire-tokens", count=1)
    with client_of(queue_namespace) as client:
        sender = Sender(client, "q")
        with contextlib.suppress(
            NotAuthorized
        ):  # the link may be detached as soon as it is attached
            sender.open()
        client.run_until(lambda: sender.error is not None, client.deadline(None), "a detach")
    assert isinstance(sender.error, NotAuthorized)
    assert fault.fired == 1


def test_entity_disabled_by_a_fault_refuses_links_and_detaches_receivers(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    with Receiver(client, "q") as receiver:
        fault = queue_namespace.add_fault("disable", "q", count=3)
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


# Scheduled messages.


@pytest.mark.parametrize("kind", ["cut", "throttle", "detach", "lose-answer", "disable"])
def test_other_requests_do_not_trigger_a_fault(
    queue_namespace: LocalNamespace, client: Client, kind: str
) -> None:
    management = Management(client, "q")
    numbers = management.schedule([scheduled_payload(), scheduled_payload()])
    fault = queue_namespace.add_fault(kind, "q")
    assert len(management.peek(1, 10)) == 2
    management.cancel(numbers)
    assert fault.fired == 0
    assert stored(queue_namespace) == []


def test_sent_and_scheduled_messages_share_the_count_of_a_fault(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    management = Management(client, "q")
    fault = queue_namespace.add_fault("throttle", "q", after=1, count=2)
    with Sender(client, "q") as sender:
        sender.send(payload("0"))
        with pytest.raises(Busy):
            management.schedule([scheduled_payload("1")])
        with pytest.raises(Busy):
            sender.send(payload("2"))
        management.schedule([scheduled_payload("3")])
    assert fault.fired == 2
    assert stored(queue_namespace) == ["0", "3"]


def test_throttled_messages_do_not_use_up_the_credit_of_their_sender(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    fault = queue_namespace.add_fault("throttle", "q", count=1500)
    with Sender(client, "q") as sender:
        for _ in range(15):
            deadline = client.deadline(None)
            sender.wait([sender.enqueue(payload(), 0, deadline) for _ in range(100)])
        assert fault.fired == 1500
        sender.send(payload())
    assert stored(queue_namespace) == ["x"]


# Tokens.

REFUSED = {401: NotAuthorized, 404: EntityNotFound, 500: Unavailable, 503: Busy}
"""The error of our client for a status."""


@pytest.mark.parametrize("status", REFUSED)
def test_refused_token_is_an_error_with_its_status_and_the_next_is_accepted(
    queue_namespace: LocalNamespace, status: int
) -> None:
    fault = queue_namespace.add_fault("refuse-tokens", "q", count=1, status=status)
    with client_of(queue_namespace) as client:
        sender = Sender(client, "q")
        with pytest.raises(REFUSED[status], match=f"status {status}"):
            sender.open()
        assert fault.fired == 1
        sender.send(payload())
    assert fault.fired == 1
    assert stored(queue_namespace) == ["x"]


def test_ignored_token_gets_no_response_and_grants_no_right(
    queue_namespace: LocalNamespace,
) -> None:
    fault = queue_namespace.add_fault("ignore-tokens", "q", count=1)
    with client_of(queue_namespace) as client:
        Sender(client, "other").open()  # which attaches links to `$cbs`
        sender = Sender(client, "q")
        with pytest.raises(OperationTimeout):
            sender.send(payload(), timeout_s=0.3)
        wait_until(lambda: fault.fired == 1, "the fault")
        sender.send(payload())
    assert stored(queue_namespace) == ["x"]


@pytest.mark.parametrize("kind", ["refuse-tokens", "ignore-tokens"])
def test_tokens_for_another_entity_are_accepted(queue_namespace: LocalNamespace, kind: str) -> None:
    fault = queue_namespace.add_fault(kind, "q")
    with client_of(queue_namespace) as client, Sender(client, "other") as sender:
        sender.send(payload())
    assert fault.fired == 0


def test_tokens_are_refused_by_a_fault_added_over_http(queue_namespace: LocalNamespace) -> None:
    body = {"kind": "refuse-tokens", "entity": "q", "count": 1, "status": 503}
    status, _ = send_http_request(queue_namespace, "POST", "faults", body)
    assert status == 201
    with client_of(queue_namespace) as client, pytest.raises(Busy):
        Sender(client, "q").open()
    _, [fault_json] = send_http_request(queue_namespace, "GET", "faults")
    assert (fault_json["status"], fault_json["fired"]) == (503, 1)


@pytest.mark.parametrize("status", [200, 399, 600, "401", None])
def test_status_of_a_refused_token_must_be_an_error(status: object) -> None:
    with pytest.raises(ConfigurationError, match="status"):
        Fault("refuse-tokens", status=status)  # type: ignore[arg-type]


# Over HTTP.


@pytest.mark.parametrize("kind", ON_A_SEND)
def test_fault_added_over_http_occurs_and_is_listed_as_fired(
    queue_namespace: LocalNamespace, client: Client, kind: str
) -> None:
    status, added = send_http_request(
        queue_namespace, "POST", "faults", {"kind": kind, "entity": "q", "count": 1, "after": 1}
    )
    assert status == 201
    assert fired_by_http(queue_namespace) == [(added["number"], kind, 0)]
    with Sender(client, "q") as sender:  # the attach triggers the fault
        if kind != "disable":
            sender.send(payload())
        with pytest.raises(ON_A_SEND[kind]):
            sender.send(payload())
        assert fired_by_http(queue_namespace) == [(added["number"], kind, 1)]
        sender.send(payload())
    assert fired_by_http(queue_namespace) == [(added["number"], kind, 1)]


def fired_by_http(queue_namespace: LocalNamespace) -> list[tuple[int, str, int]]:
    status, faults = send_http_request(queue_namespace, "GET", "faults")
    assert status == 200
    return [(fault["number"], fault["kind"], fault["fired"]) for fault in faults]


@pytest.mark.parametrize(
    ("kind", "more"),
    [("answer-late", {"seconds": 0.2}), ("stop-reading", {}), ("expire-tokens", {})],
)
def test_fault_with_a_delay_can_be_added_over_http(
    queue_namespace: LocalNamespace, client: Client, kind: str, more: dict[str, float]
) -> None:
    with Sender(client, "q") as sender:
        _, added = send_http_request(
            queue_namespace, "POST", "faults", {"kind": kind, "entity": "q", "count": 1, **more}
        )
        posted = sender.post(payload())
        wait_until(
            lambda: fired_by_http(queue_namespace) == [(added["number"], kind, 1)], "the fault"
        )
        if kind == "answer-late":
            sender.wait([posted])
        client.close(timeout_s=0.1)


@pytest.mark.parametrize("secure", [False, True])
def test_control_api_is_reachable_while_all_connections_are_refused(
    queue_namespace: LocalNamespace, secure: bool
) -> None:
    _, added = send_http_request(queue_namespace, "POST", "faults", {"kind": "refuse-connections"})
    options = {"tls": True, "ca_file": queue_namespace.ca_file} if secure else {}
    for refused in (1, 2):
        with pytest.raises(ConnectionLost):
            client_of(queue_namespace, **options).connect()
        ((number, _, fired),) = fired_by_http(queue_namespace)
        assert (number, fired) == (added["number"], refused)
    assert send_http_request(queue_namespace, "DELETE", f"faults/{number}") == (200, [])
    with client_of(queue_namespace, **options) as client, Sender(client, "q") as sender:
        sender.send(payload())


def test_administration_api_is_refused_with_all_connections(
    queue_namespace: LocalNamespace,
) -> None:
    fault = queue_namespace.add_fault("refuse-connections", count=1)
    with ServiceBusAdministrationClient.from_connection_string(
        queue_namespace.connection_string,
        connection_verify=queue_namespace.ca_file,
        retry_total=0,
    ) as administration:
        with pytest.raises((ServiceRequestError, ServiceResponseError)):
            administration.get_queue("q")
        assert fault.fired == 1
        assert administration.get_queue("q").name == "q"


def test_open_http_connection_is_not_affected_by_refused_ones(
    queue_namespace: LocalNamespace,
) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        queue_namespace.connection_string,
        connection_verify=queue_namespace.ca_file,
        retry_total=0,
    ) as administration:
        administration.get_queue("q")
        fault = queue_namespace.add_fault("refuse-connections")
        administration.get_queue("q")
    assert fault.fired == 0


def test_refused_connections_over_http_include_the_http_connection(
    queue_namespace: LocalNamespace,
) -> None:
    send_http_request(queue_namespace, "POST", "faults", {"kind": "refuse-connections", "count": 1})
    with pytest.raises(ConnectionLost):
        client_of(queue_namespace).connect()
    ((_, kind, fired),) = fired_by_http(queue_namespace)
    assert (kind, fired) == ("refuse-connections", 1)


def test_faults_are_listed_and_removed_singly_or_together(
    queue_namespace: LocalNamespace,
) -> None:
    numbers = [
        send_http_request(queue_namespace, "POST", "faults", {"kind": kind, "entity": "q"})[1][
            "number"
        ]
        for kind in ("cut", "detach", "throttle")
    ]
    status, left = send_http_request(queue_namespace, "DELETE", f"faults/{numbers[1]}")
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
    assert send_http_request(queue_namespace, "DELETE", f"faults/{numbers[1]}")[0] == 404
    assert send_http_request(queue_namespace, "DELETE", "faults") == (200, [])
    assert send_http_request(queue_namespace, "GET", "faults") == (200, [])


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
def test_invalid_fault_is_refused_with_a_reason(
    queue_namespace: LocalNamespace, body: object
) -> None:
    status, answer = send_http_request(queue_namespace, "POST", "faults", body)
    assert status == 400
    assert answer["error"]
    assert send_http_request(queue_namespace, "GET", "faults") == (200, [])


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"kind":' * 100_000, b"{", b"\xff"])
def test_body_that_cannot_be_parsed_is_refused_with_a_reason(
    queue_namespace: LocalNamespace, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    status, answer = send_http_request(queue_namespace, "POST", "faults", body)
    assert status == 400
    assert "not JSON" in answer["error"]
    assert [record for record in caplog.records if record.exc_info is not None] == []


def test_faults_cannot_be_added_without_a_token(queue_namespace: LocalNamespace) -> None:
    status, _ = send_http_request(queue_namespace, "POST", "faults", {"kind": "cut"}, key="wrong")
    assert status == 401
    assert send_http_request(queue_namespace, "GET", "faults") == (200, [])


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
