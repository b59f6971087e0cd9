"""The meter counts each billable operation once, by entity and kind, and keeps the count."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.amqp.client import Client, ClientOptions, Management, Receiver, Sender
from pairbus.amqp.performatives import Accepted, Modified, Rejected, Released
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.emulator.meter import MeterReading
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import AmqpError
from pairbus.servicebus.management import ABANDONED, COMPLETED, DEAD_LETTERED, DEFERRED
from tests.integration.emulator_clients import QUICK_CLOSE, client_of
from tests.integration.emulator_data import stored
from tests.integration.emulator_http import send_http_request
from tests.integration.encoded_messages import payload, sized
from tests.waiting import wait_until

PING = Message.build(
    properties=Properties(content_type="application/vnd.ms-servicebus-ping"), data=b""
).encode()
HOUR_MS = 3_600_000


def readings(namespace: LocalNamespace, path: str = "q") -> dict[str, MeterReading]:
    return {
        kind: reading for (entity, kind), reading in namespace.meter().items() if entity == path
    }


def operations(namespace: LocalNamespace, path: str = "q") -> dict[str, int]:
    return {kind: reading.operations for kind, reading in readings(namespace, path).items()}


def put(client: Client, *payloads: bytes, path: str = "q") -> None:
    with Sender(client, path) as sender:
        for payload_bytes in payloads:
            sender.send(payload_bytes)


def scheduled(body: str) -> bytes:
    due = Timestamp(int(time.time() * 1000) + HOUR_MS)
    return Message.build(
        message_annotations={Symbol("x-opt-scheduled-enqueue-time"): due}, data=body.encode()
    ).encode()


@contextmanager
def polling(client: Client, path: str = "q", *, credit: int = 1) -> Iterator[Receiver]:
    """A receiver that waits for messages of an empty queue."""
    with Receiver(client, path) as receiver:
        assert receiver.receive(credit, timeout_s=0.1) == []
        assert receiver.credit == credit
        yield receiver


# Sends.


@pytest.mark.rule("C1")
def test_message_is_one_send_with_its_bytes(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, sized(1200))
    assert readings(queue_namespace) == {"send": MeterReading(1, 1, 1200, 1)}


@pytest.mark.rule("C1")
def test_batch_of_a_hundred_messages_is_a_hundred_sends(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    with Sender(client, "q") as sender:
        sender.send_batch([sized(1100)] * 100)
    assert readings(queue_namespace) == {"send": MeterReading(100, 100, 110_000, 100)}


@pytest.mark.rule("C1")
def test_each_message_of_an_sdk_batch_is_counted(queue_namespace: LocalNamespace) -> None:
    with (
        ServiceBusClient.from_connection_string(queue_namespace.connection_string) as client,
        client.get_queue_sender("q", **QUICK_CLOSE) as sender,
    ):
        sender.send_messages([ServiceBusMessage(b"x" * 100) for _ in range(30)])
    assert operations(queue_namespace) == {"send": 30}
    assert readings(queue_namespace)["send"].bytes >= 3000


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    ("size", "units"), [(1100, 1), (65_536, 1), (65_537, 2), (131_072, 2), (131_073, 3)]
)
def test_message_is_counted_in_units_of_64_kb(
    queue_namespace: LocalNamespace, client: Client, size: int, units: int
) -> None:
    put(client, sized(size))
    with Receiver(client, "q", settled=True) as receiver:
        assert len(receiver.receive()) == 1
    assert readings(queue_namespace) == {
        "send": MeterReading(1, 1, size, units),
        "receive": MeterReading(1, 1, size, units),
    }


@pytest.mark.rule("C1", "G3")
def test_ping_is_one_send_and_never_received(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, PING)
    assert readings(queue_namespace) == {"send": MeterReading(1, 1, len(PING), 1)}
    with polling(client) as receiver:
        receiver.drain()
    assert operations(queue_namespace) == {"send": 1, "receive": 1}
    assert readings(queue_namespace)["receive"].messages == 0


@pytest.mark.rule("C1")
def test_refused_send_is_not_counted(queue_namespace: LocalNamespace, client: Client) -> None:
    queue_namespace.add_fault("throttle", "q", count=1)
    with pytest.raises(AmqpError):
        put(client, payload())
    assert readings(queue_namespace) == {}


@pytest.mark.rule("C1")
def test_each_entity_has_its_own_readings(queue_namespace: LocalNamespace, client: Client) -> None:
    queue_namespace.create_topic("t")
    queue_namespace.create_subscription("t", "s")
    put(client, payload())
    put(client, payload(), payload(), path="T")
    with Receiver(client, "t/Subscriptions/s", settled=True) as receiver:
        assert len(receiver.receive(2)) == 2
    assert operations(queue_namespace, "q") == {"send": 1}
    assert operations(queue_namespace, "t") == {"send": 2}
    assert operations(queue_namespace, "t/Subscriptions/s") == {"receive": 2}


# Empty polls: credit that is granted and ends without a delivery.


@pytest.mark.rule("C1")
def test_poll_is_not_counted_while_it_waits(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    with polling(client):
        assert readings(queue_namespace) == {}


@pytest.mark.rule("C1")
def test_drained_empty_poll_is_one_receive(queue_namespace: LocalNamespace, client: Client) -> None:
    with polling(client, credit=10) as receiver:
        assert receiver.drain() == []
        assert readings(queue_namespace) == {"receive": MeterReading(1, 0, 0, 1)}
    assert operations(queue_namespace) == {"receive": 1}


@pytest.mark.rule("C1")
def test_detached_empty_poll_is_one_receive(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    with polling(client, credit=10):
        pass
    assert readings(queue_namespace) == {"receive": MeterReading(1, 0, 0, 1)}


@pytest.mark.rule("C1")
def test_empty_poll_whose_connection_is_lost_is_one_receive(
    queue_namespace: LocalNamespace,
) -> None:
    client = client_of(queue_namespace)
    with polling(client, credit=10):
        client._disconnect()
        wait_until(lambda: operations(queue_namespace) == {"receive": 1}, "the end of the poll")
    client.close()
    assert readings(queue_namespace) == {"receive": MeterReading(1, 0, 0, 1)}


@pytest.mark.rule("C1")
def test_empty_poll_whose_connection_is_closed_is_one_receive(
    queue_namespace: LocalNamespace,
) -> None:
    client = client_of(queue_namespace)
    with polling(client):
        client.close()
    wait_until(lambda: operations(queue_namespace) == {"receive": 1}, "the end of the poll")


@pytest.mark.rule("C1")
@pytest.mark.parametrize("tls", [False, True])
def test_empty_poll_that_ends_with_the_namespace_is_one_receive(
    queue_namespace: LocalNamespace, tls: bool
) -> None:
    options = {"tls": True, "ca_file": queue_namespace.ca_file} if tls else {}
    client = client_of(queue_namespace, **options)
    with polling(client):
        queue_namespace.stop()
        queue_namespace.start()
        assert readings(queue_namespace) == {"receive": MeterReading(1, 0, 0, 1)}
    client.close()


@pytest.mark.rule("C1")
def test_poll_that_ends_with_its_token_is_one_receive(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    with polling(client):
        fault = queue_namespace.add_fault("expire-tokens", "q", count=1)
        wait_until(lambda: fault.fired == 1, "the fault")
        assert operations(queue_namespace) == {"receive": 1}
    assert operations(queue_namespace) == {"receive": 1}
    queue_namespace.clear_faults()


@pytest.mark.rule("C1")
def test_delivered_message_is_one_receive_and_its_credit_is_not_counted_again(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, sized(1100))
    with Receiver(client, "q") as receiver:
        assert len(receiver.receive(10)) == 1
        assert receiver.credit == 9
        assert receiver.drain() == []
        assert receiver.credit == 0
    assert readings(queue_namespace)["receive"] == MeterReading(1, 1, 1100, 1)


@pytest.mark.rule("C1")
def test_used_credit_is_not_counted_when_its_link_is_detached(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, payload(), payload())
    with Receiver(client, "q") as receiver:
        while receiver.credit > 8 or receiver.credit == 0:
            receiver.receive(10 if receiver.credit == 0 else receiver.credit)
    assert operations(queue_namespace)["receive"] == 2


@pytest.mark.rule("C1")
def test_each_further_unused_grant_of_credit_is_one_more_receive(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, payload())
    with Receiver(client, "q") as receiver:
        assert len(receiver.receive(1)) == 1
        for polls in (1, 2, 3):
            assert receiver.receive(1, timeout_s=0.05) == []
            receiver.drain()
            assert operations(queue_namespace)["receive"] == 1 + polls


@pytest.mark.rule("C1")
def test_repeated_flow_with_the_same_credit_is_not_another_poll(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    with polling(client, credit=5) as receiver:
        link = receiver._link
        assert link is not None
        for _ in range(3):
            link.write_flow()
            assert receiver.receive(5, timeout_s=0.05) == []
    assert operations(queue_namespace) == {"receive": 1}


@pytest.mark.rule("C1")
def test_empty_receive_of_the_sdk_is_one_receive(queue_namespace: LocalNamespace) -> None:
    with (
        ServiceBusClient.from_connection_string(queue_namespace.connection_string) as client,
        client.get_queue_receiver("q", **QUICK_CLOSE) as receiver,
    ):
        assert receiver.receive_messages(max_wait_time=0.2) == []
    wait_until(lambda: operations(queue_namespace) == {"receive": 1}, "the end of the poll")


# Other operations.


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Accepted(), "complete"),
        (Released(), "abandon"),
        (Modified(delivery_failed=True), "abandon"),
        (Modified(undeliverable_here=True), "defer"),
        (Rejected(), "dead-letter"),
    ],
    ids=["accepted", "released", "modified", "undeliverable", "rejected"],
)
def test_settlement_is_counted_for_each_message(
    queue_namespace: LocalNamespace, client: Client, outcome: object, kind: str
) -> None:
    put(client, payload(), payload(), payload())
    with Receiver(client, "q") as receiver:
        taken = []
        while len(taken) < 3:
            taken += receiver.receive(3 - len(taken))
        receiver.settle(taken, outcome)
    assert operations(queue_namespace) == {"send": 3, "receive": 3, kind: 3}
    assert readings(queue_namespace)[kind] == MeterReading(3, 3, 0, 3)


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (COMPLETED, "complete"),
        (ABANDONED, "abandon"),
        (DEFERRED, "defer"),
        (DEAD_LETTERED, "dead-letter"),
    ],
)
def test_settlement_over_the_management_link_is_counted_for_each_message(
    queue_namespace: LocalNamespace, client: Client, status: str, kind: str
) -> None:
    put(client, payload(), payload())
    tokens = take(client, 2)
    with Management(client, "q") as management:
        management.settle(tokens, status)
    assert operations(queue_namespace) == {"send": 2, "receive": 2, kind: 2}


def take(client: Client, count: int) -> list[UUID]:
    """Receive messages, and return their lock tokens."""
    tokens: list[UUID] = []
    with Receiver(client, "q") as receiver:
        while len(tokens) < count:
            tokens += [item.tag for item in receiver.receive(count - len(tokens))]
    return tokens


@pytest.mark.rule("C1")
def test_settlement_followed_by_a_detach_is_executed_and_counted(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, payload())
    with Receiver(client, "q", confirm=False) as receiver:
        (taken,) = receiver.receive()
        # It is written, but sent together with the detach.
        taken.link.session.settle(taken.id, taken.id, Accepted())
    assert operations(queue_namespace) == {"send": 1, "receive": 1, "complete": 1}
    assert stored(queue_namespace) == []


@pytest.mark.rule("C1")
def test_settlement_with_an_expired_lock_is_not_counted(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, payload())
    tokens = take(client, 1)
    with Management(client, "q") as management:
        management.settle(tokens)
        with pytest.raises(AmqpError):
            management.settle(tokens)
    assert operations(queue_namespace) == {"send": 1, "receive": 1, "complete": 1}


@pytest.mark.rule("C1")
def test_renewals_are_counted_for_each_message(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, payload(), payload())
    tokens = take(client, 2)
    with Management(client, "q") as management:
        management.renew_locks(tokens)
    assert operations(queue_namespace) == {"send": 2, "receive": 2, "renew": 2}


@pytest.mark.rule("C1")
def test_peek_is_counted_for_each_message_and_once_if_empty(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    with Management(client, "q") as management:
        assert management.peek(count=10) == []
        assert readings(queue_namespace) == {"peek": MeterReading(1, 0, 0, 1)}
        put(client, sized(1100), sized(65_537), sized(1300))
        assert len(management.peek(count=10)) == 3
    assert readings(queue_namespace)["peek"] == MeterReading(4, 3, 67_937, 5)


@pytest.mark.rule("C1")
def test_schedules_and_cancellations_are_counted_for_each_message(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    first, second = scheduled("first"), scheduled("second")
    with Management(client, "q") as management:
        numbers = management.schedule([first, second])
        assert readings(queue_namespace) == {
            "schedule": MeterReading(2, 2, len(first) + len(second), 2)
        }
        management.cancel(numbers)
    assert operations(queue_namespace) == {"schedule": 2, "cancel": 2}


@pytest.mark.rule("C1")
def test_message_scheduled_by_the_sdk_is_counted_once(queue_namespace: LocalNamespace) -> None:
    with (
        ServiceBusClient.from_connection_string(queue_namespace.connection_string) as client,
        client.get_queue_sender("q", **QUICK_CLOSE) as sender,
    ):
        due = datetime.now(UTC) + timedelta(hours=1)
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], due)
        sender.cancel_scheduled_messages(numbers)
    assert operations(queue_namespace) == {"schedule": 2, "cancel": 2}


@pytest.mark.rule("C1")
def test_receiving_deferred_messages_is_one_receive_for_each(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, sized(1100), sized(1100))
    tokens = take(client, 2)
    with Management(client, "q") as management:
        management.settle(tokens, DEFERRED)
        assert len(management.receive([1, 2])) == 2
    assert operations(queue_namespace) == {"send": 2, "receive": 4, "defer": 2}
    assert readings(queue_namespace)["receive"] == MeterReading(4, 4, 4400, 4)


@pytest.mark.rule("C1")
def test_session_operations_are_counted_once_each(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    queue_namespace.create_queue("s", requires_session=True)
    put(client, payload(group_id="red"), path="s")
    with (
        Receiver(client, "s", session_id="red") as receiver,
        Management(client, "s") as management,
    ):
        receiver.settle(receiver.receive())
        management.set_session_state("red", b"half way")
        assert management.get_session_state("red") == b"half way"
        management.renew_session_lock("red")
    assert operations(queue_namespace, "s") == {
        "send": 1,
        "receive": 1,
        "complete": 1,
        "session-state": 2,
        "renew": 1,
    }


@pytest.mark.rule("C1")
def test_administration_calls_are_counted_once_each(queue_namespace: LocalNamespace) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        queue_namespace.connection_string, connection_verify=queue_namespace.ca_file
    ) as admin:
        admin.create_queue("made")
        admin.get_queue("made")
        admin.get_queue_runtime_properties("made")
    assert readings(queue_namespace, "made") == {"management": MeterReading(3, 0, 0, 3)}


@pytest.mark.rule("C1")
def test_dead_letter_queue_has_its_own_readings(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, payload())
    with Receiver(client, "q") as receiver:
        receiver.settle(receiver.receive(), Rejected())
    with Receiver(client, "q/$DeadLetterQueue") as receiver:
        receiver.settle(receiver.receive())
    assert operations(queue_namespace) == {"send": 1, "receive": 1, "dead-letter": 1}
    assert operations(queue_namespace, "q/$DeadLetterQueue") == {"receive": 1, "complete": 1}


# Readings.


def test_reading_is_a_snapshot(queue_namespace: LocalNamespace, client: Client) -> None:
    put(client, payload())
    before = readings(queue_namespace)
    put(client, payload())
    assert before["send"].operations == 1
    assert readings(queue_namespace)["send"].operations == 2


@pytest.mark.rule("C1")
def test_http_returns_the_same_readings_and_is_not_counted(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    put(client, sized(1100), sized(70_000))
    with Management(client, "q") as management:
        management.peek()
    response = send_http_request(queue_namespace, "GET", "meter")
    assert response == (
        200,
        [
            {"entity": "q", "kind": "peek", **asdict(MeterReading(1, 1, 1100, 1))},
            {"entity": "q", "kind": "send", **asdict(MeterReading(2, 2, 71_100, 3))},
        ],
    )
    assert send_http_request(queue_namespace, "GET", "meter") == response


@pytest.mark.rule("C1")
def test_readings_survive_a_restart(queue_namespace: LocalNamespace) -> None:
    with client_of(queue_namespace) as client:
        put(client, sized(1100))
    queue_namespace.stop()
    queue_namespace.start()
    assert readings(queue_namespace) == {"send": MeterReading(1, 1, 1100, 1)}
    with client_of(queue_namespace) as client:
        put(client, sized(1100))
    assert readings(queue_namespace) == {"send": MeterReading(2, 2, 2200, 2)}


def test_reset_clears_the_readings(queue_namespace: LocalNamespace, client: Client) -> None:
    put(client, payload())
    queue_namespace.reset()
    assert queue_namespace.meter() == {}


SERVE = """
import sys
from pairbus.emulator.namespace import LocalNamespace

with LocalNamespace("killed", folder=sys.argv[1]) as namespace:
    namespace.create_queue("q")
    print(namespace.connection_string, flush=True)
    sys.stdin.read()
"""


@pytest.mark.rule("C1")
def test_answered_operations_are_still_counted_after_a_kill(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            options = ClientOptions.from_connection_string(process.stdout.readline().strip())
            client = Client(options)
            with Sender(client, "q") as sender:
                sender.send_batch([sized(1100)] * 100)
                sender.send(sized(65_537))
            with Receiver(client, "q") as receiver:
                receiver.settle(receiver.receive(1))
        finally:
            process.kill()
        assert process.wait() == -9
    client.close()
    with LocalNamespace("killed", folder=tmp_path) as namespace:
        assert readings(namespace) == {
            "send": MeterReading(101, 101, 175_537, 102),
            "receive": MeterReading(1, 1, 1100, 1),
            "complete": MeterReading(1, 1, 0, 1),
        }
