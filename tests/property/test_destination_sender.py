"""Sending to a destination that rejects messages and loses links.

Each message has one outcome, only bad messages are dead-lettered, and sessions keep their order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.batch import BATCH_FORMAT, split_batch
from pairbus.amqp.client import PendingDelivery
from pairbus.amqp.sections import Message, Properties
from pairbus.errors import AmqpError, Busy, EntityNotFound, LinkLost, Refused, Unavailable
from pairbus.spark.connections import Batching
from pairbus.spark.destination_sender import DestinationSender
from pairbus.spark.messages import RestoredMessage
from tests.messages import id_of

pytestmark = pytest.mark.rule("S12", "Y5", "Y10")
LOSSES = (LinkLost, Refused, EntityNotFound, Unavailable)
REJECTIONS = (Busy, Unavailable, EntityNotFound)
FAR = 1 << 60


@dataclass
class Destination:
    """A destination as a sender of messages sees it. It answers deliveries when they are awaited,
    the oldest first."""

    faults: list[tuple[str, type[AmqpError], bool]]
    """A fault for each delivery in turn: "lose" the link, "reject" the delivery or "none"; the
    error; and for a lost link, True if the delivery was stored before."""
    bad: set[str]
    """Ids of messages that are rejected, alone or in a batch."""
    poison: set[str]
    """Ids of messages that end the link."""
    accepts_batches: bool
    stored: list[str] = field(default_factory=list)
    max_batch_size: int = 2000
    max_message_size: int = 100_000
    _in_flight: list[tuple[PendingDelivery, list[str]]] = field(default_factory=list)

    def open(self) -> None:
        """Attach the link."""

    def detach(self) -> None:
        """Detach the link."""

    def post(self, payload: bytes, *, message_format: int) -> PendingDelivery:
        is_batch = message_format == BATCH_FORMAT
        assert len(payload) <= self.max_batch_size or not is_batch
        ids = [id_of(each) for each in (split_batch(payload) if is_batch else [payload])]
        self._in_flight.append((PendingDelivery(), ids))
        return self._in_flight[-1][0]

    def wait(self, deliveries: list[PendingDelivery]) -> None:
        while not deliveries[0].done:
            self._answer(*self._in_flight.pop(0))

    def _answer(self, delivery: PendingDelivery, ids: list[str]) -> None:
        kind, error, stored = self.faults.pop(0) if self.faults else ("none", Refused, False)
        delivery.done = True
        if self.poison & set(ids):
            kind, error, stored = "lose", Refused, False
        if kind == "lose":
            self.stored += ids if stored else []
            delivery.error = error("lost")
            for other, _ in self._in_flight:
                other.done, other.error = True, error("lost")
            self._in_flight.clear()
        elif kind == "reject":
            delivery.error, delivery.rejected = error("not now"), True
        elif self.bad & set(ids) or (len(ids) > 1 and not self.accepts_batches):
            delivery.error, delivery.rejected = Refused("never"), True
        else:
            self.stored += ids


@dataclass
class Recorder:
    """Collects the outcome of each message."""

    accepted: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def delivered(self, _: str, messages: list[RestoredMessage]) -> None:
        self.accepted += [id_of(message.payload) for message in messages]

    def dead_letter(self, message: RestoredMessage, reason: str, description: str) -> None:
        self.dead.append(id_of(message.payload))

    def leave(self, _: str, messages: list[RestoredMessage], error: AmqpError | None) -> None:
        self.left += [id_of(message.payload) for message in messages]

    def not_delivered(self, _: str, messages: list[RestoredMessage], error: AmqpError) -> None:
        """Do nothing."""

    def destination_failed(self, _: str, error: AmqpError) -> None:
        """Do nothing."""

    def destination_missing(self, _: str) -> None:
        """Do nothing."""


def sender_to(
    destination: Destination,
    recorder: Recorder,
    min_locked_until: Callable[[], int] = lambda: 0,
) -> DestinationSender:
    return DestinationSender(
        "q",
        cast(Any, destination),
        Batching(),
        cast(Any, recorder),
        min_locked_until=min_locked_until,
        hold_if_missing=True,
    )


lost = st.tuples(st.just("lose"), st.sampled_from(LOSSES), st.booleans())
rejected = st.tuples(st.just("reject"), st.sampled_from(REJECTIONS), st.just(False))
nothing = st.tuples(st.just("none"), st.just(Refused), st.just(False))


@given(
    sessions=st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=60),
    faults=st.lists(st.one_of(nothing, nothing, lost, rejected), max_size=30),
    data=st.data(),
    accepts_batches=st.booleans(),
    expires=st.lists(st.integers(1, 150), min_size=60, max_size=60) | st.just([FAR] * 60),
)
def test_messages_are_judged_alone_and_sessions_keep_their_order(
    sessions: list[str | None],
    faults: list[Any],
    data: st.DataObject,
    accepts_batches: bool,
    expires: list[int],
) -> None:
    ids = [f"m{n:02}" for n in range(len(sessions))]
    bad, poison = (data.draw(st.sets(st.sampled_from(ids), max_size=3)) for _ in range(2))
    destination = Destination(list(faults), bad, poison, accepts_batches)
    recorder = Recorder()
    # The time passes with each look at the clock.
    clock = count().__next__
    sender = sender_to(destination, recorder, clock)

    for id, session, locked_until in zip(ids, sessions, expires, strict=False):
        properties = Properties(message_id=id, group_id=session)
        payload = Message.build(properties=properties, data=b"x" * 200).encode()
        message = RestoredMessage("backlog", b"\0" * 16, locked_until, session, "q", payload)
        sender.add(message, clock())
    sender.flush()
    sender.wait()

    assert sorted(recorder.accepted + recorder.dead + recorder.left) == ids
    assert set(recorder.accepted) <= set(destination.stored)
    refusals = sum(kind == "lose" and error is Refused for kind, error, _ in faults)
    if refusals < 2:  # two losses by chance look like those of a poisonous message
        assert set(recorder.dead) <= bad | poison
    first_arrivals = list(dict.fromkeys(destination.stored))
    for name in {session for session in sessions if session is not None}:
        of_session = [id for id, session in zip(ids, sessions, strict=True) if session == name]
        arrived = [id for id in first_arrivals if id in of_session]
        assert arrived == sorted(arrived)
        missing = [id for id in of_session if id in recorder.left and id not in arrived]
        assert not missing or not arrived or arrived[-1] < missing[0]


@pytest.mark.parametrize("poison", [False, True])
def test_bad_messages_are_found_among_many(poison: bool) -> None:
    """Without other faults, exactly the bad ones are dead-lettered."""
    ids = [f"m{n:03}" for n in range(300)]
    bad = {"m000", "m001", "m150", "m299"}
    destination = Destination(
        [], set() if poison else bad, bad if poison else set(), True, [], 10**6
    )
    recorder = Recorder()
    sender = sender_to(destination, recorder)
    for id in ids:
        payload = Message.build(properties=Properties(message_id=id), data=b"x").encode()
        sender.add(RestoredMessage("backlog", b"\0" * 16, FAR, None, "q", payload), 0)
    sender.flush()
    sender.wait()

    assert sorted(recorder.dead) == sorted(bad)
    assert sorted(recorder.accepted) == sorted(set(ids) - bad) == sorted(destination.stored)


def test_delivery_whose_locks_expire_while_it_waits_is_left() -> None:
    """The later messages of its sessions are left, too; other messages are sent."""
    now = 0
    destination, recorder = Destination([], set(), set(), True), Recorder()
    sender = sender_to(destination, recorder, lambda: now)

    def add(id: str, locked_until: int, session: str | None = None) -> None:
        payload = Message.build(properties=Properties(message_id=id, group_id=session)).encode()
        message = RestoredMessage("backlog", b"\0" * 16, locked_until, session, "q", payload)
        sender.add(message, now)

    add("frozen", 10, "a")
    now = 11  # the process was frozen
    sender.flush()
    add("later", 20, "a")
    sender.flush()
    add("other", 20, "b")
    add("none", 20)
    sender.flush()
    sender.wait()

    assert recorder.left == ["frozen", "later"]
    assert destination.stored == recorder.accepted == ["other", "none"]
