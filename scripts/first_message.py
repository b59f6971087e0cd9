"""Measure how long a test waits for a namespace, and for its first message with the SDK."""

import subprocess
import sys
from time import perf_counter

RUNS = 10
LOAD_PLUGIN = """
import pytest, time
start = time.perf_counter()
import pairbus.emulator.pytest_plugin
print(time.perf_counter() - start)
"""


def report(step: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    print(
        f"{step:<40} best {ordered[0] * 1000:7.1f} ms"
        f"   median {ordered[len(ordered) // 2] * 1000:7.1f} ms"
    )


def main() -> int:
    command = [sys.executable, "-c", LOAD_PLUGIN]
    runs = [subprocess.run(command, capture_output=True, check=True) for _ in range(RUNS)]
    report("load the plugin", [float(run.stdout) for run in runs])

    start = perf_counter()
    from pairbus.emulator import NamespaceFactory

    report("import the emulator", [perf_counter() - start])
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

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
