"""The host of the secondary, as all senders of a pairing see it. No I/O."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing.failures import is_connection_failure
from pairbus.pairing.rotation import HostTrial
from pairbus.pairing.secondary_health import HostProbe, SecondaryHealth
from pairbus.pairing.snapshots import SecondaryHostSnapshot

if TYPE_CHECKING:
    from pairbus.pairing.state import PairingState

TRIAL_TIMEOUT_S = 10.0
"""The longest time to wait for the answer to a trial."""


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
    def accepts_call(self) -> bool:
        """Return whether a call may use the host now. The lock of the pairing must be held."""
        return self._health.accepts_call

    @property
    def cause(self) -> BaseException | None:
        """The error because of which the host is down or on trial."""
        return self._health.cause or self._health.unanswered

    def unreachable(
        self, queue: str, error: BaseException, *, began: float, link_open: bool = False
    ) -> None:
        """Record that a connection failed before the link to a queue was open, or that sends to all
        queues failed (`link_open`). If the host has answered since the attempt `began`, the queue
        is at fault and is pulled."""
        pairing = self._pairing
        with pairing.lock:
            pairing.rotation.release(queue)
            was_down = self.is_down
            is_down = self._health.failed(
                queue,
                error,
                began=began,
                now=pairing.now(),
                unanswered=link_open and _is_unanswered(error),
            )
            if is_down and not was_down:
                self._report_down(error)
        if not is_down:
            pairing.backlog.pull(queue, error)
        self._keep_probing()

    def _report_down(self, error: BaseException) -> None:
        self._since = self._wall_clock()
        self._pairing.reporter.secondary_unavailable(error, self._since)

    def _keep_probing(self) -> None:
        """Start the probes if they are needed, and report what has changed."""
        pairing = self._pairing
        with pairing.lock:
            start = self.is_down and not self._probing and self._start_probes is not None
            self._probing = self._probing or start
        if start and self._start_probes is not None:
            self._start_probes()
        pairing.notify()
        pairing.reporter.deliver()

    def answered(self, queue: str) -> None:
        """Record that the host answered about a queue."""
        self._answered(queue, is_send=False)

    def send_answered(self, queue: str) -> None:
        """Record that the host answered a send to a queue, be it with an error."""
        self._answered(queue, is_send=True)

    def _answered(self, queue: str, *, is_send: bool) -> None:
        pairing = self._pairing
        with pairing.lock:
            if is_send:
                self._health.send_answered()
            if not self._health.succeeded(queue, pairing.now()):
                return
            self._since = None
            pairing.reporter.secondary_restored(self._wall_clock())
            pairing.backlog.restore_unreachable()
        pairing.notify()
        pairing.reporter.deliver()

    # Trials.

    def begin_trial(self) -> HostTrial | None:
        """Return a trial if the call that claims a queue is one. The lock of the pairing must be
        held."""
        if not self._health.begin_trial():
            return None
        deadline = self._pairing.now() + TRIAL_TIMEOUT_S
        return HostTrial(deadline, end=self._trial_ended, release=self._release_trial)

    def _release_trial(self) -> None:
        with self._pairing.lock:
            self._health.release_trial()

    def _trial_ended(self, queue: str, error: BaseException) -> None:
        """Record the error of a trial."""
        pairing = self._pairing
        if not _is_unanswered(error) and not is_connection_failure(error, pairing.classify(error)):
            self.send_answered(queue)
            return
        with pairing.lock:
            was_down = self.is_down
            self._health.trial_failed(queue, error, pairing.now())
            if not was_down:
                self._report_down(error)
        self._keep_probing()

    # Probes.

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
            reachable=not self.is_down, cause=self._health.cause, since=self._since
        )


def _is_unanswered(error: BaseException) -> bool:
    """Return whether an error means that no answer came in time."""
    return isinstance(error, OperationTimeoutError)
