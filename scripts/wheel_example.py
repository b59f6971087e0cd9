"""Run the example of README.md as it stands there, with an outage in the middle.

    wheel_example.py README.md

Runs in an environment where pairbus is installed, and imports nothing of the checkout. Two local
namespaces are started by the installed command, each in a process of its own. The example leaves
three names open: PRIMARY, SECONDARY and `orders`. The orders that it is given kill the primary's
process in between. Afterwards every order must be in the primary or in the backlog, once.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient

HOST = "contoso.example"
"""What the primary is called here; a backlog has the first label in its paths."""
QUEUE = "orders"
BEFORE, DURING = ("order 1", "order 2"), ("order 3", "order 4", "order 5")
START_S = 60.0


def example_of(text: str) -> str:
    """The first block of Python in a page."""
    found = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit("README.md has no example in Python")
    return found[1]


class Namespace:
    """A local namespace in a process, which can be killed and started again."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self.port = 0
        self.connection_string = ""

    def start(self) -> None:
        command = [Path(sys.executable).with_name("pairbus"), "emulator", "--namespace", self.name]
        command += ["--queue", QUEUE, "--folder", self._folder, "--port", self.port]
        self._process = subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.PIPE, text=True
        )
        patience = threading.Timer(START_S, self._process.kill)
        patience.start()
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip().startswith("Endpoint="):
                self.connection_string = line.strip()
                break
        patience.cancel()
        found = re.search(r"sb://localhost:(\d+)", self.connection_string)
        if found is None or self._process.poll() is not None:
            raise SystemExit(f"pairbus emulator did not start {self.name}")
        self.port = int(found[1])

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Can be called again."""
        if self._process.returncode is None:
            self._process.send_signal(number)
            self._process.communicate(timeout=START_S)

    def refuses(self) -> bool:
        """Whether nobody listens."""
        try:
            with socket.create_connection(("localhost", self.port), 5):
                return False
        except ConnectionRefusedError:
            return True

    def held(self, queue: str) -> list[Any]:
        """The messages of a queue, which stay there."""
        with (
            ServiceBusClient.from_connection_string(self.connection_string) as client,
            client.get_queue_receiver(queue) as receiver,
        ):
            return list(receiver.peek_messages(max_message_count=100))


def know_host() -> None:
    """Have the primary's host found on this machine, in this process."""
    find = socket.getaddrinfo

    def found(host: Any, *rest: Any, **options: Any) -> Any:
        return find("localhost" if host == HOST else host, *rest, **options)

    socket.getaddrinfo = found


def orders(primary: Namespace) -> Iterator[str]:
    yield from BEFORE
    primary.stop(signal.SIGKILL)
    if not primary.refuses():
        raise SystemExit("the primary was killed, and is there")
    yield from DURING


def play(example: str, primary: Namespace, secondary: Namespace) -> None:
    know_host()
    names = {
        "PRIMARY": primary.connection_string.replace("localhost", HOST),
        "SECONDARY": secondary.connection_string,
        "orders": orders(primary),
    }
    exec(compile(example, "README.md", "exec"), names)


def main() -> int:
    example = example_of(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        primary, secondary = (Namespace(name, folder / name) for name in ("primary", "secondary"))
        for namespace in (primary, secondary):
            namespace.start()
            stack.callback(namespace.stop)
        play(example, primary, secondary)
        primary.start()
        name = HOST.partition(".")[0]
        there = [str(message) for message in primary.held(QUEUE)]
        kept = [
            message
            for number in range(10)
            for message in secondary.held(f"{name}/x-servicebus-transfer/{number}")
        ]
    going = {message.application_properties[b"x-ms-path"] for message in kept}
    waiting = sorted(str(message) for message in kept)
    if (there, waiting, going) != ([*BEFORE], [*DURING], {QUEUE.encode()}):
        print(f"in the primary: {there}; in the backlog: {waiting}, for {going}", file=sys.stderr)
        return 1
    print(
        f"README.md's example: {len(there)} messages in the primary, then it was killed; "
        f"{len(waiting)} in the backlog; none lost"
    )
    return 0


if __name__ == "__main__":
    os.environ["PYTHONUNBUFFERED"] = "1"
    sys.exit(main())
