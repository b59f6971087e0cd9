"""A syphon in the application itself (`enable_syphon=True`), for as long as the pairing is open."""

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from pairbus.events import SyphonStarted, SyphonStopped
from pairbus.pairing.sides import Duty, Partners
from pairbus.pairing.state import PairingState

logger = logging.getLogger("pairbus.pairing")

LOOK_S = 0.2
PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
"""How long a syphon that failed rests before it is started again."""


class EmbeddedSyphon:
    """Runs a syphon in a thread of its own, starts it again where it fails, and looks after the two
    clients: one that is down for 5 seconds while the other is not takes the other with it. With
    both down it ends.

    `faults` says how the primary's and the secondary's client are faulted; it is called in a thread
    of the host.
    """

    def __init__(
        self,
        options: Any,
        pairing: PairingState,
        faults: tuple[Callable[[BaseException], Any], Callable[[BaseException], Any]],
    ) -> None:
        self.syphon: Any = None
        """The syphon, while one runs."""
        self._options = options
        self._pairing = pairing
        self._faults = faults
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"pairbus {what}", daemon=True)
            for work, what in ((self._keep_moving, "syphon"), (self._look_after, "partners"))
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Have it stop. Does not wait."""
        self._ending.set()

    def wait(self, seconds: float) -> bool:
        """Wait until it has stopped; False: it has not yet."""
        deadline = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _look_after(self) -> None:
        partners = Partners(self._pairing.primary, self._pairing.secondary)
        while not self._ending.wait(LOOK_S):
            duty = partners.look(monotonic())
            if duty is Duty.STOP:
                self._ending.set()
            elif duty is not Duty.NOTHING:
                self._fault(duty)

    def _fault(self, duty: Duty) -> None:
        pairing = self._pairing
        down, fault = pairing.secondary, self._faults[0]
        if duty is Duty.FAULT_SECONDARY:
            down, fault = pairing.primary, self._faults[1]
        cause = down.error() or RuntimeError("its partner is down")
        cause.add_note(f"{down.name} was closed or faulted, and its partner was not")
        fault(cause)

    def _keep_moving(self) -> None:
        pause_s = PAUSE_S
        while not self._ending.is_set():
            began = monotonic()
            error = self._move()
            if self._ending.is_set():
                break
            logger.error("the syphon in this process has stopped, and is started again: %s", error)
            self._pairing.emit(SyphonStopped(when=datetime.now(UTC), error=error))
            if monotonic() - began > MAX_PAUSE_S:
                pause_s = PAUSE_S
            self._ending.wait(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        self._pairing.emit(SyphonStopped(when=datetime.now(UTC)))

    def _move(self) -> BaseException | None:
        """Run a syphon until it fails, or the host is to end. Why it failed."""
        from pairbus.syphon.query import Syphon

        syphon = Syphon(self._options)
        try:
            syphon.start()
            self.syphon = syphon
            self._pairing.emit(SyphonStarted(when=datetime.now(UTC)))
            while not self._ending.wait(LOOK_S) and syphon.status().running:
                pass
            return RuntimeError(syphon.status().failure or "it ended by itself")
        except Exception as exc:  # noqa: BLE001  Spark may fail in any way; it is said, and tried again
            return exc
        finally:
            self.syphon = None
            syphon.stop()
