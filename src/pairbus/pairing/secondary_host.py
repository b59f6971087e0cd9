"""The host of the secondary, as all senders of a pairing see it. No I/O."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from pairbus.pairing.failures import is_connection_failure
from pairbus.pairing.secondary_health import HostProbe, SecondaryHealth
from pairbus.pairing.snapshots import SecondaryHostSnapshot

if TYPE_CHECKING:
    from pairbus.pairing.state import PairingState


class SecondaryHost:
    """Combines the health of the host with the other state of its pairing. `start_probes` is called
    when the host begins to need probes. The methods can be called from any thread."""

    def __init__(
        self,
        pairing: "PairingState",
        start_probes: Callable[[], None] | None,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._pairing = pairing
        self._start_probes = start_probes
        self._wall_clock = wall_clock
        self._health = SecondaryHealth(pairing.rotation.queues)
        self._probing = False
        """An operation carries out the probes."""
        self._since: datetime | None = None

    @property
    def is_down(self) -> bool:
        """Return whether the host cannot be reached."""
        return self._health.is_down

    @property
    def cause(self) -> BaseException | None:
        """The error because of which the host is down."""
        return self._health.cause

    def unreachable(self, queue: str, error: BaseException, *, began: float) -> None:
        """Record that a connection failed before the link to a queue was open. If the host has
        answered since the attempt `began`, the queue is at fault and is pulled."""
        pairing = self._pairing
        with pairing.lock:
            pairing.rotation.release(queue)
            was_down = self.is_down
            is_down = self._health.failed(queue, error, began=began, now=pairing.now())
            start = is_down and not self._probing and self._start_probes is not None
            self._probing = self._probing or start
            if is_down and not was_down:
                self._since = self._wall_clock()
                pairing.reporter.secondary_unavailable(error, self._since)
        if not is_down:
            pairing.backlog.pull(queue, error)
        if start and self._start_probes is not None:
            self._start_probes()
        pairing.notify()
        pairing.reporter.deliver()

    def answered(self, queue: str) -> None:
        """Record that the host answered about a queue."""
        pairing = self._pairing
        with pairing.lock:
            if not self._health.succeeded(queue, pairing.now()):
                return
            self._since = None
            pairing.reporter.secondary_restored(self._wall_clock())
            pairing.backlog.restore_unreachable()
        pairing.notify()
        pairing.reporter.deliver()

    def next_probe(self) -> HostProbe | None:
        """Return the next probe for the operation that probes. None ends the operation;
        `start_probes` is called when another one is needed."""
        pairing = self._pairing
        with pairing.lock:
            closed = pairing.primary.down or pairing.secondary.down
            probe = None if closed else self._health.next_probe
            self._probing = probe is not None
            return probe

    def probed(self, queue: str, error: BaseException | None, *, began: float) -> None:
        """Record the result of a probe."""
        pairing = self._pairing
        if error is None or not is_connection_failure(error, pairing.classify(error)):
            self.answered(queue)
            return
        with pairing.lock:
            at_fault = self._health.probe_failed(queue, error, began=began, now=pairing.now())
        if at_fault:
            pairing.backlog.pull(queue, error)

    def snapshot(self) -> SecondaryHostSnapshot:
        """Return the state of the host. The lock of the pairing must be held."""
        return SecondaryHostSnapshot(
            reachable=not self.is_down, cause=self.cause, since=self._since
        )
