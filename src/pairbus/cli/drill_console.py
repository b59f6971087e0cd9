"""The console of a drill (`pairbus drill --console`): watch the outage in a browser."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Final

from pairbus.cli.spark_requirements import require_package
from pairbus.cli.syphon_status_file import status_values, write_status_file
from pairbus.cli.web_console import login_link

if TYPE_CHECKING:
    from pairbus.backlog.target import InspectionTarget
    from pairbus.console.app import ConsoleApplication
    from pairbus.drill.console_reports import ConsoleReports
    from pairbus.drill.environments import Environment
    from pairbus.drill.run import DrillSnapshot

HOST: Final = "127.0.0.1"
PACKAGES: Final = ("starlette", "uvicorn")
TIMEOUT_S: Final = 5.0
"""The longest wait for a namespace when the console inspects it."""
LOCAL_INTERVAL_S: Final = 2.0
"""The time between two inspections of namespaces on this machine: a drill is short."""
STATUS_FILE_S: Final = 1.0
CLOSE_S: Final = 5.0
SENDER_TOKEN_LIFETIME: Final = timedelta(minutes=10)
"""The senders get a new token for each report."""


def require_console() -> None:
    """Raise ModuleNotFoundError if a package of the console is not installed. `main` reports it
    with the extra to install."""
    for package in PACKAGES:
        require_package(package)


class DrillConsole:
    """A console on this machine, which runs in threads of the drill. It is a context manager: its
    port is taken at once, and released at the end."""

    def __init__(
        self, port: int, environment: "Environment", backlog_queues: int, folder: Path
    ) -> None:
        """Port 0: a free one. Raises ConfigurationError if the port cannot be used."""
        from pairbus.console.tokens import KEY_BYTES, TokenSigner
        from pairbus.listeners import open_listener

        self._environment = environment
        self._backlog_queues = backlog_queues
        self._folder = folder
        self._signer = TokenSigner(token_bytes(KEY_BYTES))
        self._application: ConsoleApplication | None = None
        self._listener = open_listener(HOST, port)
        self._port: int = self._listener.getsockname()[1]

    def __enter__(self) -> "DrillConsole":
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self._port}/"

    @property
    def operations(self) -> int:
        """The number of billed operations that the console needed so far."""
        application = self._application
        return 0 if application is None else application.inspection_operations

    def login_link(self) -> str:
        """Return a link for one login as operator."""
        return login_link(self._signer, self.url)

    @contextmanager
    def run(self, snapshot: "Callable[[], DrillSnapshot]") -> "Iterator[ConsoleReports]":
        """Serve the console for the length of a `with` block. Raises StateError or
        ConfigurationError if it does not start."""
        from pairbus.console.assembly import ConsoleOptions, create_console
        from pairbus.console.running import RunningConsole
        from pairbus.drill.console_reports import ConsoleReports

        folder = self._folder / "console"
        folder.mkdir()
        options = ConsoleOptions(
            target=self._target(),
            signer=self._signer,
            port=self._port,
            audit_file=folder / "audit.jsonl",
            control_file=folder / "control.json",
            status_file=folder / "status.json",
            ledger=self._folder / "ledger",
            usage_ledger=folder / "ledger",  # the drill compares its own with a forecast
            max_inspection_interval_s=math.inf if self._environment.is_billed else LOCAL_INTERVAL_S,
        )
        self._application = create_console(options)
        with (
            RunningConsole(self._application, self._listener),
            _syphon_status_file(folder / "status.json", snapshot),
        ):
            yield ConsoleReports(
                url=self.url,
                token=self._sender_token,
                control_file=options.control_file,
                announcement="Watch the drill in a browser. This link is for one login, within 10 "
                f"minutes:\n{self.login_link()}",
            )

    def _target(self) -> "InspectionTarget":
        from pairbus.backlog.target import InspectionTarget
        from pairbus.drill.connections import client_options

        environment = self._environment
        primary, secondary = (
            replace(
                client_options(text, environment.network),
                connect_timeout_s=TIMEOUT_S,
                operation_timeout_s=TIMEOUT_S,
            )
            for text in (environment.primary, environment.secondary)
        )
        return InspectionTarget(
            primary=primary,
            secondary=secondary,
            primary_name=environment.primary_name,
            backlog_queue_count=self._backlog_queues,
        )

    def _sender_token(self) -> str:
        from pairbus.console.roles import ConsoleRole

        return self._signer.issue(ConsoleRole.SENDER, SENDER_TOKEN_LIFETIME, time.time())


@contextmanager
def _syphon_status_file(path: Path, snapshot: "Callable[[], DrillSnapshot]") -> Iterator[None]:
    """Write the status file of the drill's syphon once a second, until the syphon has ended."""
    closing = threading.Event()

    def write() -> None:
        while not closing.wait(STATUS_FILE_S):
            with contextlib.suppress(Exception):  # the drill itself reports a syphon that fails
                drill = snapshot()
                if drill.syphon is None or drill.progress is None:
                    continue
                ended = None if drill.syphon.running else "stopped"
                write_status_file(path, status_values(drill.syphon, drill.progress, ended))
                if ended is not None:
                    return

    thread = threading.Thread(target=write, name="syphon status file", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join(CLOSE_S)
