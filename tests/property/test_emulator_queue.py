"""A queue and its dead letters against a small model: anything may happen, in any order.

Messages are sent, taken, settled in every way, deferred, scheduled, cancelled; time passes, noticed
or not; and the namespace is stopped or killed and started again. The model keeps everything in
dictionaries and knows nothing of buffers, heaps and files. Buffers are made so small here that
nearly every message goes through the disk, and lines of dead letters start over again and again.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pairbus.emulator.entities.locks import MessageLock
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.sessions import Sessions
from pairbus.emulator.storage.messages import StoredMessage
from pairbus.errors import LockLost, MessageNotFound, Refused
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED
from tests.unit.emulator.local import Local, body, message, properties

LOCK_MS = 1000
EXPIRED, TOO_OFTEN, TOLD = "TTLExpiredException", "MaxDeliveryCountExceeded", "told"
NAMES = ("x", "y")
SHARED_MEMORY = Path("/dev/shm")  # where it costs nothing to wait for the disk


@dataclass
class Item:
    """A message of the model. Its body is its name."""

    body: str
    number: int
    size: int
    state: int
    session: str | None
    due: int | None
    expires: int | None
    looked_at: int | None
    """When its expiry is looked at: not while it is locked."""
    deliveries: int = 0
    reason: str | None = None


@dataclass
class Held:
    """A lock of the model."""

    body: str
    until: int


@dataclass
class Line:
    """The model of a queue, or of its dead letters."""

    has_sessions: bool = False
    max_deliveries: int | None = None
    buries_expired: bool = False
    dead: "Line | None" = None
    items: dict[str, Item] = field(default_factory=dict)
    locks: dict[bytes, Held] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    """Those that are held, until when."""
    waiting: list[str] = field(default_factory=list)
    """Sessions with active messages, in the order in which they first had some."""
    states: dict[str, bytes] = field(default_factory=dict)

    def is_locked(self, item: Item) -> bool:
        return any(lock.body == item.body for lock in self.locks.values())

    def in_order(self) -> list[Item]:
        return sorted(self.items.values(), key=lambda item: item.number)

    def note_sessions(self) -> None:
        """Bring the sessions that wait up to date."""
        if self.has_sessions:
            active = [item.session for item in self.in_order() if item.state == ACTIVE]
            self.waiting = [name for name in self.waiting if name in active]
            for name in active:
                if name is not None and name not in self.waiting:
                    self.waiting.append(name)

    def add(self, item: Item) -> None:
        self.items[item.body] = item
        self.note_sessions()

    def drop(self, item: Item) -> None:
        del self.items[item.body]
        self.note_sessions()

    def bury(self, item: Item, reason: str) -> None:
        self.drop(item)
        assert self.dead is not None
        item.state, item.reason, item.due = ACTIVE, reason, None
        item.expires = item.looked_at = None
        self.dead.add(item)

    def expire(self, item: Item) -> None:
        if self.buries_expired:
            self.bury(item, EXPIRED)
        else:
            self.drop(item)

    def take(self, limit: int, now: int, session: str | None) -> list[str]:
        taken: list[str] = []
        for item in self.in_order():
            if len(taken) == limit:
                break
            if item.state != ACTIVE or self.is_locked(item):
                continue
            if self.has_sessions and item.session != session:
                continue
            if item.expires is not None and item.expires <= now:
                self.expire(item)
            else:
                taken.append(item.body)
        return taken

    def locked_until(self, item: Item, now: int) -> int:
        if self.has_sessions and item.session is not None:
            return self.sessions[item.session]
        return now + LOCK_MS

    def renew(self, token: bytes, now: int) -> int:
        lock = self.locks[token]
        lock.until = self.locked_until(self.items[lock.body], now)
        return lock.until

    def settle(self, token: bytes, how: str) -> None:
        if how == "abandon":
            self.give_back(token)
            return
        item = self.unlock(token)
        if how == "complete":
            self.drop(item)
        elif how == "dead-letter":
            self.bury(item, TOLD)
        else:
            item.state = DEFERRED
            item.deliveries += 1
            self.note_sessions()

    def unlock(self, token: bytes) -> Item:
        item = self.items[self.locks.pop(token).body]
        item.looked_at = item.expires
        return item

    def give_back(self, token: bytes, counted: bool = True) -> None:
        item = self.unlock(token)
        item.deliveries += counted
        if counted and self.max_deliveries is not None and item.deliveries >= self.max_deliveries:
            self.bury(item, TOO_OFTEN)

    def let_go(self, session: str, counted: bool) -> None:
        del self.sessions[session]
        for token, lock in list(self.locks.items()):
            if self.items[lock.body].session == session:
                self.give_back(token, counted)

    def end_overdue_sessions(self, now: int) -> None:
        for session, until in list(self.sessions.items()):
            if until <= now:
                self.let_go(session, counted=True)

    def end_overdue_locks(self, now: int) -> None:
        self.end_overdue_sessions(now)
        for token, lock in list(self.locks.items()):
            if lock.until <= now:
                self.give_back(token)

    def due(self, now: int) -> list[Item]:
        found = [item for item in self.items.values() if item.due is not None and item.due <= now]
        return sorted(found, key=lambda item: (item.due, item.number))

    def look_at_expired(self, now: int) -> None:
        for item in list(self.items.values()):
            if item.state == DEFERRED or item.looked_at is None or item.looked_at > now:
                continue
            lock = next((one for one in self.locks.values() if one.body == item.body), None)
            if lock is None:
                self.expire(item)
            else:
                item.looked_at = lock.until

    def start_again(self) -> None:
        """All locks are free, and a delivery counts only if it was given back."""
        self.locks.clear()
        self.sessions.clear()
        for item in self.items.values():
            item.expires = item.looked_at
        self.waiting.clear()
        self.note_sessions()


picks = st.integers(0, 2**16)
rarely = st.integers(0, 7).map(lambda number: number == 7)
whiches = st.sampled_from(["main", "main", "dead"])
names = st.sampled_from(NAMES)
limits = st.integers(1, 6)
betweens = st.sampled_from(["take", "give back", "nothing"])


def step(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A call of a method."""
    return st.fixed_dictionaries(arguments).map(lambda drawn: (name, drawn))


def taking() -> st.SearchStrategy[Any]:
    return step("take", which=whiches, limit=limits, good=rarely, pick=picks)


def settling() -> st.SearchStrategy[Any]:
    twice = ["abandon", "dead-letter", "renew"]
    how = st.sampled_from(["complete", "defer", *twice, *twice])
    return step("settle", pick=picks, amount=limits, how=how, stale=rarely)


def waiting() -> st.SearchStrategy[Any]:
    by = st.sampled_from([1, 300, 300, 700, 1000, 2500])
    return step("let_time_pass", by=by, noticed=st.booleans())


STEPS = (
    step(
        "send",
        amount=limits,
        ttl=st.sampled_from([None, None, None, 1, 500, 1500]),
        session=names,
        delay=st.sampled_from([None, None, 700]),
    ),
    taking(),
    taking(),
    settling(),
    settling(),
    waiting(),
    waiting(),
    step("keep_for_long", times=st.integers(1, 3)),
    step("bury_backwards", pick=picks, between=st.lists(betweens, min_size=4, max_size=4)),
    step("take_deferred", which=whiches, amount=limits, pick=picks, good=rarely, bogus=rarely),
    step("cancel", amount=limits, pick=picks, bogus=rarely),
    step("peek", which=whiches, pick=picks, limit=limits, session=names),
    step("stop", how=st.sampled_from(["commit", "commit", "commit", "restart", "kill"])),
)
STEPS_OF_SESSIONS = (
    step("accept", session=st.none() | names),
    step("accept", session=st.none() | names),
    step("accept", session=st.none() | names),
    step("renew_session", pick=picks),
    step("let_go", pick=picks),
    step("let_go", pick=picks),
    step("set_state", session=names, state=st.sampled_from([None, b"", b"one", b"two"])),
)


class Machine(RuleBasedStateMachine):
    """One rule does all: of many rules Hypothesis would leave out most in most runs, and a queue
    to which nobody sends shows nothing."""

    has_sessions = False

    @rule(step=st.one_of(*STEPS))
    def do(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        getattr(self, name)(**arguments)

    def __init__(self) -> None:
        super().__init__()
        self.patches: list[Any] = []
        self.folder = TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.exists() else None)
        self.local = Local(Path(self.folder.name) / "namespace.db")
        self.now = 10_000
        self.bodies = count()
        self.lines: dict[str, Line] = {}
        self.highest = 0
        """The highest number that anybody was told."""
        self.tokens: list[tuple[str, bytes]] = []
        """All that were ever given, in this run of the namespace or another."""

    @initialize(
        buffer=st.integers(1, 3),
        chunk=st.integers(1, 3),
        max_deliveries=st.integers(1, 3),
        buries_expired=st.booleans(),
        ttl=st.sampled_from([None, None, 1000]),
    )
    def set_up(
        self,
        buffer: int,
        chunk: int,
        max_deliveries: int,
        buries_expired: bool,
        ttl: int | None,
    ) -> None:
        self.patches = [
            patch("pairbus.emulator.entities.message_buffer.MAX_BUFFERED", buffer),
            patch("pairbus.emulator.entities.message_buffer.PAGE_SIZE", chunk),
            patch("pairbus.emulator.entities.sequence_numbers.RESERVATION_SIZE", 3),
            patch("pairbus.emulator.entities.locks.MAX_STALE_ENTRIES", 2),
        ]
        for one in self.patches:
            one.start()
        limit = {} if ttl is None else {"default_message_time_to_live": timedelta(milliseconds=ttl)}
        self.local.add_queue(
            lock_duration=timedelta(milliseconds=LOCK_MS),
            max_delivery_count=max_deliveries,
            dead_lettering_on_message_expiration=buries_expired,
            requires_session=self.has_sessions,
            **limit,
        )
        self.ttl = ttl
        dead = Line()
        self.lines = {
            "main": Line(self.has_sessions, max_deliveries, buries_expired, dead),
            "dead": dead,
        }
        self.find_queues()
        self.local.store.commit()
        self.remember()

    def find_queues(self) -> None:
        self.queues = {"main": self.local.at("q"), "dead": self.local.dead()}

    def remember(self) -> None:
        """All that was done so far is on disk."""
        self.committed = deepcopy((self.lines, self.highest))

    def told(self, numbers: Iterable[int]) -> None:
        """Numbers rise, and are never given twice."""
        for number in numbers:
            assert number > self.highest
            self.highest = number

    # Sending.

    def send(self, amount: int, ttl: int | None, session: str, delay: int | None) -> None:
        at = None if delay is None else self.now + delay
        texts = [str(next(self.bodies)) for _ in range(amount)]
        sent = [message(text, ttl=ttl, session=session, at=at) for text in texts]

        numbers = self.local.send("q", *sent, now=self.now)

        self.told(numbers)
        lives = [each for each in (ttl, self.ttl) if each is not None]
        start = self.now if at is None else at
        expires = start + min(lives) if lives else None
        for text, number, one in zip(texts, numbers, sent, strict=True):
            state = ACTIVE if at is None else SCHEDULED
            item = Item(text, number, one.size, state, session, at, expires, expires)
            self.lines["main"].add(item)

    def cancel(self, amount: int, pick: int, bogus: bool) -> None:
        queue, line = self.queues["main"], self.lines["main"]
        chosen = some([item for item in line.in_order() if item.state == SCHEDULED], amount, pick)
        numbers = [item.number for item in chosen]
        if bogus:
            with pytest.raises(MessageNotFound):
                queue.cancel_scheduled([*numbers, self.highest + 1])
        else:
            queue.cancel_scheduled(numbers)
            for item in chosen:
                line.drop(item)

    # Taking.

    def take(self, which: str, limit: int, good: bool, pick: int) -> None:
        """Under a lock, or for good."""
        queue, line = self.queues[which], self.lines[which]
        session = None
        if line.has_sessions:
            # Mostly one that is held.
            chosen = [*line.sessions, *line.sessions, NAMES[pick % len(NAMES)]]
            session = chosen[pick % len(chosen)]
            if line.sessions.get(session, 0) <= self.now:
                with pytest.raises(LockLost) as caught:
                    queue.receive(limit, self.now, locked=not good, session=session)
                assert caught.value.condition == "com.microsoft:session-lock-lost"
                return

        taken = queue.receive(limit, self.now, locked=not good, session=session)

        assert [body(stored) for stored, _ in taken] == line.take(limit, self.now, session)
        self.note_taken(which, taken)

    def take_deferred(self, which: str, amount: int, pick: int, good: bool, bogus: bool) -> None:
        queue, line = self.queues[which], self.lines[which]
        session = None
        if line.has_sessions:
            held = [name for name, until in line.sessions.items() if until > self.now]
            if not held:
                return
            session = held[pick % len(held)]
        chosen = some([item for item in line.in_order() if item.state == DEFERRED], amount, pick)
        numbers = [item.number for item in chosen] + [self.highest + 1] * bogus
        if bogus or any(
            line.is_locked(item) or (line.has_sessions and item.session != session)
            for item in chosen
        ):
            with pytest.raises(MessageNotFound):
                queue.receive_deferred(numbers, self.now, locked=not good, session=session)
            return

        taken = queue.receive_deferred(
            [*numbers, *numbers], self.now, locked=not good, session=session
        )

        assert [stored.sequence for stored, _ in taken] == numbers
        self.note_taken(which, taken)

    def note_taken(self, which: str, taken: list[tuple[StoredMessage, MessageLock | None]]) -> None:
        line = self.lines[which]
        for stored, lock in taken:
            item = line.items[body(stored)]
            assert (stored.sequence, stored.deliveries) == (item.number, item.deliveries)
            if lock is None:
                line.drop(item)
                continue
            assert lock.until_ms == line.locked_until(item, self.now)
            assert lock.token not in line.locks
            line.locks[lock.token] = Held(item.body, lock.until_ms)
            self.tokens.append((which, lock.token))

    # Settling.

    def settle(self, pick: int, amount: int, how: str, stale: bool) -> None:
        if not self.tokens:
            return
        live = self.live("main", "dead")
        tokens = self.tokens if stale or not live else live
        start = pick % len(tokens)
        chosen = tokens[start : start + amount]
        for which, token in reversed(chosen) if pick % 2 else chosen:
            self.settle_one(which, token, how)

    def settle_one(self, which: str, token: bytes, how: str) -> None:
        queue, line = self.queues[which], self.lines[which]
        held = line.locks.get(token)
        holds = held is not None and held.until > self.now
        assert queue.has_lock(token, self.now) is holds
        if how == "dead-letter" and which == "dead":
            with pytest.raises(Refused):
                carry_out(queue, how, token, self.now)
        elif not holds:
            with pytest.raises(LockLost):
                carry_out(queue, how, token, self.now)
        else:
            until = carry_out(queue, how, token, self.now)
            if how == "renew":
                assert until == line.renew(token, self.now)
            else:
                line.settle(token, how)

    def bury_backwards(self, pick: int, between: list[str]) -> None:
        """The youngest first, while dead letters are taken and given back: a line that has been
        read is then behind an older one."""
        self.take("main", 6, good=False, pick=pick)
        for number, (which, token) in enumerate(reversed(self.live("main"))):
            self.settle_one(which, token, "dead-letter")
            then = between[number % len(between)]
            if then == "take":
                self.take("dead", 1, good=False, pick=pick)
            elif then == "give back" and (letters := self.live("dead")):
                self.settle_one(*letters[0], "abandon")
        self.take("dead", 6, good=False, pick=pick)

    def live(self, *lines: str) -> list[tuple[str, bytes]]:
        """What is locked."""
        return [
            (which, token)
            for which, token in self.tokens
            if which in lines and token in self.lines[which].locks
        ]

    # Time.

    def keep_for_long(self, times: int) -> None:
        """Renew all that is locked, as the SDK does beside its user's work."""
        for _ in range(times):
            self.let_time_pass(LOCK_MS * 3 // 5, noticed=True)
            self.renew_all()

    def renew_all(self) -> None:
        for which, token in self.live("main", "dead"):
            self.settle_one(which, token, "renew")

    def let_time_pass(self, by: int, noticed: bool) -> None:
        self.now += by
        if not noticed:
            return

        self.local.tick(self.now)

        main = self.lines["main"]
        for line in self.lines.values():
            line.end_overdue_locks(self.now)
        found = {
            body(stored): stored.sequence
            for queue in self.queues.values()
            for stored in queue.peek(0, 1000)
        }
        for item in main.due(self.now):
            # One that came late may have expired at once, and never shown its new number.
            item.state, item.due = ACTIVE, None
            item.number = found.get(item.body, self.highest + 1)
            self.told([item.number])
        main.note_sessions()
        main.look_at_expired(self.now)

    # Looking.

    def peek(self, which: str, pick: int, limit: int, session: str) -> None:
        items = self.lines[which].in_order()
        after = items[pick % len(items)].number if items else 0
        expected = [item.body for item in items if item.number > after and item.session == session]

        found = self.queues[which].peek(after, limit, session)

        assert [body(stored) for stored in found] == expected[:limit]
        self.compare()

    def compare(self) -> None:
        for which, queue in self.queues.items():
            assert [
                (body(one), one.sequence, one.state, one.deliveries, one.session, reason(one))
                for one in queue.peek(0, 1000)
            ] == [
                (one.body, one.number, one.state, one.deliveries, one.session, one.reason)
                for one in self.lines[which].in_order()
            ]

    @invariant()
    def the_counts_are_right(self) -> None:
        for which, line in self.lines.items():
            queue = self.queues[which]
            states = [item.state for item in line.items.values()]
            assert queue.counts == {s: states.count(s) for s in (ACTIVE, DEFERRED, SCHEDULED)}
            assert queue.bytes == sum(item.size for item in line.items.values())
            assert len(queue._locks) == len(line.locks)

    # Stops.

    def stop(self, how: str) -> None:
        """What was committed is there, what was not is gone; nobody was told of it."""
        if how == "commit":
            self.local.store.commit()
            self.remember()
            return
        if how == "restart":
            self.local.restart()
            self.remember()
        else:
            self.local.kill()
        self.lines, self.highest = deepcopy(self.committed)
        for line in self.lines.values():
            line.start_again()
        self.find_queues()
        self.compare()

    def teardown(self) -> None:
        try:
            if self.lines:
                self.compare()
                self.stop("restart")
        finally:
            self.local.close()
            self.folder.cleanup()
            for one in self.patches:
                one.stop()


class MachineWithSessions(Machine):
    has_sessions = True
    holder = object()

    @rule(step=st.one_of(*STEPS, *STEPS_OF_SESSIONS))
    def do(self, step: tuple[str, dict[str, Any]]) -> None:
        super().do(step)

    @property
    def sessions(self) -> Sessions:
        found = self.queues["main"].sessions
        assert found is not None
        return found

    def accept(self, session: str | None) -> None:
        line = self.lines["main"]
        line.end_overdue_sessions(self.now)
        if session in line.sessions:
            with pytest.raises(LockLost) as caught:
                self.sessions.accept(session, self.holder, self.now)
            assert caught.value.condition == "com.microsoft:session-cannot-be-locked"
            return
        free = [name for name in line.waiting if name not in line.sessions]
        expected = session if session is not None else next(iter(free), None)

        accepted = self.sessions.accept(session, self.holder, self.now)

        assert accepted == expected
        if accepted is not None:
            line.sessions[accepted] = self.now + LOCK_MS

    def let_go(self, pick: int) -> None:
        line = self.lines["main"]
        if not line.sessions:
            return
        session = list(line.sessions)[pick % len(line.sessions)]
        self.sessions.release(session, self.holder, self.now)
        line.let_go(session, counted=False)

    def renew_session(self, pick: int) -> None:
        line = self.lines["main"]
        if not line.sessions:
            return
        self.renew_one(list(line.sessions)[pick % len(line.sessions)])

    def renew_all(self) -> None:
        """The messages of a session are renewed with it."""
        for session in self.lines["main"].sessions:
            self.renew_one(session)
        for which, token in self.live("dead"):
            self.settle_one(which, token, "renew")

    def renew_one(self, session: str) -> None:
        line = self.lines["main"]
        if line.sessions[session] <= self.now:
            with pytest.raises(LockLost):
                self.sessions.renew(session, self.now)
            return

        until = self.sessions.renew(session, self.now)

        assert until == self.now + LOCK_MS
        line.sessions[session] = until
        for lock in line.locks.values():
            if line.items[lock.body].session == session:
                lock.until = until

    def set_state(self, session: str, state: bytes | None) -> None:
        states = self.lines["main"].states
        self.sessions.set_state(session, state)
        if state is None:
            states.pop(session, None)
        else:
            states[session] = state

        for name in NAMES:
            assert self.sessions.state(name) == states.get(name)
        assert self.sessions.ids() == sorted({*self.lines["main"].waiting, *states})


def some(items: list[Item], amount: int, pick: int) -> list[Item]:
    """A few of them, from any place on."""
    start = pick % len(items) if items else 0
    return items[start : start + amount]


def reason(stored: StoredMessage) -> str | None:
    return properties(stored).get("DeadLetterReason")


def carry_out(queue: MessageQueue, how: str, token: bytes, now: int) -> int | None:
    if how == "complete":
        queue.complete(token, now)
    elif how == "abandon":
        queue.abandon(token, {"tried": True}, now)
    elif how == "defer":
        queue.defer(token, {"put": "off"}, now)
    elif how == "dead-letter":
        queue.dead_letter(token, TOLD, None, {}, now)
    else:
        return queue.renew_lock(token, now)
    return None


class TestQueue(Machine.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(stateful_step_count=60, max_examples=150)


class TestQueueWithSessions(MachineWithSessions.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(stateful_step_count=60, max_examples=150)
