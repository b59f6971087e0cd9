"""When a stream has a next micro-batch, and when it ends."""

from collections.abc import Container, Mapping, Set

import pytest
from pyspark import cloudpickle

from pairbus.amqp.client import ClientOptions
from pairbus.errors import AmqpError, ConnectionLost, EntityNotFound
from pairbus.spark import stream_reader
from pairbus.spark.connector import MessageRows
from pairbus.spark.locked_messages import LockedMessages
from pairbus.spark.long_polls import LongPolls
from pairbus.spark.messages import ReceivedMessage
from pairbus.spark.queue_reader import QueueReader
from pairbus.spark.stream_reader import QueuePlanner, QueueStreamReader

OPTIONS = ClientOptions(host="localhost")


class FakePolls(LongPolls):
    """Polls that know nothing for some waits, and then have a message, or an error."""

    def __init__(self, waits: int, error: AmqpError | None = None) -> None:
        super().__init__(OPTIONS, (), poll_s=1)
        self._waits = waits
        self._later_error = error

    def resume(self) -> None: ...

    def wait_for_message(self, seconds: float) -> None: ...

    def wait_until_known(self, seconds: float) -> bool:
        self._waits -= 1
        if self._waits < 0:
            self.error = self._later_error
        return self._waits < 0 and self.error is None

    def messages(self) -> list[ReceivedMessage]:
        return list(self.take().values())

    def take(self, queues: Container[str] | None = None) -> dict[str, ReceivedMessage]:
        known = self._waits < 0 and self.error is None
        return {"q": ReceivedMessage("q", b"payload", b"token")} if known else {}


class FakeLocks(LockedMessages):
    """Messages that others have locked for some checks."""

    def __init__(self, checks: int = 0) -> None:
        self.checks = checks

    def close(self) -> None: ...

    def exist(self, read: Mapping[str, Set[int]]) -> bool:
        self.checks -= 1
        return self.checks >= 0


def stream(
    polls: LongPolls, *, available_now: bool, locked: LockedMessages | None = None
) -> QueueStreamReader:
    reader = QueueStreamReader(
        ("q",),
        partitions=1,
        max_messages=10,
        planner=QueuePlanner(polls, 10, locked or FakeLocks()),
        reader=QueueReader(OPTIONS, MessageRows(("payload",))),
    )
    if available_now:
        reader.prepareForTriggerAvailableNow()
    return reader


def next_offset(reader: QueueStreamReader) -> dict[str, int]:
    return reader.latestOffset({"batch": 4}, reader.getDefaultReadLimit())


def test_available_now_stream_waits_until_the_state_of_each_queue_is_known() -> None:
    assert next_offset(stream(FakePolls(3), available_now=True)) == {"batch": 5}


def test_continuous_stream_returns_to_spark_while_the_state_is_not_known() -> None:
    reader = stream(FakePolls(3), available_now=False)

    assert [next_offset(reader) for _ in range(4)] == [{"batch": 4}] * 3 + [{"batch": 5}]


class EmptyPolls(FakePolls):
    """Polls that get a message after some takes."""

    def __init__(self, takes: int) -> None:
        super().__init__(0)
        self._takes = takes

    def take(self, queues: Container[str] | None = None) -> dict[str, ReceivedMessage]:
        self._takes -= 1
        return super().take() if self._takes < 0 else {}

    def messages(self) -> list[ReceivedMessage]:
        return []


def test_available_now_stream_waits_for_messages_that_others_have_locked() -> None:
    locked = FakeLocks(checks=3)

    assert next_offset(stream(EmptyPolls(3), available_now=True, locked=locked)) == {"batch": 5}
    assert locked.checks == 0


def test_available_now_stream_ends_when_nothing_is_left() -> None:
    locked = FakeLocks(checks=2)

    assert next_offset(stream(EmptyPolls(99), available_now=True, locked=locked)) == {"batch": 4}
    assert locked.checks == -1


def test_available_now_stream_ends_when_locks_are_renewed_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_reader, "MAX_LOCK_WAIT_S", 0.0)
    locked = FakeLocks(checks=99)

    assert next_offset(stream(EmptyPolls(99), available_now=True, locked=locked)) == {"batch": 4}


@pytest.mark.parametrize("available_now", [True, False])
def test_permanent_error_ends_the_stream(available_now: bool) -> None:
    polls = FakePolls(0, EntityNotFound("there is no queue 'q'"))

    with pytest.raises(EntityNotFound, match="no queue"):
        next_offset(stream(polls, available_now=available_now))


def test_unreachable_namespace_fails_only_an_available_now_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_reader, "CONNECT_S", 0.0)
    error = ConnectionLost("refused")

    assert next_offset(stream(FakePolls(0, error), available_now=False)) == {"batch": 4}
    with pytest.raises(ConnectionLost):
        next_offset(stream(FakePolls(0, error), available_now=True))


@pytest.mark.rule("Y6")
def test_micro_batch_at_the_start_of_a_query_reads_nothing() -> None:
    reader = stream(FakePolls(9), available_now=False)

    assert [p.queues for p in reader.partitions({"batch": 0}, {"batch": 0})] == [()]


@pytest.mark.rule("Y12")
def test_micro_batch_that_did_not_end_before_a_restart_reads_nothing() -> None:
    # Spark repeats it without a plan, and an operator may have paused the syphon meanwhile.
    reader = stream(FakePolls(0), available_now=False)
    start, repeated = {"batch": 3}, {"batch": 4}

    assert [p.queues for p in reader.partitions(start, repeated)] == [()]

    next_offset(reader)
    assert [p.queues for p in reader.partitions(repeated, {"batch": 5})] == [("q",)]


def test_copy_of_the_reader_for_workers_has_no_planner() -> None:
    reader = stream(FakePolls(0), available_now=True)
    next_offset(reader)

    copy = cloudpickle.loads(cloudpickle.dumps(reader))

    assert copy._planner is None
    assert copy._plans == {}
