"""Consoles for tests, with real HTTP."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pairbus.backlog.target import InspectionTarget
from pairbus.console.app import ConsoleApplication
from pairbus.console.assembly import ConsoleOptions, create_console
from pairbus.console.roles import ConsoleRole
from pairbus.console.running import RunningConsole
from pairbus.console.tokens import TokenSigner
from pairbus.listeners import open_listener
from tests.backlog import Backlog
from tests.console_client import ConsoleClient

KEY = b"k" * 32


@dataclass(slots=True)
class Site:
    """A running console and the files that it uses."""

    folder: Path
    backlog: Backlog
    application: ConsoleApplication
    port: int
    signer: TokenSigner

    def token(
        self, role: str, lifetime: timedelta = timedelta(hours=1), *, once: bool = False
    ) -> str:
        return self.signer.issue(ConsoleRole(role), lifetime, time.time(), once=once)

    def client(self, role: str | None = None) -> ConsoleClient:
        """Return a client with a bearer token, or without any."""
        return ConsoleClient(self.port, token=None if role is None else self.token(role))

    def browser(self, role: str) -> ConsoleClient:
        """Return a client that has logged in with a cookie."""
        client = ConsoleClient(self.port)
        assert client.login(self.token(role)).status == 200
        return client

    @property
    def audit(self) -> str:
        path = self.folder / "audit.jsonl"
        return path.read_text() if path.exists() else ""


class Sites:
    """Starts consoles, which are closed after the test."""

    def __init__(self, folder: Path, backlog: Backlog, stack: ExitStack) -> None:
        self._folder = folder
        self._backlog = backlog
        self._stack = stack
        self._running: dict[int, RunningConsole] = {}

    def options(self, port: int, **changes: Any) -> ConsoleOptions:
        backlog = self._backlog
        values: dict[str, Any] = {
            "target": InspectionTarget.parse(
                primary=backlog.primary.connection_string,
                secondary=backlog.secondary.connection_string,
                primary_name=backlog.name,
                backlog_queue_count=2,
            ),
            "signer": TokenSigner(KEY),
            "port": port,
            "audit_file": self._folder / "audit.jsonl",
            "control_file": self._folder / "control.json",
            "database_file": self._folder / "console.sqlite3",
            "status_file": self._folder / "status.json",
            "ledger": self._folder / "ledger",
        }
        return ConsoleOptions(**(values | changes))

    def start(self, *, port: int = 0, **changes: Any) -> Site:
        listener = open_listener("127.0.0.1", port)
        options = self.options(listener.getsockname()[1], **changes)
        application = create_console(options)
        running = self._stack.enter_context(RunningConsole(application, listener))
        self._running[running.port] = running
        return Site(self._folder, self._backlog, application, running.port, options.signer)

    def close(self, site: Site) -> None:
        """Stop a console before the end of the test."""
        self._running[site.port].close()
