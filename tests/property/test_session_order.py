"""Order within sessions with several readers that are killed, frozen or overtaken at any step.

The model is a queue with locks. Each reader is a generator that stops after each step: the receive
of a long poll, the receives of a task, the check of each message, each send and each completion.
"""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pairbus.syphon.sequence_ranges import SequenceRanges
from pairbus.syphon.session_order import PeekedMessage, SessionOrder

SESSIONS = ("a", "b", None)
WINDOW = 3


class ModelQueue:
    """Messages under locks, and what their destination has accepted."""

    def __init__(self) -> None:
        self.sessions: dict[int, str | None] = {}
        """The messages that were not completed."""
        self.put_sessions: dict[int, str | None] = {}
        self.locks: dict[int, int] = {}
        """The reader that holds the lock of a message."""
        self.sent: list[tuple[str | None, int]] = []
        self._numbers = count(1)

    def put(self, session: str | None) -> None:
        number = next(self._numbers)
        self.sessions[number] = self.put_sessions[number] = session

    def receive(self, reader: int, limit: int) -> list[int]:
        numbers = [n for n in sorted(self.sessions) if n not in self.locks][:limit]
        self.locks.update(dict.fromkeys(numbers, reader))
        return numbers

    def peek(self, first: int, limit: int) -> list[PeekedMessage]:
        numbers = [n for n in sorted(self.sessions) if n >= first][:limit]
        return [PeekedMessage(n, self.sessions[n]) for n in numbers]

    def complete(self, reader: int, number: int) -> None:
        if self.locks.get(number) == reader:
            del self.locks[number], self.sessions[number]

    def release(self, reader: int, numbers: list[int]) -> None:
        for number in numbers:
            if self.locks.get(number) == reader:
                del self.locks[number]


def read(backlog: ModelQueue, reader: int, unordered: SequenceRanges) -> Iterator[None]:
    """Move messages as a syphon does, one step at a time."""
    first = backlog.receive(reader, 1)  # the long poll
    yield
    order = SessionOrder(backlog.peek, unordered, max_peeked=8)
    held: list[int] = []
    unsettled: list[int] = []
    for _ in range(2):
        received = backlog.receive(reader, WINDOW)
        yield
        if first and not any(n < first[0] for n in received):
            received, first = first + received, []
        for number in received:
            session = backlog.put_sessions[number]
            if not order.admits(number, session):
                held.append(number)
                continue
            yield
            backlog.sent.append((session, number))
            unsettled.append(number)
        yield
        for number in unsettled:
            backlog.complete(reader, number)
            yield
        unsettled = []
    order.finish()
    backlog.release(reader, held + first)


class KilledReaders(RuleBasedStateMachine):
    """Readers that take turns, are killed, and lose their locks."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = ModelQueue()
        self.put: dict[str, list[int]] = {"a": [], "b": []}
        self.readers: dict[int, Iterator[None]] = {}
        self.unordered = SequenceRanges()
        self.ids = count(1)

    @rule(sessions=st.lists(st.sampled_from(SESSIONS), min_size=1, max_size=6))
    def put_messages(self, sessions: list[str | None]) -> None:
        for session in sessions:
            self.backlog.put(session)
            if session is not None:
                self.put[session].append(max(self.backlog.put_sessions))

    @rule(same_worker=st.booleans())
    @precondition(lambda self: len(self.readers) < 3)
    def start_reader(self, same_worker: bool) -> None:
        reader = next(self.ids)
        unordered = self.unordered if same_worker else SequenceRanges()
        self.readers[reader] = read(self.backlog, reader, unordered)

    @rule(data=st.data(), steps=st.integers(1, 8))
    @precondition(lambda self: self.readers)
    def let_a_reader_work(self, data: st.DataObject, steps: int) -> None:
        reader = data.draw(st.sampled_from(sorted(self.readers)))
        for _ in range(steps):
            if next(self.readers[reader], "ended") == "ended":
                del self.readers[reader]
                return

    @rule(data=st.data())
    @precondition(lambda self: self.readers)
    def kill_a_reader(self, data: st.DataObject) -> None:
        """Its messages stay locked."""
        del self.readers[data.draw(st.sampled_from(sorted(self.readers)))]

    @rule(data=st.data())
    @precondition(lambda self: self.backlog.locks)
    def let_locks_expire(self, data: st.DataObject) -> None:
        """Of a reader that was killed, or that is too slow."""
        reader = data.draw(st.sampled_from(sorted(set(self.backlog.locks.values()))))
        self.backlog.release(reader, [n for n, r in self.backlog.locks.items() if r == reader])

    @invariant()
    def messages_of_a_session_arrive_in_order(self) -> None:
        for session, numbers in self.put.items():
            arrived = list(dict.fromkeys(n for s, n in self.backlog.sent if s == session))
            assert arrived == numbers[: len(arrived)]

    def teardown(self) -> None:
        """The last reader moves everything when the locks of all others have expired."""
        for _ in range(200):
            if not self.backlog.sessions:
                break
            self.backlog.locks.clear()
            for _ in read(self.backlog, next(self.ids), SequenceRanges()):
                pass
        assert not self.backlog.sessions
        self.messages_of_a_session_arrive_in_order()


KilledReaders.TestCase.settings = settings(stateful_step_count=40)
TestKilledReaders = pytest.mark.rule("Y10")(KilledReaders.TestCase)
