"""Each way in which a delivery can fail, and what it says about the messages."""

import pytest

from pairbus.amqp.client.error_translation import BY_CONDITION
from pairbus.errors import (
    AmqpError,
    Busy,
    ConnectionLost,
    EntityDisabled,
    EntityNotFound,
    LinkLost,
    MessageTooLarge,
    NotAuthorized,
    OperationTimeout,
    ProtocolError,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from pairbus.spark.verdicts import Failure, Verdict, judge

pytestmark = pytest.mark.rule("Y5")
REFUSALS = (Refused, MessageTooLarge)
OTHERS = (
    *(Busy, ConnectionLost, EntityDisabled, LinkLost, NotAuthorized, OperationTimeout),
    *(ProtocolError, QuotaExceeded, Unavailable),
)


@pytest.mark.parametrize("lost_before", [False, True])
@pytest.mark.parametrize("message_count", [1, 500])
@pytest.mark.parametrize("failure", Failure)
@pytest.mark.parametrize("error", OTHERS)
def test_error_that_does_not_concern_the_message_leaves_it(
    failure: Failure, error: type[AmqpError], message_count: int, lost_before: bool
) -> None:
    verdict = judge(failure, error(), message_count=message_count, lost_before=lost_before)

    assert verdict is Verdict.LEAVE


@pytest.mark.parametrize("message_count", [1, 500])
@pytest.mark.parametrize("failure", Failure)
def test_destination_that_does_not_exist_is_missing_in_any_case(
    failure: Failure, message_count: int
) -> None:
    assert judge(failure, EntityNotFound(), message_count=message_count) is Verdict.MISSING


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize("failure", [Failure.REJECTED, Failure.TOO_LARGE])
def test_refusal_of_a_delivery_judges_a_message_that_stands_alone(
    failure: Failure, error: type[AmqpError]
) -> None:
    assert judge(failure, error(), message_count=1) is Verdict.DEAD_LETTER
    assert judge(failure, error(), message_count=2) is Verdict.SPLIT


@pytest.mark.parametrize("error", REFUSALS)
def test_lost_link_judges_a_message_only_if_it_repeats_on_a_new_link(
    error: type[AmqpError],
) -> None:
    lost = Failure.LINK_LOST

    assert judge(lost, error(), message_count=1) is Verdict.SEND_AGAIN
    assert judge(lost, error(), message_count=2) is Verdict.SEND_AGAIN
    assert judge(lost, error(), message_count=1, lost_before=True) is Verdict.DEAD_LETTER
    assert judge(lost, error(), message_count=2, lost_before=True) is Verdict.SPLIT


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize("message_count", [1, 2])
def test_destination_that_grants_no_link_says_nothing_about_messages(
    error: type[AmqpError], message_count: int
) -> None:
    verdict = judge(Failure.NOT_ATTACHED, error(), message_count=message_count, lost_before=True)

    assert verdict is Verdict.LEAVE


def test_every_condition_of_a_first_detach_keeps_the_message() -> None:
    verdicts = {
        condition: judge(Failure.LINK_LOST, error(condition=condition), message_count=1)
        for condition, error in BY_CONDITION.items()
    }

    assert set(verdicts.values()) == {Verdict.LEAVE, Verdict.MISSING, Verdict.SEND_AGAIN}
