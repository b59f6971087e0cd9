"""One run: an outage until the last message is delivered, with a fault at each stage."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

from pairbus.drill.reconciliation import MessageKey, SentMessage
from tests.faults.matrix.entities import Entities
from tests.faults.matrix.environment import NAME, QUEUES, MatrixEnvironment
from tests.faults.matrix.faults import Outage, inject
from tests.faults.matrix.plan import Cell, Fault, Run
from tests.faults.matrix.report import RunResult
from tests.faults.matrix.sender import SenderConfig
from tests.faults.matrix.sender_log import (
    FAILOVER,
    HEALTHY,
    REJECTED,
    SenderLog,
    combine,
    sent_message,
)
from tests.faults.matrix.verdict import FaultWindow, judge

DRAINING = "draining"
EXTRA_MESSAGES = {"unlimited": 3000, "standard": 800, "premium": 3000}
"""The number of messages that are put into the backlog before a fault in the drain, by tier, so
that the drain takes long enough."""
MAX_ATTEMPTS = 5
"""The drain may be over before a busy machine notices that it has begun."""
MIN_GROWTH = 150
"""The minimum number of messages by which the backlog grows in the filling stage."""


class OutageRun:
    """Executes one run."""

    def __init__(self, environment: MatrixEnvironment, run: Run) -> None:
        self._environment = environment
        self._run = run
        self._paths = Entities(environment, run.number)
        self._windows: list[FaultWindow] = []
        self._injected: list[Cell] = []
        self._extra: list[SentMessage] = []

    def execute(self) -> RunResult:
        start = time.monotonic()
        unsettled = self._environment.unsettled
        self._prepare()
        self._before()
        outage = Outage(self._environment, self._run.outage)
        with contextlib.closing(outage):
            self._fill(outage)
            self._fail_back(outage)
        self._drain()
        self._finish()
        assert tuple(self._injected) == self._run.cells
        log = combine(sender.log() for sender in self._environment.sender_processes)
        assert log.events[REJECTED] > 0
        verdict = judge(
            log,
            self._paths.copies(),
            extra=self._extra,
            exact=self._paths.without_duplicates,
            windows=self._windows,
            unsettled=self._environment.unsettled - unsettled,
            in_backlog=self._paths.in_backlog(),
            dead_lettered=self._paths.dead_letters(),
            ordered=self._run.failback == "after-drain",
            lost_by_redrive=self._environment.redrive.lost(),
        )
        return RunResult(
            run=self._run,
            cells=tuple(self._injected),
            verdict=verdict,
            errors=log.errors,
            seconds=time.monotonic() - start,
        )

    # The stages.

    def _prepare(self) -> None:
        environment, paths = self._environment, self._paths
        environment.set_tier(self._run.tier)
        paths.create()
        environment.warm_up()
        environment.sender_config = SenderConfig(
            primary=environment.sender_primary.address(environment.primary.connection_string),
            secondary=environment.sender_secondary.address(environment.secondary.connection_string),
            name=NAME,
            backlog_queues=QUEUES,
            log="",
            prefix=self._prefix,
            seed="",
            failover_interval_s=self._run.failover_interval_s,
            failback=self._run.failback,
            queues=(paths.exact, paths.plain),
            with_sessions=(paths.sessions,),
            topics=(paths.topic,),
            console=environment.console.address,
            console_token=environment.console.sender_token,
        )
        environment.sender_processes.clear()
        environment.start_sender()
        self._wait_for_acknowledgements("acknowledged sends")

    def _before(self) -> None:
        for fault in self._run.at("before"):
            self._environment.warm_up()
            self._wait_for_states(HEALTHY)
            with self._fault(fault):
                time.sleep(fault.seconds)
            self._wait_for_states(HEALTHY)
            self._wait_for_acknowledgements("acknowledged sends after the fault")
        # A syphon that was started again has no workers yet, and gets none during the outage.
        self._environment.warm_up()

    def _fill(self, outage: Outage) -> None:
        self._start_outage(outage)
        # A fault before the outage may have let paths fail over, which then drain: they stay so.
        self._wait_for_states(FAILOVER, DRAINING)
        self._wait_until_grown()
        for fault in self._run.at("filling"):
            if fault.cell.component == "primary":
                with self._recorded(fault, outage.interrupted(fault.cell.kind), whole=True):
                    time.sleep(fault.seconds)
            else:
                with self._fault(fault):
                    time.sleep(fault.seconds)
            self._wait_for_states(FAILOVER, DRAINING)
            self._wait_until_grown()

    def _fail_back(self, outage: Outage) -> None:
        outage.end()
        self._record_outage()
        for fault in self._run.at("failback"):
            time.sleep(fault.after_s)
            with self._fault(fault):
                time.sleep(fault.seconds)
        self._wait_for_states(HEALTHY, DRAINING)
        self._wait_for_acknowledgements("acknowledged sends after failback")

    def _drain(self) -> None:
        for fault in self._run.at("draining"):
            self._wait_for_drain()
            with self._fault(fault):
                time.sleep(fault.seconds)
            self._wait_for_acknowledgements("acknowledged sends during the drain")

    def _finish(self) -> None:
        """Wait for healthy paths, stop the senders, and wait for an empty backlog."""
        environment = self._environment
        self._wait_for_states(HEALTHY)
        self._wait_for_acknowledgements("acknowledged sends at the end")
        assert environment.sender is not None
        sender, environment.sender = environment.sender, None
        sender.stop()
        assert sender.log().events["closed"] == 1
        assert not sender.log().unexpected, sender.log().unexpected
        environment.wait(lambda: environment.backlog_size() == 0, "an empty backlog")

    # Parts of the stages.

    @contextlib.contextmanager
    def _fault(self, fault: Fault) -> Iterator[None]:
        component, kind, stage = fault.cell
        with self._recorded(fault, inject(self._environment, component, kind)):
            if component == "console":
                self._check_sends_without_console(healthy=stage == "before")
            yield
        if component == "console":
            self._wait_for_console()

    def _check_sends_without_console(self, *, healthy: bool) -> None:
        """Check that sends go on while the console does not answer, and that none fails."""
        errors = self._sender_log().errors.total()
        self._wait_for_acknowledgements("acknowledged sends without the console")
        if healthy:
            assert self._sender_log().errors.total() == errors

    def _wait_for_console(self) -> None:
        """Wait until the console shows the states of all paths."""
        environment = self._environment

        def is_shown() -> bool:
            sender, log = environment.sender, self._sender_log()
            assert sender is not None
            states = Counter(log.state(path) for path in self._paths.all)
            return environment.console.states_of(sender.pid) == states

        environment.wait(is_shown, "the states of all paths in the console")

    @contextlib.contextmanager
    def _recorded(
        self, fault: Fault, block: contextlib.AbstractContextManager[None], *, whole: bool = False
    ) -> Iterator[None]:
        """Inject a fault and record its time. A kill ends at once, unless the block is a sequence
        of faults (`whole`)."""
        start = time.time()
        with block:
            active = time.time()
            yield
        end = active if fault.cell.kind == "kill" and not whole else time.time()
        self._windows.append(FaultWindow(str(fault.cell), start, end))
        self._injected.append(fault.cell)

    def _start_outage(self, outage: Outage) -> None:
        self._outage_start = time.time()
        outage.begin()
        self._outage_active = time.time()

    def _record_outage(self) -> None:
        end = self._outage_active if self._run.outage == "kill" else time.time()
        self._windows.append(FaultWindow(f"outage ({self._run.outage})", self._outage_start, end))

    @property
    def _prefix(self) -> str:
        return f"run{self._run.number}"

    def _backlog_size(self) -> int:
        """Return the number of messages in the backlog, or 0 while it is unknown."""
        return self._environment.backlog_size() or 0

    def _wait_until_grown(self) -> None:
        before = self._backlog_size()
        self._environment.wait(
            lambda: self._backlog_size() >= before + MIN_GROWTH, "a growing backlog"
        )

    def _wait_for_drain(self) -> None:
        """Wait until the syphon has moved messages and more are left."""
        for attempt in range(MAX_ATTEMPTS):
            before = self._environment.moved
            self._put_extra_messages(EXTRA_MESSAGES[self._run.tier] << attempt)
            self._wait_until_moved_more_than(before)
            if self._backlog_size() > 0:
                return
        raise AssertionError("the backlog was empty as soon as the syphon moved messages")

    def _wait_until_moved_more_than(self, before: int) -> None:
        self._environment.wait(lambda: self._environment.moved > before, "moved messages")

    def _wait_for_states(self, *states: str) -> None:
        def all_are() -> bool:
            log = self._sender_log()
            return all(log.state(path) in states for path in self._paths.all)

        self._environment.wait(all_are, f"all paths to be {' or '.join(states)}")

    def _sender_log(self) -> SenderLog:
        assert self._environment.sender is not None
        return self._environment.sender.log()

    def _wait_for_acknowledgements(self, event: str) -> None:
        """Wait for some acknowledged sends on every path."""
        before = self._acknowledged()

        def more() -> bool:
            now = self._acknowledged()
            return all(now[path] >= before[path] + 5 for path in self._paths.all)

        self._environment.wait(more, event)

    def _acknowledged(self) -> Counter[str]:
        return Counter(key.path for key in self._sender_log().acknowledged)

    def _put_extra_messages(self, count: int) -> None:
        for path in (self._paths.exact, self._paths.plain):
            start = len(self._extra)
            ids = [f"{self._prefix}-extra-{start + n}" for n in range(count // 2)]
            self._environment.put(path, ids)
            self._extra += [sent_message(MessageKey(path, id), None) for id in ids]
