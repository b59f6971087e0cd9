"""The order within sessions holds when a syphon or its tasks are killed, and with two syphons."""

from datetime import timedelta

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.faults.conftest import StartSyphon
from tests.faults.delayed_answer import NEVER_S, DelayedAnswer
from tests.faults.lock_clock import LOCK_S, LockClock
from tests.messages import id_of, message, peek_all
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900), pytest.mark.rule("Y10", "S12", "X1")]
COUNT = 3000
SESSIONS = 10
LOCK_TIMES = 4
"""The lock duration, in steps of the clock."""


class SessionMessages:
    """Messages of some sessions for one queue, which removes duplicates."""

    def __init__(self, backlog: Backlog) -> None:
        self.backlog = backlog
        self.path = backlog.path("ordered", requires_duplicate_detection=True)
        self.sent = 0

    def put(self, count: int = COUNT) -> None:
        numbers = range(self.sent, self.sent + count)
        for queue in range(2):
            self.backlog.put(
                self.path,
                [
                    message(f"{n % SESSIONS}-{n:06}", session=f"s{n % SESSIONS}")
                    for n in numbers
                    if n % SESSIONS % 2 == queue
                ],
                queue,
            )
        self.sent += count

    def delay_answer(self) -> DelayedAnswer:
        """Delay the answer to the next delivery for ever: its messages are not completed."""
        return DelayedAnswer(self.backlog.primary.connection_string, self.path, NEVER_S)

    def arrived(self) -> list[str]:
        return list(map(id_of, peek_all(self.backlog.primary.connection_string, self.path)))

    def has_locks(self) -> bool:
        """Return True if any message of the backlog is locked."""
        return self.backlog.secondary.call(
            lambda core: any(
                core.entities.source(queue)[1].next_lock_expiry_ms() is not None
                for queue in self.backlog.queues
            )
        )

    def check(self) -> None:
        arrived = self.arrived()
        for session in range(SESSIONS):
            ids = [id for id in arrived if id.startswith(f"{session}-")]
            assert ids == sorted(ids)
        assert len(arrived) == len(set(arrived)) == self.sent


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    """A backlog with long locks, so that they do not expire while Spark starts."""
    return Backlog(*namespaces, lock_duration=timedelta(seconds=LOCK_TIMES * LOCK_S))


def expire_locks(clock: LockClock) -> None:
    for _ in range(LOCK_TIMES + 1):
        clock.expire_locks()


@pytest.fixture
def sessions(backlog: Backlog) -> SessionMessages:
    return SessionMessages(backlog)


def wait_for_locks(sessions: SessionMessages, answer: DelayedAnswer) -> None:
    """Wait until a delivery has no answer, and messages are locked."""
    answer.wait()
    wait_until(sessions.has_locks, "locks")
    assert sessions.backlog.left() > 0


def test_successor_of_a_killed_syphon_waits_for_its_locks(
    sessions: SessionMessages, start_syphon: StartSyphon, clock: LockClock
) -> None:
    sessions.put()
    answer = sessions.delay_answer()
    with start_syphon("first") as first:
        wait_for_locks(sessions, answer)
        first.kill()
    assert sessions.has_locks()
    sessions.put(500)

    peeks = sessions.backlog.peeks()
    with start_syphon("second") as second:
        wait_until(lambda: sessions.backlog.peeks() > peeks, "the successor to see the locks")
        expire_locks(clock)
        wait_until(lambda: sessions.backlog.left() == 0, "the backlog to be empty")
        second.stop()
    sessions.check()


def test_tasks_are_tried_again_after_their_workers_were_killed(
    sessions: SessionMessages, start_syphon: StartSyphon, clock: LockClock
) -> None:
    sessions.put()
    answer = sessions.delay_answer()
    with start_syphon("only", "--master", "local[2,4]") as syphon:
        wait_for_locks(sessions, answer)
        workers = syphon.task_workers()
        assert workers
        kill(*workers)
        sessions.put(500)
        wait_until(
            lambda: syphon.task_workers().keys() - workers.keys(), "the second attempt of a task"
        )
        expire_locks(clock)
        wait_until(lambda: sessions.backlog.left() == 0, "the backlog to be empty")
        syphon.stop()
    sessions.check()


def test_two_syphons_at_once_keep_the_order(
    sessions: SessionMessages, start_syphon: StartSyphon
) -> None:
    sessions.put(200)
    with start_syphon("first") as first, start_syphon("second") as second:

        def both_moved_messages() -> bool:
            if sessions.backlog.left() == 0:
                sessions.put(200)
            return first.moved > 0 and second.moved > 0

        wait_until(both_moved_messages, "both syphons to move messages")
        sessions.put()
        wait_until(lambda: sessions.backlog.left() == 0, "the backlog to be empty")
        first.stop()
        second.stop()
    sessions.check()
