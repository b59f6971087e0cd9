"""A paired sender whose instructions are counted: the process that `benchmarks.instructions` runs.

Only the instructions of one function of the interpreter are counted. It is `dir`, which no code of
a send calls: here it calls back a method that sends.
"""

import json
import select
import sys
from collections.abc import Callable

from azure.servicebus import ServiceBusMessage

from benchmarks.pairing import FAST, NamespaceAddress, paired
from benchmarks.send_blocks import BODY

COUNTED = "PyObject_Dir"
"""The C function of `dir`."""
WARM_UP = 64


class CountedCall:
    """A function whose instructions are counted when it is called by `dir`."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def __dir__(self) -> list[str]:
        self._function()
        return []


def wait_for_line() -> None:
    """Wait for a line of the standard input without blocking: valgrind obeys its commands only
    while the program runs."""
    while not select.select([sys.stdin], [], [], 0)[0]:
        pass
    sys.stdin.readline()


def main(primary: str, secondary: str, options: str, configured: str, sends: str) -> None:
    if configured == "providers":
        from benchmarks.telemetry import set_providers

        set_providers()
    addresses = NamespaceAddress(primary), NamespaceAddress(secondary)
    with (
        paired(*addresses, json.loads(options), **FAST) as client,
        client.get_queue_sender("orders") as sender,
    ):

        def send(count: int) -> None:
            for _ in range(count):
                sender.send_messages(ServiceBusMessage(BODY))

        send(WARM_UP)
        print("ready", flush=True)
        wait_for_line()
        dir(CountedCall(lambda: send(int(sends))))


if __name__ == "__main__":
    main(*sys.argv[1:])
