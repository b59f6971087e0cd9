"""The backlog queues, as all senders of a pairing see them. No I/O."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from zlib import crc32

from pairbus.pairing.backlog_settings import SettingMismatch
from pairbus.pairing.failures import is_connection_failure
from pairbus.pairing.path_state import PathState
from pairbus.pairing.queue_claim import QueueClaim

if TYPE_CHECKING:
    from pairbus.pairing.state import PairingState


class BacklogState:
    """Combines the rotation with the other state of its pairing: the queue that each sender stays
    with, the health of the host, and the events. The methods can be called from any thread."""

    def __init__(self, pairing: "PairingState", wall_clock: Callable[[], datetime]) -> None:
        self._pairing = pairing
        self._wall_clock = wall_clock
        self._rotation = pairing.rotation
        self.pulled_at: dict[str, datetime] = {}
        """The times at which the queues that are out of the rotation were pulled."""

    def queue_of_session(self, path: PathState, session: str) -> str:
        """Return the backlog queue of a session, which never changes."""
        queues = self._rotation.queues
        key = f"{path.name.casefold()}\n{session}".encode()
        return queues[crc32(key) % len(queues)]

    def undisturbed_queue(self, path: PathState, sender: object) -> str | None:
        """Return the backlog queue that a sender stays with, if no queue is pulled and their host
        is known to answer. Then a send needs no claim."""
        pairing = self._pairing
        if pairing.secondary.down or pairing.secondary_host.cause is not None:
            return None
        return None if self._rotation.has_pulled else path.queue_of_sender.get(sender)

    def claim_any(
        self, path: PathState, sender: object, tried: tuple[str, ...] = ()
    ) -> QueueClaim | None:
        """Claim the backlog queue that a sender stays with, or else another one. Return None if no
        queue is usable."""
        pairing = self._pairing
        if pairing.secondary.down or pairing.secondary_host.is_down:
            return None
        with pairing.lock:
            if not pairing.secondary_host.accepts_call:
                return None
            now = pairing.now()
            queue = path.queue_of_sender.get(sender)
            if queue is None or queue in tried or not self._rotation.claim(queue, now):
                queue = self._rotation.claim_any(now, tried)
                if queue is None:
                    return None
                path.queue_of_sender[sender] = queue
            return self._claim(queue, now)

    def claim(self, queue: str) -> QueueClaim | None:
        """Claim one backlog queue. Return None if it is not usable."""
        pairing = self._pairing
        with pairing.lock:
            if pairing.secondary.down or not pairing.secondary_host.accepts_call:
                return None
            now = pairing.now()
            return self._claim(queue, now) if self._rotation.claim(queue, now) else None

    def _claim(self, queue: str, now: float) -> QueueClaim:
        return QueueClaim(self, queue, now, self._pairing.secondary_host.begin_trial())

    def release(self, queue: str) -> None:
        """End a claim that showed nothing about the queue."""
        with self._pairing.lock:
            self._rotation.release(queue)

    def pull(self, queue: str, error: BaseException) -> None:
        """Take a backlog queue out of the rotation for the cool-down."""
        pairing = self._pairing
        unreachable = is_connection_failure(error, pairing.classify(error))
        with pairing.lock:
            now = pairing.now()
            if self._rotation.failed(queue, error, now, unreachable=unreachable):
                when = self.pulled_at[queue] = self._wall_clock()
                pairing.reporter.queue_pulled(queue, error, when)
            is_last = unreachable and self._rotation.is_empty
        if is_last:
            pairing.secondary_host.unreachable(queue, error, began=now, link_open=True)
        pairing.reporter.deliver()

    def unreachable(self, queue: str, error: BaseException, began: float) -> None:
        """Record that the connection to a backlog queue failed, in an attempt that `began` then."""
        self._pairing.secondary_host.unreachable(queue, error, began=began)

    def restore(self, queue: str) -> None:
        """Put a backlog queue that accepted a message back into the rotation."""
        pairing = self._pairing
        with pairing.lock:
            if self._rotation.succeeded(queue):
                self._report_restored(queue)
        pairing.secondary_host.send_answered(queue)
        pairing.reporter.deliver()

    def restore_unreachable(self) -> None:
        """Restore the queues that failed because of the host. The lock must be held."""
        for queue in self._rotation.restore_unreachable():
            self._report_restored(queue)

    def _report_restored(self, queue: str) -> None:
        self.pulled_at.pop(queue, None)
        self._pairing.reporter.queue_restored(queue, self._wall_clock())

    def report_mismatches(self, mismatches: Sequence[SettingMismatch]) -> None:
        """Report the settings of existing backlog queues that are worse than ours."""
        with self._pairing.lock:
            self._pairing.reporter.settings_differ(mismatches, self._wall_clock())
        self._pairing.reporter.deliver()

    def forget_sender(self, path: PathState, sender: object) -> None:
        """Forget the backlog queue of a sender that was closed."""
        with self._pairing.lock:
            path.queue_of_sender.pop(sender, None)
