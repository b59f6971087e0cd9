"""Measure how long a test waits for a namespace, and for its first message with the SDK."""

import subprocess
import sys
from time import perf_counter

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.emulator import NamespaceFactory

RUNS = 10
IMPORT = """
import pytest, time
start = time.process_time()
import {}
print(time.process_time() - start)
"""


def report(step: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    print(
        f"{step:<40} best {ordered[0] * 1000:7.1f} ms"
        f"   median {ordered[len(ordered) // 2] * 1000:7.1f} ms"
    )


def import_times(module: str) -> list[float]:
    """Import a module in new processes, and return the CPU time of each."""
    command = [sys.executable, "-c", IMPORT.format(module)]
    runs = [subprocess.run(command, capture_output=True, check=True) for _ in range(RUNS)]
    return [float(run.stdout) for run in runs]


def main() -> int:
    report("load the plugin", import_times("pairbus.emulator.pytest_plugin"))
    report("import the emulator", import_times("pairbus.emulator.namespace_factory"))
    started, sent, received = [], [], []
    with NamespaceFactory() as factory:
        for _ in range(RUNS):
            start = perf_counter()
            with factory(queues=["orders"]) as namespace:
                started.append(perf_counter() - start)
                with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
                    client.get_queue_sender("orders").send_messages(ServiceBusMessage("books"))
                    sent.append(perf_counter() - start)
                    [message] = client.get_queue_receiver("orders").receive_messages()
                    received.append(perf_counter() - start)
                    assert str(message) == "books"
    report("start a namespace with a queue", started)
    report("the same, and send a first message", sent)
    report("the same, and receive it", received)
    return 0


if __name__ == "__main__":
    sys.exit(main())
