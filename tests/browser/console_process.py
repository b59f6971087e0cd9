"""`pairbus console` as a process."""

import json
import os
import subprocess
from pathlib import Path

from tests.commands import command

STOP_S = 30.0


class ConsoleProcess:
    """A console. It keeps its port and its folder when it is started again."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._arguments = arguments
        self._variables = variables
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self.login_url = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def reap(self) -> None:
        """Wait for the end of a process that was killed."""
        assert self._process is not None
        self._process.communicate(timeout=STOP_S)
        self._process = None

    def start(self) -> None:
        """Return when the console accepts requests."""
        options = ("--port", str(self._port), "--folder", str(self.folder), "--json")
        with (self.folder / "errors").open("a") as errors:
            self._process = subprocess.Popen(
                command("console", *options, *self._arguments),
                env={**os.environ, **self._variables},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self.folder / "errors").read_text()
        address = json.loads(line)
        self.login_url = address["login_url"]
        self._port = int(address["url"].rstrip("/").rpartition(":")[2])

    def stop(self) -> None:
        """Stop it. Idempotent."""
        if self._process is None:
            return
        self._process.terminate()
        self._process.communicate(timeout=STOP_S)
        self._process = None

    def token(self, role: str) -> str:
        """Return a token for this console."""
        arguments = command("console", "token", "--role", role, "--folder", str(self.folder))
        result = subprocess.run(arguments, capture_output=True, text=True, check=True)
        return result.stdout.strip()

    def __enter__(self) -> "ConsoleProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
