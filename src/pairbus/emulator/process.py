"""The emulator as a child process that can be killed, paused and started again.

    with EmulatorProcess("primary", folder=folder, queues=["orders"]) as emulator:
        client = ServiceBusClient.from_connection_string(emulator.connection_string)
        ...
        emulator.kill()  # an outage, as with `kill -9`
        emulator.start()  # on the same port, with every accepted message

If one process serves several namespaces, `stop_namespace`, `kill_namespace` and `start_namespace`
are for one of them.

`LocalNamespace` serves a namespace inside the calling process instead.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

from pairbus.emulator.config import load_namespaces
from pairbus.emulator.control_client import advance_clock, read_clock
from pairbus.emulator.control_socket import NamespaceAction, request_action
from pairbus.emulator.port import ReservedPort
from pairbus.emulator.tiers import tier_of
from pairbus.emulator.token_issuer import EmulatorCredential, Role, TokenIssuer
from pairbus.errors import StateError

START_S = 60.0
STOP_S = 20.0
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedNamespace:
    """The address of a namespace that an emulator process serves."""

    name: str
    port: int
    connection_string: str = field(repr=False)
    ca_file: str
    """The file that verifies the TLS certificate (`connection_verify` of the SDK)."""
    token_key_file: str
    """The key of the token issuer, which `TokenIssuer` takes."""
    identity_endpoint: str
    identity_header: str = field(repr=False)
    """With IDENTITY_ENDPOINT and IDENTITY_HEADER set to these, azure-identity gets tokens here."""


class EmulatorProcess:
    """`pairbus emulator` as a child process, which ends with this process, however that ends. It
    needs the extras `emulator` and `cli`.

    `names`, `queues`, `config`, `folder` and `tier` are the options of the command. Without a
    folder, data is kept in a temporary one, which `close` removes. Ports, keys and data survive
    `kill` and `terminate`; on Linux no other program gets the ports until `close`.

    Used as a context manager, the process is started on entry and closed on exit. A process that
    is paused when this process ends stays paused.
    """

    def __init__(
        self,
        *names: str,
        folder: Path | str | None = None,
        queues: Iterable[str] = (),
        config: Path | str | None = None,
        port: int = 0,
        start_timeout_s: float = START_S,
        local_authentication: bool = True,
        tier: str | None = None,
    ) -> None:
        """Raises ConfigurationError or OSError if `config` cannot be read or `tier` is unknown."""
        config_file = None if config is None else Path(config)
        configs = load_namespaces(names, config_file)
        self.names = tuple(config.name for config in configs)
        self._options = [word for name in names for word in ("--namespace", name)]
        self._options += [word for queue in queues for word in ("--queue", queue)]
        if config_file is not None:
            self._options += ["--config", str(config_file)]
        if not local_authentication:
            self._options.append("--disable-local-auth")
        if tier is not None:
            self._options += ["--tier", tier_of(tier).name]
        self._folder = None if folder is None else Path(folder)
        self._temporary_folder: tempfile.TemporaryDirectory[str] | None = None
        self._ports = [
            ReservedPort(
                _HOST,
                port + index if port else 0,
                folder=None if self._folder is None else self._folder / name,
            )
            for index, name in enumerate(self.names)
        ]
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self.namespaces: dict[str, EmulatedNamespace] = {}
        """The namespaces by name, once the process was started."""

    def __enter__(self) -> "EmulatorProcess":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # The address of the first namespace.

    @property
    def connection_string(self) -> str:
        """Connection string of the first namespace."""
        return self._first.connection_string

    @property
    def port(self) -> int:
        """Port of the first namespace."""
        return self._first.port

    @property
    def ca_file(self) -> str:
        """CA file of the first namespace."""
        return self._first.ca_file

    def credential(self, *roles: Role | str) -> EmulatorCredential:
        """Return a credential for the SDK, with the role Data Owner if none is given."""
        return TokenIssuer(self._first.token_key_file).credential(*roles)

    @property
    def _first(self) -> EmulatedNamespace:
        if not self.namespaces:
            raise StateError(f"The {self} was not started: call start() first.")
        return self.namespaces[self.names[0]]

    # Lifecycle.

    def start(self) -> None:
        """Start the process, and return when all namespaces accept connections.

        Does nothing if the process is running. Raises StateError with the process's own message if
        it ends, or is not ready within `start_timeout_s`.
        """
        if self.is_running:
            return
        self._release()
        folder = self._data_folder()
        for port in self._ports:
            port.reserve()
        self._stderr = tempfile.TemporaryFile("a+b")  # noqa: SIM115  closed by `_release`
        process = self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pairbus", "emulator", *self._options),
                *("--folder", str(folder), "--json", "--while-input"),
                *(word for port in self._ports for word in ("--port", str(port.number))),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,  # Ctrl-C is for this process, which then closes the emulator
        )
        try:
            ready = json.loads(self._read_line(process))
        except BaseException:
            process.kill()
            process.wait(STOP_S)
            self._release()
            raise
        self.namespaces = {
            address["name"]: EmulatedNamespace(**address) for address in ready["namespaces"]
        }
        for port, name in zip(self._ports, self.names, strict=True):
            port.number = self.namespaces[name].port

    def _data_folder(self) -> Path:
        if self._folder is not None:
            return self._folder
        if self._temporary_folder is None:
            self._temporary_folder = tempfile.TemporaryDirectory(prefix="pairbus-")
        return Path(self._temporary_folder.name)

    def _read_line(self, process: "subprocess.Popen[bytes]") -> bytes:
        """Return the line of JSON that the process prints when it is ready."""
        assert process.stdout is not None
        deadline = time.monotonic() + self._start_timeout_s
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise StateError(
                        f"The {self} was not ready after {self._start_timeout_s:g} s."
                        f" {self.errors()}".rstrip()
                    )
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    status = process.wait(STOP_S)
                    raise StateError(
                        f"The {self} ended with status {status} before it was ready."
                        f" {self.errors()}".rstrip()
                    )
                line += data
        return line

    def kill(self) -> None:
        """Kill the process with SIGKILL, and return when it has ended. Raises StateError if it had
        ended before."""
        process = self._running()
        process.kill()
        self.wait()
        if process.returncode != -signal.SIGKILL:
            raise StateError(
                f"The {self} ended with status {process.returncode} before it was killed."
                f" {self.errors()}".rstrip()
            )

    def terminate(self) -> int:
        """Stop the process with SIGTERM, and return its exit status when it has ended."""
        self._running().terminate()
        return self.wait()

    def wait(self) -> int:
        """Return the exit status, once the process has ended. Raises StateError if it has not ended
        after 20 seconds."""
        process = self._started()
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired as exc:
            raise StateError(f"The {self} is still running after {STOP_S:g} s.") from exc

    def close(self) -> None:
        """Stop the process, release its ports, and remove a temporary folder. Can be called
        again."""
        process = self._process
        if process is not None:
            self.resume()
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()  # --while-input: the process stops
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S)
        self._release()
        for port in self._ports:
            port.close()
        if self._temporary_folder is not None:
            self._temporary_folder.cleanup()
            self._temporary_folder = None

    def _release(self) -> None:
        """Close the files of a process that has ended."""
        process = self._process
        for file in (self._stderr, *(() if process is None else (process.stdin, process.stdout))):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()

    # Single namespaces.

    def stop_namespace(self, name: str) -> None:
        """Close the connections of a namespace, and refuse new ones until it is started."""
        self._request(name, NamespaceAction.STOP)

    def kill_namespace(self, name: str) -> None:
        """Stop a namespace as if its process were killed: only what is on disk is kept."""
        self._request(name, NamespaceAction.KILL)

    def start_namespace(self, name: str) -> None:
        """Start a namespace again, on the same port. Does nothing if it is running."""
        self._request(name, NamespaceAction.START)

    def _request(self, name: str, action: NamespaceAction) -> None:
        """Raises StateError if the process does not run, or if it fails."""
        self._running()
        if name not in self.namespaces:
            raise StateError(f"The {self} does not serve {name!r}.")
        request_action(self._data_folder() / name, action)

    # Pausing.

    def pause(self) -> None:
        """Stop the process with SIGSTOP: its connections stay open, but it does not answer."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        # WNOWAIT leaves the exit status, if it has ended, for `wait`.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if not self.is_paused:
            raise StateError(f"The {self} ended before it was paused. {self.errors()}".rstrip())

    def resume(self) -> None:
        """Continue the process after `pause`. Does nothing if it is not paused."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the process for the length of a `with` block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    # Time.

    def now(self, name: str | None = None) -> datetime:
        """Return the time of a namespace, or of the first, which `advance` moves forward."""
        namespace = self._served(self.names[0] if name is None else name)
        return read_clock(namespace.connection_string, namespace.ca_file)

    def advance(self, span: timedelta, *names: str) -> None:
        """Move the clocks of the named namespaces forward, or of all. When this returns, everything
        has happened that became due. Tokens stay valid. Raises ConfigurationError for a negative
        span, and StateError if the process does not run."""
        for namespace in [self._served(name) for name in names or self.names]:
            advance_clock(namespace.connection_string, namespace.ca_file, span)

    def _served(self, name: str) -> EmulatedNamespace:
        self._running()
        if name not in self.namespaces:
            raise StateError(f"The {self} does not serve {name!r}.")
        return self.namespaces[name]

    # State.

    @property
    def pid(self) -> int:
        """Process id, also after the process has ended."""
        return self._started().pid

    @property
    def exit_status(self) -> int | None:
        """Exit status, or None while the process runs. A signal is a negative number."""
        return self._started().poll()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        if not self.is_running:
            return False
        flags = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def errors(self) -> str:
        """Return what the process has written to standard error since it was started."""
        if self._stderr is None or self._stderr.closed:
            return ""
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace").strip()

    def __str__(self) -> str:
        return f"emulator process of {', '.join(self.names)}"

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise StateError(f"The {self} was not started: call start() first.")
        return self._process

    def _running(self) -> "subprocess.Popen[bytes]":
        process = self._started()
        if process.poll() is not None:
            raise StateError(
                f"The {self} has already ended with status {process.returncode}."
                f" {self.errors()}".rstrip()
            )
        return process
