"""A console that runs in a thread of this process."""

import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from pairbus.console.app import ConsoleApplication
from pairbus.console.server import ConsoleServer
from pairbus.errors import StateError

START_S: Final = 30.0
STOP_S: Final = 30.0


class RunningConsole:
    """Serves a console from `start` to `close`. As a context manager, it is started and closed."""

    def __init__(
        self,
        application: ConsoleApplication,
        listener: socket.socket,
        tls: ssl.SSLContext | None = None,
        *,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_end` is called when the console ends, also if it fails."""
        self._started = threading.Event()
        self._server = ConsoleServer(application, listener, tls, on_start=self._started.set)
        self._on_end = on_end
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="console")
        self.port: int = listener.getsockname()[1]
        """The port on which the console listens."""

    def start(self) -> None:
        """Return when the console accepts requests. Raises StateError if it fails to start."""
        try:
            self._thread.start()
            if not self._started.wait(START_S) or self._failure is not None:
                raise StateError(
                    f"The console did not start: {self._failure or 'it took too long'}"
                )
        except BaseException:  # Ctrl-C too: the thread would keep the process alive
            self.close()
            raise

    def close(self) -> None:
        """Stop the console, and wait for it. It can be called again."""
        self._server.stop()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self._server.run()
        except BaseException as exc:  # noqa: BLE001  uvicorn also exits
            self._failure = exc
        finally:
            self._started.set()
            self._on_end()
