"""The outcomes of the messages of a call, and the text of the error that reports them."""

import pickle
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from pairbus.errors import MessageOutcome, PartlyStored, SendOutcome, SendUnavailable
from pairbus.pairing.outcomes import CallOutcomes, describe
from pairbus.pairing.payloads import Payloads

pytestmark = pytest.mark.rule("S5", "S9")

STORED, NOT_SENT, UNKNOWN = SendOutcome.STORED, SendOutcome.NOT_SENT, SendOutcome.UNKNOWN
REASON = "the reason"


def call_of(*ids: str) -> CallOutcomes:
    return CallOutcomes(Payloads([ServiceBusMessage("x", message_id=name) for name in ids]))


def text_of(*outcomes: SendOutcome) -> str:
    """Return the text for messages with the ids "a", "b", and so on."""
    messages = [
        MessageOutcome(position, chr(ord("a") + position), outcome)
        for position, outcome in enumerate(outcomes)
    ]
    return describe("orders", messages, REASON)


def test_message_is_not_sent_until_it_is_transferred_or_stored() -> None:
    outcomes = call_of("a", "b", "c")
    assert outcomes.nothing_sent
    outcomes.transferred.update((1, 2))
    outcomes.stored.add(2)
    assert not outcomes.nothing_sent

    error = outcomes.error("orders", REASON)

    assert type(error) is PartlyStored
    assert error.messages == (
        MessageOutcome(0, "a", NOT_SENT),
        MessageOutcome(1, "b", UNKNOWN),
        MessageOutcome(2, "c", STORED),
    )
    assert (error.stored, error.not_sent, error.unknown) == ((2,), (0,), (1,))


def test_error_without_a_stored_message_is_not_partly_stored() -> None:
    outcomes = call_of("a", "b")
    outcomes.transferred.add(0)

    error = outcomes.error("orders", REASON)

    assert type(error) is SendUnavailable
    assert (error.stored, error.not_sent, error.unknown) == ((), (1,), (0,))


def test_error_has_the_causes() -> None:
    primary, backlog = OSError("primary"), OSError("backlog")

    error = call_of("a").error("orders", REASON, primary_error=primary, backlog_error=backlog)

    assert (error.primary_error, error.backlog_error) == (primary, backlog)
    assert isinstance(error.__cause__, ExceptionGroup)
    assert error.__cause__.exceptions == (primary, backlog)


@pytest.mark.parametrize("message_id", ["text", 7, UUID(int=1), b"bytes", None])
def test_message_id_keeps_its_type(message_id: object) -> None:
    properties = AmqpMessageProperties(message_id=message_id, subject="s")
    message = AmqpAnnotatedMessage(data_body=b"x", properties=properties)

    (outcome,) = CallOutcomes(Payloads(message)).error("orders", REASON).messages

    assert outcome.message_id == message_id
    assert isinstance(outcome.message_id, type(message_id))


def test_ids_of_a_batch_are_those_of_its_messages() -> None:
    batch = ServiceBusMessageBatch()
    for name in ("a", "b"):
        batch.add_message(ServiceBusMessage("x", message_id=name))

    error = CallOutcomes(Payloads(batch)).error("orders", REASON)

    assert [each.message_id for each in error.messages] == ["a", "b"]


def test_call_without_messages_has_no_outcomes() -> None:
    error = CallOutcomes(Payloads([])).error("orders", REASON)

    assert (error.messages, error.stored, error.not_sent, error.unknown) == ((), (), (), ())
    assert str(error) == "The call for 'orders' failed: the reason. Retry later."


def test_error_can_be_pickled() -> None:
    outcomes = call_of("a", "b")
    outcomes.stored.add(1)
    error = pickle.loads(pickle.dumps(outcomes.error("orders", REASON)))

    assert type(error) is PartlyStored
    assert (error.stored, error.not_sent) == ((1,), (0,))


@pytest.mark.parametrize(
    ("outcomes", "text"),
    [
        ([NOT_SENT], "The message for 'orders' was not sent: the reason. Retry later."),
        (
            [UNKNOWN],
            (
                "It is not known whether the message 'a' for 'orders' was sent: the reason. "
                "Send it again with the same message id."
            ),
        ),
        (
            [NOT_SENT, NOT_SENT],
            "Nothing was sent to 'orders' (2 messages): the reason. Retry later.",
        ),
        (
            [UNKNOWN, UNKNOWN],
            (
                "0 of 2 messages for 'orders' are known to be stored: the reason. "
                "Not known whether sent: positions 0 ('a'), 1 ('b'). "
                "Send these again with the same message ids."
            ),
        ),
        (
            [STORED, NOT_SENT],
            (
                "1 of 2 messages for 'orders' is known to be stored: the reason. "
                "Stored: position 0. Not sent: position 1."
            ),
        ),
        (
            [STORED, STORED, NOT_SENT, UNKNOWN],
            (
                "2 of 4 messages for 'orders' are known to be stored: the reason. "
                "Stored: positions 0, 1. Not sent: position 2. "
                "Not known whether sent: position 3 ('d'). "
                "Send these again with the same message ids."
            ),
        ),
        (
            [UNKNOWN] * 7 + [NOT_SENT] * 6,
            (
                "0 of 13 messages for 'orders' are known to be stored: the reason. "
                "Not sent: positions 7, 8, 9, 10, 11 and 1 more. "
                "Not known whether sent: "
                "positions 0 ('a'), 1 ('b'), 2 ('c'), 3 ('d'), 4 ('e') and 2 more. "
                "Send these again with the same message ids."
            ),
        ),
    ],
)
def test_text_says_what_is_known(outcomes: list[SendOutcome], text: str) -> None:
    assert text_of(*outcomes) == text


def test_text_names_messages_without_an_id() -> None:
    single = describe("orders", [MessageOutcome(0, None, UNKNOWN)], REASON)
    several = describe(
        "orders", [MessageOutcome(0, None, UNKNOWN), MessageOutcome(1, "b", NOT_SENT)], REASON
    )

    assert single == (
        "It is not known whether the message for 'orders' was sent: the reason. It has no message "
        "id, so that a second copy of it cannot be detected."
    )
    assert "position 0 (without an id)." in several
