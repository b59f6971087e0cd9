"""Message counts of backlog queues, from a real namespace."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.backlog_paths import backlog_path
from pairbus.spark.usage import UsageRecorder
from pairbus.syphon.counts import backlog_size, existing_queues

OF_ONE = SharedAccessRule(
    name="of-one", primary_key="k", secondary_key="l", rights=frozenset(Right)
)
LISTEN = SharedAccessRule(
    name="listen", primary_key="k", secondary_key="l", rights=frozenset({Right.LISTEN})
)


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace() as namespace:
        namespace.create_queue("one", authorization_rules=(OF_ONE,))
        namespace.create_queue("two")
        with Client(options_of(namespace.connection_string)) as client:
            for path, count in (("one", 3), ("two", 2)):
                for _ in range(count):
                    Sender(client, path).send(Message.build(data=b"hello").encode())
        yield namespace


def options_of(connection_string: str) -> ClientOptions:
    return ClientOptions.from_connection_string(connection_string)


def test_counts_are_summed_up_and_a_missing_queue_counts_as_empty(
    namespace: LocalNamespace,
) -> None:
    options = options_of(namespace.connection_string)

    assert backlog_size(options, ("one", "two", "absent")) == 5
    assert backlog_size(options, ("absent",)) == 0


def test_sum_is_unknown_if_one_queue_cannot_be_counted(namespace: LocalNamespace) -> None:
    options = options_of(namespace.connection_string_of(OF_ONE.name, OF_ONE.primary_key))

    assert backlog_size(options, ("one",)) == 3
    assert backlog_size(options, ("one", "two")) is None


@pytest.fixture(scope="module")
def crowded() -> Iterator[LocalNamespace]:
    """A namespace with more queues than a page of the list holds."""
    with LocalNamespace("crowded", rules=(LISTEN,)) as crowded:
        for number in range(230):
            crowded.create_queue(f"queue-{number:03}")
        for index in (0, 1, 8):
            crowded.create_queue(backlog_path("zoo", index))
        yield crowded


def test_existing_queues_are_listed_with_the_manage_right(
    crowded: LocalNamespace,
) -> None:
    listen = crowded.connection_string_of(LISTEN.name, LISTEN.primary_key)

    def existing(secondary: str, primary_name: str) -> tuple[int, ...] | None:
        return existing_queues(options_of(secondary), primary_name, 1)

    assert existing(crowded.connection_string, "zoo") == (0, 1, 8)
    assert existing(crowded.connection_string, "other") == ()
    assert existing(listen, "zoo") is None


def test_listing_of_queues_is_in_the_ledger_of_the_syphon(
    crowded: LocalNamespace, tmp_path: Path
) -> None:
    options = options_of(crowded.connection_string)
    recorder = UsageRecorder.create(str(tmp_path), options, options)

    def billed() -> int:
        return sum(reading.operations for reading in crowded.meter().values())

    before = billed()
    assert existing_queues(options, "zoo", 1, recorder) == (0, 1, 8)
    used = billed() - before

    (file,) = tmp_path.rglob("*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    recorded = [record for record in records if record.get("kind") == "management"]
    assert used == 3
    assert sum(record["operations"] for record in recorded) == used
    assert {record["answered"] for record in recorded} == {True}
