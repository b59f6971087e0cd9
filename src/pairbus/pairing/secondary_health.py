"""The health of the secondary's host. Shared by all senders of a pairing; no I/O, no clock.

The rotation knows which backlog queues fail. But all of them are on one host: while it cannot be
reached, trying one queue after the other only takes time.
"""

from math import inf
from typing import NamedTuple

FIRST_PROBE_S = 1.0
"""The time between a failure and the first probe. It doubles with each failed probe or trial."""
MAX_PROBE_INTERVAL_S = 5.0


class HostProbe(NamedTuple):
    """A probe of the host: open a link to a backlog queue, and send nothing."""

    queue: str
    at: float


class SecondaryHealth:
    """Tells whether the host of the secondary is up, and when to probe it.

    The host is down after a connection to it failed before the link to a queue was open. It is up
    again after any success. The first probe goes to the queue that failed, further ones to the
    others in turn: if another queue answers, the fault may be with the queue and not with the host.
    Then the queue that failed is probed once more.

    A host may open links and answer no send. After such an outage a probe shows too little, so the
    host is on trial: one call at a time may use it, until a send is answered.
    """

    def __init__(self, queues: tuple[str, ...]) -> None:
        self._queues = queues
        self.cause: BaseException | None = None
        """The last error; None while the host is up."""
        self._last_success = self._up_since = -inf
        self._interval_s = FIRST_PROBE_S
        self._probe: HostProbe | None = None
        self._failed_queue = ""
        self.unanswered: BaseException | None = None
        """The error of the last send that was not answered; None after one was."""
        self._trial_began = False

    @property
    def is_down(self) -> bool:
        """Return whether the host cannot be reached."""
        return self.cause is not None

    @property
    def on_trial(self) -> bool:
        """Return whether the host is up, but has answered no send since the outage."""
        return self.unanswered is not None and not self.is_down

    @property
    def accepts_call(self) -> bool:
        """Return whether a call may use the host now."""
        return not self.is_down and not (self.on_trial and self._trial_began)

    @property
    def next_probe(self) -> HostProbe | None:
        """Return the next probe; None if none is needed."""
        return self._probe

    def failed(
        self,
        queue: str,
        error: BaseException,
        *,
        began: float,
        now: float,
        unanswered: bool = False,
    ) -> bool:
        """Record that a connection failed, or that the host did not answer sends of any queue
        (`unanswered`). Return False if the host has answered since the attempt `began`: then the
        queue is at fault."""
        if not self.is_down:
            if began < self._last_success:
                return False
            self._go_down(queue, now, FIRST_PROBE_S)
        self.cause = error
        if unanswered:
            self.unanswered = error
        return True

    def _go_down(self, queue: str, now: float, interval_s: float) -> None:
        self._failed_queue = queue
        self._interval_s = interval_s
        self._probe = HostProbe(queue, now + interval_s)
        self._trial_began = False

    def succeeded(self, queue: str, now: float) -> bool:
        """Record that the host answered about a queue, be it with an error of the queue. Return
        whether the host was down until now."""
        self._last_success = now
        if queue == self._failed_queue:
            self._probe = None
        if not self.is_down:
            return False
        self.cause = None
        self._up_since = now
        if queue != self._failed_queue:
            self._probe = HostProbe(self._failed_queue, now)
        return True

    def probe_failed(self, queue: str, error: BaseException, *, began: float, now: float) -> bool:
        """Record that a probe could not connect. Return whether the queue is at fault, because the
        host had answered for another one before the probe `began`."""
        if self.is_down:
            self.cause = error
            self._interval_s = min(2 * self._interval_s, MAX_PROBE_INTERVAL_S)
            following = (self._queues.index(queue) + 1) % len(self._queues)
            self._probe = HostProbe(self._queues[following], now + self._interval_s)
            return False
        if self._probe is None or began < self._up_since:
            return False
        self._probe = None
        return True

    # Trials.

    def begin_trial(self) -> bool:
        """Return whether the call that uses the host now is a trial. Then no other call may use the
        host until the trial ends with `send_answered`, `trial_failed` or `release_trial`."""
        self._trial_began = self.on_trial
        return self._trial_began

    def release_trial(self) -> None:
        """End a trial that showed nothing."""
        self._trial_began = False

    def send_answered(self) -> None:
        """Record that the host answered a send, be it with an error."""
        self.unanswered = None
        self._trial_began = False

    def trial_failed(self, queue: str, error: BaseException, now: float) -> None:
        """Record that the host did not answer a trial: it is down again."""
        if not self.is_down:
            self._go_down(queue, now, min(2 * self._interval_s, MAX_PROBE_INTERVAL_S))
        self.cause = self.unanswered = error
