"""A test moves the clock of a namespace forward, and everything that became due has happened."""

import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pairbus.amqp.client import AnySession, Client, Receiver, Sender
from pairbus.amqp.sections import Header, Message, Properties
from pairbus.amqp.types import Symbol, Timestamp, UInt
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConfigurationError, LockLost
from tests.integration.emulator_clients import client_of
from tests.integration.emulator_data import stored
from tests.integration.emulator_http import send_http_request
from tests.waiting import wait_until

pytestmark = pytest.mark.rule("N4")

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
REAL_TIME_TOLERANCE = timedelta(minutes=5)


def payload(
    body: str = "x",
    *,
    at: datetime | None = None,
    ttl: timedelta | None = None,
    **properties: Any,
) -> bytes:
    annotation = Symbol("x-opt-scheduled-enqueue-time")
    return Message.build(
        header=None if ttl is None else Header(ttl=UInt(ttl // timedelta(milliseconds=1))),
        message_annotations=None if at is None else {annotation: Timestamp.from_datetime(at)},
        properties=Properties(**properties),
        data=body.encode(),
    ).encode()


def paths(namespace: LocalNamespace) -> list[str]:
    return namespace.call(lambda runtime: [entity.path for entity in runtime.entities.all()])


def test_message_whose_lock_ended_is_received_again(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    Sender(client, "q").send(payload())
    receiver = Receiver(client, "q")
    first = receiver.receive()
    queue_namespace.advance(MINUTE)
    [again] = receiver.receive()
    assert Message.parse(again.payload).read_header().delivery_count == 1
    with pytest.raises(LockLost):
        receiver.settle(first)
    receiver.settle([again])
    assert stored(queue_namespace) == []


def test_waiting_receiver_gets_a_scheduled_message_with_a_full_lock(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    receiver = Receiver(client, "q")
    receiver.grant_credit(1)
    Sender(client, "q").send(payload(at=queue_namespace.now() + HOUR))
    queue_namespace.advance(2 * HOUR)
    [delivery] = receiver.receive()
    annotations = Message.parse(delivery.payload).read_message_annotations()
    locked_until = annotations[Symbol("x-opt-locked-until")].to_datetime()
    assert locked_until >= queue_namespace.now() + MINUTE - REAL_TIME_TOLERANCE
    enqueued = annotations[Symbol("x-opt-enqueued-time")].to_datetime()
    assert locked_until - enqueued >= HOUR  # it was enqueued on the way
    receiver.settle([delivery])


def test_expired_message_is_dead_lettered(queue_namespace: LocalNamespace, client: Client) -> None:
    queue_namespace.create_queue("ttl", dead_lettering_on_message_expiration=True)
    Sender(client, "ttl").send(payload(ttl=2 * HOUR))
    queue_namespace.advance(HOUR)
    assert stored(queue_namespace, "ttl") == ["x"]
    queue_namespace.advance(HOUR)
    assert stored(queue_namespace, "ttl") == []
    assert queue_namespace.call(lambda runtime: len(runtime.entities.get("ttl").dead_letters)) == 1


def test_duplicate_is_accepted_after_the_window(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    queue_namespace.create_queue("unique", requires_duplicate_detection=True)
    sender = Sender(client, "unique")
    for body in ("first", "duplicate"):
        sender.send(payload(body, message_id="1"))
    queue_namespace.advance(10 * MINUTE)
    sender.send(payload("later", message_id="1"))
    assert stored(queue_namespace, "unique") == ["first", "later"]


def test_session_whose_lock_ended_is_free(queue_namespace: LocalNamespace, client: Client) -> None:
    queue_namespace.create_queue("sessions", requires_session=True)
    Sender(client, "sessions").send(payload(group_id="a"))
    with client_of(queue_namespace) as other:
        first = Receiver(other, "sessions", session_id="a")
        assert len(first.receive()) == 1
        queue_namespace.advance(MINUTE)
        second = Receiver(client, "sessions", session_id="a")
        assert len(second.receive()) == 1
        with pytest.raises(LockLost):
            first.receive()


def test_receiver_that_waits_for_a_session_waits_by_its_own_clock(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    queue_namespace.create_queue("sessions", requires_session=True)
    Sender(client, "sessions").send(payload(group_id="a", at=queue_namespace.now() + 3 * HOUR))
    sessions: list[str | None] = []

    def accept() -> None:
        with client_of(queue_namespace) as other:
            receiver = Receiver(other, "sessions", session_id=AnySession)
            receiver.receive()
            sessions.append(receiver.session_id)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    wait_until(
        lambda: queue_namespace.call(lambda runtime: any(runtime.outgoing_links.values())),
        "the receiver to ask for a session",
    )
    queue_namespace.advance(2 * HOUR)
    queue_namespace.advance(HOUR)
    thread.join(20)
    assert sessions == ["a"]


def test_idle_entity_is_deleted_but_not_one_with_an_open_link(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    for name in ("idle", "linked"):
        queue_namespace.create_queue(name, auto_delete_on_idle=5 * MINUTE)
    Sender(client, "linked").send(payload())
    queue_namespace.advance(365 * 24 * HOUR)
    assert paths(queue_namespace) == ["linked", "other", "q"]


def test_tokens_stay_valid(queue_namespace: LocalNamespace, client: Client) -> None:
    sender = Sender(client, "q")
    sender.send(payload("before"))
    queue_namespace.advance(48 * HOUR)
    sender.send(payload("on the same link"))
    Sender(client, "other").send(payload())  # with a new token
    assert stored(queue_namespace) == ["before", "on the same link"]


def test_clock_stays_ahead_after_a_restart_but_not_after_a_reset(tmp_path: Path) -> None:
    with LocalNamespace("durable", folder=tmp_path) as namespace:
        start = namespace.now()
        namespace.advance(HOUR)
        namespace.advance(HOUR)
    with LocalNamespace("durable", folder=tmp_path) as namespace:
        assert timedelta(0) <= namespace.now() - start - 2 * HOUR < REAL_TIME_TOLERANCE
        namespace.reset()
        assert timedelta(0) <= namespace.now() - start < REAL_TIME_TOLERANCE


@pytest.mark.parametrize(
    ("span", "reason"),
    [(-timedelta(milliseconds=1), "cannot go back"), (timedelta.max, "beyond the year 8999")],
)
def test_clock_cannot_go_back_or_beyond_all_timestamps(
    queue_namespace: LocalNamespace, span: timedelta, reason: str
) -> None:
    before = queue_namespace.now()
    with pytest.raises(ConfigurationError, match=reason):
        queue_namespace.advance(span)
    assert queue_namespace.now() - before < REAL_TIME_TOLERANCE


def test_clock_is_moved_by_an_http_request(queue_namespace: LocalNamespace, client: Client) -> None:
    Sender(client, "q").send(payload(ttl=HOUR))
    status, before = send_http_request(queue_namespace, "GET", "clock")
    assert (status, before["ahead_seconds"]) == (200, 0)
    status, after = send_http_request(queue_namespace, "POST", "clock", {"advance_seconds": 7200.5})
    assert (status, after["ahead_seconds"]) == (200, 7200.5)
    moved = datetime.fromisoformat(after["now"]) - datetime.fromisoformat(before["now"])
    assert moved >= 2 * HOUR
    assert stored(queue_namespace) == []
    for content in (b"[", [], {}, *({"advance_seconds": n} for n in (-1, True, "1", 1e99, None))):
        assert send_http_request(queue_namespace, "POST", "clock", content)[0] == 400
    assert send_http_request(queue_namespace, "GET", "clock")[1]["ahead_seconds"] == 7200.5
