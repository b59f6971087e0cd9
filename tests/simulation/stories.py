"""Small simulations with a known outcome, which test the simulated parts of the world.

They need a process whose standard library is replaced, so `test_stories.py` runs this module as a
program. It prints one line of JSON for each story.
"""

import gc
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.simulation import standard_library

standard_library.install()

from pairbus.amqp.client import (  # noqa: E402
    Client,
    Management,
    PendingDelivery,
    Receiver,
    Sender,
)
from pairbus.amqp.sections import Message, Properties  # noqa: E402
from pairbus.emulator.storage import schema  # noqa: E402
from pairbus.errors import AmqpError, ConnectionLost, OperationTimeout  # noqa: E402
from pairbus.pairing.health import PathHealth, Route  # noqa: E402
from pairbus.spark.long_polls import LongPolls  # noqa: E402
from pairbus.spark.usage import UsageRecorder  # noqa: E402
from tests.simulation.driver import SimulatedDeadlines  # noqa: E402
from tests.simulation.faults import FaultInjector  # noqa: E402
from tests.simulation.journal import Violation  # noqa: E402
from tests.simulation.namespace import SimulatedNamespace, queue  # noqa: E402
from tests.simulation.plan import Fault, Plan, PlannedSend  # noqa: E402
from tests.simulation.scheduler import Machine  # noqa: E402
from tests.simulation.seeded_plans import make_plan  # noqa: E402
from tests.simulation.shrink import Shrinker  # noqa: E402
from tests.simulation.simulation import Result, run_plan  # noqa: E402
from tests.simulation.world import World, open_world  # noqa: E402

MAX_GROWTH = 100
"""Objects by which the memory may grow in 300 s of an outage, in which a path pings 300 times."""
EARLY_S, LATE_S = (110.0, 143.0, 176.0, 209.0), (410.0, 443.0, 476.0, 509.0)
"""The times at which objects are counted."""
STORIES: dict[str, Callable[[], object]] = {}


def story(function: Callable[[], object]) -> Callable[[], object]:
    STORIES[function.__name__] = function
    return function


def message(id: str) -> bytes:
    return Message.build(properties=Properties(message_id=id), data=b"data").encode()


def message_ids(payloads: list[bytes]) -> list[str]:
    return [str(Message.parse(payload).read_properties().message_id) for payload in payloads]


def start_namespace(world: World, name: str = "primary") -> SimulatedNamespace:
    namespace = SimulatedNamespace(world.scheduler, world.network, name)
    namespace.start()
    namespace.create_queue(queue("q", lock_s=10))
    return namespace


def run_client(world: World, function: Callable[[], object], limit_s: float = 1000) -> None:
    """Run a function in a thread of a new process, and raise its error."""
    task = world.process("client").spawn(function)
    assert world.run(lambda: task.ended, limit_s=world.scheduler.now + limit_s), "it did not end"
    if task.error is not None:
        world.scheduler.failures.clear()
        raise task.error


def send(world: World, namespace: SimulatedNamespace, *ids: str) -> None:
    def work() -> None:
        sender = Sender(Client(namespace.options()), "q")
        for id in ids:
            sender.send(message(id))

    run_client(world, work)


def peek(world: World, namespace: SimulatedNamespace) -> list[str]:
    """Return the ids of the messages in the queue."""
    ids: list[str] = []

    def work() -> None:
        ids.extend(message_ids(Management(Client(namespace.options()), "q").peek(1, 100)))

    run_client(world, work)
    return ids


@story
def message_is_sent_received_and_settled() -> None:
    with open_world(1) as world:
        namespace = start_namespace(world)
        send(world, namespace, "a", "b")
        received: list[str] = []

        def receive() -> None:
            receiver = Receiver(Client(namespace.options()), "q")
            deliveries = receiver.receive(2)
            received.extend(message_ids([delivery.payload for delivery in deliveries]))
            receiver.settle(deliveries[:1])

        run_client(world, receive)
        assert received == ["a", "b"]
        world.run_for(11)  # the lock of the other one expires
        assert peek(world, namespace) == ["b"]


@story
def acknowledged_message_survives_a_crash() -> None:
    with open_world(2) as world:
        namespace = start_namespace(world)
        send(world, namespace, "a")
        namespace.crash()
        namespace.start()
        assert peek(world, namespace) == ["a"]


@story
def commit_that_is_not_synced_is_lost_in_a_crash() -> None:
    prepare, asked = schema.prepare, "PRAGMA synchronous = FULL;"

    def careless(database: object) -> None:
        prepare(database)  # type: ignore[arg-type]
        database.executescript(asked.replace("FULL", "OFF"))  # type: ignore[attr-defined]

    from pairbus.emulator.storage import database as database_module

    database_module.prepare = careless  # type: ignore[assignment]
    try:
        with open_world(3) as world:
            namespace = start_namespace(world)
            namespace.crash()
            namespace.start()
            if namespace.runtime.entities.find("q") is None:
                namespace.create_queue(queue("q"))
            send(world, namespace, "a")
            namespace.crash()
            namespace.start()
            assert namespace.runtime.entities.find("q") is None
    finally:
        database_module.prepare = prepare


@story
def message_is_not_acknowledged_if_its_commit_fails() -> None:
    outcomes = set()
    for seed in range(12):
        with open_world(seed) as world:
            namespace = start_namespace(world)
            namespace.disk.fail_commits = 1
            try:
                send(world, namespace, "a")
            except ConnectionLost:
                pass
            else:
                raise AssertionError("it was acknowledged")
            world.run_for(1)
            assert not namespace.process.alive
            namespace.start()
            outcomes.add(len(peek(world, namespace)))
    assert outcomes == {0, 1}, "the outcome of a failed commit is unknown"


@story
def full_disk_stops_the_namespace_and_keeps_what_it_has() -> None:
    with open_world(4) as world:
        namespace = start_namespace(world)
        send(world, namespace, "a")
        namespace.disk.full = True
        try:
            send(world, namespace, "b")
        except AmqpError:
            pass
        else:
            raise AssertionError("it was acknowledged")
        world.run_for(1)
        namespace.disk.full = False
        namespace.start()
        assert peek(world, namespace) == ["a"]


@story
def frozen_namespace_lets_a_send_time_out_and_stores_it_later() -> None:
    with open_world(5) as world:
        namespace = start_namespace(world)
        times: list[float] = []

        def work() -> None:
            sender = Sender(Client(namespace.options()), "q")
            sender.send(message("a"))
            namespace.process.freeze()
            began = world.scheduler.now
            try:
                sender.send(message("b"), timeout_s=7)
            except OperationTimeout:
                times.append(world.scheduler.now - began)

        run_client(world, work)
        assert [round(time, 6) for time in times] == [7.0]
        namespace.process.thaw()
        world.run_for(1)
        assert peek(world, namespace) == ["a", "b"]


@story
def namespace_that_thaws_handles_what_arrived_in_its_order() -> None:
    with open_world(7) as world:
        world.network.split_share = 1.0
        namespace = start_namespace(world)
        ids = [f"message {number}" for number in range(20)]

        def work() -> None:
            sender = Sender(Client(namespace.options()), "q")
            sender.send(message("first"))
            namespace.process.freeze()
            pending = []
            for id in ids:
                pending.append(sender.post(message(id)))
                sender.client.step(sender.client.now())  # so that each is a write, in two parts
            world.scheduler.call_later(5, namespace.process.thaw)
            sender.wait(pending)
            assert all(delivery.error is None for delivery in pending)

        run_client(world, work)
        assert peek(world, namespace) == ["first", *ids]


@story
def lock_expires_by_the_clock_of_the_namespace() -> None:
    with open_world(6) as world:
        namespace = SimulatedNamespace(
            world.scheduler, world.network, "fast", machine=Machine("fast.simulation", rate=2.0)
        )
        namespace.start()
        namespace.create_queue(queue("q", lock_s=10))
        send(world, namespace, "a")
        times: list[float] = []

        def receive() -> None:
            receiver = Receiver(Client(namespace.options()), "q")
            for _ in range(2):
                receiver.receive(1)
                times.append(world.scheduler.now)

        run_client(world, receive)
        assert 5.0 <= times[1] - times[0] <= 7.0


@story
def two_runs_have_the_same_trace() -> str:
    digests = []
    for _ in range(2):
        with open_world(7) as world:
            namespace = start_namespace(world)
            send(world, namespace, *(f"m{number}" for number in range(20)))
            namespace.crash()
            namespace.start()
            peek(world, namespace)
            digests.append(world.scheduler.digest())
    assert digests[0] == digests[1]
    return digests[0]


def records_in(folder: str) -> list[dict[str, Any]]:
    """Return the operations in the ledgers of a folder."""
    lines = "".join(path.read_text() for path in Path(folder).iterdir()).splitlines()
    return [record for record in map(json.loads, lines) if "kind" in record]


@story
def poll_of_a_silent_connection_is_not_recorded_as_answered() -> None:
    """The namespace may never have seen the credit, so it is not known whether it counts."""
    for is_silent in (False, True):
        with tempfile.TemporaryDirectory() as folder, open_world(8) as world:
            namespace = start_namespace(world)
            usage = UsageRecorder.create(folder, namespace.options(), namespace.options())
            polls = LongPolls(namespace.options(), ["q"], poll_s=900, usage=usage)

            def poll(polls: LongPolls = polls) -> None:
                polls.resume()
                polls.wait_until_known(10)

            run_client(world, poll)
            (connection,) = world.network.connections
            if is_silent:
                connection.silence(connection.server)
            run_client(world, polls.stop)
            world.run_for(20)
            assert [record["answered"] for record in records_in(folder)] == [not is_silent]


@story
def poll_and_renewal_without_an_answer_are_recorded() -> None:
    """The namespace may count what a client asked over a connection that became silent."""
    with tempfile.TemporaryDirectory() as folder, open_world(9) as world:
        namespace = start_namespace(world)
        namespace.create_queue(queue("other", lock_s=10))
        send(world, namespace, "a")
        options = namespace.options(operation_timeout_s=2.0)
        usage = UsageRecorder.create(folder, options, options)
        polls = LongPolls(options, ["q", "other"], poll_s=900, usage=usage)

        def poll() -> None:
            polls.resume()
            polls.wait_until_known(10)

        run_client(world, poll)
        connection = list(world.network.connections)[-1]
        connection.silence(connection.client)
        world.run_for(6)  # the lock is renewed after a third of its duration
        run_client(world, polls.stop)
        records = [record for record in records_in(folder) if not record["answered"]]
        assert {record["kind"] for record in records} == {"renew", "poll"}


# The checks must notice what they check.


def small_plan(**changes: object) -> Plan:
    """Return a plan with an outage, whose messages are all sent during it."""
    plan = make_plan(2)
    sends = tuple(
        PlannedSend(5.0 + number / 10, 0, 0, "queue0", (f"m{number + 1}",), "s")
        for number in range(3)
    )
    plan = replace(
        plan,
        fault_phase_s=30.0,
        paths=1,
        processes=1,
        callers=1,
        failover_interval_s=0.0,
        operation_timeout_s=8.0,
        tier="unlimited",
        once=False,
        delay_s=0.003,
        slow_share=0.0,
        with_consumer=False,
        sends=sends,
        faults=(Fault(1.0, "primary-crash", 20.0, 0),),
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


def rules_broken(plan: Plan) -> set[str]:
    return {violation.rule for violation in run_plan(plan).violations}


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@story
def outage_without_defects_breaks_no_promise() -> None:
    result = run_plan(small_plan(after_drain=True))
    assert result.violations == []
    assert result.outages == 1
    assert result.failovers == 1
    assert result.acknowledged == 3


@story
def lost_message_is_noticed() -> None:
    def lose(sender: Any, payload: bytes, **options: Any) -> PendingDelivery:
        """Report a message as accepted that was never sent."""
        return PendingDelivery(done=True)

    with replaced(Sender, "post", lose):
        assert "X1" in rules_broken(small_plan(after_drain=False))


@story
def message_that_passes_another_is_noticed() -> None:
    with replaced(PathHealth, "route", lambda health, now: Route.PRIMARY):
        assert "S4" in rules_broken(small_plan(after_drain=True))


@story
def call_that_takes_too_long_is_noticed() -> None:
    plan = small_plan(faults=(Fault(1.0, "primary-freeze", 20.0, 0),))
    assert rules_broken(plan) == set()
    run = SimulatedDeadlines.run

    def patient(deadlines: Any, link: Any, function: Any, timeout_s: float) -> Any:
        return run(deadlines, link, function, timeout_s + 15)

    with replaced(SimulatedDeadlines, "run", patient):
        assert "S2a" in rules_broken(plan)


@story
def path_that_stays_in_failover_is_noticed() -> None:
    with replaced(PathHealth, "pinged", lambda health, succeeded, now: health._schedule_ping(now)):
        assert "G2" in rules_broken(small_plan())


@story
def memory_stays_bounded_in_a_long_outage() -> None:
    """Nothing is sent meanwhile: the sender pings, the syphon polls and probes."""
    counts: list[int] = []

    def count_objects() -> None:
        gc.collect()
        counts.append(len(gc.get_objects()))

    schedule = FaultInjector.schedule

    def schedule_with_counts(injector: FaultInjector, faults: tuple[Fault, ...]) -> None:
        schedule(injector, faults)
        for when in EARLY_S + LATE_S:
            injector._world.scheduler.call_at(when, count_objects)

    plan = small_plan(
        fault_phase_s=520.0,
        ping_interval_s=1.0,
        faults=(Fault(1.0, "primary-crash", 510.0, 0),),
        with_ledger=True,
    )
    with replaced(FaultInjector, "schedule", schedule_with_counts):
        result = run_plan(plan)
    assert result.violations == []
    assert len(counts) == len(EARLY_S + LATE_S)
    # The number depends on what is in progress, so the lowest of several is compared.
    growth = min(counts[len(EARLY_S) :]) - min(counts[: len(EARLY_S)])
    assert growth < MAX_GROWTH, f"{growth} more objects after 300 s: {counts}"


@story
def failing_plan_is_shrunk_to_what_matters() -> None:
    plan = make_plan(1001)

    def run(plan: Plan) -> Result:
        """Fail if the plan has a crash of the primary, and message m5."""
        result = Result(plan.seed)
        if any(fault.kind == plan_kind for fault in plan.faults) and any(
            "m5" in send.ids for send in plan.sends
        ):
            result.violations.append(Violation("X1", "m5 is lost"))
        return result

    plan_kind = plan.faults[0].kind
    small = Shrinker(plan, {"X1"}, run).shrink()
    assert len(small.faults) == 1
    assert len(small.sends) == 1
    assert "m5" in small.sends[0].ids


def main() -> None:
    for name, function in STORIES.items():
        try:
            line: dict[str, object] = {"story": name, "result": function()}
        except Exception:  # noqa: BLE001  reported to the test
            line = {"story": name, "error": traceback.format_exc()}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        STORIES[sys.argv[1]]()
    else:
        main()
