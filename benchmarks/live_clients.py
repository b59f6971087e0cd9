"""A separate process with live traffic: it sends to a queue of a namespace and receives from it.

`python -m benchmarks.live_clients CONNECTION_STRING QUEUE RATE` starts one sender and one receiver.
Each makes RATE calls a second, one message each. A throttled call is not repeated. The process ends
when its standard input is closed, and prints for each second (since 1970) the number of calls and
the number of throttled calls.
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from benchmarks.child_process import ChildProcess
from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.sections import Message
from pairbus.errors import Busy

Calls = dict[int, tuple[int, int]]
"""Calls and throttled calls by second."""


class LiveClients(ChildProcess):
    """Starts the process, and reads its result."""

    def __init__(self, connection_string: str, queue: str, rate: float) -> None:
        super().__init__("benchmarks.live_clients", connection_string, queue, str(rate))
        self.calls: Calls = {}

    def close(self) -> str:
        output = super().close()
        self.calls = {int(second): tuple(calls) for second, calls in json.loads(output).items()}
        return output


def repeat(call: Callable[[], object], rate: float, stopped: threading.Event) -> Calls:
    """Call a function at a rate until stopped, and count the calls."""
    calls: Counter[int] = Counter()
    throttled: Counter[int] = Counter()
    due = time.time()
    while not stopped.wait(max(0.0, due - time.time())):
        # A client that is late does not catch up: the pause of one must not throttle all.
        due = max(due + 1 / rate, time.time() - 0.1)
        second = int(time.time())
        calls[second] += 1
        try:
            call()
        except Busy:
            throttled[second] += 1
    return {second: (calls[second], throttled[second]) for second in sorted(calls)}


def main() -> None:
    connection_string, queue, rate = sys.argv[1:]
    options = ClientOptions.from_connection_string(connection_string)
    payload = Message.build(data=b"x" * 200).encode()
    stopped = threading.Event()
    results: list[Calls] = []

    def send() -> None:
        with Client(options) as client:
            sender = Sender(client, queue)
            results.append(repeat(lambda: sender.send(payload), float(rate), stopped))

    def receive() -> None:
        with Client(options) as client:
            receiver = Receiver(client, queue, settled=True)
            results.append(repeat(lambda: receiver.receive(1, timeout_s=1), float(rate), stopped))

    threads = [threading.Thread(target=target) for target in (send, receive)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stopped.set()
    for thread in threads:
        thread.join()
    total: dict[int, list[int]] = {}
    for calls in results:
        for second, (count, throttled) in calls.items():
            entry = total.setdefault(second, [0, 0])
            entry[0] += count
            entry[1] += throttled
    print(json.dumps(total))


if __name__ == "__main__":
    main()
