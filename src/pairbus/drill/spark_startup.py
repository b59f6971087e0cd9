"""Start Spark in the background, so that it is ready when the drain begins."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pairbus.errors import StateError


class BackgroundSpark:
    """A Spark session that starts in a thread. It is released on exit."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._pool = ThreadPoolExecutor(1, "Spark startup")
        self._session: Future[Any] | None = None

    def __enter__(self) -> "BackgroundSpark":
        return self

    def start(self) -> None:
        from pairbus.spark.sessions import lease_session

        self._session = self._pool.submit(lease_session, None, self._log)

    def wait(self) -> None:
        """Wait until Spark has started. Raises StateError if it does not start."""
        assert self._session is not None
        try:
            self._session.result()
        except Exception as exc:  # Spark raises errors of many types
            raise StateError(f"Spark did not start: {str(exc).splitlines()[0]}") from exc

    def __exit__(self, *exc: object) -> None:
        if self._session is not None and self._session.exception() is None:
            self._session.result().release()
        self._pool.shutdown()
