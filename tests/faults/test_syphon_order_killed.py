"""The order within sessions holds when a syphon or its tasks are killed, and with two syphons."""

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.faults.conftest import StartSyphon
from tests.faults.lock_clock import LockClock
from tests.faults.session_messages import LONG_LOCK, SessionMessages, expire_long_locks
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900), pytest.mark.rule("Y10", "S12", "X1")]


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    """A backlog with long locks, so that they do not expire while Spark starts."""
    return Backlog(*namespaces, lock_duration=LONG_LOCK)


@pytest.fixture
def sessions(backlog: Backlog) -> SessionMessages:
    return SessionMessages(backlog)


def test_successor_of_a_killed_syphon_waits_for_its_locks(
    sessions: SessionMessages, start_syphon: StartSyphon, clock: LockClock
) -> None:
    sessions.put()
    answer = sessions.delay_answer()
    with start_syphon("first") as first:
        sessions.wait_for_locks(answer)
        first.kill()
    assert sessions.has_locks()
    sessions.put(500)

    peeks = sessions.backlog.peeks()
    with start_syphon("second") as second:
        wait_until(lambda: sessions.backlog.peeks() > peeks, "the successor to see the locks")
        expire_long_locks(clock)
        wait_until(lambda: sessions.backlog.left() == 0, "the backlog to be empty")
        second.stop()
    sessions.check()


def test_tasks_are_tried_again_after_their_workers_were_killed(
    sessions: SessionMessages, start_syphon: StartSyphon, clock: LockClock
) -> None:
    sessions.put()
    answer = sessions.delay_answer()
    with start_syphon("only", "--master", "local[2,4]") as syphon:
        sessions.wait_for_locks(answer)
        workers = syphon.task_workers()
        assert workers
        kill(*workers)
        sessions.put(500)
        wait_until(
            lambda: syphon.task_workers().keys() - workers.keys(), "the second attempt of a task"
        )
        expire_long_locks(clock)
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
