"""A queue and its dead letters against a small model: anything may happen, in any order.

Messages are sent, taken, settled in every way, deferred, scheduled, cancelled; time passes, noticed
or not; and the namespace is stopped or killed and started again. The model keeps everything in
dictionaries and knows nothing of buffers, heaps and files. Buffers are made so small here that
nearly every message goes through the disk.
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
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pairbus.broker.queue import Queue
from pairbus.broker.store import ACTIVE, DEFERRED, SCHEDULED
from pairbus.errors import LockLost, MessageNotFound, Refused
from tests.unit.broker.local import Local, body, message, properties

LOCK_MS = 1000
EXPIRED, TOO_OFTEN, TOLD = "TTLExpiredException", "MaxDeliveryCountExceeded", "told"
NAMES = ("x", "y", "z")


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

    def unlock(self, token: bytes) -> Item:
        item = self.items[self.locks.pop(token).body]
        item.looked_at = item.expires
        return item

    def give_back(self, token: bytes, counted: bool = True) -> None:
        item = self.unlock(token)
        item.deliveries += counted
        if counted and item.deliveries == self.max_deliveries:
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
ttls = st.sampled_from([None, None, None, 1, 500, 1500])
whiches = st.sampled_from(["main", "main", "dead"])
names = st.sampled_from(NAMES)
limits = st.integers(1, 4)


class Machine(RuleBasedStateMachine):
    has_sessions = False

    def __init__(self) -> None:
        super().__init__()
        self.patches = [
            patch("pairbus.broker.ready.BUFFER", 3),
            patch("pairbus.broker.ready.CHUNK", 2),
            patch("pairbus.broker.sequences.RESERVE", 3),
            patch("pairbus.broker.locks.SLACK", 2),
        ]
        for one in self.patches:
            one.start()
        self.folder = TemporaryDirectory()
        self.local = Local(Path(self.folder.name) / "namespace.db")
        self.now = 10_000
        self.bodies = count()
        self.highest = 0
        """The highest number that anybody was told."""
        self.tokens: list[tuple[str, bytes]] = []
        """All that were ever given, in this run of the namespace or another."""

    @initialize(
        max_deliveries=st.integers(1, 3),
        buries_expired=st.booleans(),
        ttl=st.sampled_from([None, 1000]),
    )
    def set_up(self, max_deliveries: int, buries_expired: bool, ttl: int | None) -> None:
        limit = {} if ttl is None else {"default_message_time_to_live": timedelta(milliseconds=ttl)}
        self.local.add_queue(
            lock_duration=timedelta(milliseconds=LOCK_MS),
            max_delivery_count=max_deliveries,
            dead_lettering_on_message_expiration=buries_expired,
            requires_session=self.has_sessions,
            **limit,
        )
        self.ttl = ttl
        self.main = Line(self.has_sessions, max_deliveries, buries_expired, Line())
        self.commit()

    # The two sides.

    def line(self, which: str) -> Line:
        if which == "main":
            return self.main
        assert self.main.dead is not None
        return self.main.dead

    def queue(self, which: str) -> Queue:
        return self.local.at("q") if which == "main" else self.local.dead()

    def told(self, numbers: Iterable[int]) -> None:
        """Numbers rise, and are never given twice."""
        for number in numbers:
            assert number > self.highest
            self.highest = number

    # Sending.

    @rule(amount=st.integers(1, 4), ttl=ttls, session=names, delay=st.sampled_from([None, None, 700]))
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
            self.main.add(Item(text, number, one.size, state, session, at, expires, expires))

    @rule(amount=st.integers(1, 2), pick=picks, bogus=st.booleans())
    def cancel(self, amount: int, pick: int, bogus: bool) -> None:
        chosen = some([one for one in self.main.in_order() if one.state == SCHEDULED], amount, pick)
        numbers = [item.number for item in chosen] + [self.highest + 1] * bogus
        if bogus:
            with pytest.raises(MessageNotFound):
                self.queue("main").cancel(numbers)
        else:
            self.queue("main").cancel(numbers)
            for item in chosen:
                self.main.drop(item)

    # Taking.

    @rule(which=whiches, limit=limits, locked=st.booleans(), session=names)
    def take(self, which: str, limit: int, locked: bool, session: str) -> None:
        queue, line = self.queue(which), self.line(which)
        asked = session if line.has_sessions else None
        if line.has_sessions and line.sessions.get(session, 0) <= self.now:
            with pytest.raises(LockLost) as caught:
                queue.take(limit, self.now, locked=locked, session=asked)
            assert caught.value.condition == "com.microsoft:session-lock-lost"
            return

        taken = queue.take(limit, self.now, locked=locked, session=asked)

        assert [body(stored) for stored, _ in taken] == line.take(limit, self.now, asked)
        self.note_taken(which, taken, locked)

    @rule(which=whiches, amount=limits, pick=picks, locked=st.booleans(), bogus=st.booleans())
    def take_deferred(self, which: str, amount: int, pick: int, locked: bool, bogus: bool) -> None:
        queue, line = self.queue(which), self.line(which)
        found = [item for item in line.in_order() if item.state == DEFERRED]
        session = None
        if line.has_sessions:
            held = [name for name, until in line.sessions.items() if until > self.now]
            if not held:
                return
            session = held[pick % len(held)]
        chosen = some(found, amount, pick)
        numbers = [item.number for item in chosen] + [self.highest + 1] * bogus
        if bogus or any(
            line.is_locked(item) or (line.has_sessions and item.session != session)
            for item in chosen
        ):
            with pytest.raises(MessageNotFound):
                queue.take_deferred(numbers, self.now, locked=locked, session=session)
            return

        taken = queue.take_deferred(numbers, self.now, locked=locked, session=session)

        assert [stored.sequence for stored, _ in taken] == numbers
        self.note_taken(which, taken, locked)

    def note_taken(self, which: str, taken: list[Any], locked: bool) -> None:
        line = self.line(which)
        for stored, lock in taken:
            item = line.items[body(stored)]
            assert (stored.sequence, stored.deliveries) == (item.number, item.deliveries)
            if not locked:
                assert lock is None
                line.drop(item)
                continue
            until = self.now + LOCK_MS
            if line.has_sessions:
                assert item.session is not None
                until = line.sessions[item.session]
            assert lock.until_ms == until
            assert lock.token not in line.locks
            line.locks[lock.token] = Held(item.body, until)
            self.tokens.append((which, lock.token))

    # Settling.

    @rule(
        pick=picks, how=st.sampled_from(["complete", "abandon", "defer", "dead-letter", "renew"])
    )
    def settle(self, pick: int, how: str) -> None:
        if not self.tokens:
            return
        # Mostly one of the last.
        which, token = self.tokens[-1 - min(pick % 5, len(self.tokens) - 1)]
        queue, line = self.queue(which), self.line(which)
        held = line.locks.get(token)
        holds = held is not None and held.until > self.now
        assert queue.holds(token, self.now) is holds
        if how == "dead-letter" and which == "dead":
            with pytest.raises(Refused):
                queue.dead_letter(token, TOLD, None, {}, self.now)
        elif not holds:
            with pytest.raises(LockLost):
                carry_out(queue, how, token, self.now)
        else:
            result = carry_out(queue, how, token, self.now)
            if how == "renew":
                item = line.items[line.locks[token].body]
                until = self.now + LOCK_MS
                if line.has_sessions:
                    assert item.session is not None
                    until = line.sessions[item.session]
                assert result == until
                line.locks[token].until = until
            elif how == "complete":
                line.drop(line.unlock(token))
            elif how == "abandon":
                line.give_back(token)
            elif how == "dead-letter":
                line.bury(line.unlock(token), TOLD)
            else:
                item = line.unlock(token)
                item.state = DEFERRED
                item.deliveries += 1
                line.note_sessions()

    # Time.

    @rule(step=st.sampled_from([1, 1, 300, 999, 1000, 2500]))
    def let_time_pass(self, step: int) -> None:
        self.now += step

    @rule()
    def notice_the_time(self) -> None:
        self.local.tick(self.now)

        for line in (self.main, self.line("dead")):
            line.end_overdue_locks(self.now)
        due = self.main.due(self.now)
        found = {
            body(stored): stored.sequence
            for which in ("main", "dead")
            for stored in self.queue(which).peek(0, 1000)
        }
        for item in due:
            # One that came late may have expired at once, and never shown its new number.
            item.state, item.due = ACTIVE, None
            item.number = found.get(item.body, self.highest + 1)
            self.told([item.number])
        self.main.note_sessions()
        self.main.look_at_expired(self.now)

    # Looking.

    @rule(which=whiches, pick=picks, limit=limits, session=names)
    def peek(self, which: str, pick: int, limit: int, session: str) -> None:
        line = self.line(which)
        items = line.in_order()
        after = items[pick % len(items)].number if items else 0
        expected = [item.body for item in items if item.number > after and item.session == session]

        found = self.queue(which).peek(after, limit, session)

        assert [body(stored) for stored in found] == expected[:limit]

    @rule()
    def compare_everything(self) -> None:
        for which in ("main", "dead"):
            queue, line = self.queue(which), self.line(which)
            assert [
                (body(one), one.sequence, one.state, one.deliveries, one.session)
                for one in queue.peek(0, 1000)
            ] == [
                (item.body, item.number, item.state, item.deliveries, item.session)
                for item in line.in_order()
            ]
            if which == "dead":
                assert {
                    body(one): properties(one)["DeadLetterReason"] for one in queue.peek(0, 1000)
                } == {item.body: item.reason for item in line.items.values()}

    @invariant()
    def the_counts_are_right(self) -> None:
        if not hasattr(self, "main"):
            return
        for which in ("main", "dead"):
            queue, line = self.queue(which), self.line(which)
            states = [item.state for item in line.items.values()]
            assert queue.counts == {s: states.count(s) for s in (ACTIVE, DEFERRED, SCHEDULED)}
            assert queue.bytes == sum(item.size for item in line.items.values())
            assert len(queue._ready) <= 3 + len(line.locks) + len(self.tokens)

    # Stops.

    @rule()
    def commit(self) -> None:
        self.local.store.commit()
        self.committed = deepcopy((self.main, self.highest))

    @rule()
    def restart(self) -> None:
        self.local.restart()
        self.main.start_again()
        self.line("dead").start_again()
        self.committed = deepcopy((self.main, self.highest))
        self.compare_everything()

    @rule()
    def kill(self) -> None:
        """What was committed is there, what was not is gone; nobody was told of it."""
        self.local.kill()
        self.main, self.highest = deepcopy(self.committed)
        self.main.start_again()
        self.line("dead").start_again()
        self.compare_everything()

    def teardown(self) -> None:
        try:
            if hasattr(self, "main"):
                self.compare_everything()
                self.restart()
        finally:
            self.local.close()
            self.folder.cleanup()
            for one in self.patches:
                one.stop()


class MachineWithSessions(Machine):
    has_sessions = True
    holder = object()

    @property
    def sessions(self) -> Any:
        return self.queue("main").sessions

    @rule(session=st.none() | names)
    def accept(self, session: str | None) -> None:
        self.main.end_overdue_sessions(self.now)
        if session in self.main.sessions:
            with pytest.raises(LockLost) as caught:
                self.sessions.accept(session, self.holder, self.now)
            assert caught.value.condition == "com.microsoft:session-cannot-be-locked"
            return
        if session is None:
            free = [name for name in self.main.waiting if name not in self.main.sessions]
            expected = free[0] if free else None
        else:
            expected = session

        accepted = self.sessions.accept(session, self.holder, self.now)

        assert accepted == expected
        if accepted is not None:
            self.main.sessions[accepted] = self.now + LOCK_MS

    @precondition(lambda self: hasattr(self, "main") and self.main.sessions)
    @rule(pick=picks)
    def let_go(self, pick: int) -> None:
        session = list(self.main.sessions)[pick % len(self.main.sessions)]
        self.sessions.release(session, self.holder, self.now)
        self.main.let_go(session, counted=False)

    @rule(session=names)
    def renew_session(self, session: str) -> None:
        if self.main.sessions.get(session, 0) <= self.now:
            with pytest.raises(LockLost):
                self.sessions.renew(session, self.now)
            return

        until = self.sessions.renew(session, self.now)

        assert until == self.now + LOCK_MS
        self.main.sessions[session] = until
        for lock in self.main.locks.values():
            if self.main.items[lock.body].session == session:
                lock.until = until

    @rule(session=names, state=st.sampled_from([None, b"", b"one", b"two"]))
    def set_state(self, session: str, state: bytes | None) -> None:
        self.sessions.set_state(session, state)
        if state is None:
            self.main.states.pop(session, None)
        else:
            self.main.states[session] = state

    @rule()
    def compare_sessions(self) -> None:
        for name in NAMES:
            assert self.sessions.state(name) == self.main.states.get(name)
        assert self.sessions.names() == sorted({*self.main.waiting, *self.main.states})


def some(items: list[Item], amount: int, pick: int) -> list[Item]:
    """A few of them, from any place on."""
    start = pick % len(items) if items else 0
    return items[start : start + amount]


def carry_out(queue: Queue, how: str, token: bytes, now: int) -> int | None:
    if how == "complete":
        queue.complete(token, now)
    elif how == "abandon":
        queue.abandon(token, {"tried": True}, now)
    elif how == "defer":
        queue.defer(token, {"put": "off"}, now)
    elif how == "dead-letter":
        queue.dead_letter(token, TOLD, None, {}, now)
    else:
        return queue.renew(token, now)
    return None


@pytest.mark.timeout(300)  # it takes a few seconds, unless there is a failure to make small
class TestQueue(Machine.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(stateful_step_count=40, max_examples=60)


@pytest.mark.timeout(300)
class TestQueueWithSessions(MachineWithSessions.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(stateful_step_count=40, max_examples=60)
