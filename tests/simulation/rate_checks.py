"""Checks of the rate control of syphons: their tasks wait for as long as a throttled namespace
asks, and move fewer messages a second then."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pairbus.amqp.client.sender
from pairbus.errors import Busy
from pairbus.spark import queue_reader
from pairbus.spark.destination_sender import DestinationSender
from pairbus.spark.pace import Pace
from pairbus.spark.rate_control import MAX_WAIT_S, MIN_RATE, requested_wait_s
from pairbus.syphon.drain_rate import DrainRate
from tests.simulation.journal import Journal
from tests.simulation.world import World

TOLERANCE_S = 0.001


@dataclass(slots=True)
class _Wait:
    """The wait that a throttled namespace asked for, by the clock of the machine of the syphon."""

    throttled_at: float = 0.0
    until: float = 0.0
    is_new: bool = False
    """The last throttled operation says something about the rate: it was not in flight while the
    tasks waited already."""

    def add(self, now: float, seconds: float, sent_at: float) -> None:
        self.is_new = now >= self.until and sent_at > self.throttled_at
        if self.is_new:
            self.throttled_at = now
        if self.is_new or now < self.until:
            self.until = max(self.until, now + min(seconds, MAX_WAIT_S))


class RateChecks:
    """Watches the receives and sends of all syphons. The tasks of a syphon share a rate file."""

    def __init__(self, journal: Journal, world: World) -> None:
        self._journal = journal
        self._world = world
        self._waits: dict[Path | None, _Wait] = {}

    def begin(self, pace: Pace, operation: str) -> None:
        """Check that an operation does not begin while its task has to wait."""
        early_s = self._wait(pace.plan.file).until - self._now()
        if early_s > TOLERANCE_S:
            self._journal.violate("Y9", f"a {operation} began {early_s:.2f} s too early")

    def throttled(self, file: Path | None, error: object, sent_at: float | None = None) -> None:
        """Take note of an operation that failed. None: it was sent just before."""
        wait_s = requested_wait_s(error) if isinstance(error, Busy) else None
        if wait_s is not None:
            now = self._now()
            self._wait(file).add(now, wait_s, now if sent_at is None else sent_at)

    def check_lowered(self, pace: Pace, note: Callable[[], None]) -> None:
        """Check that the rate of all tasks falls when one of them takes note of a throttled
        operation."""
        now, before = self._now(), pace.limit
        note()
        allowed, rate = before.rate(now), pace.limit.batch_rate(now)
        is_lower = rate is not None and (allowed is None or rate < max(allowed, MIN_RATE + 1e-9))
        if self._wait(pace.plan.file).is_new and not is_lower:
            self._journal.violate("Y9", "the rate was not lowered after a throttled operation")

    def _wait(self, file: Path | None) -> _Wait:
        return self._waits.setdefault(file, _Wait())

    def _now(self) -> float:
        return self._world.scheduler.process.wall()


class _CheckedReceiver:
    """In the place of the receiver of a task."""

    def __init__(self, checks: RateChecks, receiver: Any, pace: Pace) -> None:
        self._checks = checks
        self._receiver = receiver
        self._pace = pace

    def receive_available(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        self._checks.begin(self._pace, "receive")
        try:
            yield from self._receiver.receive_available(*arguments, **options)
        except Busy as exc:
            self._checks.throttled(self._pace.plan.file, exc)
            raise


def observe_rates(journal: Journal, world: World) -> Callable[[], None]:
    """Check the rate control of all syphons, until the returned function is called."""
    checks = RateChecks(journal, world)
    sender_class: Any = pairbus.amqp.client.sender.Sender
    post, note_throttled = sender_class.post, Pace.note_throttled
    start, is_throttled = DestinationSender._start, DestinationSender._is_throttled
    receive, driver_throttled = queue_reader.receive_paced, DrainRate.note_throttled

    def checked_start(sender: Any, messages: Any) -> Any:
        world.scheduler.current_task().__dict__["pace"] = sender._pace
        return start(sender, messages)

    def checked_post(sender: Any, *arguments: Any, **options: Any) -> Any:
        checks.begin(world.scheduler.current_task().__dict__["pace"], "send")
        return post(sender, *arguments, **options)

    def checked_throttled(sender: Any, error: Any, sent_at: float) -> Any:
        checks.throttled(sender._pace.plan.file, error, sent_at)
        return is_throttled(sender, error, sent_at)

    def checked_receive(receiver: Any, count: int, pace: Pace, **options: Any) -> Any:
        return receive(_CheckedReceiver(checks, receiver, pace), count, pace, **options)  # type: ignore[arg-type]

    def checked_note(pace: Pace, *arguments: Any, **options: Any) -> None:
        checks.check_lowered(pace, lambda: note_throttled(pace, *arguments, **options))

    def checked_driver(rate: DrainRate, error: Busy, now: float) -> None:
        checks.throttled(rate._path, error)
        driver_throttled(rate, error, now)

    sender_class.post, queue_reader.receive_paced = checked_post, checked_receive
    DestinationSender._start = checked_start  # type: ignore[method-assign]
    DestinationSender._is_throttled = checked_throttled  # type: ignore[method-assign]
    Pace.note_throttled = checked_note  # type: ignore[method-assign]
    DrainRate.note_throttled = checked_driver  # type: ignore[method-assign]

    def restore() -> None:
        sender_class.post, queue_reader.receive_paced = post, receive
        DestinationSender._start = start  # type: ignore[method-assign]
        DestinationSender._is_throttled = is_throttled  # type: ignore[method-assign]
        Pace.note_throttled = note_throttled  # type: ignore[method-assign]
        DrainRate.note_throttled = driver_throttled  # type: ignore[method-assign]

    return restore
