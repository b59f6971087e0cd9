"""A syphon: the rate control of the drain, on queues that are lists of numbers."""

from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from pairbus.errors import Busy
from pairbus.spark.pace import SLICE_S
from pairbus.spark.rate_control import (
    DEFAULT_WAIT_S,
    MAX_KNOWN_RATE,
    credit_limit,
    requested_wait_s,
)
from pairbus.spark.rate_schedule import ScheduleState
from tests.scale.processes import World

BATCH_S = 1.0
"""The time from the storing of a message until a micro-batch receives it, at least."""


class ModelSyphon:
    """Moves messages in slices, as tasks do, at the rate that both namespaces bear."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._limit = credit_limit(world.timeline.now)
        self._schedule = ScheduleState()
        self._first_queue = 0
        self.moved = 0

    def move_slice(self) -> None:
        """Move the messages that are due, and come back after a while."""
        now = self._world.timeline.now
        self._world.timeline.call_after(SLICE_S, self.move_slice)
        rate = self._limit.rate(now, MAX_KNOWN_RATE)
        assert rate is not None
        if self._world.primary.is_down or rate <= 0:
            return
        size = max(1, int(rate * SLICE_S))
        if self._schedule.due_at > now:
            return
        self._schedule.reserve(now, size, rate)
        moved = 0
        try:
            moved = self._move(size)
        except ServiceBusServerBusyError as exc:
            wait_s = requested_wait_s(Busy(str(exc)))
            observed = self._schedule.observed(now)
            self._limit = self._limit.throttled(
                now, DEFAULT_WAIT_S if wait_s is None else wait_s, observed
            )
        except ServiceBusError:
            return
        if moved < size:
            self._schedule.give_back(size - moved, rate)

    def _move(self, size: int) -> int:
        """Receive a slice, send it, and complete it. Return the number of messages."""
        now = self._world.timeline.now
        queues = list(self._world.backlog.values())
        moved = 0
        for offset in range(len(queues)):
            messages = queues[(self._first_queue + offset) % len(queues)].messages
            while moved < size and messages and messages[0].stored_at <= now - BATCH_S:
                self._world.secondary.call("drain", "receive")
                self._world.primary.call("drain", "send")
                messages.popleft()
                moved += 1
                self.moved += 1
                self._schedule.count(now, 1)
                self._world.delivered(1)
        self._first_queue = (self._first_queue + 1) % len(queues)
        return moved
