"""One simulation: the world of a plan, its faults, and the checks of what was promised."""

import shutil
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace

from pairbus.emulator.tiers import NamespaceTier, tier_of
from pairbus.events import PathStatus
from pairbus.pairing.sdk import encode
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.spark import destination_sender
from pairbus.transfer import to_backlog
from tests.simulation import spark, spark_globals
from tests.simulation.applications import Application, message_of
from tests.simulation.checks import StoredCopy, check_messages, contents
from tests.simulation.consumers import Consumer
from tests.simulation.fault_kinds import is_outage
from tests.simulation.faults import FaultInjector
from tests.simulation.journal import Journal, MessageRecord, Violation
from tests.simulation.ledger_check import check_ledger, is_comparable
from tests.simulation.memory_checks import MemoryChecks
from tests.simulation.namespace import SimulatedNamespace, queue
from tests.simulation.observers import (
    observe_arrivals,
    observe_controls,
    observe_forwards,
    observe_locks,
)
from tests.simulation.plan import Plan
from tests.simulation.rate_checks import observe_rates
from tests.simulation.redrives import Operator
from tests.simulation.scheduler import Machine, SimulationError
from tests.simulation.spark import SimulatedSyphon
from tests.simulation.world import World, open_world

LEAK_CHECK_EVERY = 3
"""Every third seed checks for connections that were not closed."""
CLOSE_S = 15.0
"""The time in which a link that is not needed any more is closed."""
ANSWERS_S = 15.0
"""The longest time in which the last task gets its answers."""
GIVE_UP_S = 600.0
"""The longest time after which a namespace gives up a connection whose client is gone."""
SCARCE_CREDITS = 40
"""The credits of a second, of which live calls use a tenth."""
DEAD_LETTER_SESSIONS = (None, "dead0", "dead1")
HEALED_S = 600.0
"""The longest time after the end of all faults until nothing is left to do."""


@dataclass(slots=True)
class Result:
    """The result of one simulation."""

    seed: int
    violations: list[Violation] = field(default_factory=list)
    digest: str = ""
    steps: int = 0
    virtual_s: float = 0.0
    messages: int = 0
    acknowledged: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    coverage: Counter[tuple[str, str]] = field(default_factory=Counter)
    outages: int = 0
    """Outages of the primary and of the secondary."""
    failovers: int = 0
    """Processes with a path that failed over."""
    trace: list[str] = field(default_factory=list)


def tier_for(plan: Plan) -> NamespaceTier:
    """Return the tier of both namespaces. `throttled` is standard, with so few credits that these
    are scarce. While they drain, paths peek at up to 11 messages of each queue in a second; a
    namespace has credits for that. `scarce` is for plans without failover."""
    if plan.tier == "scarce":
        return replace(tier_of("standard"), credits_per_second=SCARCE_CREDITS)
    if plan.tier != "throttled":
        return tier_of(plan.tier)
    peeks = 11 * plan.processes * plan.paths * plan.backlog_queues
    return replace(tier_of("standard"), credits_per_second=30 + 2 * peeks)


class Simulation:
    """The parts of one simulated world."""

    def __init__(self, world: World, plan: Plan, folder: str | None) -> None:
        self.world = world
        self.plan = plan
        self._folder = folder
        world.network.max_delay_s = plan.delay_s
        world.network.slow_share = plan.slow_share
        self.journal = Journal()
        self.memory = MemoryChecks(self.journal, world)
        self.queues = tuple(backlog_paths("primary", plan.backlog_queues))
        tier = tier_for(plan)
        self.primary = SimulatedNamespace(world.scheduler, world.network, "primary", tier=tier)
        self.secondary = SimulatedNamespace(
            world.scheduler,
            world.network,
            "secondary",
            tier=tier,
            machine=Machine("secondary.simulation", rate=2.0 - plan.clock_rate),
        )
        self.primary.with_tokens = self.secondary.with_tokens = plan.with_tokens
        ledger = folder if plan.with_ledger else None
        self.applications = [
            Application(
                world,
                plan,
                number,
                self.journal,
                self.primary.options(connect_timeout_s=1_000_000.0),
                self.secondary.options(connect_timeout_s=1_000_000.0),
                self.queues,
                ledger=ledger,
                backlog=self.backlog,
            )
            for number in range(plan.processes)
        ]
        syphon_options = {"operation_timeout_s": 10.0, "connect_timeout_s": 5.0}
        self.syphons = [
            SimulatedSyphon(
                world,
                plan,
                number,
                self.journal,
                self.primary.options(**syphon_options),
                self.secondary.options(**syphon_options),
                ledger=ledger,
                left_since=self.left_since,
                settled_messages=self.settled_messages,
            )
            for number in range(plan.syphons)
        ]
        self.consumer = Consumer(
            world,
            self.journal,
            self.primary.options(operation_timeout_s=60.0),
            plan.paths,
            is_live=plan.preloaded > 0,
        )
        self.operators = [
            Operator(
                world,
                plan,
                number,
                self.journal,
                self.primary.options(**syphon_options),
                self.secondary,
                self.secondary.options(**syphon_options),
                self.queues,
                ledger=ledger,
            )
            for number in range(plan.operators if plan.dead_letters else 0)
        ]
        self.injector = FaultInjector(
            world, self.primary, self.secondary, self.applications, self.syphons, self.operators
        )

    def run(self) -> None:
        """Run the plan until nothing is left to do, and check the promises."""
        plan, world = self.plan, self.world
        self.primary.start()
        self.secondary.start()
        for number in range(plan.paths):
            self.primary.create_queue(
                queue(
                    f"queue{number}",
                    requires_duplicate_detection=plan.duplicate_detection,
                )
            )
        for path in self.queues:
            self.secondary.create_queue(
                queue(path, lock_s=plan.lock_s, max_delivery_count=2_147_483_647)
            )
        self._preload()
        for application in self.applications:
            application.start()
        for operator in self.operators:
            operator.start()
        for syphon in self.syphons:
            syphon.start()
        if plan.with_consumer:
            self.consumer.start()
        self.injector.schedule(plan.faults)
        world.run_for(plan.fault_phase_s)
        self.injector.heal()
        self.injector.supervise()
        limit_s = world.scheduler.now + HEALED_S
        is_quiet = world.run(self._is_quiet, limit_s=limit_s)
        for task, error in world.scheduler.failures:
            text = "".join(traceback.format_exception(error))
            self.journal.violate("crash", f"{task.process.name} {task.name}: {text}")
        if not is_quiet:
            self._explain_unrest()
        else:
            self._check_claims()
            self._check_memory()
        if is_quiet and plan.seed % LEAK_CHECK_EVERY == 0:
            world.run_for(CLOSE_S)
            self._check_connections()
            for application in self.applications:
                application.check_events()
            self._check_host()
        if is_quiet and self._folder is not None and is_comparable(plan):
            for syphon in self.syphons:
                syphon.stopping = True
            world.run_for(CLOSE_S)
            # A task may wait for the answer of a silent connection before it records anything. A
            # namespace counts the receives of such a connection when it gives it up.
            world.run(self._have_ended, limit_s=world.scheduler.now + GIVE_UP_S)
            if not any(syphon.left_polls for syphon in self.syphons):
                check_ledger(self.journal, self._folder, self.primary, self.secondary)
        if not (self.primary.process.alive and self.secondary.process.alive):
            return  # the process of a namespace failed, which is a violation already
        check_messages(
            plan,
            self.journal,
            self.primary,
            self.secondary,
            self.queues,
            self.consumer.delivered,
        )

    def _preload(self) -> None:
        """Store messages and dead letters in the backlog that an earlier process has sent."""
        payloads: dict[str, list[bytes]] = {path: [] for path in self.queues}
        for number in range(self.plan.preloaded):
            path = self.queues[number % len(self.queues)]
            payloads[path].append(self._sent_earlier(f"p{number}", "queue0", None))
        for path, messages in payloads.items():
            self.secondary.store(path, messages)
        dead_letters: dict[str, list[bytes]] = {path: [] for path in self.queues}
        for number in range(self.plan.dead_letters):
            session = DEAD_LETTER_SESSIONS[number % len(DEAD_LETTER_SESSIONS)]
            if self.plan.operators > 1:  # their redrives may pass each other
                session = None
            # Messages of a session have one queue and one destination.
            key = number if session is None else DEAD_LETTER_SESSIONS.index(session)
            path, target = self.queues[key % len(self.queues)], f"queue{key % self.plan.paths}"
            dead_letters[path].append(self._sent_earlier(f"d{number}", target, session))
        for path, messages in dead_letters.items():
            self.secondary.store(path, messages, dead_letters=True)

    def _sent_earlier(self, id: str, path: str, session: str | None) -> bytes:
        """Record a message of an earlier process, and return it as it is in the backlog."""
        record = MessageRecord(id, path, session, "earlier", transfers=1, accepted=1)
        record.acknowledged = record.begun = self.journal.next_event()
        self.journal.messages[id] = record
        self.journal.stored.add(id)
        return to_backlog(encode(message_of(id, session)), path)

    def _have_ended(self) -> bool:
        """Return whether all syphons have ended, and no connection is open in a namespace whose
        client has closed it."""
        return all(syphon.has_ended for syphon in self.syphons) and not any(
            connection.server.open and not connection.client.open
            for connection in self.world.network.connections
        )

    def _check_connections(self) -> None:
        """Check that senders have closed the connections that they do not need: each has one to the
        primary, and those to the backlog that calls have opened."""
        for application in self.applications:
            limits = {
                "primary": self.plan.callers * self.plan.paths,
                "secondary": application.backlog_links,
            }
            counts = Counter(
                connection.server.process.name
                for connection in self.world.network.connections
                if connection.client.open and connection.client.process is application.process
            )
            for name, limit in limits.items():
                if counts[name] > limit:
                    self.journal.violate(
                        "S14",
                        f"{application.process.name} has {counts[name]} connections to the {name}, "
                        f"not {limit}",
                    )

    def _check_claims(self) -> None:
        """Check that no backlog queue stays claimed when no call is in progress: none would use it
        again."""
        for application in self.applications:
            paired = application.paired
            pulled = {} if paired is None else paired._pairing.rotation.pulled()
            for path, state in pulled.items():
                if state.probing:
                    self.journal.violate("S4", f"{path} stays claimed")

    def _check_memory(self) -> None:
        """Check that no part keeps what it does not need any more. The last task may still wait for
        the answers to its settlements."""
        self.world.run(self.memory.keeps_none, limit_s=self.world.scheduler.now + ANSWERS_S)
        self.memory.check_clients()
        self.memory.check_locks(self.secondary, self.queues)
        for application in self.applications:
            self.memory.check_threads(application.process, self.plan)

    def _check_host(self) -> None:
        """Check that senders know that the secondary is reachable again."""
        for application in self.applications:
            paired = application.paired
            if paired is not None and paired._pairing.secondary_host.is_down:
                self.journal.violate(
                    "S5", f"{application.process.name} takes the secondary for unreachable"
                )

    def _is_quiet(self) -> bool:
        scheduler = self.world.scheduler
        if scheduler.failures:
            return True
        if scheduler.steps % 64:
            return False
        if not all(application.done for application in self.applications):
            return False
        if not all(operator.done for operator in self.operators):
            return False
        for application in self.applications:
            if any(status is not PathStatus.HEALTHY for status in application.statuses().values()):
                return False
        if any(syphon.stopping for syphon in self.syphons):
            return False
        if not (self.primary.process.alive and self.secondary.process.alive):
            return False
        return not any(self.secondary.holds_messages(path) for path in self.queues)

    def backlog(self) -> list[StoredCopy]:
        """Return the messages in the backlog queues, without dead letters; none while the secondary
        is down."""
        if not self.secondary.process.alive:
            return []
        return [copy for path in self.queues for copy in contents(self.secondary, path)]

    def left_since(self, when: float) -> str | None:
        """Return a message that was in the backlog before a time and still is."""
        for copy in self.backlog():
            if self.secondary.machine.virtual(copy.enqueued_ms / 1000) < when - 0.002:
                return copy.id
        return None

    def settled_messages(self) -> frozenset[str]:
        """Return the messages that were stored in the backlog and are not there any more."""
        if not self.secondary.process.alive:
            return frozenset()
        left = {copy.id for copy in self.backlog()}
        return frozenset(
            id
            for id in self.journal.stored - left
            if not self.journal.messages[id].unanswered  # another copy may arrive
        )

    def _explain_unrest(self) -> None:
        waiting = [a.process.name for a in self.applications if not a.done]
        for operator in self.operators:
            if not operator.done:
                self.journal.violate("R2", f"{operator.name} does not end")
        if waiting:
            self.journal.violate("liveness", f"{', '.join(waiting)} did not send all messages")
        for application in self.applications:
            for path, status in application.statuses().items():
                if status is not PathStatus.HEALTHY:
                    self.journal.violate(
                        "G2", f"{path} in {application.process.name} stays {status.value}"
                    )
        left = self.backlog()
        if left:
            self.journal.violate(
                "Y4", f"{len(left)} messages stay in the backlog: {left[0].id} and others"
            )


def run_plan(plan: Plan, *, keep_trace: bool = False) -> Result:
    """Run a plan in a new world."""
    result = Result(plan.seed)
    folder = (
        tempfile.mkdtemp(prefix="pairbus-simulation-", dir=spark.scratch_folder())
        if plan.with_ledger
        else None
    )
    with open_world(plan.seed, keep_trace=keep_trace) as world:
        spark_globals.credits_apply = plan.tier in ("standard", "throttled", "scarce")
        destination_sender.MAX_BATCH_MESSAGES = plan.syphon_batch
        simulation = Simulation(world, plan, folder)
        restores = [
            observe_forwards(simulation.journal, world),
            observe_locks(simulation.journal, world),
            observe_arrivals(simulation.journal),
            observe_controls(world),
            observe_rates(simulation.journal, world),
            simulation.memory.observe(),
        ]
        try:
            simulation.run()
        except SimulationError as exc:
            simulation.journal.violate("simulation", str(exc))
        finally:
            for restore in reversed(restores):
                restore()
            for syphon in simulation.syphons:
                syphon.close()
        result.violations = simulation.journal.violations
        result.digest = world.scheduler.digest()
        result.steps = world.scheduler.steps
        result.virtual_s = world.scheduler.now
        result.messages = len(simulation.journal.messages)
        result.acknowledged = sum(
            record.acknowledged is not None for record in simulation.journal.messages.values()
        )
        result.faults = simulation.injector.counts
        result.coverage = simulation.injector.coverage
        result.outages = sum(count for kind, count in result.faults.items() if is_outage(kind))
        result.failovers = sum(
            "failover" in application.states_seen for application in simulation.applications
        )
        result.trace = world.scheduler.lines or []
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    return result
