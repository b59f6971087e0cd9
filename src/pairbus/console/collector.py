"""Threads that collect what the console shows: one inspects the namespaces, one reads files."""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final

from pairbus.console.inspection import NamespaceInspection, SyphonView
from pairbus.console.ledger_cost import LedgerTail
from pairbus.console.namespace_inspector import NamespaceInspector
from pairbus.console.outage import InspectionCounter, inspection_interval_s
from pairbus.console.syphon_files import SyphonFiles

logger = logging.getLogger(__name__)

FILES_INTERVAL_S: Final = 1.0
CLOSE_S: Final = 5.0


class Collector:
    """Inspects the namespaces rarely when nothing happens, and more often in an outage, because
    each inspection is billed. Files are read once a second."""

    def __init__(
        self,
        inspector: NamespaceInspector,
        files: SyphonFiles,
        ledger: LedgerTail | None,
        *,
        max_interval_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_interval_s` is the longest time between two inspections."""
        self._inspector = inspector
        self._files = files
        self._ledger = ledger
        self._max_interval_s = max_interval_s
        self._clock = clock
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._active = False
        self._watched = False
        self._requested = False
        self._last_at: float | None = None
        # Daemons: a thread that waits for a name server must not keep the process alive.
        self._threads = [
            threading.Thread(target=self._run_inspections, name="console inspections", daemon=True),
            threading.Thread(target=self._run_files, name="console files", daemon=True),
        ]
        self.counter = InspectionCounter()
        self.inspection: NamespaceInspection | None = None
        """The last inspection."""
        self.syphon = SyphonView()
        """The syphon, as its files show it."""

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop both threads, and wait for them for a limited time. It can be called again."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        deadline = self._clock() + CLOSE_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - self._clock()))

    @property
    def interval_s(self) -> float:
        """The current time between two inspections."""
        interval_s = inspection_interval_s(active=self._active, watched=self._watched)
        return min(interval_s, self._max_interval_s)

    def set_pace(self, *, active: bool, watched: bool) -> None:
        """Tell if there is an outage, and if a page is open."""
        if (active, watched) == (self._active, self._watched):
            return
        with self._changed:
            self._active, self._watched = active, watched
            self._changed.notify_all()

    def request(self) -> None:
        """Inspect the namespaces as soon as possible: messages were moved."""
        with self._changed:
            self._requested = True
            self._changed.notify_all()

    def _run_inspections(self) -> None:
        while (requested := self._wait()) is not None:
            try:
                self.inspection = self._inspector.inspect(resample=requested)
            except Exception:
                logger.exception("The namespaces could not be inspected.")
            self.counter.finish(self._inspector.counting, self._inspector.sampling)
            self._last_at = self._clock()

    def _wait(self) -> bool | None:
        """Wait until an inspection is due. Return True if it was requested, and None at the end."""
        with self._changed:
            while not self._stopped.is_set():
                if self._last_at is None or self._requested:
                    break
                remaining = self._last_at + self.interval_s - self._clock()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            requested, self._requested = self._requested, False
        return None if self._stopped.is_set() else requested

    def _run_files(self) -> None:
        while True:
            try:
                self.syphon = self._files.read()
                if self._ledger is not None:
                    self._ledger.read()
            except Exception:
                logger.exception("The files of the syphon or the ledger could not be read.")
            if self._stopped.wait(FILES_INTERVAL_S):
                return
