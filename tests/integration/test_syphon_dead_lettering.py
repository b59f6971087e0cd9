"""Dead-lettering of messages that a task cannot forward, against an emulator, without Spark."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pairbus.amqp.client import Management
from pairbus.amqp.client.request_response import Response
from pairbus.errors import ConnectionLost
from pairbus.servicebus.management import DEAD_LETTERED
from pairbus.spark.settler import MAX_TOKENS
from pairbus.spark.usage import UsageRecorder
from pairbus.usage.operations import OperationKind
from pairbus.usage.records import read_operations
from tests.integration.backlog_queue import BacklogQueue

pytestmark = pytest.mark.rule("Y5")


@pytest.fixture
def request_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of lock tokens of each request that dead-letters messages."""
    sizes: list[int] = []
    post = Management.post_settle

    def record(management: Management, tokens: Any, status: str, **options: Any) -> Response:
        tokens = list(tokens)
        if status == DEAD_LETTERED:
            sizes.append(len(tokens))
        return post(management, tokens, status, **options)

    monkeypatch.setattr(Management, "post_settle", record)
    return sizes


@pytest.mark.unlimited
def test_dead_letters_with_the_same_reason_and_description_share_requests(
    backlog: BacklogQueue, request_sizes: list[int]
) -> None:
    count = MAX_TOKENS + 100
    messages = [
        message._replace(problem="Reason", description=f"because of {n % 2 if n < 10 else 0}")
        for n, message in enumerate(backlog.locked("orders", [str(n) for n in range(count)]))
    ]

    outcome = backlog.forward(messages)

    assert sorted(request_sizes) == [5, count - 5 - MAX_TOKENS, MAX_TOKENS]
    assert outcome.dead_lettered == {"orders": count}
    assert outcome.dead_letter_reasons == {"orders": {"Reason": count}}
    descriptions = Counter(description for _, description in backlog.dead_letters())
    assert descriptions == {"because of 0": count - 5, "because of 1": 5}


def test_dead_lettering_that_fails_is_not_counted_and_does_not_affect_others(
    backlog: BacklogQueue, request_sizes: list[int], tmp_path: Path
) -> None:
    messages = [
        message._replace(problem="Reason", description="because")
        for message in backlog.locked("orders", ["a", "b", "c"])
    ]
    messages[1] = messages[1]._replace(lock_token=b"\1" * 16)
    usage = UsageRecorder.create(str(tmp_path), backlog.options, backlog.options)

    outcome = backlog.forward(messages, usage=usage)
    usage.flush()

    assert request_sizes == [3, 1, 1, 1]
    assert outcome.dead_lettered == {"orders": 2}
    assert outcome.dead_letter_reasons == {"orders": {"Reason": 2}}
    assert outcome.left == {"orders": 1}
    assert (outcome.errors, backlog.message_count(), len(backlog.dead_letters())) == ({}, 1, 2)
    recorded: Counter[bool] = Counter()
    for record in read_operations(tmp_path):
        if record["kind"] == OperationKind.DEAD_LETTER.value:
            recorded[record["answered"]] += record["operations"]
    assert recorded == {True: 2, False: 1}


def test_messages_are_left_if_the_backlog_does_not_respond(backlog: BacklogQueue) -> None:
    [message] = backlog.locked("orders", ["a"])
    # The queue no longer exists, so its management link cannot be attached.
    backlog.namespace.call(lambda core: core.entities.delete(backlog.path))

    outcome = backlog.forward([message._replace(problem="Reason", description="because")])

    assert (outcome.dead_lettered, outcome.left) == ({}, {"orders": 1})


def test_dead_letter_counts_if_the_answer_was_lost(
    backlog: BacklogQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [
        message._replace(problem="Reason", description="because")
        for message in backlog.locked("orders", ["a", "b", "c"])
    ]
    post, lost = Management.post_settle, list[Response]()

    def lose_first_answer(management: Management, *arguments: Any, **options: Any) -> Response:
        response = post(management, *arguments, **options)
        if not lost:
            management.wait([response])
            lost.append(response)
            return Response(response.id, error=ConnectionLost("The connection was lost."))
        return response

    monkeypatch.setattr(Management, "post_settle", lose_first_answer)
    outcome = backlog.forward(messages)

    assert lost[0].status == 200
    assert len(backlog.dead_letters()) == 3
    assert outcome.dead_letter_reasons == {"orders": {"Reason": 3}}
    assert outcome.left == {}
