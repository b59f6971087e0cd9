"""Sender processes: the state and the recovery of a pairing, with calls that take a fixed time."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, NamedTuple

from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from pairbus.events import PathStatus, StateChanged
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.effects import CallSdk, Operation, WaitForChange
from pairbus.pairing.health import FailureAction, InFlightSend
from pairbus.pairing.path_state import Hold, PathState
from pairbus.pairing.recovery import recover
from pairbus.pairing.state import PairingState
from tests.scale.namespace import CreditedNamespace, StoredQueue
from tests.scale.timeline import Timeline

CALL_S = 0.02
"""The duration of a call."""
RETRIES, RETRY_S = 3, 2.0
"""Retries of the SDK after a throttled call, and the time before each."""
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class World(NamedTuple):
    """What all processes share."""

    timeline: Timeline
    primary: CreditedNamespace
    secondary: CreditedNamespace
    backlog: dict[str, StoredQueue]
    delivered: Callable[[int], None]
    """Called with the number of messages that the primary accepted."""

    def wall_clock(self) -> datetime:
        return EPOCH + timedelta(seconds=self.timeline.now)


class PeekedMessage(NamedTuple):
    sequence_number: int
    enqueued_time_utc: datetime


class PingLink(NamedTuple):
    world: World

    def send_messages(self, _message: object) -> None:
        self.world.primary.call("pings", "send")


class PeekLink(NamedTuple):
    world: World
    queue: str

    def peek_messages(
        self, max_message_count: int, sequence_number: int, timeout: float
    ) -> list[PeekedMessage]:
        messages = self.world.backlog[self.queue].peek(sequence_number, max_message_count)
        self.world.secondary.call("peeks", "peek", max(1, len(messages)))
        return [
            PeekedMessage(message.number, EPOCH + timedelta(seconds=message.stored_at))
            for message in messages
        ]


class Links:
    """The factory of a recovery's links."""

    usage = None

    def __init__(self, world: World) -> None:
        self._world = world

    def ping_sender(self, path: str) -> PingLink:
        return PingLink(self._world)

    def backlog_receiver(self, queue: str) -> PeekLink:
        return PeekLink(self._world, queue)


class SenderProcess:
    """A process with some paths, which sends one message after the other on each."""

    def __init__(self, world: World, options: dict[str, Any], rate: float, random: Random) -> None:
        self._world = world
        self._random = random
        self._rate = rate
        self._wakers: list[Callable[[], None]] = []
        self._recoveries: set[Operation[None]] = set()
        self.failed_calls: dict[str, int] = {"down": 0, "busy": 0}
        self.longest_hold_s = 0.0
        self.changes: list[tuple[float, PathStatus]] = []
        self.pairing = PairingState(
            SendAvailabilityOptions(**options, on_event=self._note),
            primary="one",
            secondary="two",
            queues=tuple(world.backlog),
            on_change=self._wake,
            start_recovery=self._start_recovery,
            now=lambda: world.timeline.now,
            wall_clock=world.wall_clock,
            random=random,
        )

    def add_path(self, name: str) -> None:
        """Add a path, and send on it from now on."""
        path = self.pairing.path(name)
        self._world.timeline.call_after(
            self._random.expovariate(self._rate), lambda: self._begin_send(path)
        )

    def statuses(self) -> Iterator[PathStatus]:
        """Yield the status of each path."""
        return (path.status for path in self.pairing.status().paths.values())

    def _note(self, event: object) -> None:
        if isinstance(event, StateChanged):
            self.changes.append((self._world.timeline.now, event.to_state))

    # Sends.

    def _begin_send(self, path: PathState) -> None:
        timeline = self._world.timeline
        timeline.call_after(self._random.expovariate(self._rate), lambda: self._begin_send(path))
        self._send(path, RETRIES, timeline.now)

    def _send(self, path: PathState, retries: int, since: float) -> None:
        route = self.pairing.route(path)
        if isinstance(route, Hold):
            self._wait(
                self.pairing.changed_since(route.version),
                route.seconds,
                lambda: self._send(path, retries, since),
            )
        elif isinstance(route, InFlightSend):
            self.longest_hold_s = max(self.longest_hold_s, self._world.timeline.now - since)
            self._world.timeline.call_after(CALL_S, lambda: self._store(route, retries))
        else:
            self.longest_hold_s = max(self.longest_hold_s, self._world.timeline.now - since)
            self._world.timeline.call_after(CALL_S, lambda: self._deliver(path, retries))

    def _deliver(self, path: PathState, retries: int) -> None:
        try:
            self._world.primary.call("live", "send")
        except ServiceBusServerBusyError as exc:
            if retries > 0:
                later = RETRY_S * (1 + self._random.random())
                self._world.timeline.call_after(later, lambda: self._deliver(path, retries - 1))
                return
            self.failed_calls["busy"] += 1
            self.pairing.send_failed(path, exc, 1)
        except ServiceBusError as exc:
            action = self.pairing.send_failed(path, exc, 1)
            if isinstance(action, InFlightSend):
                self._store(action, RETRIES)
            else:
                assert action is FailureAction.RAISE
                self.failed_calls["down"] += 1
        else:
            self.pairing.send_succeeded(path)
            self._world.delivered(1)

    def _store(self, route: InFlightSend, retries: int) -> None:
        queue = self._random.choice(self.pairing.rotation.queues)
        try:
            self._world.secondary.call("live", "send")
        except ServiceBusServerBusyError:
            if retries > 0:
                later = RETRY_S * (1 + self._random.random())
                self._world.timeline.call_after(later, lambda: self._store(route, retries - 1))
                return
            self.failed_calls["busy"] += 1
        else:
            self._world.backlog[queue].store(self._world.timeline.now)
        with route:
            pass

    # The recovery of a path.

    def _start_recovery(self, path: PathState) -> None:
        operation = recover(self.pairing, Links(self._world), path)  # type: ignore[arg-type]
        self._recoveries.add(operation)
        self._world.timeline.call_after(0, lambda: self._resume(operation, None))

    def close(self) -> None:
        """End the recoveries that have not ended."""
        for operation in self._recoveries:
            with contextlib.suppress(StopIteration, KeyboardInterrupt):
                operation.throw(KeyboardInterrupt())
                while True:
                    operation.send(None)

    def _resume(self, operation: Operation[None], result: object) -> None:
        """Carry out the effects of an operation until one takes time."""
        while True:
            try:
                if isinstance(result, Exception):
                    effect = operation.throw(result)
                else:
                    effect = operation.send(result)
            except StopIteration:
                self._recoveries.remove(operation)
                return
            if isinstance(effect, CallSdk):
                try:
                    answer: object = effect.function(effect.link)
                except ServiceBusError as exc:
                    answer = exc
                self._world.timeline.call_after(CALL_S, partial(self._resume, operation, answer))
                return
            if isinstance(effect, WaitForChange):
                self._wait(effect.changed, effect.seconds, lambda: self._resume(operation, None))
                return
            result = None  # links are closed at once

    def _wait(
        self, changed: Callable[[], bool], seconds: float, proceed: Callable[[], None]
    ) -> None:
        """Go on after a change of the state, or after the time."""
        done = False

        def wake() -> None:
            nonlocal done
            if not done:
                done = True
                proceed()

        def wake_if_changed() -> None:
            if not done and changed():
                self._world.timeline.call_after(0, wake)
            elif not done:
                self._wakers.append(wake_if_changed)

        self._world.timeline.call_after(seconds, wake)
        wake_if_changed()

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            waker()
