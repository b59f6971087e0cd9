"""The telemetry of a syphon, in the process that started it."""

import logging
import threading
import time
from collections.abc import Callable, Iterable

from pairbus.syphon.drain_files import DrainFiles
from pairbus.syphon.metrics import status_samples
from pairbus.syphon.status import SyphonStatus
from pairbus.telemetry.drains import DrainTelemetry
from pairbus.telemetry.providers import Telemetry
from pairbus.telemetry.samples import Sample
from pairbus.telemetry.senders import ServerAddress

logger = logging.getLogger("pairbus.telemetry")

INTERVAL_S = 1.0
"""The time between two looks at the records of the sink."""
STATUS_AGE_S = 0.2
"""A collection reads several metrics, and all of them are from one status of this age or less."""


class SyphonTelemetry:
    """Reports the status of a syphon as metrics, and the records of its sink as spans, from `start`
    to `close`."""

    def __init__(
        self,
        telemetry: Telemetry,
        read_status: Callable[[], SyphonStatus],
        drains: DrainFiles | None,
        *,
        pairing: str,
        primary: ServerAddress,
    ) -> None:
        """`drains` is None if the sink runs on another machine (Spark Connect)."""
        self._instruments = telemetry.instruments
        self._read_status = read_status
        self._drains = drains
        self._drain_telemetry = DrainTelemetry(telemetry, primary)
        self._pairing = pairing
        self._status: tuple[float, SyphonStatus] | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to report, after the query was started."""
        if self._instruments is not None:
            self._instruments.observe(self)
        if self._drains is not None:
            self._thread = threading.Thread(
                target=self._run, name="pairbus syphon telemetry", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Report the rest, and end. Can be called repeatedly."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._status = None
        if self._instruments is not None:
            self._instruments.end(self)

    def samples(self) -> Iterable[Sample]:
        """Return the current values."""
        now = time.monotonic()
        if self._status is None or now - self._status[0] > STATUS_AGE_S:
            self._status = now, self._read_status()
        return status_samples(self._status[1], self._pairing)

    def _run(self) -> None:
        while not self._closing.wait(INTERVAL_S):
            self._add_drains()
        self._add_drains()

    def _add_drains(self) -> None:
        assert self._drains is not None
        try:
            for record in self._drains.take():
                self._drain_telemetry.add(record)
        except Exception:  # a file or the SDK of the application; the syphon goes on
            logger.exception("The spans of a drain could not be made")
