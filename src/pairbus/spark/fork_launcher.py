"""The interpreter that Spark starts instead of Python: it has a process forked by the fork server.

Spark runs `python -m MODULE …`, and expects the process to be its child. So this one sends its
arguments, environment, folder and standard files to the server, and then waits in a shell, which
needs little memory, for the exit code of the forked process. If it is killed, the server ends the
forked process. Without an answer from the server, it becomes the interpreter itself.

This file is executed as a script without site packages, because it runs often and must be fast.
Its arguments are the socket of the server, the interpreter, and those of the interpreter.
"""

import marshal
import os
import socket
import sys

LENGTH_BYTES = 4
WAIT = 'read -r code <&3 && exit "$code"; exit 1'
"""Waits for the exit code on the connection to the server, which is file 3."""


def main() -> None:
    address, python, *arguments = sys.argv[1:]
    if arguments[:1] == ["-m"]:
        connection = socket.socket(socket.AF_UNIX)
        if was_forked(connection, address, arguments[1:]):
            os.dup2(connection.fileno(), 3)
            os.set_inheritable(3, True)  # it may be the same file
            os.execv("/bin/sh", ["sh", "-c", WAIT])
        connection.close()
    os.execv(python, [python, *arguments])


def was_forked(connection: socket.socket, address: str, command: list[str]) -> bool:
    try:
        folder = os.getcwd()  # noqa: PTH109  pathlib is slow to import
        request = marshal.dumps((command, dict(os.environ), folder))
        connection.connect(address)
        length = len(request).to_bytes(LENGTH_BYTES, "big")
        socket.send_fds(connection, [length], [0, 1, 2])
        connection.sendall(request)
        return connection.recv(1) != b""
    except OSError:
        return False


if __name__ == "__main__":
    main()
