"""Messages with sessions in a backlog, and the proof that their order is kept."""

from datetime import timedelta

from tests.backlog import Backlog
from tests.faults.delayed_answer import NEVER_S, DelayedAnswer
from tests.faults.lock_clock import LOCK_S, LockClock
from tests.messages import id_of, message, peek_all
from tests.waiting import wait_until

COUNT = 3000
SESSIONS = 10
LOCK_TIMES = 4
"""The duration of a long lock, in steps of the clock."""
LONG_LOCK = timedelta(seconds=LOCK_TIMES * LOCK_S)
"""Such locks do not expire while Spark starts."""


def expire_long_locks(clock: LockClock) -> None:
    for _ in range(LOCK_TIMES + 1):
        clock.expire_locks()


class SessionMessages:
    """Messages of some sessions for one queue, which removes duplicates."""

    def __init__(self, backlog: Backlog, name: str = "ordered") -> None:
        self.backlog = backlog
        self.path = backlog.path(name, requires_duplicate_detection=True)
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

    def wait_for_locks(self, answer: DelayedAnswer) -> None:
        """Wait until a delivery has no answer, and messages are locked."""
        answer.wait()
        wait_until(self.has_locks, "locks")
        assert self.backlog.left() > 0

    def wait_until_drained(self) -> None:
        wait_until(lambda: self.backlog.left() == 0, "the backlog to be empty")

    def check(self) -> None:
        """Assert that all messages have arrived, the first copies in the order of their sessions.
        The queue keeps only those."""
        arrived = self.arrived()
        for session in range(SESSIONS):
            ids = [id for id in arrived if id.startswith(f"{session}-")]
            assert ids == sorted(ids)
        assert len(arrived) == len(set(arrived)) == self.sent
