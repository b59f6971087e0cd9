"""Messages in a backlog for two destinations, and the proof that they arrive."""

from collections import Counter

from pairbus.amqp.client import ClientOptions
from pairbus.spark.messages import destination_of
from pairbus.syphon.counts import backlog_size
from pairbus.transfer import to_backlog
from tests.backlog import Backlog
from tests.faults.delayed_answer import NEVER_S, DelayedAnswer
from tests.messages import id_of, message, peek_all
from tests.waiting import wait_until

MANY = 6000
"""Messages for each of two paths: more than can be in flight at a time."""


class BacklogMessages:
    """The same messages for two queues: `exact` has duplicate detection, `plain` has none."""

    def __init__(self, backlog: Backlog, name: str = "orders") -> None:
        self.backlog = backlog
        self.exact = backlog.path(f"{name}-exact", requires_duplicate_detection=True)
        self.plain = backlog.path(f"{name}-plain")
        self.sent: list[bytes] = []

    @property
    def ids(self) -> list[str]:
        return [id_of(payload) for payload in self.sent]

    def put(self, count: int, queues: tuple[int, ...] = (0, 1), *, size: int = 10) -> None:
        """Store new messages in the backlog, each for both destinations."""
        numbers = range(len(self.sent), len(self.sent) + count)
        new = [message(f"m-{n}", body=b"%d" % n + b"x" * size) for n in numbers]
        self.sent += new
        paths = (self.exact, self.plain)
        for index, queue in enumerate(queues):
            share = new[index :: len(queues)]
            self.backlog.put_raw(
                [to_backlog(payload, path) for payload in share for path in paths], queue
            )

    def delay_answer(self, seconds: float = NEVER_S) -> DelayedAnswer:
        """Delay the answer to the next delivery to `exact`."""
        return DelayedAnswer(self.backlog.primary.connection_string, self.exact, seconds)

    def wait_for_unsettled(self, answer: DelayedAnswer) -> set[str]:
        """Wait until a delivery has no answer and another message has arrived without being
        completed. Return the ids of `in_both_places`."""
        answer.wait()
        wait_until(self.in_both_places, "a message to arrive")
        return self.in_both_places()

    def wait_until_drained(self) -> None:
        wait_until(lambda: self.left() == 0, "the backlog to be empty")

    def left(self) -> int | None:
        """Return the number of messages in the backlog, or None if it is not known."""
        options = ClientOptions.from_connection_string(self.backlog.secondary.connection_string)
        return backlog_size(options, tuple(self.backlog.queues))

    def arrived(self, path: str) -> list[str]:
        """Return the ids of the messages at a destination."""
        return list(map(id_of, peek_all(self.backlog.primary.connection_string, path)))

    def in_both_places(self) -> set[str]:
        """Return the ids of messages for `plain` that have arrived and are still in the backlog:
        they will be delivered again."""
        return self._waiting() & set(self.arrived(self.plain))

    def not_sent(self) -> set[str]:
        """Return the ids of messages for `plain` that are in the backlog and have not arrived."""
        return self._waiting() - set(self.arrived(self.plain))

    def _waiting(self) -> set[str]:
        return {
            id_of(payload)
            for queue in self.backlog.queues
            for payload in peek_all(self.backlog.secondary.connection_string, queue)
            if destination_of(payload) == self.plain
        }

    def duplicates(self) -> set[str]:
        """Return the ids of messages that arrived at `plain` more than once."""
        return {id for id, count in Counter(self.arrived(self.plain)).items() if count > 1}

    def check(self) -> None:
        """Assert that nothing is lost, and that `exact` has no duplicates."""
        assert Counter(self.arrived(self.exact)) == Counter(self.ids)
        assert set(self.arrived(self.plain)) == set(self.ids)
