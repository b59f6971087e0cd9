"""Dead letters are restored as they were sent, with all AMQP types and bytes."""

import uuid

import pytest

from pairbus.amqp.section_edit import DELIVERY_ANNOTATIONS, edit_map
from pairbus.amqp.sections import Header, Message, Properties
from pairbus.amqp.types import Byte, Short, Symbol, Timestamp, UInt, ULong
from pairbus.backlog.dead_letter_message import restore_backlog_dead_letter, restore_dead_letter
from pairbus.spark.messages import ReceivedMessage
from pairbus.transfer import to_backlog

TYPED = {
    "int": 7,
    "byte": Byte(3),
    "short": Short(-2),
    "ulong": ULong(1 << 63),
    "time": Timestamp(1_700_000_000_000),
    "uuid": uuid.UUID(int=5),
    "binary": b"\x00\xff",
    "float": 0.1,
    "none": None,
    "text": "é",
}


def sent(**fields: object) -> bytes:
    return Message.build(
        properties=Properties(message_id="m-1", group_id="s-1", subject="s"),
        application_properties=TYPED,
        data=b"\x00body\xff",
        **fields,  # type: ignore[arg-type]
    ).encode()


def dead_lettered(payload: bytes) -> bytes:
    """Return a message with everything that the service adds to a dead letter."""
    message = Message.parse(payload)
    message.edit_application_properties(
        {"DeadLetterReason": "Broken", "DeadLetterErrorDescription": "because"}
    )
    message.edit_message_annotations(
        {
            Symbol("x-opt-sequence-number"): 5,
            Symbol("x-opt-enqueued-time"): Timestamp(1),
            Symbol("x-opt-locked-until"): Timestamp(2),
            Symbol("x-opt-message-state"): 0,
            Symbol("x-opt-deadletter-source"): "orders",
        }
    )
    message.edit_header({4: UInt(3)})
    hops = {Symbol("x-opt-transfer-hop-count"): 3, Symbol("x-opt-lock-token"): uuid.UUID(int=1)}
    message.delivery_annotations, _ = edit_map(b"", DELIVERY_ANNOTATIONS, hops, ())
    return message.encode()


def received(payload: bytes) -> ReceivedMessage:
    return ReceivedMessage("orders/$DeadLetterQueue", payload, b"t" * 16, 99)


@pytest.mark.rule("R2")
def test_dead_letter_of_a_queue_has_the_bytes_that_were_sent():
    original = sent()

    restored = restore_dead_letter(received(dead_lettered(original)), "orders")

    assert restored.payload == original
    assert (restored.destination, restored.session_id) == ("orders", "s-1")
    assert (restored.lock_token, restored.locked_until) == (b"t" * 16, 99)


@pytest.mark.rule("R2")
def test_time_to_live_starts_anew():
    original = sent(header=Header(ttl=UInt(5000)))
    message = Message.parse(dead_lettered(original))
    message.edit_properties({8: Timestamp(5001), 9: Timestamp(1)})

    restored = Message.parse(restore_dead_letter(received(message.encode()), "orders").payload)

    assert restored.read_header() == Header(ttl=UInt(5000))
    assert restored.read_properties().absolute_expiry_time is None
    assert restored.read_properties().creation_time is None


@pytest.mark.rule("R2")
def test_dead_letter_of_the_backlog_has_the_bytes_that_were_sent():
    original = sent()

    restored = restore_backlog_dead_letter(
        received(dead_lettered(to_backlog(original, "orders"))), None
    )

    assert restored.payload == original
    assert (restored.destination, restored.session_id) == ("orders", "s-1")


def test_backlog_message_without_destination_stays_unless_one_is_given():
    payload = dead_lettered(sent())

    assert restore_backlog_dead_letter(received(payload), None).problem == "MissingPath"
    restored = restore_backlog_dead_letter(received(payload), "bills")
    assert (restored.problem, restored.destination) == (None, "bills")


def test_given_destination_replaces_that_of_a_backlog_message():
    payload = dead_lettered(to_backlog(sent(), "orders"))

    assert restore_backlog_dead_letter(received(payload), "bills").destination == "bills"


@pytest.mark.parametrize("restore", [restore_dead_letter, restore_backlog_dead_letter])
def test_bytes_that_are_not_a_message_have_a_problem(restore):
    assert restore(received(b"\x00\x01"), "orders").problem == "NotAMessage"
