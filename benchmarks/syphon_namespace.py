"""An emulated namespace in a separate process, which can be killed and started on the same port.

`python -m benchmarks.syphon_namespace FOLDER PORT QUEUE…` prints its connection string, and runs
until its standard input is closed.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pairbus.amqp.client import ClientOptions
from pairbus.emulator.namespace import LocalNamespace


class ServedNamespace:
    """The process of a namespace."""

    def __init__(self, folder: str, *queues: str) -> None:
        self.folder = folder
        self.queues = queues
        self.connection_string = ""
        self.start()

    def start(self, port: int = 0, *queues: str) -> None:
        arguments = [self.folder, str(port), *(queues if port else self.queues)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.syphon_namespace", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.connection_string = self.process.stdout.readline().strip()

    @property
    def options(self) -> ClientOptions:
        return ClientOptions.from_connection_string(self.connection_string)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()


@contextmanager
def served(*queues: str) -> Iterator[ServedNamespace]:
    """Start a namespace with some queues, in a temporary folder."""
    with tempfile.TemporaryDirectory("-pairbus") as folder:
        namespace = ServedNamespace(folder, *queues)
        try:
            yield namespace
        finally:
            namespace.close()


def main() -> None:
    folder, port, *queues = sys.argv[1:]
    with LocalNamespace("bench", folder=folder, port=int(port)) as namespace:
        for queue in queues:
            namespace.create_queue(queue, max_size_in_megabytes=5120)
        print(namespace.connection_string, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
