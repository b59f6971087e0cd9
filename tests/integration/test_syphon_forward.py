"""Sending on and settling, against real namespaces, without Spark."""

import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import count

import pytest

from pairbus.amqp.client import Client, ClientOptions, Receiver
from pairbus.amqp.sections import Message, Properties
from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark import connections
from pairbus.spark.columns import ReceivedMessage, RestoredMessage, turn_back
from pairbus.spark.forwarder import BATCH, MARGIN_MS, Forwarder, Outcome
from pairbus.transfer import to_backlog
from tests.integration.emulator_kit import stored

numbers = count(1)


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    """One for both: what matters here is queues."""
    with LocalNamespace("both") as namespace:
        yield namespace
        connections.close_all()


class World:
    def __init__(self, namespace: LocalNamespace) -> None:
        self.namespace = namespace
        self.options = ClientOptions.from_connection_string(
            namespace.connection_string, operation_timeout_s=20
        )
        self.backlog = self.queue(lock_duration_s=60)

    def queue(self, *, lock_duration_s: int = 60, **settings: object) -> str:
        name = f"q{next(numbers)}"
        self.namespace.create_queue(
            name, lock_duration=timedelta(seconds=lock_duration_s), **settings
        )
        return name

    def locked(
        self, path: str, bodies: list[str], session: str | None = None
    ) -> list[RestoredMessage]:
        """Messages for a path, received from the backlog under locks."""
        payloads = [
            to_backlog(
                Message.build(
                    properties=Properties(message_id=body, group_id=session), data=body.encode()
                ).encode(),
                path,
            )
            for body in bodies
        ]
        sender = connections.sender_of(self.options, self.backlog)
        for start in range(0, len(payloads), 200):
            sender.send_batch(payloads[start : start + 200])
        until = time.time_ns() // 1_000_000 + 60_000
        with Client(self.options) as client:
            receiver = Receiver(client, self.backlog, confirm=False)
            found = [one for some in receiver.receive_available(len(payloads)) for one in some]
            assert len(found) == len(payloads)
            return [
                turn_back(ReceivedMessage(self.backlog, one.payload, one.tag), until, None)
                for one in found
            ]

    def forward(self, messages: list[RestoredMessage]) -> Outcome:
        forwarder = Forwarder(self.options, self.options)
        forwarder.take(messages)
        return forwarder.finish()

    def left(self) -> int:
        return self.namespace.call(lambda core: len(core.entities.get(self.backlog).queue))


@pytest.fixture
def world(namespace: LocalNamespace) -> World:
    return World(namespace)


def test_what_is_accepted_is_completed(world: World) -> None:
    path = world.queue()
    bodies = [str(n) for n in range(2 * BATCH + 1)]

    outcome = world.forward(world.locked(path, bodies))

    assert outcome.moved[path] == len(bodies)
    assert (outcome.unsettled, outcome.errors) == (0, {})
    assert stored(world.namespace, path) == bodies[:99]
    assert world.left() == 0


def test_a_lock_that_is_nearly_over_is_not_used(world: World) -> None:
    path = world.queue()
    [message] = world.locked(path, ["x"])
    late = message._replace(locked_until=time.time_ns() // 1_000_000 + MARGIN_MS - 1000)

    outcome = world.forward([late])

    assert (outcome.moved[path], outcome.left[path]) == (0, 1)
    assert stored(world.namespace, path) == []
    assert world.left() == 1


def test_one_that_is_refused_for_good_does_not_take_the_others_with_it(
    world: World,
) -> None:
    path = world.queue(requires_session=True)
    good = world.locked(path, ["a", "b"], session="s")
    [bad] = world.locked(path, ["no session"])

    outcome = world.forward([good[0], bad, good[1]])

    assert outcome.moved[path] == 2
    assert outcome.dead_lettered[path] == 1
    assert stored(world.namespace, path) == ["a", "b"]
    buried = world.namespace.call(
        lambda core: len(core.entities.source(f"{world.backlog}/$deadletterqueue")[1])
    )
    assert buried == 1


def test_a_destination_that_is_gone_is_dead_lettered(world: World) -> None:
    outcome = world.forward(world.locked("nowhere", ["x"]))

    assert outcome.dead_lettered["nowhere"] == 1
    assert world.left() == 0


@pytest.mark.parametrize("fault", ["disable", "throttle", "internal-error", "cut"])
def test_what_may_pass_leaves_messages_where_they_are(world: World, fault: str) -> None:
    path = world.queue()
    messages = world.locked(path, ["a", "b"], session="s")
    happened = world.namespace.add_fault(fault, path)

    outcome = world.forward(messages)
    world.namespace.clear_faults()

    assert happened.fired > 0
    assert (outcome.moved[path], outcome.left[path]) == (0, 2)
    assert path in outcome.errors
    assert outcome.busy is (fault == "throttle")
    assert world.left() == 2
    # Given back at once, in their order.
    with Client(world.options) as client:
        again = [
            one for some in Receiver(client, world.backlog, confirm=False).pull(9) for one in some
        ]
    assert [Message.parse(one.payload).read_properties().message_id for one in again] == ["a", "b"]


def test_a_lock_that_is_gone_is_told_and_costs_the_others_nothing(world: World) -> None:
    path = world.queue()
    messages = world.locked(path, ["a", "b", "c"])
    messages[1] = messages[1]._replace(lock_token=b"\1" * 16)

    outcome = world.forward(messages)

    assert (outcome.moved[path], outcome.unsettled) == (3, 1)
    assert world.left() == 1


def test_a_failure_lets_no_later_message_of_its_session_pass(world: World) -> None:
    path = world.queue(requires_session=True)
    bodies = [str(n) for n in range(4 * BATCH)]
    messages = world.locked(path, bodies, session="s")
    fault = world.namespace.add_fault("internal-error", path, after=1, count=1)

    outcome = world.forward(messages)
    world.namespace.clear_faults()

    assert fault.fired == 1
    assert outcome.moved[path] == BATCH
    assert outcome.left[path] == 3 * BATCH
    assert stored(world.namespace, path) == bodies[:99]


@pytest.mark.rule("Y4")
@pytest.mark.parametrize("others", [True, False])
def test_what_is_left_stays_out_of_the_way_of_others_and_else_goes_back_at_once(
    world: World, others: bool
) -> None:
    down, up = world.queue(), world.queue()
    fault = world.namespace.add_fault("disable", down)
    messages = world.locked(down, ["a", "b"])
    if others:
        messages += world.locked(up, ["c"])

    outcome = world.forward(messages)

    world.namespace.call(lambda core: core.faults.remove(fault))
    assert fault.fired
    assert (outcome.left[down], outcome.moved[up]) == (2, int(others))
    with Client(world.options) as client:
        free = [one for some in Receiver(client, world.backlog).pull(10) for one in some]
    assert len(free) == (0 if others else 2)
