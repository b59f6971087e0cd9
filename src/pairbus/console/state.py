"""Everything that the console knows about a pairing, put together once a second."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.target import InspectionTarget
from pairbus.console.collector import Collector
from pairbus.console.history import History
from pairbus.console.inspection import NamespaceInspection
from pairbus.console.ledger_cost import LedgerTail, OutagePrice
from pairbus.console.outage import OutageClock
from pairbus.console.redrives import RedriveJobs
from pairbus.console.senders import SenderEvent, SenderRegistry
from pairbus.console.sentence import duration
from pairbus.console.snapshot import THROTTLED_S, Knowledge
from pairbus.console.storage import ConsoleDatabase
from pairbus.console.text import clean
from pairbus.console.throttling import IncreaseCounter
from pairbus.servicebus.addresses import format_address

MAX_OWN_EVENTS: Final = 100
SOURCE: Final = "console"
FRESH_S: Final = 5.0
"""The age up to which an inspection is not repeated when an outage begins or a drain ends."""


@dataclass(slots=True, kw_only=True)
class ConsoleState:
    """The parts of the console that hold its state. The event loop's thread uses it."""

    target: InspectionTarget
    collector: Collector
    senders: SenderRegistry
    redrives: RedriveJobs
    history: History
    database: ConsoleDatabase
    price: OutagePrice
    ledger: LedgerTail | None = None
    now: Callable[[], float] = time.time
    outage: OutageClock = field(default_factory=OutageClock)
    events: deque[SenderEvent] = field(default_factory=lambda: deque(maxlen=MAX_OWN_EVENTS))
    syphon_throttled: IncreaseCounter = field(default_factory=IncreaseCounter)
    watchers: int = 0
    """Open pages."""
    _requested_at: float = 0.0
    """The time of the last request for a count."""
    _problems: dict[str, str | None] = field(default_factory=dict)
    """The last known problem of each namespace."""

    def tick(self) -> Knowledge:
        """Update everything that depends on time, and return what is known."""
        now = self.now()
        self.senders.expire(now)
        knowledge = self.knowledge(now)
        was_active = self.outage.active
        began = self.outage.update(knowledge.is_active, knowledge.failing_since, now)
        if began:
            self.add_event("An outage began.")
        elif was_active and not self.outage.active:
            length_s = now - (self.outage.started_at or now)
            self.add_event(f"The outage ended after {duration(length_s)}.")
        if began or knowledge.is_count_outdated:
            self._request_count(knowledge.inspection, now)
        self._note_namespaces(knowledge)
        self.collector.set_pace(active=knowledge.is_active, watched=self.watchers > 0)
        summary = knowledge.syphon.summary
        self.syphon_throttled.update(None if summary is None else summary.throttled)
        if self.history.is_due(now):
            self.history.add(
                now,
                knowledge.backlog_messages,
                None if summary is None else summary.rate,
                self.senders.throttled + self.syphon_throttled.total,
            )
        return knowledge

    def knowledge(self, now: float) -> Knowledge:
        """Return what is known at a time."""
        collector, target = self.collector, self.target
        interval_s = collector.interval_s
        knowledge = Knowledge(
            now=now,
            primary=None if target.primary is None else _address(target.primary),
            secondary=_address(target.secondary),
            paths=tuple(self.senders.paths()),
            senders=tuple(self.senders.senders()),
            foreign_senders=tuple(self.senders.foreign()),
            inspection=collector.inspection,
            syphon=collector.syphon,
            inspections={
                "operations": collector.counter.operations,
                "per_hour": collector.counter.per_hour(interval_s),
                "interval_s": interval_s,
            },
            throttled=self.history.throttled_since(THROTTLED_S, now),
            redrives=tuple(self.redrives.to_json(now)),
            events=(*self.events, *self.senders.events),
            problems=() if self.database.problem is None else (self.database.problem,),
        )
        return replace(knowledge, cost=self._cost(knowledge))

    def add_event(self, text: str) -> None:
        """Add an event of the console itself."""
        self.events.append(SenderEvent(int(self.now() * 1000), SOURCE, text))

    def _request_count(self, inspection: NamespaceInspection | None, now: float) -> None:
        """Count the backlog as soon as possible, unless that was done or requested just now."""
        inspected_at = 0.0 if inspection is None else inspection.time_ms / 1000
        if now - max(inspected_at, self._requested_at) > FRESH_S:
            self._requested_at = now
            self.collector.request()

    def _cost(self, knowledge: Knowledge) -> dict[str, Any] | None:
        started_at = self.outage.started_at
        if self.ledger is None or started_at is None:
            return None
        units, size = self.ledger.usage_since(started_at)
        return self.price.to_json(units, size, knowledge.backlog_messages or 0)

    def _note_namespaces(self, knowledge: Knowledge) -> None:
        """Add an event when a namespace becomes unavailable or available."""
        probes = {} if knowledge.inspection is None else knowledge.inspection.probes
        for role, probe in probes.items():
            before, self._problems[role] = self._problems.get(role), probe.problem
            if probe.problem is not None and before is None:
                self.add_event(f"The {role} is not available: {clean(probe.problem)}.")
            elif probe.problem is None and before is not None:
                self.add_event(f"The {role} is available again.")


def _address(options: ClientOptions) -> str:
    return format_address(options.host, options.port)
