"""Breaks the parts of a simulated world as a plan says, and mends them."""

from collections import Counter
from collections.abc import Callable

from pairbus.backlog.syphon_control import Control
from pairbus.emulator.faults import Fault as EmulatorFault
from pairbus.events import PathStatus
from tests.simulation.applications import Application
from tests.simulation.namespace import SimulatedNamespace
from tests.simulation.plan import Fault
from tests.simulation.redrives import Operator
from tests.simulation.scheduler import Process
from tests.simulation.spark import SimulatedSyphon
from tests.simulation.world import World

EMULATOR_FAULTS = {
    "lose-answers": "lose-answer",
    "answers-late": "answer-late",
    "stop-reading": "stop-reading",
    "detach": "detach",
    "throttle": "throttle",
    "internal-error": "internal-error",
    "disable": "disable",
    "refuse-tokens": "refuse-tokens",
    "ignore-tokens": "ignore-tokens",
    "expire-tokens": "expire-tokens",
}
LASTING = ("throttle", "disable", "refuse-tokens", "ignore-tokens")
"""Faults that occur until they end, and not for a number of times."""
TOKEN_FAULTS = ("refuse-tokens", "ignore-tokens", "expire-tokens")
LATE_S = (0.5, 3.0, 12.0)
"""The delay of late answers: some come after the call has timed out."""
LIMITED_RATE = 2.0
"""The messages a second of a syphon whose rate an operator has limited."""
STALE_SHARE = 0.5
"""The share of peeks that miss messages, during a fault `stale-peek`."""
RESTART_CHECK_S = 1.0
SLOW_AFTER_S = 0.2
"""The delay of connections that were much slower, after all faults have ended. A task needs up to
six answers before it sends a message, and the shortest locks last for 5 seconds."""
SEARCH_S = 0.05
"""The time between two searches for a worker that is busy, or for a message that arrived."""


class FaultInjector:
    """Begins and ends the faults of a plan."""

    def __init__(
        self,
        world: World,
        primary: SimulatedNamespace,
        secondary: SimulatedNamespace,
        applications: list[Application],
        syphons: list[SimulatedSyphon],
        operators: list[Operator],
    ) -> None:
        self._world = world
        self._primary, self._secondary = primary, secondary
        self._applications = applications
        self._syphons = syphons
        self._operators = operators
        self.counts: Counter[str] = Counter()
        self.coverage: Counter[tuple[str, str]] = Counter()
        """The kinds of faults by the states of paths at their beginning."""
        self._undo: list[Callable[[], None]] = []
        self._healed = False

    def schedule(self, faults: tuple[Fault, ...]) -> None:
        for fault in faults:
            self._world.scheduler.call_at(fault.at, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def heal(self) -> None:
        """Mend everything, and start what is down."""
        self._healed = True
        self._world.trace("world", "heals")
        undo, self._undo = self._undo, []
        for function in undo:
            function()
        for namespace in (self._primary, self._secondary):
            namespace.process.thaw()
            namespace.disk.fail_commits, namespace.disk.full = 0, False
            namespace.start()
            namespace.runtime.faults.clear()
        for one, other in self._pairs():
            self._world.network.heal(one, other)
        self._world.network.end_slowness(SLOW_AFTER_S)

    def _pairs(self) -> list[tuple[str, str]]:
        clients = [a.machine.name for a in self._applications]
        clients += [s.machine.name for s in self._syphons]
        clients += [operator.name for operator in self._operators]
        hosts = (self._primary.machine.name, self._secondary.machine.name)
        return [(client, host) for client in clients for host in hosts]

    def supervise(self) -> None:
        """Start namespaces again that stopped because their disk failed."""
        for namespace in (self._primary, self._secondary):
            if self._healed and not namespace.process.alive:
                namespace.start()
        if self._healed:
            self._world.scheduler.call_later(RESTART_CHECK_S, self.supervise)

    def _begin(self, fault: Fault) -> None:
        begin = getattr(self, "_" + fault.kind.replace("-", "_"), None)
        prefix, _, rest = fault.kind.partition("-")
        namespace = {"primary": self._primary, "secondary": self._secondary}.get(prefix)
        self._world.trace("fault", str(fault))
        states = {
            status.value for each in self._applications for status in each.statuses().values()
        }
        end: Callable[[], None] | None
        if begin is not None:
            end = begin(fault)
        elif namespace is not None:
            end = self._break_namespace(namespace, rest)
        else:
            raise AssertionError(fault.kind)
        if end is None:
            return
        self.counts[fault.kind] += 1
        self.coverage.update((fault.kind, state) for state in states or {"none"})
        ended = False

        def end_once() -> None:
            nonlocal ended
            if not ended:
                ended = True
                end()

        self._undo.append(end_once)
        self._world.scheduler.call_later(fault.seconds, end_once)

    # Namespaces.

    def _break_namespace(
        self, namespace: SimulatedNamespace, kind: str
    ) -> Callable[[], None] | None:
        if not namespace.process.alive:
            return None
        if kind == "crash" and self._world.random.random() < 0.5:
            return self._crash_at_commit(namespace)
        if kind in ("crash", "silent-crash"):
            namespace.crash(silent=kind == "silent-crash")
            return namespace.start
        if kind == "freeze":
            process = namespace.process
            process.freeze()
            return process.thaw
        if kind == "disk":
            if self._world.random.random() < 0.3:
                namespace.disk.full = True
            else:
                namespace.disk.fail_commits = 1

            def repair() -> None:
                namespace.disk.full, namespace.disk.fail_commits = False, 0
                namespace.start()

            return repair
        if kind == "full":
            return namespace.fill(self._world.random.choice(namespace.queues))
        if kind == "missing":
            if namespace is self._primary and self._applications[0].plan.with_consumer:
                return None  # consumers tell messages apart by their sequence numbers
            return namespace.delete_queue(self._world.random.choice(namespace.queues))
        if kind in TOKEN_FAULTS and not namespace.with_tokens:
            return None
        fault = EmulatorFault(
            EMULATOR_FAULTS[kind],
            count=None if kind in LASTING else 3,
            seconds=self._world.random.choice(LATE_S) if kind == "answers-late" else 0.0,
        )
        faults = namespace.runtime.faults
        faults.add(fault)
        return lambda: faults.remove(fault)

    def _crash_at_commit(self, namespace: SimulatedNamespace) -> Callable[[], None]:
        """Kill a namespace during its next commit."""
        namespace.disk.fail_commits = 1

        def restart() -> None:
            namespace.disk.fail_commits = 0
            namespace.start()

        return restart

    def _primary_detach_freeze(self, fault: Fault) -> Callable[[], None] | None:
        """Let the primary detach a link when a message arrives, and freeze then: a sender does not
        know the reason, and its probe gets no answer."""
        namespace, process = self._primary, self._primary.process
        if not process.alive:
            return None
        detach, faults = EmulatorFault("detach", count=1), namespace.runtime.faults
        faults.add(detach)
        ended = False

        def watch() -> None:
            if ended:
                return
            if detach.fired and process.alive:
                process.freeze()
            else:
                self._world.scheduler.call_later(SEARCH_S, watch)

        watch()

        def end() -> None:
            nonlocal ended
            ended = True
            faults.remove(detach)
            process.thaw()

        return end

    def _uneven_outage(self, fault: Fault) -> Callable[[], None] | None:
        """Let one connection of a sender to the primary become silent, and crash the primary a
        little later: a call that waits for its answer fails long after the other calls."""
        senders = [application.process for application in self._applications]
        connections = [
            connection
            for connection in self._world.network.connections
            if connection.client.open
            and connection.client.process in senders
            and connection.server.process is self._primary.process
        ]
        if not connections:
            return None
        connection = self._world.random.choice(connections)
        connection.silence(connection.client)
        connection.silence(connection.server)
        delay_s = self._world.random.uniform(0.0, 2.5)

        def crash() -> None:
            if self._primary.process.alive and not self._healed:
                self._primary.crash()
                self._world.scheduler.call_later(fault.seconds, self._primary.start)

        self._world.scheduler.call_later(delay_s, crash)
        return lambda: None

    # The network.

    def _cut(self, fault: Fault) -> Callable[[], None] | None:
        connection = self._world.network.random_connection()
        if connection is None:
            return None
        connection.cut()
        return lambda: None

    def _silence(self, fault: Fault) -> Callable[[], None] | None:
        connection = self._world.network.random_connection()
        if connection is None:
            return None
        ends = [connection.client, connection.server]
        for end in self._world.random.sample(ends, self._world.random.choice((1, 2))):
            connection.silence(end)
        return lambda: None

    def _primary_silence(self, fault: Fault) -> Callable[[], None] | None:
        """Let all connections of a sender to the primary become silent, as if a firewall between
        them had lost its state. New connections work."""
        process = self._applications[fault.number % len(self._applications)].process
        connections = [
            connection
            for connection in self._world.network.connections
            if connection.client.open
            and connection.client.process is process
            and connection.server.process is self._primary.process
        ]
        for connection in connections:
            connection.silence(connection.client)
            connection.silence(connection.server)
        return (lambda: None) if connections else None

    def _slow_network(self, fault: Fault) -> Callable[[], None] | None:
        conditions = [self._world.network.conditions(one, other) for one, other in self._pairs()]
        for each in conditions:
            each.max_delay_s = self._world.random.choice((0.05, 0.3, 1.0))

        def restore() -> None:
            for each in conditions:
                each.max_delay_s = self._world.network.max_delay_s

        return restore

    def _partition(self, client: str, host: str) -> Callable[[], None]:
        self._world.network.partition(client, host, silent=self._world.random.random() < 0.7)
        return lambda: self._world.network.heal(client, host)

    def _partition_sender_primary(self, fault: Fault) -> Callable[[], None]:
        application = self._applications[fault.number % len(self._applications)]
        return self._partition(application.machine.name, self._primary.machine.name)

    def _partition_sender_secondary(self, fault: Fault) -> Callable[[], None]:
        application = self._applications[fault.number % len(self._applications)]
        return self._partition(application.machine.name, self._secondary.machine.name)

    def _partition_syphon_primary(self, fault: Fault) -> Callable[[], None]:
        syphon = self._syphons[fault.number % len(self._syphons)]
        return self._partition(syphon.machine.name, self._primary.machine.name)

    def _partition_syphon_secondary(self, fault: Fault) -> Callable[[], None]:
        syphon = self._syphons[fault.number % len(self._syphons)]
        return self._partition(syphon.machine.name, self._secondary.machine.name)

    # Senders.

    def _sender_kill(self, fault: Fault) -> Callable[[], None] | None:
        application = self._applications[fault.number % len(self._applications)]
        if not application.process.alive:
            return None
        application.kill(silent=fault.number % 2 == 0)
        return application.start

    def _sender_restart(self, fault: Fault) -> Callable[[], None] | None:
        application = self._applications[fault.number % len(self._applications)]
        paired = application.paired
        if paired is None or not application.process.alive or application.is_closing:
            return None
        application.restart(paired)
        return lambda: None

    def _sender_mark_healthy(self, fault: Fault) -> Callable[[], None] | None:
        application = self._applications[fault.number % len(self._applications)]
        path = f"queue{fault.number % application.plan.paths}"
        status = application.statuses().get(path, PathStatus.HEALTHY)
        if application.is_closing or status is PathStatus.HEALTHY:
            return None
        application.mark_healthy(path)
        return lambda: None

    def _sender_freeze(self, fault: Fault) -> Callable[[], None] | None:
        application = self._applications[fault.number % len(self._applications)]
        process = application.process
        if not process.alive or process.frozen:
            return None
        process.freeze()
        began = self._world.scheduler.now

        def thaw() -> None:
            application.frozen_s += self._world.scheduler.now - began
            process.thaw()

        return thaw

    def _stale_peek(self, fault: Fault) -> Callable[[], None] | None:
        application = self._applications[fault.number % len(self._applications)]
        secondary = application.secondary
        if secondary is None:
            return None
        secondary.stale_share = STALE_SHARE

        def end() -> None:
            secondary.stale_share = 0.0

        return end

    # Syphons.

    def _syphon_kill(self, fault: Fault) -> Callable[[], None] | None:
        syphon = self._syphons[fault.number % len(self._syphons)]
        if not syphon.process.alive:
            return None
        syphon.kill(silent=fault.number % 2 == 0)
        return syphon.start

    def _syphon_restart(self, fault: Fault) -> Callable[[], None] | None:
        syphon = self._syphons[fault.number % len(self._syphons)]
        if not syphon.process.alive or syphon.stopping:
            return None
        syphon.restart()
        return lambda: None

    def _syphon_pause(self, fault: Fault) -> Callable[[], None] | None:
        return self._control(fault, lambda control: control.pause())

    def _syphon_pause_path(self, fault: Fault) -> Callable[[], None] | None:
        path = f"queue{fault.number % self._syphons[0].plan.paths}"
        return self._control(fault, lambda control: control.pause(path))

    def _syphon_limit(self, fault: Fault) -> Callable[[], None] | None:
        path = (None, "queue0")[fault.number % 2]
        return self._control(fault, lambda control: control.set_max_rate(LIMITED_RATE, path))

    def _control(
        self, fault: Fault, change: Callable[[Control], Control]
    ) -> Callable[[], None] | None:
        """Control a syphon as an operator does, and reset its control later."""
        syphon = self._syphons[fault.number % len(self._syphons)]
        if not syphon.process.alive:
            return None
        syphon.set_control(change)
        return lambda: syphon.set_control(lambda _: Control())

    def _syphon_freeze(self, fault: Fault) -> Callable[[], None] | None:
        syphon = self._syphons[fault.number % len(self._syphons)]
        return self._freeze(syphon.process)

    # Operators.

    def _operator(self, fault: Fault) -> Operator | None:
        """Return an operator who redrives dead letters now."""
        busy = [each for each in self._operators if not each.done and each.process.alive]
        return busy[fault.number % len(busy)] if busy else None

    def _redrive_kill(self, fault: Fault) -> Callable[[], None] | None:
        operator = self._operator(fault)
        if operator is None:
            return None
        self._world.kill(operator.process, silent=fault.number % 2 == 0)
        return operator.start

    def _redrive_freeze(self, fault: Fault) -> Callable[[], None] | None:
        operator = self._operator(fault)
        return None if operator is None else self._freeze(operator.process)

    def _redrive_cancel(self, fault: Fault) -> Callable[[], None] | None:
        operator = self._operator(fault)
        if operator is None or operator.process.frozen:
            return None
        with self._world.scheduler.running(operator.process, None):
            operator.cancel()
        return lambda: None

    def _partition_redrive_primary(self, fault: Fault) -> Callable[[], None] | None:
        operator = self._operator(fault)
        host = self._primary.machine.name
        return None if operator is None else self._partition(operator.name, host)

    def _partition_redrive_secondary(self, fault: Fault) -> Callable[[], None] | None:
        operator = self._operator(fault)
        host = self._secondary.machine.name
        return None if operator is None else self._partition(operator.name, host)

    def _freeze(self, process: Process) -> Callable[[], None] | None:
        if not process.alive or process.frozen:
            return None
        process.freeze()
        return process.thaw

    def _busy_worker(self, kind: str, number: int) -> Process | None:
        syphon = self._syphons[number % len(self._syphons)]
        busy = [
            worker.process
            for worker in syphon.workers
            if worker.kind == kind and worker.process.alive and worker.job is not None
        ]
        return self._world.random.choice(busy) if busy else None

    def _kill_worker(self, kind: str, fault: Fault) -> Callable[[], None] | None:
        """Kill a worker that is busy, as soon as there is one."""
        deadline = self._world.scheduler.now + fault.seconds + 10

        def kill() -> None:
            process = self._busy_worker(kind, fault.number)
            if process is not None:
                delay = self._world.random.random() * self._world.random.choice((0.02, 0.1, 0.5))
                self._world.scheduler.call_later(delay, lambda: self._world.kill(process))
            elif self._world.scheduler.now < deadline and not self._healed:
                self._world.scheduler.call_later(SEARCH_S, kill)

        kill()
        return lambda: None

    def _reader_kill(self, fault: Fault) -> Callable[[], None] | None:
        return self._kill_worker("reader", fault)

    def _writer_kill(self, fault: Fault) -> Callable[[], None] | None:
        return self._kill_worker("writer", fault)

    def _writer_kill_settled(self, fault: Fault) -> Callable[[], None] | None:
        """Kill a writer that has settled some of its messages, as soon as there is one."""
        syphon = self._syphons[fault.number % len(self._syphons)]
        deadline = self._world.scheduler.now + fault.seconds + 10

        def kill() -> None:
            for worker in syphon.workers:
                job = worker.job
                if (
                    worker.kind == "writer"
                    and worker.process.alive
                    and job is not None
                    and syphon.settled_messages() - job.attempt.settled
                ):
                    self._world.kill(worker.process)
                    return
            if self._world.scheduler.now < deadline and not self._healed:
                self._world.scheduler.call_later(SEARCH_S / 2, kill)

        kill()
        return lambda: None

    def _writer_freeze(self, fault: Fault) -> Callable[[], None] | None:
        """Freeze a writer that is busy, as soon as there is one."""
        frozen: list[Process] = []
        deadline = self._world.scheduler.now + fault.seconds

        def freeze() -> None:
            process = self._busy_worker("writer", fault.number)
            if process is not None and not process.frozen:
                delay = self._world.random.random() * self._world.random.choice((0.02, 0.1, 0.5))

                def freeze_now() -> None:
                    process.freeze()
                    frozen.append(process)
                    self._world.scheduler.call_later(fault.seconds + 10, process.thaw)

                self._world.scheduler.call_later(delay, freeze_now)
            elif self._world.scheduler.now < deadline and not self._healed:
                self._world.scheduler.call_later(SEARCH_S, freeze)

        freeze()
        return lambda: None

    def _task_late(self, fault: Fault) -> Callable[[], None] | None:
        syphon = self._syphons[fault.number % len(self._syphons)]
        syphon.late_s = fault.seconds
        return lambda: None

    def _task_twice(self, fault: Fault) -> Callable[[], None] | None:
        syphon = self._syphons[fault.number % len(self._syphons)]
        syphon.runs_twice = True
        return lambda: None
