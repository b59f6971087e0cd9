"""Redrive and purge of dead letters in emulated namespaces, without Spark."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from pairbus.amqp.client import AnySession, Client, Management, Receiver, Sender
from pairbus.backlog import (
    DeadLetterFilter,
    DeadLetterSource,
    RedriveOutcome,
    group_dead_letters,
    plan_redrive,
    purge,
    redrive,
)
from pairbus.backlog.redrive_round import RedriveRound
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import Busy, ConfigurationError, EntityNotFound
from pairbus.servicebus.entity_paths import dead_letter_path, subscription_path
from pairbus.servicebus.management import DEAD_LETTERED
from pairbus.spark.connections import close_all
from pairbus.spark.usage import NO_USAGE, UsageRecorder
from pairbus.transfer import to_backlog
from pairbus.usage.operations import OperationKind
from pairbus.usage.records import read_operations
from tests.dead_letters import DeadLetters
from tests.messages import id_of, message, numbered


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("redrive") as namespace:
        yield namespace


@pytest.fixture
def letters(namespace: LocalNamespace) -> Iterator[DeadLetters]:
    """The dead letters of a new queue."""
    path = f"q{uuid4().hex[:8]}"
    namespace.create_queue(path)
    letters = DeadLetters(namespace, path)
    yield letters
    letters.close()


def source_of(letters: DeadLetters, **changes: object) -> DeadLetterSource:
    return DeadLetterSource(
        namespace=letters.options,
        entities=(letters.entity,),
        **changes,  # type: ignore[arg-type]
    )


@pytest.mark.rule("R2", "R3", "R4")
def test_some_hundred_dead_letters_come_back_as_they_were_sent(letters: DeadLetters):
    payloads = [
        message(f"m-{n}", session=f"s-{n % 5}", body=bytes([n % 256]) * 50) for n in range(600)
    ]
    letters.put(payloads)
    source = source_of(letters)
    progress: list[int] = []

    plan = plan_redrive(source)
    outcome = redrive(source, plan, on_progress=lambda so_far: progress.append(so_far.handled))

    assert outcome == RedriveOutcome(
        moved=Counter({letters.entity: 600}), bytes=sum(map(len, payloads))
    )
    assert letters.stored(letters.entity) == payloads
    assert letters.ids() == []
    assert progress[-1] == 600


@pytest.mark.rule("R2")
def test_later_dead_letters_stay_even_if_their_sequence_numbers_are_smaller(letters: DeadLetters):
    first, *others = letters.send(numbered(20))
    letters.dead_letter(others)
    source = source_of(letters)
    plan = plan_redrive(source)
    letters.dead_letter([first])
    letters.put([message("late")])

    outcome = redrive(source, plan)

    assert outcome.moved.total() == 19
    assert letters.ids() == ["m-0", "late"]
    # The message that stayed is not locked: another redrive takes it at once.
    assert redrive(source, plan_redrive(source)).moved.total() == 2


@pytest.mark.rule("R2")
def test_chosen_dead_letters_are_moved_and_others_stay(letters: DeadLetters):
    letters.put(numbered(5, "a"), "TooLarge")
    letters.put(numbered(5, "b"), "Broken")
    source = source_of(letters)

    plan = plan_redrive(source, choice=DeadLetterFilter(reasons=("Broken",), count=3))
    outcome = redrive(source, plan)

    assert (len(plan), plan.others) == (3, 7)
    assert outcome.moved.total() == 3
    assert [id_of(payload) for payload in letters.stored(letters.entity)] == ["b-0", "b-1", "b-2"]
    assert letters.ids() == [*(f"a-{n}" for n in range(5)), "b-3", "b-4"]


@pytest.mark.rule("R1")
def test_dead_letters_are_grouped_by_reason_and_destination(letters: DeadLetters):
    letters.put(numbered(3), "TooLarge", "more than 256 KB")
    letters.put(numbered(2), "Broken")

    groups = group_dead_letters(source_of(letters))

    assert [
        (g.reason, g.destination, g.messages, g.description) for g in groups.largest_first()
    ] == [
        ("TooLarge", letters.entity, 3, "more than 256 KB"),
        ("Broken", letters.entity, 2, "because"),
    ]
    assert len(letters.ids()) == 5


@pytest.mark.rule("R3")
def test_refused_message_stays_with_its_reason_and_does_not_stop_the_others(
    namespace: LocalNamespace, letters: DeadLetters
):
    small = f"{letters.entity}-small"
    namespace.create_queue(small, requires_session=True)
    letters.put([message("one", session="s"), message("bad"), message("two", session="s")])
    source = source_of(letters, to=small)

    outcome = redrive(source, plan_redrive(source))

    assert outcome.moved == {small: 2}
    assert [id_of(payload) for payload in letters.stored(small)] == ["one", "two"]
    ((destination, reason),) = outcome.refused
    assert destination == small
    assert "session" in reason
    assert outcome.finished
    assert letters.ids() == ["bad"]


@pytest.mark.rule("R3")
def test_destination_that_does_not_exist_does_not_stop_the_others(namespace: LocalNamespace):
    name = f"p{uuid4().hex[:8]}"
    queue, there = f"{name}/x-servicebus-transfer/0", f"{name}-there"
    namespace.create_queue(queue)
    namespace.create_queue(there)
    letters = DeadLetters(namespace, queue)
    sent = numbered(4)
    letters.put([to_backlog(sent[n], there if n % 2 else f"{name}-gone") for n in range(4)])
    source = source_of(letters, in_backlog=True, target=letters.options)

    outcome = redrive(source, plan_redrive(source))

    assert outcome.moved == {there: 2}
    assert letters.stored(there) == [sent[1], sent[3]]
    assert [(path, count) for (path, _), count in outcome.refused.items()] == [(f"{name}-gone", 2)]
    assert letters.ids() == ["m-0", "m-2"]
    letters.close()


@pytest.mark.rule("R3")
def test_cancelled_redrive_loses_nothing_and_continues_with_its_plan(letters: DeadLetters):
    letters.put(numbered(2500))
    (late,) = letters.send([message("late")])
    source = source_of(letters)
    plan = plan_redrive(source)
    cancel = threading.Event()

    outcome = redrive(source, plan, cancel=cancel, on_progress=lambda so_far: cancel.set())
    letters.dead_letter([late])

    assert outcome.cancelled
    assert 0 < outcome.moved.total() < 2500
    rest = plan_redrive(source, within=plan)
    assert (len(rest), rest.others) == (2500 - outcome.moved.total(), 1)
    assert redrive(source, rest).moved.total() == len(rest)
    assert [id_of(p) for p in letters.stored(letters.entity)] == [f"m-{n}" for n in range(2500)]
    assert letters.ids() == ["late"]


@pytest.mark.rule("R3")
def test_cancelled_redrive_counts_the_messages_of_all_queues(namespace: LocalNamespace):
    paths = [f"q{uuid4().hex[:8]}" for _ in range(2)]
    for path in paths:
        namespace.create_queue(path)
        letters = DeadLetters(namespace, path)
        letters.put(numbered(3))
        letters.close()
    source = DeadLetterSource(namespace=letters.options, entities=tuple(paths))
    plan = plan_redrive(source)
    cancel = threading.Event()

    outcome = redrive(
        source, plan, cancel=cancel, max_rate=1, on_progress=lambda so_far: cancel.set()
    )

    assert outcome.cancelled
    assert 0 < outcome.moved.total() < 3  # so the second queue was not tried
    assert outcome.moved.total() + outcome.left.total() == len(plan)


@pytest.mark.rule("R3")
def test_sessions_keep_their_order_while_another_receiver_has_locked_a_message(
    namespace: LocalNamespace,
):
    path = f"q{uuid4().hex[:8]}"
    namespace.create_queue(path, lock_duration=timedelta(seconds=20))
    letters = DeadLetters(namespace, path)
    letters.put(numbered(10, session="s"))
    source = source_of(letters)
    plan = plan_redrive(source)
    blocker = DeadLetters(namespace, dead_letter_path(path))
    (locked,) = blocker._receiver.receive(1)
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        if seconds > 0:
            waits.append(seconds)
            assert letters.stored(path) == []
            namespace.advance(timedelta(seconds=21))  # the lock of the other receiver expires
        return False

    try:
        outcome = RedriveRound(source, path, plan.queues[path], usage=NO_USAGE, wait=wait).run()
    finally:
        close_all()

    assert (id_of(locked.payload), len(waits)) == ("m-0", 1)
    assert outcome.moved.total() == 10
    assert [id_of(payload) for payload in letters.stored(path)] == [f"m-{n}" for n in range(10)]
    letters.close()
    blocker.close()


def test_locks_of_messages_that_stay_are_renewed(namespace: LocalNamespace):
    path = f"q{uuid4().hex[:8]}"
    namespace.create_queue(path, lock_duration=timedelta(seconds=30))
    letters = DeadLetters(namespace, path)
    letters.put(numbered(1, "a"), "Other")
    letters.put(numbered(3, "b"), "Broken")
    source = source_of(letters)
    plan = plan_redrive(source, choice=DeadLetterFilter(reasons=("Broken",)))

    def wait(seconds: float) -> bool:
        if seconds > 0:
            namespace.advance(timedelta(seconds=20))
        return False

    try:
        outcome = RedriveRound(
            source,
            path,
            plan.queues[path],
            max_rate=1,
            usage=NO_USAGE,
            wait=wait,
            now_ms=lambda: int(namespace.now().timestamp() * 1000),
        ).run()
    finally:
        close_all()

    readings = namespace.meter()
    queue = dead_letter_path(path)
    assert outcome.moved.total() == 3
    assert readings[queue, "renew"].operations >= 2
    assert readings[queue, "receive"].operations == 4  # each message once
    letters.close()


@pytest.mark.rule("R2", "R3")
def test_dead_letters_of_a_queue_with_sessions_return_to_their_sessions(
    namespace: LocalNamespace,
):
    path = f"q{uuid4().hex[:8]}"
    namespace.create_queue(path, requires_session=True)
    letters = DeadLetters(namespace, path)
    payloads = numbered(3, session="s")
    with Client(letters.options) as client, Management(client, path) as management:
        with Sender(client, path) as sender:
            sender.send_batch(payloads)
        with Receiver(client, path, session_id="s") as receiver:
            tokens = [delivery.tag for delivery in receiver.receive(3)]
            management.settle(tokens, DEAD_LETTERED, reason="Broken", session_id="s")
    source = source_of(letters)

    outcome = redrive(source, plan_redrive(source))

    assert outcome.moved == {path: 3}
    assert letters.stored(path) == payloads
    with (
        Client(letters.options) as client,
        Receiver(client, path, session_id=AnySession) as receiver,
    ):
        assert [id_of(delivery.payload) for delivery in receiver.receive(3)] == [
            "m-0",
            "m-1",
            "m-2",
        ]
        assert receiver.session_id == "s"
    letters.close()


@pytest.mark.rule("R3")
def test_message_that_duplicate_detection_would_drop_stays(namespace: LocalNamespace):
    path = f"q{uuid4().hex[:8]}"
    namespace.create_queue(
        path,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=10),
    )
    namespace.create_queue(f"{path}-repair")
    letters = DeadLetters(namespace, path)
    letters.put(numbered(3))
    source = source_of(letters)

    outcome = redrive(source, plan_redrive(source))

    assert outcome.moved.total() == 0
    assert [reason.partition(":")[0] for _, reason in outcome.refused] == ["DuplicateDetection"]
    assert len(letters.ids()) == 3
    # Another queue has not seen the ids.
    other = source_of(letters, to=f"{path}-repair")
    assert redrive(other, plan_redrive(other, choice=DeadLetterFilter(count=1))).moved.total() == 1
    # Without the check, the queue accepts the messages and drops them.
    unchecked = source_of(letters, ignore_duplicate_detection=True)
    plan = plan_redrive(unchecked, choice=DeadLetterFilter(count=1))
    assert redrive(unchecked, plan).moved.total() == 1
    assert letters.stored(path) == []
    letters.close()


@pytest.mark.rule("R3")
def test_message_that_another_receiver_took_is_counted_as_gone(letters: DeadLetters):
    letters.put(numbered(3))
    source = source_of(letters)
    plan = plan_redrive(source)
    redrive(source, plan_redrive(source, choice=DeadLetterFilter(count=2)))

    outcome = redrive(source, plan)

    assert (outcome.moved.total(), outcome.gone, outcome.finished) == (1, 2, True)


@pytest.mark.rule("R3")
def test_messages_wait_for_a_destination_that_is_throttled(
    namespace: LocalNamespace, letters: DeadLetters
):
    letters.put(numbered(10))
    source = source_of(letters)
    plan = plan_redrive(source)
    fault = namespace.add_fault("throttle", letters.entity, count=1)

    outcome = redrive(source, plan)

    assert fault.fired
    assert (outcome.moved.total(), outcome.finished, outcome.errors) == (10, True, {})
    assert len(letters.stored(letters.entity)) == 10


@pytest.mark.rule("R3")
def test_purge_deletes_the_planned_dead_letters_only(letters: DeadLetters):
    letters.put(numbered(5), "Old")
    letters.put(numbered(5, "k"), "Keep")
    source = source_of(letters)
    plan = plan_redrive(source, choice=DeadLetterFilter(reasons=("Old",)))
    letters.put([message("late")], "Old")

    outcome = purge(source, plan)

    assert outcome.moved.total() == 5
    assert letters.stored(letters.entity) == []
    assert letters.ids() == [*(f"k-{n}" for n in range(5)), "late"]


@pytest.mark.rule("R2")
def test_subscription_needs_a_destination(namespace: LocalNamespace):
    topic = f"t{uuid4().hex[:8]}"
    namespace.create_topic(topic)
    for name in ("one", "two"):
        namespace.create_subscription(topic, name)
    namespace.create_queue(f"{topic}-repair")
    entity = subscription_path(topic, "one")
    letters = DeadLetters(namespace, entity, send_to=topic)
    sent = numbered(2)
    letters.put(sent)
    plan = plan_redrive(source_of(letters))

    with pytest.raises(ConfigurationError, match=f"--to {topic}"):
        redrive(source_of(letters), plan)
    outcome = redrive(source_of(letters, to=f"{topic}-repair"), plan)

    assert outcome.moved == {f"{topic}-repair": 2}
    assert letters.stored(f"{topic}-repair") == sent
    assert len(letters.stored(subscription_path(topic, "two"))) == 2  # from the first send
    letters.close()


def test_entity_that_does_not_exist_is_an_error(letters: DeadLetters):
    source = DeadLetterSource(namespace=letters.options, entities=("nothing",))

    with pytest.raises(EntityNotFound, match="'nothing'"):
        plan_redrive(source)


@pytest.mark.rule("R4")
def test_dead_letters_need_no_spark():
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None; "
        "import pairbus.backlog, pairbus.cli.app"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


def test_example_of_the_documentation_works(capsys: pytest.CaptureFixture[str]):
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "dead-letters.md").read_text(
        encoding="utf-8"
    )
    _, _, example = text.partition("```python\n")
    with LocalNamespace("example") as namespace:
        namespace.create_queue("orders")
        letters = DeadLetters(namespace, "orders")
        letters.put(numbered(2))

        exec(example.partition("```")[0], {"CONNECTION_STRING": namespace.connection_string})

        assert capsys.readouterr().out.splitlines() == [
            "Broken orders 2",
            "2 of 2",
            "Counter({'orders': 2}) Counter()",
        ]
        letters.close()


@pytest.mark.rule("C5")
def test_ledger_and_meter_agree(tmp_path: Path):
    with LocalNamespace("metered") as namespace:
        namespace.create_queue("q")
        letters = DeadLetters(namespace, "q")
        letters.put(numbered(30))
        letters.close()
        source = source_of(letters)
        before = metered(namespace)
        usage = UsageRecorder.create(str(tmp_path), letters.options, letters.options)

        plan = plan_redrive(source, usage=usage, choice=DeadLetterFilter(count=20))
        redrive(source, plan, usage=usage)
        purge(source, plan, usage=usage)  # all of them are gone

        difference = metered(namespace) - before
        assert recorded(tmp_path) == difference
        assert (difference["complete"], difference["abandon"]) == (20, 20)


def metered(namespace: LocalNamespace) -> Counter[str]:
    operations: Counter[str] = Counter()
    for (_, kind), reading in namespace.meter().items():
        operations[kind] += reading.operations
    return operations


def recorded(folder: Path) -> Counter[str]:
    operations: Counter[str] = Counter()
    for record in read_operations(folder):
        assert record["answered"]
        operations[OperationKind(record["kind"]).metered.value] += record["operations"]
    return operations


@pytest.mark.rule("R2", "N1", "C5")
def test_redrive_is_planned_and_run_on_a_namespace_that_throttles(tmp_path: Path):
    with LocalNamespace("throttled", tier="standard") as namespace:
        namespace.create_queue("orders")
        letters = DeadLetters(namespace, "orders")
        payloads = numbered(20)
        letters.put(payloads)
        source = source_of(letters)
        with Client(letters.options) as client, Management(client, "orders") as management:
            namespace.call(lambda core: core.throttle.count_filters(2500))
            with pytest.raises(Busy):
                management.peek()

        usage = UsageRecorder.create(str(tmp_path), letters.options, letters.options)
        outcome = redrive(source, plan_redrive(source, usage=usage))

        assert any(
            record["kind"] == "peek" and not record["answered"]
            for record in read_operations(tmp_path)
        )
        assert outcome.moved == Counter({"orders": 20})
        assert letters.stored("orders") == payloads
        letters.close()
