"""Stopping, starting and killing single namespaces of a running `pairbus emulator`.

A process that serves namespaces listens on a Unix domain socket in the data folder of each. Only
the owner of the folder can connect. A request is a line with the name of an action, the response a
line of JSON: an empty object, or an error.
"""

import contextlib
import json
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from pairbus.errors import PairbusError, StateError

FILE_NAME = "control.sock"
READ_TIMEOUT_S = 5.0
"""Time for a client to send its request."""
RESPONSE_TIMEOUT_S = 30.0
"""Time for a namespace to stop or start."""
_MAX_LINE = 4096
_MAX_ADDRESS = 100
"""The operating system allows a few more bytes for the path of a socket."""


class NamespaceAction(StrEnum):
    """An action on a namespace of a running emulator."""

    STOP = "stop"
    START = "start"
    KILL = "kill"


class Controllable(Protocol):
    """A namespace that can be stopped and started."""

    name: str
    folder: Path

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class ControlSocket:
    """Executes the requests for one namespace, from the constructor to `close`."""

    def __init__(self, namespace: Controllable) -> None:
        """Replaces the socket that another process may have left behind. Raises OSError."""
        self._file = namespace.folder / FILE_NAME
        self._server = _Server(namespace)
        try:
            with _short_path(namespace.folder) as address:
                self._file.unlink(missing_ok=True)
                self._server.socket.bind(address)
            self._file.chmod(0o600)  # before it accepts connections
            self._identity = self._file.stat()
            self._server.server_activate()
        except BaseException:
            self._server.server_close()
            raise
        self._thread = threading.Thread(
            target=self._server.serve_forever, name=f"control of {namespace.name}", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> "ControlSocket":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and remove the socket. Can be called again."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        with contextlib.suppress(OSError):
            # Not that of another process, which serves the folder now.
            if os.path.samestat(self._file.stat(), self._identity):
                self._file.unlink()


class _Server(socketserver.UnixStreamServer):
    def __init__(self, namespace: Controllable) -> None:
        super().__init__("", _RequestHandler, bind_and_activate=False)
        self.namespace = namespace

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect or send nothing."""


class _RequestHandler(socketserver.StreamRequestHandler):
    timeout = READ_TIMEOUT_S
    server: _Server

    def handle(self) -> None:
        line = self.rfile.readline(_MAX_LINE).decode(errors="replace").strip()
        error = _execute(self.server.namespace, line)
        response = {} if error is None else {"error": error}
        self.wfile.write(json.dumps(response).encode() + b"\n")


def _execute(namespace: Controllable, action: str) -> str | None:
    """Execute an action, and return the error message if it fails."""
    try:
        match action:
            case NamespaceAction.STOP:
                namespace.stop()
            case NamespaceAction.START:
                namespace.start()
            case NamespaceAction.KILL:
                namespace.kill()
            case _:
                return f"{action[:64]!r} is not one of {', '.join(NamespaceAction)}."
    except (PairbusError, OSError, TimeoutError) as exc:
        return str(exc)
    return None


def request_action(folder: Path, action: NamespaceAction) -> None:
    """Stop, start or kill the namespace that a process serves from this data folder.

    Raises StateError if no process serves it, or if the action fails.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(RESPONSE_TIMEOUT_S)
        try:
            with _short_path(folder) as address:
                client.connect(address)
            client.sendall(f"{action}\n".encode())
            with client.makefile("rb") as response:
                line = response.readline()
        except TimeoutError as exc:
            raise StateError(
                f"The process that serves data folder {folder} does not respond."
            ) from exc
        except OSError as exc:
            raise StateError(
                f"No running emulator serves data folder {folder} ({exc.strerror})."
            ) from exc
    if not line:
        raise StateError(f"The process that serves data folder {folder} ended.")
    if error := json.loads(line).get("error"):
        raise StateError(str(error))


@contextlib.contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """Yield a path of the socket in a folder that is short enough for the operating system."""
    path = str(folder / FILE_NAME)
    if len(os.fsencode(path)) <= _MAX_ADDRESS:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{FILE_NAME}"
    finally:
        os.close(descriptor)
