"""Operators: processes that redrive the dead letters of the backlog until none is left."""

import threading

from pairbus.amqp.client import ClientOptions
from pairbus.backlog import DeadLetterSource, RedrivePlan, plan_redrive, redrive
from pairbus.errors import AmqpError
from pairbus.spark.usage import UsageRecorder
from tests.simulation import spark_globals
from tests.simulation.checks import contents
from tests.simulation.journal import Journal
from tests.simulation.namespace import SimulatedNamespace
from tests.simulation.plan import Plan
from tests.simulation.scheduler import Process
from tests.simulation.world import World

PAUSE_S = 1.0
"""The pause before each redrive."""


class Operator:
    """Redrives all dead letters that are there, again and again, until none is left. A redrive that
    was killed or cancelled is started again."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        number: int,
        journal: Journal,
        primary: ClientOptions,
        secondary: SimulatedNamespace,
        options: ClientOptions,
        queues: tuple[str, ...],
        *,
        ledger: str | None = None,
    ) -> None:
        """`options` are those of clients of the secondary, which has the `queues`."""
        self.name = f"operator{number}"
        self.world = world
        self.done = False
        self.process: Process
        self._journal = journal
        self._secondary = secondary
        self._source = DeadLetterSource(
            namespace=options, entities=queues, in_backlog=True, target=primary
        )
        self._max_rate = plan.redrive_rate
        self._usage = UsageRecorder.create(ledger, primary, options)
        self._cancel = threading.Event()

    def start(self) -> None:
        self.process = self.world.process(self.name)
        if not self.done:
            self.process.spawn(self._main, "redrive")

    def cancel(self) -> None:
        """End the redrive after the messages that are being sent."""
        self._cancel.set()

    def _main(self) -> None:
        task = self.world.scheduler.current_task()
        task.context = spark_globals.Attempt(0, frozenset(), ())
        while not self.done:
            task.wait(PAUSE_S)
            try:
                self._redrive()
            except AmqpError as exc:
                self.world.trace(self.name, f"redrive failed: {str(exc)[:200]}")

    def _redrive(self) -> None:
        self._cancel = threading.Event()
        plan = plan_redrive(self._source, usage=self._usage)
        if not plan:
            self.done = True
            self.world.trace(self.name, "found no dead letters")
            return
        self.world.trace(self.name, f"redrives {len(plan)} dead letters")
        outcome = redrive(
            self._source,
            plan,
            usage=self._usage,
            max_rate=self._max_rate,
            cancel=self._cancel,
        )
        self.world.trace(self.name, f"redrive ended: {outcome.to_json()}")
        handled = outcome.handled + outcome.left.total()
        if handled != len(plan):
            self._journal.violate("R2", f"{handled} messages of {len(plan)} were accounted for")
        if outcome.refused:
            self._journal.refused_dead_letters = True
        elif outcome.finished and not outcome.unsettled:
            self._check_moved(plan)

    def _check_moved(self, plan: RedrivePlan) -> None:
        """Check that the messages of a plan are not dead letters any more."""
        if not self._secondary.process.alive:
            return
        for path, numbers in plan.queues.items():
            for copy in contents(self._secondary, path, dead_letters=True):
                if copy.sequence in numbers:
                    self._journal.violate("R2", f"{copy.id} was redriven, and is a dead letter")
