"""Run the example of README.md unchanged, with an outage in the middle.

    wheel_example.py README.md

Runs in an environment in which pairbus is installed, and imports nothing from the checkout. The
example uses three names that it does not define: PRIMARY, SECONDARY and `orders`. They are two
namespaces in emulator processes, and orders that kill the primary halfway. Afterwards every order
must be in the primary or in the backlog, exactly once.
"""

import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient

from pairbus.emulator import EmulatorProcess

HOST = "contoso.example"
"""Host of the primary in the example. The first label is the name of the primary, and part of the
paths of the backlog."""
QUEUE = "orders"
BEFORE, DURING = ("order 1", "order 2"), ("order 3", "order 4", "order 5")


def first_example(page: str) -> str:
    """Return the first block of Python in a page."""
    block = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    if block is None:
        raise SystemExit("README.md has no example in Python")
    return block[1]


def resolve_host() -> None:
    """Make the primary's host resolve to this machine, in this process."""
    getaddrinfo = socket.getaddrinfo

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        return getaddrinfo("localhost" if host == HOST else host, *arguments, **options)

    socket.getaddrinfo = resolve


def orders(primary: EmulatorProcess) -> Iterator[str]:
    yield from BEFORE
    primary.kill()
    try:
        socket.create_connection(("localhost", primary.port), 5).close()
    except ConnectionRefusedError:
        pass
    else:
        raise SystemExit("the primary was killed, but still accepts connections")
    yield from DURING


def run(example: str, primary: EmulatorProcess, secondary: EmulatorProcess) -> None:
    resolve_host()
    names = {
        "PRIMARY": primary.connection_string.replace("localhost", HOST),
        "SECONDARY": secondary.connection_string,
        "orders": orders(primary),
    }
    exec(compile(example, "README.md", "exec"), names)


def peek(emulator: EmulatorProcess, queue: str) -> list[Any]:
    """Return the messages of a queue without receiving them."""
    with (
        ServiceBusClient.from_connection_string(emulator.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        return list(receiver.peek_messages(max_message_count=100))


def main() -> int:
    example = first_example(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with (
        tempfile.TemporaryDirectory() as folder,
        EmulatorProcess(HOST.partition(".")[0], queues=[QUEUE], folder=folder) as primary,
        EmulatorProcess("secondary", queues=[QUEUE], folder=folder) as secondary,
    ):
        run(example, primary, secondary)
        primary.start()
        name = HOST.partition(".")[0]
        delivered = [str(message) for message in peek(primary, QUEUE)]
        stored = [
            message
            for index in range(10)
            for message in peek(secondary, f"{name}/x-servicebus-transfer/{index}")
        ]
    destinations = {message.application_properties[b"x-ms-path"] for message in stored}
    backlog = sorted(str(message) for message in stored)
    if (delivered, backlog, destinations) != ([*BEFORE], [*DURING], {QUEUE.encode()}):
        print(
            f"in the primary: {delivered}; in the backlog: {backlog}, for {destinations}",
            file=sys.stderr,
        )
        return 1
    print(
        f"README.md's example: {len(delivered)} messages in the primary before it was killed, "
        f"{len(backlog)} in the backlog, none lost"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
