"""Ctrl-C and SIGTERM as a request to stop; a second one ends the process at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cancel_on_signal(event: threading.Event | None = None) -> Iterator[threading.Event]:
    """Yield an event that the first signal sets. It is a new one unless it is given."""
    cancel = event or threading.Event()

    def handle(number: int, _: object) -> None:
        if cancel.is_set():
            os._exit(128 + number)  # Spark exits too, because its standard input is closed
        cancel.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield cancel
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
