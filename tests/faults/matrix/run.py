"""One run: an outage from before it to the last message home, with a fault at each stage."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

from pairbus.drill.reconciliation import MessageKey, SentMessage
from tests.faults.matrix.entities import Entities
from tests.faults.matrix.faults import Outage, happening
from tests.faults.matrix.notes import FAILOVER, HEALTHY, Notes, sent, together
from tests.faults.matrix.plan import Cell, Fault, Run
from tests.faults.matrix.report import Result
from tests.faults.matrix.sender import Orders
from tests.faults.matrix.verdict import Window, judge
from tests.faults.matrix.world import NAME, QUEUES, World

DRAINING = "draining"
STOCK = 3000
"""Messages that are put into the backlog when it is to be drained, so that there is time for a
fault."""
ROUNDS = 5
"""How often, at most: a busy machine may look too late."""
GROWN = 150
"""Messages by which the backlog grows while it fills, at least."""


class Course:
    """The course of a run. `go` once."""

    def __init__(self, world: World, run: Run) -> None:
        self._world = world
        self._run = run
        self._paths = Entities(world, run.number)
        self._windows: list[Window] = []
        self._done: list[Cell] = []
        self._stock: list[SentMessage] = []

    def go(self) -> Result:
        began = time.monotonic()
        unsettled = self._world.unsettled
        self._prepare()
        self._before()
        outage = Outage(self._world, self._run.outage)
        with contextlib.closing(outage):
            self._fill(outage)
            self._fail_back(outage)
        self._drain()
        self._finish()
        assert tuple(self._done) == self._run.cells
        notes = together(one.notes() for one in self._world.lives)
        verdict = judge(
            notes,
            self._paths.copies(),
            stock=self._stock,
            exact=self._paths.without_duplicates,
            windows=self._windows,
            unsettled=self._world.unsettled - unsettled,
            in_backlog=self._paths.in_backlog(),
            dead_lettered=self._paths.dead_letters(),
        )
        return Result(
            run=self._run,
            cells=tuple(self._done),
            verdict=verdict,
            errors=notes.errors,
            seconds=time.monotonic() - began,
        )

    # Stages.

    def _prepare(self) -> None:
        world, paths = self._world, self._paths
        paths.create()
        world.warm_up()
        world.orders = Orders(
            primary=world.sender_primary.address(world.primary.connection_string),
            secondary=world.sender_secondary.address(world.secondary.connection_string),
            name=NAME,
            backlog_queues=QUEUES,
            notes="",
            prefix=self._prefix,
            seed="",
            failover_interval_s=self._run.failover_interval_s,
            failback=self._run.failback,
            queues=(paths.exact, paths.plain),
            with_sessions=(paths.sessions,),
            topics=(paths.topic,),
        )
        world.lives.clear()
        world.start_sender()
        self._wait_for_acknowledgements("the senders to be at work")

    def _before(self) -> None:
        for fault in self._run.at("before"):
            self._world.warm_up()
            self._wait_for_states(HEALTHY)
            with self._fault(fault):
                time.sleep(fault.seconds)
            self._wait_for_states(HEALTHY)
            self._wait_for_acknowledgements("the senders to go on after it")

    def _fill(self, outage: Outage) -> None:
        self._note_begin(outage)
        self._wait_for_states(FAILOVER)
        self._wait_until_grown()
        for fault in self._run.at("filling"):
            if fault.cell.component == "primary":
                with self._noted(fault, outage.interrupted(fault.cell.kind), whole=True):
                    time.sleep(fault.seconds)
            else:
                with self._fault(fault):
                    time.sleep(fault.seconds)
            self._wait_for_states(FAILOVER)
            self._wait_until_grown()

    def _fail_back(self, outage: Outage) -> None:
        outage.end()
        self._outage_over()
        for fault in self._run.at("failback"):
            time.sleep(fault.after_s)
            with self._fault(fault):
                time.sleep(fault.seconds)
        self._wait_for_states(HEALTHY, DRAINING)
        self._wait_for_acknowledgements("the senders to go on after failback")

    def _drain(self) -> None:
        for fault in self._run.at("draining"):
            self._wait_until_it_drains()
            with self._fault(fault):
                time.sleep(fault.seconds)
            self._wait_for_acknowledgements("the senders to go on while it drains")

    def _finish(self) -> None:
        """All is well again: the paths become healthy, the senders end, the backlog is emptied."""
        world = self._world
        self._wait_for_states(HEALTHY)
        self._wait_for_acknowledgements("the senders to go on to the end")
        assert world.sender is not None
        sender, world.sender = world.sender, None
        sender.stop()
        assert sender.notes().events["closed"] == 1
        assert not sender.notes().broken, sender.notes().broken
        world.wait(lambda: world.left() == 0, "the backlog to be empty")

    # What stages are made of.

    @contextlib.contextmanager
    def _fault(self, fault: Fault) -> Iterator[None]:
        with self._noted(fault, happening(self._world, fault.cell.component, fault.cell.kind)):
            yield

    @contextlib.contextmanager
    def _noted(
        self, fault: Fault, block: contextlib.AbstractContextManager[None], *, whole: bool = False
    ) -> Iterator[None]:
        """A fault that is written down when it has happened. A kill is over at once, unless what
        happens is more than that: `whole`."""
        began = time.time()
        with block:
            struck = time.time()
            yield
        over = struck if fault.cell.kind == "kill" and not whole else time.time()
        self._windows.append(Window(str(fault.cell), began, over))
        self._done.append(fault.cell)

    def _note_begin(self, outage: Outage) -> None:
        self._outage_began = time.time()
        outage.begin()
        self._outage_struck = time.time()

    def _outage_over(self) -> None:
        over = self._outage_struck if self._run.outage == "kill" else time.time()
        self._windows.append(Window(f"the outage ({self._run.outage})", self._outage_began, over))

    @property
    def _prefix(self) -> str:
        return f"run{self._run.number}"

    def _left(self) -> int:
        """How many messages the backlog holds; as long as its namespace is there."""
        return self._world.left() or 0

    def _wait_until_grown(self) -> None:
        before = self._left()
        self._world.wait(lambda: self._left() >= before + GROWN, "the backlog to grow")

    def _wait_until_it_drains(self) -> None:
        """The syphon has moved something, and there is more."""
        for _ in range(ROUNDS):
            before = self._world.moved
            self._put_stock()
            self._wait_until_moved_more_than(before)
            if self._left() > 0:
                return
        raise AssertionError("the backlog is empty as soon as the syphon moves something")

    def _wait_until_moved_more_than(self, before: int) -> None:
        self._world.wait(lambda: self._world.moved > before, "the syphon to move something")

    def _wait_for_states(self, *states: str) -> None:
        def all_are() -> bool:
            notes = self._sender_notes()
            return all(notes.state(path) in states for path in self._paths.all)

        self._world.wait(all_are, f"all paths to be {' or '.join(states)}")

    def _sender_notes(self) -> Notes:
        assert self._world.sender is not None
        return self._world.sender.notes()

    def _wait_for_acknowledgements(self, what: str) -> None:
        """Some, on every path."""
        before = self._acknowledged()

        def more() -> bool:
            now = self._acknowledged()
            return all(now[path] >= before[path] + 5 for path in self._paths.all)

        self._world.wait(more, what)

    def _acknowledged(self) -> Counter[str]:
        return Counter(key.path for key in self._sender_notes().acknowledged)

    def _put_stock(self) -> None:
        for path in (self._paths.exact, self._paths.plain):
            start = len(self._stock)
            ids = [f"{self._prefix}-stock-{start + n}" for n in range(STOCK // 2)]
            self._world.put(path, ids)
            self._stock += [sent(MessageKey(path, id), None) for id in ids]
