"""Checks that the events of a pairing follow each other: each change begins where one ended."""

from datetime import datetime

from pairbus.events import (
    BacklogQueuePulled,
    BacklogQueueRestored,
    Event,
    PathStatus,
    SecondaryRestored,
    SecondaryUnavailable,
    StateChanged,
)
from tests.simulation.journal import Journal

SECONDARY = "the secondary"


class EventChecks:
    """Watches the events of one process."""

    def __init__(self, journal: Journal, process: str) -> None:
        self._journal = journal
        self._process = process
        self._statuses: dict[str, PathStatus] = {}
        self._out: set[str] = set()
        """Backlog queues that are pulled, and the secondary if it is unreachable."""
        self._last: datetime | None = None

    def add(self, event: Event) -> None:
        """Check an event after those before it."""
        if self._last is not None and event.when < self._last:
            self._violate(f"{event!r} is older than the event before it")
        self._last = event.when
        match event:
            case StateChanged():
                before = self._statuses.get(event.path, PathStatus.HEALTHY)
                if event.from_state is not before or event.to_state is before:
                    self._violate(f"{event.path} was {before.value}: {event!r}")
                self._statuses[event.path] = event.to_state
            case BacklogQueuePulled():
                self._leave(event.queue)
            case BacklogQueueRestored():
                self._return(event.queue)
            case SecondaryUnavailable():
                self._leave(SECONDARY)
            case SecondaryRestored():
                self._return(SECONDARY)

    def compare(self, statuses: dict[str, PathStatus], pulled: set[str], *, is_down: bool) -> None:
        """Compare the state of the pairing with what its events said, when nothing happens."""
        told = {path: self._statuses.get(path, PathStatus.HEALTHY) for path in statuses}
        if told != statuses:
            self._violate(f"the paths are {statuses}, and events said {told}")
        out = pulled | ({SECONDARY} if is_down else set())
        if out != self._out:
            self._violate(f"{sorted(out)} are out of use, and events said {sorted(self._out)}")

    def _leave(self, name: str) -> None:
        if name in self._out:
            self._violate(f"{name} was reported as out of use twice")
        self._out.add(name)

    def _return(self, name: str) -> None:
        if name not in self._out:
            self._violate(f"{name} was reported as in use again, and was in use")
        self._out.discard(name)

    def _violate(self, text: str) -> None:
        self._journal.violate("S13", f"{self._process}: {text}")
