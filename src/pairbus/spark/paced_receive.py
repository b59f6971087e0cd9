"""Receiving of the available messages of a queue, a slice at a time while a limit is known."""

from collections.abc import Callable, Iterator

from pairbus.amqp.client import Receiver
from pairbus.amqp.events import Delivery
from pairbus.errors import Busy
from pairbus.spark.pace import Pace

MAX_SLICE = 10_000
"""Messages of one receive. Before the next one, a limit may have become known."""
MAX_THROTTLED_RECEIVES = 3
"""The highest number of throttled receives in a row that are repeated."""


def receive_paced(
    receiver: Receiver, count: int, pace: Pace, *, stop: Callable[[], bool] = lambda: False
) -> Iterator[list[Delivery]]:
    """Yield up to `count` messages, until the queue is empty, the time of the task is over, or
    `stop` returns True. Raises AmqpError, also Busy if the namespace goes on to throttle."""
    throttled = 0
    while count > 0 and not stop() and not pace.is_over():
        size = min(count, MAX_SLICE, pace.max_slice())
        pace.wait(size)
        received = 0
        try:
            for deliveries in receiver.receive_available(size, stop=stop):
                received += len(deliveries)
                pace.count(len(deliveries))
                yield deliveries
        except Busy as exc:
            count -= received
            pace.note_throttled(exc)
            throttled += 1
            if throttled > MAX_THROTTLED_RECEIVES:
                raise
            continue
        throttled = 0
        count -= received
        if received < size:  # the queue is empty, or the namespace delivers no more at the moment
            pace.give_back(size - received)
            return
