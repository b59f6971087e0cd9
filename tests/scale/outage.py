"""One outage of the primary with many sender processes, and what it cost."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from pairbus.events import PathStatus
from pairbus.pairing.ping import make_ping
from tests.scale.namespace import CreditedNamespace, StoredQueue
from tests.scale.processes import SenderProcess, World
from tests.scale.syphon import ModelSyphon
from tests.scale.timeline import Timeline

BEFORE_S = 30.0
"""Time before the outage."""
RECEIVE_S = 0.05
"""Time between two receives of the consumers."""


@dataclass(frozen=True, kw_only=True)
class OutagePlan:
    """The size of a run. Everything else is the pairing's default or one of its options."""

    processes: int
    rate: float = 200.0
    """Messages a second of all processes together."""
    outage_s: float = 300.0
    limit_s: float = 1800.0
    """The longest time after the outage."""
    has_syphon: bool = True
    paths: int = 1
    queues: int = 10
    seed: int = 1
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OutageResult:
    """What happened, in seconds since the start and credits by second."""

    plan: OutagePlan
    down_at: float
    up_at: float
    failed_back_at: tuple[float, ...]
    """For each path of each process that failed over and back, in order."""
    in_failover: int
    """Paths that failed over."""
    drained_at: float | None
    ended_at: float
    failed_calls: dict[str, int]
    primary: dict[str, dict[int, int]]
    secondary: dict[str, dict[int, int]]
    throttled_primary: dict[str, dict[int, int]]
    throttled_secondary: dict[str, dict[int, int]]
    longest_hold_s: float

    @property
    def last_failback_s(self) -> float | None:
        """The time from the end of the outage until all paths had failed back. None: not all."""
        if len(self.failed_back_at) < self.in_failover:
            return None
        return max(self.failed_back_at, default=self.up_at) - self.up_at


def highest_rate(counts: dict[int, int], seconds: int = 10) -> float:
    """Return the highest mean rate of so many seconds in a row."""
    sums = (sum(counts.get(start + n, 0) for n in range(seconds)) for start in counts)
    return max(sums, default=0) / seconds


def simulate(plan: OutagePlan) -> OutageResult:
    """Simulate an outage until every path is healthy and the backlog is empty."""
    return _Outage(plan).run()


class _Outage:
    def __init__(self, plan: OutagePlan) -> None:
        self._plan = plan
        self._timeline = Timeline()
        self._primary = CreditedNamespace("primary", lambda: self._timeline.now)
        self._secondary = CreditedNamespace("secondary", lambda: self._timeline.now)
        self._waiting = 0
        """Messages at the primary that consumers have not received."""
        self._drained_at: float | None = None
        world = World(
            self._timeline,
            self._primary,
            self._secondary,
            {f"q{number}": StoredQueue() for number in range(plan.queues)},
            self._add_delivered,
        )
        self._world = world
        random = Random(plan.seed)
        rate = plan.rate / plan.processes / plan.paths
        self._processes = [
            SenderProcess(
                world,
                {"backlog_queue_count": plan.queues, **plan.options},
                rate,
                Random(random.getrandbits(64)),
            )
            for _ in range(plan.processes)
        ]
        self._down_at, self._up_at = BEFORE_S, BEFORE_S + plan.outage_s

    def _add_delivered(self, messages: int) -> None:
        self._waiting += messages

    def run(self) -> OutageResult:
        make_ping()  # imports what it needs
        for process in self._processes:
            for number in range(self._plan.paths):
                process.add_path(f"path-{number}")
        self._timeline.call_at(self._down_at, lambda: self._set_down(True))
        self._timeline.call_at(self._up_at, lambda: self._set_down(False))
        self._timeline.call_at(0, self._receive)
        if self._plan.has_syphon:
            self._timeline.call_at(0, ModelSyphon(self._world).move_slice)
        self._timeline.call_at(self._up_at + 1, self._watch)
        self._over = False
        self._timeline.run(self._up_at + self._plan.limit_s, lambda: self._over)
        for process in self._processes:
            process.close()
        return self._result()

    def _set_down(self, down: bool) -> None:
        self._primary.is_down = down

    def _receive(self) -> None:
        """Receive what is at the primary, as consumers do."""
        self._timeline.call_after(RECEIVE_S, self._receive)
        count = self._primary.max_messages("receive", self._waiting)
        if count > 0:
            self._primary.count("consumers", "receive", count)
            self._waiting -= count

    def _watch(self) -> None:
        self._timeline.call_after(1, self._watch)
        if not any(queue.messages for queue in self._world.backlog.values()):
            if self._drained_at is None:
                self._drained_at = self._timeline.now
            paths = (path for process in self._processes for path in process.statuses())
            self._over = all(status is PathStatus.HEALTHY for status in paths)
        else:
            self._drained_at = None

    def _result(self) -> OutageResult:
        changes = [change for process in self._processes for change in process.changes]
        failed_over = [at for at, status in changes if status is PathStatus.FAILOVER]
        healthy = [at for at, status in changes if status is PathStatus.HEALTHY]
        failed: dict[str, int] = {}
        for process in self._processes:
            for reason, count in process.failed_calls.items():
                failed[reason] = failed.get(reason, 0) + count
        return OutageResult(
            plan=self._plan,
            down_at=self._down_at,
            up_at=self._up_at,
            failed_back_at=tuple(sorted(at for at in healthy if at >= self._up_at)),
            in_failover=len(failed_over),
            drained_at=self._drained_at,
            ended_at=self._timeline.now,
            failed_calls=failed,
            primary={name: dict(counts) for name, counts in self._primary.credits.items()},
            secondary={name: dict(counts) for name, counts in self._secondary.credits.items()},
            throttled_primary={k: dict(v) for k, v in self._primary.throttled.items()},
            throttled_secondary={k: dict(v) for k, v in self._secondary.throttled.items()},
            longest_hold_s=max(process.longest_hold_s for process in self._processes),
        )
