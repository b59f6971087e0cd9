"""A task of the syphon in namespaces that throttle, without Spark."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.emulator import STANDARD, LocalNamespace
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.spark import connections
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.outcome import Outcome
from pairbus.spark.pace import RatePlan
from pairbus.spark.plans import PartitionPlan
from pairbus.spark.queue_reader import QueueReader
from pairbus.spark.rate_control import RateLimit
from pairbus.spark.usage import NO_USAGE
from pairbus.syphon.packed_rows import messages_of
from pairbus.syphon.source import BacklogRows
from pairbus.transfer import to_backlog
from tests.messages import id_of, message, peek_all
from tests.tiers import when_admitted
from tests.waiting import wait_until

pytestmark = [pytest.mark.rule("Y9"), pytest.mark.timeout(120)]
CREDITS = 150
MESSAGES = 300
BACKLOG = ("b0", "b1")


@pytest.fixture
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    tier = replace(STANDARD, credits_per_second=CREDITS)
    with (
        LocalNamespace("primary", tier=tier) as primary,
        LocalNamespace("secondary", tier=tier) as secondary,
    ):
        primary.create_queue("orders")
        for queue in BACKLOG:
            secondary.create_queue(queue)
        yield primary, secondary
        connections.close_all()


def options(namespace: LocalNamespace) -> ClientOptions:
    return ClientOptions.from_connection_string(namespace.connection_string, operation_timeout_s=20)


def fill(secondary: LocalNamespace) -> list[str]:
    """Put messages into the backlog queues, and return their ids."""
    ids = [f"m-{n}" for n in range(MESSAGES)]
    for number, queue in enumerate(BACKLOG):
        sender = connections.sender_for(options(secondary), queue)
        messages = [to_backlog(message(id), "orders") for id in ids[number :: len(BACKLOG)]]
        when_admitted(partial(sender.send_batch, messages))
    # The batches took more credits than there are in a second.
    wait_until(lambda: not secondary.call(is_exhausted), "credits for receives")
    return ids


def is_exhausted(core: NamespaceRuntime) -> bool:
    assert core.throttle is not None
    return core.throttle.is_exhausted("receive")


def run_task(
    primary: LocalNamespace, secondary: LocalNamespace, rate: RatePlan, max_messages: int = MESSAGES
) -> Outcome:
    """Receive and forward messages, as the two processes of a task do."""
    source = options(secondary)
    rows = BacklogRows(source, deduct=False, usage=NO_USAGE)
    plan = PartitionPlan(BACKLOG, (), max_messages, frozenset(), rate=rate)
    forwarder = Forwarder(options(primary), source, pace=rate.start("send"))
    for batch in QueueReader(source, rows).read(plan):
        forwarder.forward(messages_of(batch))
    return forwarder.finish()


def receives(secondary: LocalNamespace) -> int:
    return sum(
        reading.messages for (_, kind), reading in secondary.meter().items() if kind == "receive"
    )


def test_throttled_task_slows_down_and_moves_each_message_once(
    namespaces: tuple[LocalNamespace, LocalNamespace], tmp_path: Path
) -> None:
    primary, secondary = namespaces
    ids = fill(secondary)
    rate = RatePlan(file=tmp_path / "rate.json")
    moved, limits = 0, set()
    while moved < MESSAGES:  # a task ends when the namespace delivers no more
        outcome = run_task(primary, secondary, rate)
        assert outcome.errors == {}
        assert outcome.left.total() == 0
        assert outcome.unsettled == 0
        moved += outcome.moved.total()
        limits.add(outcome.limit.limit)

    assert limits - {None}, "no operation was throttled"
    delivered = [id_of(payload) for payload in peek_all(primary.connection_string, "orders")]
    assert sorted(delivered) == sorted(ids)
    assert receives(secondary) == MESSAGES  # what was received was not given back


def test_task_keeps_to_a_known_limit_and_is_not_throttled(
    namespaces: tuple[LocalNamespace, LocalNamespace], tmp_path: Path
) -> None:
    primary, secondary = namespaces
    fill(secondary)
    now = time.time()
    limit = RateLimit(CREDITS / 2, CREDITS / 2, now, now)
    file = tmp_path / "rate.json"

    outcome = run_task(primary, secondary, RatePlan(limit=limit, file=file), CREDITS)

    assert outcome.moved.total() >= CREDITS
    assert outcome.limit == limit
    assert not file.exists()  # nothing was learned
