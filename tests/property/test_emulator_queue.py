"""A queue and its dead-letter queue against a simple model, with random operations.

Messages are sent, received, settled in every way, deferred, scheduled and cancelled; time passes,
with and without ticks; and the namespace is stopped or killed and restarted. The model keeps
everything in dictionaries, without buffers, heaps and files. Buffers are so small here that nearly
every message is read from disk, and the buffer of dead letters is often reloaded.
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
from pairbus.emulator.storage.stored_message import StoredMessage
from pairbus.errors import LockLost, MessageNotFound, Refused
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED
from tests.unit.emulator.entities.harness import EntityHarness, body, message, properties

LOCK_MS = 1000
EXPIRED, TOO_MANY_DELIVERIES = "TTLExpiredException", "MaxDeliveryCountExceeded"
BY_RECEIVER = "dead-lettered by the receiver"
SESSIONS = ("x", "y")
SHARED_MEMORY = Path("/dev/shm")  # where commits need not wait for a disk


@dataclass
class Item:
    """A message of the model. Its body identifies it."""

    body: str
    number: int
    size: int
    state: int
    session: str | None
    due: int | None
    expires: int | None
    expiry_check: int | None
    """The time at which its expiry is checked, which is not before its lock has ended."""
    deliveries: int = 0
    reason: str | None = None


@dataclass
class ModelLock:
    """A lock of the model."""

    body: str
    until: int


@dataclass
class ModelQueue:
    """The model of a queue or a dead-letter queue."""

    has_sessions: bool = False
    max_deliveries: int | None = None
    dead_letters_expired: bool = False
    dead: "ModelQueue | None" = None
    items: dict[str, Item] = field(default_factory=dict)
    locks: dict[bytes, ModelLock] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    """The locked sessions, with the ends of their locks."""
    waiting: list[str] = field(default_factory=list)
    """Sessions with active messages, in the order of their first messages."""
    states: dict[str, bytes] = field(default_factory=dict)

    def is_locked(self, item: Item) -> bool:
        return any(lock.body == item.body for lock in self.locks.values())

    def in_order(self) -> list[Item]:
        return sorted(self.items.values(), key=lambda item: item.number)

    def update_waiting(self) -> None:
        """Update the list of sessions with active messages."""
        if self.has_sessions:
            active = [item.session for item in self.in_order() if item.state == ACTIVE]
            self.waiting = [name for name in self.waiting if name in active]
            for name in active:
                if name is not None and name not in self.waiting:
                    self.waiting.append(name)

    def add(self, item: Item) -> None:
        self.items[item.body] = item
        self.update_waiting()

    def remove(self, item: Item) -> None:
        del self.items[item.body]
        self.update_waiting()

    def dead_letter(self, item: Item, reason: str) -> None:
        self.remove(item)
        assert self.dead is not None
        item.state, item.reason, item.due = ACTIVE, reason, None
        item.expires = item.expiry_check = None
        self.dead.add(item)

    def expire(self, item: Item) -> None:
        if self.dead_letters_expired:
            self.dead_letter(item, EXPIRED)
        else:
            self.remove(item)

    def receive(self, limit: int, now: int, session: str | None) -> list[str]:
        received: list[str] = []
        for item in self.in_order():
            if len(received) == limit:
                break
            if item.state != ACTIVE or self.is_locked(item):
                continue
            if self.has_sessions and item.session != session:
                continue
            if item.expires is not None and item.expires <= now:
                self.expire(item)
            else:
                received.append(item.body)
        return received

    def locked_until(self, item: Item, now: int) -> int:
        if self.has_sessions and item.session is not None:
            return self.sessions[item.session]
        return now + LOCK_MS

    def renew(self, token: bytes, now: int) -> int:
        lock = self.locks[token]
        lock.until = self.locked_until(self.items[lock.body], now)
        return lock.until

    def settle(self, token: bytes, action: str) -> None:
        if action == "abandon":
            self.return_message(token)
            return
        item = self.unlock(token)
        if action == "complete":
            self.remove(item)
        elif action == "dead-letter":
            self.dead_letter(item, BY_RECEIVER)
        else:
            item.state = DEFERRED
            item.deliveries += 1
            self.update_waiting()

    def unlock(self, token: bytes) -> Item:
        item = self.items[self.locks.pop(token).body]
        item.expiry_check = item.expires
        return item

    def return_message(self, token: bytes, counted: bool = True) -> None:
        item = self.unlock(token)
        item.deliveries += counted
        if counted and self.max_deliveries is not None and item.deliveries >= self.max_deliveries:
            self.dead_letter(item, TOO_MANY_DELIVERIES)

    def release(self, session: str, counted: bool) -> None:
        del self.sessions[session]
        for token, lock in list(self.locks.items()):
            if self.items[lock.body].session == session:
                self.return_message(token, counted)

    def expire_sessions(self, now: int) -> None:
        for session, until in list(self.sessions.items()):
            if until <= now:
                self.release(session, counted=True)

    def expire_locks(self, now: int) -> None:
        self.expire_sessions(now)
        for token, lock in list(self.locks.items()):
            if lock.until <= now:
                self.return_message(token)

    def due(self, now: int) -> list[Item]:
        items = [item for item in self.items.values() if item.due is not None and item.due <= now]
        return sorted(items, key=lambda item: (item.due, item.number))

    def expire_messages(self, now: int) -> None:
        for item in list(self.items.values()):
            if item.state == DEFERRED or item.expiry_check is None or item.expiry_check > now:
                continue
            lock = next((lock for lock in self.locks.values() if lock.body == item.body), None)
            if lock is None:
                self.expire(item)
            else:
                item.expiry_check = lock.until

    def restart(self) -> None:
        """Release all locks, as a restart does, without counting deliveries."""
        self.locks.clear()
        self.sessions.clear()
        for item in self.items.values():
            item.expires = item.expiry_check
        self.waiting.clear()
        self.update_waiting()


picks = st.integers(0, 2**16)
rarely = st.integers(0, 7).map(lambda number: number == 7)
queue_names = st.sampled_from(["main", "main", "dead"])
session_ids = st.sampled_from(SESSIONS)
limits = st.integers(1, 6)
steps_between = st.sampled_from(["receive", "abandon", "nothing"])


def step(method: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for the name and arguments of a method call."""
    return st.fixed_dictionaries(arguments).map(lambda values: (method, values))


def receiving() -> st.SearchStrategy[Any]:
    return step("receive", name=queue_names, limit=limits, delete=rarely, pick=picks)


def settling() -> st.SearchStrategy[Any]:
    twice = ["abandon", "dead-letter", "renew"]
    action = st.sampled_from(["complete", "defer", *twice, *twice])
    return step("settle", pick=picks, amount=limits, action=action, any_token=rarely)


def waiting() -> st.SearchStrategy[Any]:
    by = st.sampled_from([1, 300, 300, 700, 1000, 2500])
    return step("advance_time", by=by, ticks=st.booleans())


STEPS = (
    step(
        "send",
        amount=limits,
        ttl=st.sampled_from([None, None, None, 1, 500, 1500]),
        session=session_ids,
        delay=st.sampled_from([None, None, 700]),
    ),
    receiving(),
    receiving(),
    settling(),
    settling(),
    waiting(),
    waiting(),
    step("keep_locked", times=st.integers(1, 3)),
    step(
        "dead_letter_in_reverse",
        pick=picks,
        between=st.lists(steps_between, min_size=4, max_size=4),
    ),
    step(
        "receive_deferred_messages",
        name=queue_names,
        amount=limits,
        pick=picks,
        delete=rarely,
        unknown=rarely,
    ),
    step("cancel", amount=limits, pick=picks, unknown=rarely),
    step("peek", name=queue_names, pick=picks, limit=limits, session=session_ids),
    step("stop", action=st.sampled_from(["commit", "commit", "commit", "restart", "kill"])),
)
SESSION_STEPS = (
    step("accept", session=st.none() | session_ids),
    step("accept", session=st.none() | session_ids),
    step("accept", session=st.none() | session_ids),
    step("renew_session", pick=picks),
    step("release", pick=picks),
    step("release", pick=picks),
    step("set_state", session=session_ids, state=st.sampled_from([None, b"", b"one", b"two"])),
)


class Machine(RuleBasedStateMachine):
    """Runs random steps with one rule.

    With many rules Hypothesis would omit most of them in most runs, and test empty queues.
    """

    has_sessions = False

    @rule(step=st.one_of(*STEPS))
    def do(self, step: tuple[str, dict[str, Any]]) -> None:
        method, arguments = step
        getattr(self, method)(**arguments)

    def __init__(self) -> None:
        super().__init__()
        self.patches: list[Any] = []
        self.folder = TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.exists() else None)
        self.harness = EntityHarness(Path(self.folder.name) / "namespace.db")
        self.now = 10_000
        self.bodies = count()
        self.models: dict[str, ModelQueue] = {}
        self.highest = 0
        """The highest sequence number that was returned."""
        self.tokens: list[tuple[str, bytes]] = []
        """All lock tokens since the beginning, those before restarts included."""

    @initialize(
        max_buffered=st.integers(1, 3),
        page_size=st.integers(1, 3),
        max_deliveries=st.integers(1, 3),
        dead_letters_expired=st.booleans(),
        ttl=st.sampled_from([None, None, 1000]),
    )
    def set_up(
        self,
        max_buffered: int,
        page_size: int,
        max_deliveries: int,
        dead_letters_expired: bool,
        ttl: int | None,
    ) -> None:
        self.patches = [
            patch("pairbus.emulator.entities.message_buffer.MAX_BUFFERED", max_buffered),
            patch("pairbus.emulator.entities.message_buffer.PAGE_SIZE", page_size),
            patch("pairbus.emulator.entities.sequence_numbers.RESERVATION_SIZE", 3),
            patch("pairbus.emulator.entities.locks.MAX_STALE_TOKENS", 2),
        ]
        for patch_ in self.patches:
            patch_.start()
        ttl_setting = (
            {} if ttl is None else {"default_message_time_to_live": timedelta(milliseconds=ttl)}
        )
        self.harness.add_queue(
            lock_duration=timedelta(milliseconds=LOCK_MS),
            max_delivery_count=max_deliveries,
            dead_lettering_on_message_expiration=dead_letters_expired,
            requires_session=self.has_sessions,
            **ttl_setting,
        )
        self.ttl = ttl
        dead = ModelQueue()
        self.models = {
            "main": ModelQueue(self.has_sessions, max_deliveries, dead_letters_expired, dead),
            "dead": dead,
        }
        self.find_queues()
        self.harness.store.commit()
        self.remember()

    def find_queues(self) -> None:
        self.queues = {"main": self.harness.queue("q"), "dead": self.harness.dead_letters()}

    def remember(self) -> None:
        """Record that the current state is on disk."""
        self.committed = deepcopy((self.models, self.highest))

    def check_increasing(self, numbers: Iterable[int]) -> None:
        """Check that sequence numbers increase and are never reused."""
        for number in numbers:
            assert number > self.highest
            self.highest = number

    # Sending.

    def send(self, amount: int, ttl: int | None, session: str, delay: int | None) -> None:
        at = None if delay is None else self.now + delay
        texts = [str(next(self.bodies)) for _ in range(amount)]
        sent = [message(text, ttl=ttl, session=session, at=at) for text in texts]

        numbers = self.harness.send("q", *sent, now=self.now)

        self.check_increasing(numbers)
        ttls = [value for value in (ttl, self.ttl) if value is not None]
        start = self.now if at is None else at
        expires = start + min(ttls) if ttls else None
        for text, number, incoming in zip(texts, numbers, sent, strict=True):
            state = ACTIVE if at is None else SCHEDULED
            item = Item(text, number, incoming.size, state, session, at, expires, expires)
            self.models["main"].add(item)

    def cancel(self, amount: int, pick: int, unknown: bool) -> None:
        queue, model = self.queues["main"], self.models["main"]
        chosen = some([item for item in model.in_order() if item.state == SCHEDULED], amount, pick)
        numbers = [item.number for item in chosen]
        if unknown:
            with pytest.raises(MessageNotFound):
                queue.cancel_scheduled([*numbers, self.highest + 1])
        else:
            queue.cancel_scheduled(numbers)
            for item in chosen:
                model.remove(item)

    # Receiving.

    def receive(self, name: str, limit: int, delete: bool, pick: int) -> None:
        """Receive messages under locks, or remove them if `delete` is True."""
        queue, model = self.queues[name], self.models[name]
        session = None
        if model.has_sessions:
            # Mostly a locked session.
            chosen = [*model.sessions, *model.sessions, SESSIONS[pick % len(SESSIONS)]]
            session = chosen[pick % len(chosen)]
            if model.sessions.get(session, 0) <= self.now:
                with pytest.raises(LockLost) as raised:
                    queue.receive(limit, self.now, locked=not delete, session=session)
                assert raised.value.condition == "com.microsoft:session-lock-lost"
                return

        received = queue.receive(limit, self.now, locked=not delete, session=session)

        assert [body(stored) for stored, _ in received] == model.receive(limit, self.now, session)
        self.record_received(name, received)

    def receive_deferred_messages(
        self, name: str, amount: int, pick: int, delete: bool, unknown: bool
    ) -> None:
        queue, model = self.queues[name], self.models[name]
        session = None
        if model.has_sessions:
            locked = [id for id, until in model.sessions.items() if until > self.now]
            if not locked:
                return
            session = locked[pick % len(locked)]
        chosen = some([item for item in model.in_order() if item.state == DEFERRED], amount, pick)
        numbers = [item.number for item in chosen] + [self.highest + 1] * unknown
        if unknown or any(
            model.is_locked(item) or (model.has_sessions and item.session != session)
            for item in chosen
        ):
            with pytest.raises(MessageNotFound):
                queue.receive_deferred(numbers, self.now, locked=not delete, session=session)
            return

        received = queue.receive_deferred(
            [*numbers, *numbers], self.now, locked=not delete, session=session
        )

        assert [stored.sequence for stored, _ in received] == numbers
        self.record_received(name, received)

    def record_received(
        self, name: str, received: list[tuple[StoredMessage, MessageLock | None]]
    ) -> None:
        model = self.models[name]
        for stored, lock in received:
            item = model.items[body(stored)]
            assert (stored.sequence, stored.deliveries) == (item.number, item.deliveries)
            if lock is None:
                model.remove(item)
                continue
            assert lock.until_ms == model.locked_until(item, self.now)
            assert lock.token not in model.locks
            model.locks[lock.token] = ModelLock(item.body, lock.until_ms)
            self.tokens.append((name, lock.token))

    # Settling.

    def settle(self, pick: int, amount: int, action: str, any_token: bool) -> None:
        if not self.tokens:
            return
        locked = self.locked_tokens("main", "dead")
        tokens = self.tokens if any_token or not locked else locked
        start = pick % len(tokens)
        chosen = tokens[start : start + amount]
        for name, token in reversed(chosen) if pick % 2 else chosen:
            self.settle_one(name, token, action)

    def settle_one(self, name: str, token: bytes, action: str) -> None:
        queue, model = self.queues[name], self.models[name]
        lock = model.locks.get(token)
        is_locked = lock is not None and lock.until > self.now
        assert queue.has_locks([token], self.now) is is_locked
        if action == "dead-letter" and name == "dead":
            with pytest.raises(Refused):
                apply_action(queue, action, token, self.now)
        elif not is_locked:
            with pytest.raises(LockLost):
                apply_action(queue, action, token, self.now)
        else:
            until = apply_action(queue, action, token, self.now)
            if action == "renew":
                assert until == model.renew(token, self.now)
            else:
                model.settle(token, action)

    def dead_letter_in_reverse(self, pick: int, between: list[str]) -> None:
        """Dead-letter the newest messages first, and receive and abandon dead letters in between.

        So messages arrive that are older than those already in the buffer.
        """
        self.receive("main", 6, delete=False, pick=pick)
        for number, (name, token) in enumerate(reversed(self.locked_tokens("main"))):
            self.settle_one(name, token, "dead-letter")
            step_name = between[number % len(between)]
            if step_name == "receive":
                self.receive("dead", 1, delete=False, pick=pick)
            elif step_name == "abandon" and (dead_letters := self.locked_tokens("dead")):
                self.settle_one(*dead_letters[0], "abandon")
        self.receive("dead", 6, delete=False, pick=pick)

    def locked_tokens(self, *names: str) -> list[tuple[str, bytes]]:
        """Return the tokens of locked messages."""
        return [
            (name, token)
            for name, token in self.tokens
            if name in names and token in self.models[name].locks
        ]

    # Time.

    def keep_locked(self, times: int) -> None:
        """Renew all locks repeatedly, as the SDK does in the background."""
        for _ in range(times):
            self.advance_time(LOCK_MS * 3 // 5, ticks=True)
            self.renew_all()

    def renew_all(self) -> None:
        for name, token in self.locked_tokens("main", "dead"):
            self.settle_one(name, token, "renew")

    def advance_time(self, by: int, ticks: bool) -> None:
        self.now += by
        if not ticks:
            return

        self.harness.tick(self.now)

        main = self.models["main"]
        for model in self.models.values():
            model.expire_locks(self.now)
        sequences = {
            body(stored): stored.sequence
            for queue in self.queues.values()
            for stored in queue.peek(0, 1000)
        }
        for item in main.due(self.now):
            # A message that is due late may expire at once, without a visible new number.
            item.state, item.due = ACTIVE, None
            item.number = sequences.get(item.body, self.highest + 1)
            self.check_increasing([item.number])
        main.update_waiting()
        main.expire_messages(self.now)

    # Peeking.

    def peek(self, name: str, pick: int, limit: int, session: str) -> None:
        items = self.models[name].in_order()
        after = items[pick % len(items)].number if items else 0
        expected = [item.body for item in items if item.number > after and item.session == session]

        peeked = self.queues[name].peek(after, limit, session)

        assert [body(stored) for stored in peeked] == expected[:limit]
        self.compare()

    def compare(self) -> None:
        for name, queue in self.queues.items():
            assert [
                (
                    body(stored),
                    stored.sequence,
                    stored.state,
                    stored.deliveries,
                    stored.session,
                    reason(stored),
                )
                for stored in queue.peek(0, 1000)
            ] == [
                (item.body, item.number, item.state, item.deliveries, item.session, item.reason)
                for item in self.models[name].in_order()
            ]

    @invariant()
    def counts_agree_with_the_model(self) -> None:
        for name, model in self.models.items():
            queue = self.queues[name]
            states = [item.state for item in model.items.values()]
            assert queue.counts == {s: states.count(s) for s in (ACTIVE, DEFERRED, SCHEDULED)}
            assert queue.bytes == sum(item.size for item in model.items.values())
            assert len(queue._locks) == len(model.locks)

    # Restarts.

    def stop(self, action: str) -> None:
        """Commit, restart or kill. After a kill, only committed changes remain."""
        if action == "commit":
            self.harness.store.commit()
            self.remember()
            return
        if action == "restart":
            self.harness.restart()
            self.remember()
        else:
            self.harness.kill()
        self.models, self.highest = deepcopy(self.committed)
        for model in self.models.values():
            model.restart()
        self.find_queues()
        self.compare()

    def teardown(self) -> None:
        try:
            if self.models:
                self.compare()
                self.stop("restart")
        finally:
            self.harness.close()
            self.folder.cleanup()
            for patch_ in self.patches:
                patch_.stop()


class MachineWithSessions(Machine):
    has_sessions = True
    receiver = object()

    @rule(step=st.one_of(*STEPS, *SESSION_STEPS))
    def do(self, step: tuple[str, dict[str, Any]]) -> None:
        super().do(step)

    @property
    def sessions(self) -> Sessions:
        sessions = self.queues["main"].sessions
        assert sessions is not None
        return sessions

    def accept(self, session: str | None) -> None:
        model = self.models["main"]
        model.expire_sessions(self.now)
        if session in model.sessions:
            with pytest.raises(LockLost) as raised:
                self.sessions.accept(session, self.receiver, self.now)
            assert raised.value.condition == "com.microsoft:session-cannot-be-locked"
            return
        free = [name for name in model.waiting if name not in model.sessions]
        expected = session if session is not None else next(iter(free), None)

        accepted = self.sessions.accept(session, self.receiver, self.now)

        assert accepted == expected
        if accepted is not None:
            model.sessions[accepted] = self.now + LOCK_MS

    def release(self, pick: int) -> None:
        model = self.models["main"]
        if not model.sessions:
            return
        session = list(model.sessions)[pick % len(model.sessions)]
        self.sessions.release(session, self.receiver, self.now)
        model.release(session, counted=False)

    def renew_session(self, pick: int) -> None:
        model = self.models["main"]
        if not model.sessions:
            return
        self.renew_one(list(model.sessions)[pick % len(model.sessions)])

    def renew_all(self) -> None:
        """Renew sessions, which renews the locks of their messages."""
        for session in self.models["main"].sessions:
            self.renew_one(session)
        for name, token in self.locked_tokens("dead"):
            self.settle_one(name, token, "renew")

    def renew_one(self, session: str) -> None:
        model = self.models["main"]
        if model.sessions[session] <= self.now:
            with pytest.raises(LockLost):
                self.sessions.renew(session, self.now)
            return

        until = self.sessions.renew(session, self.now)

        assert until == self.now + LOCK_MS
        model.sessions[session] = until
        for lock in model.locks.values():
            if model.items[lock.body].session == session:
                lock.until = until

    def set_state(self, session: str, state: bytes | None) -> None:
        states = self.models["main"].states
        self.sessions.set_state(session, state)
        if state is None:
            states.pop(session, None)
        else:
            states[session] = state

        for name in SESSIONS:
            assert self.sessions.state(name) == states.get(name)
        assert self.sessions.ids() == sorted({*self.models["main"].waiting, *states})


def some(items: list[Item], amount: int, pick: int) -> list[Item]:
    """Return up to `amount` items from a random position."""
    start = pick % len(items) if items else 0
    return items[start : start + amount]


def reason(stored: StoredMessage) -> str | None:
    return properties(stored).get("DeadLetterReason")


def apply_action(queue: MessageQueue, action: str, token: bytes, now: int) -> int | None:
    if action == "complete":
        queue.complete(token, now)
    elif action == "abandon":
        queue.abandon(token, {"tried": True}, now)
    elif action == "defer":
        queue.defer(token, {"deferred": True}, now)
    elif action == "dead-letter":
        queue.dead_letter(token, BY_RECEIVER, None, {}, now)
    else:
        return queue.renew_lock(token, now)
    return None


class TestQueue(Machine.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(stateful_step_count=60)


class TestQueueWithSessions(MachineWithSessions.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(stateful_step_count=60)
