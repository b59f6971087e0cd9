"""The meaning of responses to requests about backlog queues."""

import pytest

from pairbus.errors import (
    Busy,
    ConfigurationError,
    ConnectionLost,
    EntityExists,
    EntityNotFound,
    NotAuthorized,
    OperationTimeout,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from pairbus.pairing.backlog_queues import QueueAnswer, interpret

ANSWERS = [
    (None, QueueAnswer.EXISTS),
    (NotAuthorized(), QueueAnswer.FORBIDDEN),
    (ConnectionLost(), QueueAnswer.UNREACHABLE),
    (OperationTimeout(), QueueAnswer.UNREACHABLE),
    (Unavailable(), QueueAnswer.RETRY),
    (Busy(), QueueAnswer.RETRY),
    (QuotaExceeded(), QueueAnswer.IMPOSSIBLE),
    (Refused(), QueueAnswer.IMPOSSIBLE),
    (ConfigurationError(), QueueAnswer.IMPOSSIBLE),
]


@pytest.mark.rule("P6")
@pytest.mark.parametrize("creating", [False, True], ids=["reading", "creating"])
@pytest.mark.parametrize(("error", "answer"), ANSWERS, ids=lambda value: type(value).__name__)
def test_error_has_the_same_meaning_for_both_requests(
    error: Exception | None, answer: QueueAnswer, creating: bool
) -> None:
    assert interpret(error, creating=creating) is answer


@pytest.mark.rule("P5")
def test_queue_that_exists_or_is_missing_depends_on_the_request() -> None:
    assert interpret(EntityNotFound(), creating=False) is QueueAnswer.MISSING
    assert interpret(EntityNotFound(), creating=True) is QueueAnswer.RETRY
    assert interpret(EntityExists(), creating=True) is QueueAnswer.CONFLICT
