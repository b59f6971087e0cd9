"""`pairbus console` in a run: the senders report to it, and it is killed, frozen or cut off."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.browser.console_process import ConsoleProcess
from tests.console_client import ConsoleClient
from tests.faults.matrix.relays import Cut, Relay, Relays
from tests.processes import frozen, kill
from tests.waiting import wait_until


class MatrixConsole:
    """A console behind a relay, and what it knows of the senders."""

    def __init__(self, relays: Relays, folder: Path, *arguments: str, **variables: str) -> None:
        self._relays = relays
        self._process = ConsoleProcess(folder, *arguments, "--no-ledger", **variables)
        self._process.start()
        self.relay: Relay = relays.to(self._process.port)
        self._token = self._process.token("viewer")
        self.sender_token = self._process.token("sender")

    def close(self) -> None:
        self._process.stop()

    @property
    def address(self) -> str:
        """The address for senders."""
        return f"http://127.0.0.1:{self.relay.port}"

    def states_of(self, pid: int) -> Counter[str]:
        """Return the number of paths in each state, as a sender process reported them last."""
        client = ConsoleClient(self._process.port, token=self._token)
        state: Any = client.get("/api/state").json
        for sender in state["senders"]:
            if str(pid) == str(sender["process"]):
                return Counter(sender["states"])
        return Counter()

    @contextlib.contextmanager
    def interrupted(self, kind: str) -> Iterator[None]:
        """Kill the console, freeze it or cut it off within the block."""
        if kind == "kill":
            kill(self._process.pid)
            self._process.reap()
            try:
                yield
            finally:
                self._process.start()
        elif kind == "freeze":
            with frozen(self._process.pid):
                yield
        else:
            cut = Cut(
                self._relays, [self.relay], lambda _: True, answers_only=kind == "lose-answers"
            )
            try:
                yield
                wait_until(lambda: cut.silenced, "a report that is cut off")
            finally:
                cut.heal()
