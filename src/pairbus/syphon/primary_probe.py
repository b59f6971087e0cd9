"""Probes of the primary, before messages are received for it.

A connection costs nothing, and each receive is billed. While the driver cannot connect, the
executors of a cluster may still be able to, so a few messages are tried from time to time.
"""

from collections.abc import Callable
from enum import Enum

from pairbus.amqp.client import Client, ClientOptions
from pairbus.errors import AmqpError, Unavailable

CONNECT_S = 3.0
"""The longest time that a probe takes."""
PROBE_S, MAX_PROBE_S = 1.0, 5.0
"""The interval between two probes. It doubles up to the maximum."""
TRIAL_S, MAX_TRIAL_S = 30.0, 900.0
"""The interval between two micro-batches for a primary that cannot be reached. It doubles up to
the maximum."""


class Admission(Enum):
    """The messages that may be received for the primary now."""

    ALL = "as many as usual"
    FEW = "a few, to see if the executors can reach the primary"
    NONE = "none"


class PrimaryProbe:
    """Decides how many messages may be received for the primary. The caller passes the time."""

    def __init__(self, connect: Callable[[], str | None]) -> None:
        """`connect` connects to the primary, and returns the reason if that is not possible."""
        self.problem: str | None = None
        """The reason why the primary cannot be reached."""
        self._connect = connect
        self._moved = 0
        self._was_reached = False
        self._probe_at = 0.0
        self._probe_s = PROBE_S
        self._trial_at: float | None = None
        self._trial_s = TRIAL_S

    def admission(self, now: float, *, moved: int, failing: bool) -> Admission:
        """Return what may be received. `moved` is the total of moved messages, and `failing` is
        True if any destination fails at the moment."""
        if moved > self._moved:
            self._moved = moved
            self._note_success()
        if self._was_reached and not failing:
            return Admission.ALL
        if now >= self._probe_at:
            self.problem = self._connect()
            if self.problem is None:
                self._note_success()
                self._probe_at = now + MAX_PROBE_S
            else:
                self._probe_at = now + self._probe_s
                self._probe_s = min(2 * self._probe_s, MAX_PROBE_S)
        if self.problem is None:
            return Admission.ALL
        if self._trial_at is None:
            self._trial_at = now + self._trial_s
        if now < self._trial_at:
            return Admission.NONE
        self._trial_s = min(2 * self._trial_s, MAX_TRIAL_S)
        self._trial_at = now + self._trial_s
        return Admission.FEW

    def _note_success(self) -> None:
        self.problem = None
        self._was_reached = True
        self._probe_s, self._trial_s = PROBE_S, TRIAL_S
        self._trial_at = None


def try_connecting(options: ClientOptions) -> str | None:
    """Connect to a namespace, and return the reason if it cannot be reached."""
    client = Client(options)
    try:
        client.connect(CONNECT_S)
    except Unavailable as exc:
        return str(exc)
    except AmqpError:
        return None  # it answered
    finally:
        client.close(timeout_s=1)
    return None
