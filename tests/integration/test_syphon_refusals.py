"""Batches that are refused, and links that are lost, against an emulator, without Spark."""

from collections.abc import Callable
from typing import Any

import pytest

from pairbus.amqp.batch import BATCH_FORMAT, split_batch
from pairbus.amqp.client.error_translation import BY_CONDITION
from pairbus.amqp.performatives import Error, Rejected
from pairbus.amqp.sections import Message
from pairbus.emulator.connections.incoming_links import IncomingLink
from pairbus.errors import AmqpError, EntityNotFound, Refused
from pairbus.servicebus import conditions
from pairbus.spark import connections, destination_sender
from pairbus.spark.connections import batching_for
from pairbus.spark.destination_sender import MAX_BATCH_MESSAGES, MAX_IN_FLIGHT
from pairbus.spark.verdicts import Failure, Verdict, judge
from tests.integration.backlog_queue import BacklogQueue

pytestmark = pytest.mark.rule("Y5")


def body_of(payload: bytes) -> str:
    return Message.parse(payload).read_body()[1][0].decode()


class Detacher:
    """Detaches links of the emulator when some deliveries arrive, before they are stored."""

    def __init__(self) -> None:
        self.error: AmqpError = Refused()
        self.matches: Callable[[list[str], int], bool] = lambda bodies, number: False
        """Called with the bodies of a delivery, and the number of deliveries before it."""
        self.ignored = 0
        """The number of deliveries that get no answer, before any link is detached."""
        self.message_counts: list[int] = []
        """The number of messages of each delivery that arrived."""
        self.fired = 0
        self.rejects_batches = False

    def on_delivery(self, link: IncomingLink, delivery: Any) -> bool:
        """Return True if the delivery was ignored or rejected, or the link detached."""
        is_batch = delivery.message_format == BATCH_FORMAT
        payloads = split_batch(delivery.payload) if is_batch else [delivery.payload]
        bodies = [body_of(payload) for payload in payloads]
        if self.rejects_batches and len(bodies) > 1:
            self.message_counts.append(len(bodies))
            error = Error.of(Refused("no batches"))
            delivery.link.session.settle(delivery.id, delivery.id, Rejected(error))
            link.connection.flush_after_turn()
            return True
        number = len(self.message_counts)
        self.message_counts.append(len(bodies))
        if number < self.ignored:
            return True
        if not self.matches(bodies, number):
            return False
        self.fired += 1
        link.detach(self.error)
        return True


@pytest.fixture
def detacher(monkeypatch: pytest.MonkeyPatch, backlog: BacklogQueue) -> Detacher:
    detacher = Detacher()
    on_delivery = IncomingLink.on_delivery

    def handle(link: IncomingLink, delivery: Any) -> None:
        if link._detached or link.path == backlog.path or not detacher.on_delivery(link, delivery):
            on_delivery(link, delivery)

    monkeypatch.setattr(IncomingLink, "on_delivery", handle)
    return detacher


def numbered(count: int) -> list[str]:
    return [f"m{n:04}" for n in range(count)]


def moved(backlog: BacklogQueue, path: str) -> list[str]:
    """Return the bodies at a destination, each once, in the order of their first arrival."""
    payloads = backlog.namespace.call(
        lambda core: [message.rest for message in core.entities.get(path).queue.peek(0, 9999)]
    )
    return list(dict.fromkeys(map(body_of, payloads)))


@pytest.mark.parametrize("condition", sorted(BY_CONDITION))
def test_message_that_loses_its_link_once_is_not_dead_lettered(
    backlog: BacklogQueue, detacher: Detacher, condition: str
) -> None:
    path = backlog.create_queue()
    detacher.error = BY_CONDITION[condition]("detached by a test", condition=condition)
    detacher.matches = lambda bodies, number: number == 0
    verdict = judge(Failure.LINK_LOST, detacher.error, message_count=1)

    outcome = backlog.forward(backlog.locked(path, ["alone"]))

    assert detacher.fired == 1
    assert (outcome.dead_lettered, backlog.dead_letters()) == ({}, [])
    if verdict is Verdict.SEND_AGAIN:
        assert (outcome.moved, backlog.message_count()) == ({path: 1}, 0)
    else:
        assert (outcome.left, backlog.message_count()) == ({path: 1}, 1)


def test_message_that_loses_its_link_twice_alone_is_dead_lettered(
    backlog: BacklogQueue, detacher: Detacher
) -> None:
    path = backlog.create_queue()
    detacher.error = Refused("not this one")
    detacher.matches = lambda bodies, number: any("poison" in body for body in bodies)
    bodies = [*numbered(5), "poison", *numbered(12)[5:]]

    outcome = backlog.forward(backlog.locked(path, bodies, session="s"))

    assert detacher.fired >= 2
    assert outcome.dead_lettered == {path: 1}
    assert moved(backlog, path) == numbered(12)
    [(reason, description)] = backlog.dead_letters()
    assert (reason, "not this one" in description) == ("Refused", True)


def test_detach_that_repeats_with_a_transient_condition_leaves_the_message(
    backlog: BacklogQueue, detacher: Detacher
) -> None:
    path = backlog.create_queue()
    detacher.error = BY_CONDITION[conditions.DETACH_FORCED]("again")
    detacher.matches = lambda bodies, number: True

    messages = backlog.locked(path, ["alone"])

    for attempt in (1, 2, 3):
        outcome = backlog.forward(messages)
        assert detacher.fired == attempt
        assert (outcome.dead_lettered, outcome.left) == ({}, {path: 1})


@pytest.mark.unlimited
@pytest.mark.rule("S12")
@pytest.mark.parametrize(("session", "in_flight"), [(None, MAX_IN_FLIGHT), ("s", 1)])
def test_lost_link_with_several_batches_in_flight_dead_letters_nothing(
    backlog: BacklogQueue, detacher: Detacher, session: str | None, in_flight: int
) -> None:
    path = backlog.create_queue()
    detacher.error = Refused("The link is force detached by the broker.")
    detacher.ignored = in_flight - 1
    detacher.matches = lambda bodies, number: number == in_flight - 1
    bodies = numbered((MAX_IN_FLIGHT + 1) * MAX_BATCH_MESSAGES)

    outcome = backlog.forward(backlog.locked(path, bodies, session))

    assert detacher.fired == 1
    assert detacher.message_counts == [MAX_BATCH_MESSAGES] * (in_flight + MAX_IN_FLIGHT + 1)
    assert (outcome.moved, outcome.dead_lettered, outcome.left) == ({path: len(bodies)}, {}, {})
    assert backlog.message_count() == 0
    arrived = moved(backlog, path)
    assert (arrived if session else sorted(arrived)) == bodies
    assert not batching_for(backlog.options, path).refused


@pytest.mark.unlimited
def test_attach_that_is_refused_after_a_lost_link_leaves_all_messages(
    backlog: BacklogQueue, detacher: Detacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = backlog.create_queue()
    accept = IncomingLink.accept
    attached: list[str] = []

    def refuse_second(link: IncomingLink) -> None:
        if link.path == path:
            attached.append(path)
            if len(attached) > 1:
                raise Refused("no link for you")
        accept(link)

    monkeypatch.setattr(IncomingLink, "accept", refuse_second)
    detacher.matches = lambda bodies, number: True

    outcome = backlog.forward(backlog.locked(path, ["a", "b"], session="s"))

    assert (detacher.fired, len(attached)) == (1, 2)
    assert (outcome.dead_lettered, outcome.left) == ({}, {path: 2})
    assert "no link for you" in outcome.errors[path]


@pytest.mark.unlimited  # more messages than the Standard tier takes in a second
@pytest.mark.rule("S12")
@pytest.mark.parametrize("bad", [0, 1, 250, 498, 499])
def test_one_bad_message_in_a_batch_takes_few_deliveries(
    backlog: BacklogQueue, detacher: Detacher, bad: int
) -> None:
    path = backlog.create_queue(requires_session=True)
    messages = backlog.locked(path, numbered(499), session="s")
    messages[bad:bad] = backlog.locked(path, ["no session"])

    outcome = backlog.forward(messages)

    assert (outcome.moved, outcome.dead_lettered) == ({path: 499}, {path: 1})
    assert moved(backlog, path) == numbered(499)
    # Two for each of the nine levels below 500; sent individually, it would be 500.
    assert len(detacher.message_counts) <= 1 + 2 * 9
    assert not batching_for(backlog.options, path).refused


@pytest.mark.unlimited  # more messages than the Standard tier takes in a second
def test_batch_of_bad_messages_is_hardly_sent_more_often_than_individually(
    backlog: BacklogQueue, detacher: Detacher
) -> None:
    path = backlog.create_queue(requires_session=True)

    outcome = backlog.forward(backlog.locked(path, numbered(200)))

    assert outcome.dead_lettered == {path: 200}
    assert len(detacher.message_counts) <= 200 + 10


@pytest.mark.unlimited  # more messages than the Standard tier takes in a second
def test_transient_failure_of_a_part_leaves_the_rest_in_order(
    backlog: BacklogQueue, detacher: Detacher
) -> None:
    path = backlog.create_queue(requires_session=True)
    messages = backlog.locked(path, numbered(8), session="s")
    messages[6:6] = backlog.locked(path, ["no session"])
    detacher.error = BY_CONDITION[conditions.INTERNAL_ERROR]("later")
    detacher.matches = lambda bodies, number: number == 2  # the batch, its first half, its second

    outcome = backlog.forward(messages)

    assert (detacher.fired, detacher.message_counts) == (1, [9, 4, 5])
    assert (outcome.moved, outcome.left, outcome.dead_lettered) == ({path: 4}, {path: 5}, {})
    assert moved(backlog, path) == numbered(4)


@pytest.mark.unlimited  # more messages than the Standard tier takes in a second
def test_entity_that_is_deleted_in_the_middle_dead_letters_nothing(
    backlog: BacklogQueue, detacher: Detacher
) -> None:
    path = backlog.create_queue()
    detacher.error = EntityNotFound("deleted")
    detacher.matches = lambda bodies, number: True

    outcome = backlog.forward(backlog.locked(path, ["a", "b", "c"]))

    assert detacher.fired == 1
    assert (outcome.dead_lettered, outcome.left) == ({}, {path: 3})


@pytest.mark.unlimited  # more messages than the Standard tier takes in a second
@pytest.mark.rule("S12")
def test_batches_in_flight_are_sent_individually_once_one_has_shown_that_batches_are_refused(
    backlog: BacklogQueue, detacher: Detacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = backlog.create_queue()
    monkeypatch.setattr(destination_sender, "MAX_BATCH_MESSAGES", 8)
    detacher.rejects_batches = True
    messages = [
        message
        for n in range(MAX_IN_FLIGHT + 2)
        for message in backlog.locked(path, [f"{n}-{m}" for m in range(8)], session=f"s{n // 2}")
    ]

    outcome = backlog.forward(messages)

    count = len(messages)
    assert (outcome.moved, outcome.dead_lettered, outcome.left) == ({path: count}, {}, {})
    batches = [size for size in detacher.message_counts if size > 1]
    # The first batch is halved until two messages are left; others are refused once, if at all.
    assert batches.count(8) <= MAX_IN_FLIGHT
    assert [size for size in batches if size < 8] == [4, 2]
    assert len(detacher.message_counts) == len(batches) + count
    arrived = moved(backlog, path)
    for session in range(count // 16):
        of_session = [body for body in arrived if int(body.split("-")[0]) // 2 == session]
        assert of_session == sorted(of_session)


def test_process_forgets_what_it_learned_with_its_connections(backlog: BacklogQueue) -> None:
    batching_for(backlog.options, "q").refused = True

    connections.close_all()

    assert not batching_for(backlog.options, "q").refused
