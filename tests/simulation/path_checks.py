"""Checks of what a pairing decides about its paths and backlog queues, while it runs."""

from collections.abc import Callable
from dataclasses import dataclass

from pairbus.events import PathStatus
from pairbus.pairing.client import PairedClient
from tests.simulation.journal import Journal
from tests.simulation.plan import Plan

TOLERANCE_S = 1.0
SHORT_S = 0.01
PING_JITTER = 0.1
"""The default of the option."""


@dataclass(slots=True)
class _Suspicion:
    """A path that is suspect."""

    since: float
    frozen_s: float
    """The time for which the process had been frozen before."""
    is_refuted: bool = False
    """The primary has accepted a message since."""


class PathChecks:
    """Watches the paths of one process."""

    def __init__(
        self, plan: Plan, journal: Journal, now: Callable[[], float], frozen_s: Callable[[], float]
    ) -> None:
        """`now` is the clock of the process, `frozen_s` the time for which it was frozen."""
        self._plan = plan
        self._journal = journal
        self._now = now
        self._frozen_s = frozen_s
        self._suspicions: dict[str, _Suspicion] = {}
        self._accepted_at: dict[str, float] = {}
        self._pinged: dict[str, tuple[float, float]] = {}
        """The time of the last ping of each path in failover, or of its failover, and the time for
        which the process had been frozen before."""
        self._failed_over_at: dict[str, float] = {}
        self._ping_sent_at: dict[str, float] = {}

    def status_changed(
        self, path: str, before: PathStatus, after: PathStatus, *, by_hand: bool
    ) -> None:
        suspicion = self._suspicions.pop(path, None)
        self._pinged.pop(path, None)
        if after is PathStatus.FAILOVER:
            self._pinged[path] = self._now(), self._frozen_s()
            self._failed_over_at[path] = self._now()
        elif before is PathStatus.FAILOVER and not by_hand:
            sent_at = self._ping_sent_at.get(path)
            if sent_at is None or sent_at < self._failed_over_at[path]:
                self._journal.violate("G2", f"{path} fails back without a ping since its failover")
        if after is PathStatus.SUSPECT:
            self._suspicions[path] = _Suspicion(self._now(), self._frozen_s())
        elif after is PathStatus.FAILOVER and suspicion is not None and suspicion.is_refuted:
            self._journal.violate(
                "S3", f"{path} failed over although the primary accepted a message after the error"
            )

    def ping_sent(self, path: str) -> None:
        self._ping_sent_at[path] = self._now()

    def pinged(self, path: str) -> None:
        """Check that a path in failover is pinged at its interval."""
        before, frozen_s = self._pinged.get(path, (None, 0.0))
        now, interval_s = self._now(), self._plan.ping_interval_s
        self._pinged[path] = now, self._frozen_s()
        if before is None:
            return
        is_late = path in self._journal.marked_paths  # an earlier failover may have begun it
        if now - before < interval_s * (1 - PING_JITTER) - SHORT_S and not is_late:
            self._journal.violate("G2", f"{path} was pinged after {now - before:.3f} s again")
        longest_s = interval_s * (1 + PING_JITTER) + self._plan.operation_timeout_s + TOLERANCE_S
        if now - before - (self._frozen_s() - frozen_s) > longest_s:
            self._journal.violate("G2", f"{path} was pinged after {now - before:.3f} s only")

    def primary_accepted(self, path: str) -> None:
        if path in self._suspicions:
            self._suspicions[path].is_refuted = True

    def check_timers(self) -> None:
        """Check that no path is suspect for longer than the failover interval and a probe."""
        for path, suspicion in self._suspicions.items():
            suspect_s = self._now() - suspicion.since - (self._frozen_s() - suspicion.frozen_s)
            limit_s = self._plan.failover_interval_s + self._plan.operation_timeout_s + TOLERANCE_S
            if suspect_s > limit_s:
                self._journal.violate("S3", f"{path} is suspect for {suspect_s:.1f} s")

    # Backlog queues.

    def queue_accepted(self, queue: str) -> None:
        self._accepted_at[queue] = self._now()

    def check_rotation(self, paired: PairedClient) -> None:
        """Check that queues which have accepted a message are in use again."""
        accepted_at, self._accepted_at = self._accepted_at, {}
        pulled = paired._pairing.rotation.pulled()
        for queue, when in accepted_at.items():
            if queue in pulled and pulled[queue].since < when:
                self._journal.violate("S4", f"{queue} accepted a message and stays pulled")
