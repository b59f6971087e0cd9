"""Pairing two namespaces, and the client that comes of it."""

import contextlib
import threading
from collections.abc import Callable
from random import Random
from time import monotonic
from types import TracebackType
from typing import Any
from weakref import WeakSet

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusClient

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing import duplicates
from pairbus.pairing.administration import administration_of
from pairbus.pairing.backlog_queues import bounds_within, ensure_queues
from pairbus.pairing.base import CLOSE_S, PING_S, PairedClientBase
from pairbus.pairing.deadlines import DeadlineMonitor
from pairbus.pairing.health import SMALL, HealthTask, PeekResult
from pairbus.pairing.hosting import EmbeddedSyphon
from pairbus.pairing.ping import make_ping
from pairbus.pairing.plan import PairingPlan, make_plan
from pairbus.pairing.sdk import make_handshake_endable, without_retries
from pairbus.pairing.sender import PairedSender
from pairbus.pairing.state import PathState
from pairbus.usage.operations import Purpose


def pair_namespace(
    primary: ServiceBusClient,
    options: SendAvailabilityOptions | None,
    *,
    now: Callable[[], float] = monotonic,
    random: Random | None = None,
) -> "PairedClient":
    """Pair the namespace of a client with a secondary, which stores messages while it is down.

    Returns when the backlog queues exist and senders are protected. Raises a ConfigurationError of
    its own for each mistake, or BacklogUnavailable; then nothing is paired, and it can be tried
    again. `now` and `random` are for tests.
    """
    plan = make_plan(primary, options, ServiceBusClient)
    assert options is not None
    try:
        queues = _queues(plan, options)
        return PairedClient(plan, options, queues, now=now, random=random)
    except BaseException:
        plan.give_up()
        if plan.own_secondary:
            plan.secondary.close()
        raise


def _queues(plan: PairingPlan, options: SendAvailabilityOptions) -> tuple[str, ...]:
    if not options.create_backlog:
        return plan.paths
    given = options.secondary_administration
    bounds = bounds_within(options.operation_timeout.total_seconds())
    if given is not None:
        return tuple(ensure_queues(given, plan.paths, bounds=bounds))
    with administration_of(plan.secondary, tell=plan.managed(secondary=True)) as administration:
        return tuple(ensure_queues(administration, plan.paths, bounds=bounds))


class PairedClient(PairedClientBase):
    """A `ServiceBusClient` whose senders go on when its namespace does not.

    Receivers are the primary's own. It can be used from many threads, each with its own senders.
    Closing it ends the pairing; clients that it was given stay open.
    """

    def __init__(
        self,
        plan: PairingPlan,
        options: SendAvailabilityOptions,
        queues: tuple[str, ...],
        *,
        now: Callable[[], float],
        random: Random | None,
    ) -> None:
        super().__init__(plan, options, queues, now=now, random=random)
        self.watch = DeadlineMonitor()
        self._changed = threading.Condition(self.pairing.lock)
        self.pairing.on_change = self.wake
        self.pairing.attend = self._attend
        self._senders: WeakSet[PairedSender] = WeakSet()
        self._attendants: set[threading.Thread] = set()
        if plan.syphon is not None:
            faults = self.primary.fault, self.secondary.fault
            self._host = EmbeddedSyphon(plan.syphon, self.pairing, faults)

    def __enter__(self) -> "PairedClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # What a ServiceBusClient has.

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> PairedSender:
        """A sender of a queue, protected."""
        return self._sender(queue_name, self._primary.get_queue_sender, kwargs)

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> PairedSender:
        """A sender of a topic, protected."""
        return self._sender(topic_name, self._primary.get_topic_sender, kwargs)

    def close(self) -> None:
        """End the pairing: close senders, stop pings and the syphon. Takes a bounded time. Can be
        called again."""
        if self._host is not None:
            self._host.end()
        self.primary.close()
        self.secondary.close()
        if self._host is not None:
            self._host.wait(CLOSE_S)

    def fault(self, cause: BaseException) -> None:
        """Give the pairing up: every later call raises PairingFaulted with this cause."""
        self.primary.fault(cause)
        self.secondary.fault(cause)
        self.close()

    def _shut_primary(self) -> None:
        with self._changed:
            if self.pairing.primary.closed:
                return
            self.pairing.primary.closed = True
            self._changed.notify_all()
        try:
            for sender in list(self._senders):
                sender.close()
            for attendant in list(self._attendants):
                if attendant is not threading.current_thread():
                    attendant.join(CLOSE_S)
            self.watch.stop()
        finally:
            self._plan.give_up()

    def _shut_secondary(self) -> None:
        with self._changed:
            if self.pairing.secondary.closed:
                return
            self.pairing.secondary.closed = True
        if self._plan.own_secondary:
            self._plan.secondary.close()

    # What senders need.

    def _sender(self, path: str, make: Callable[..., Any], options: dict[str, Any]) -> PairedSender:
        self.pairing.check_open()
        sender = PairedSender(
            self,
            path,
            lambda: self.watched(self._bounded(make(path, **options))),
            options.get("client_identifier"),
        )
        self._senders.add(sender)
        self._look_for_detection(path)
        return sender

    def backlog_sender(self, queue: str) -> Any:
        return self.watched(self._bounded(self._plan.secondary.get_queue_sender(queue)))

    def _bounded(self, sender: Any) -> Any:
        make_handshake_endable(sender)
        return sender

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until something changes."""
        with self._changed:
            self._changed.wait(seconds)

    def ping(self, path: PathState, budget_s: float = PING_S) -> BaseException | None:
        """Ping a path once; what it met."""
        budget_s = min(budget_s, self.ping_s)
        sender = without_retries(self._primary).get_queue_sender(path.name)
        self.watched(self._bounded(sender))
        error: BaseException | None = None
        try:
            self.watch.run(sender, lambda one: one.send_messages(make_ping()), budget_s)
        except Exception as exc:  # noqa: BLE001  whatever it is: it is the answer
            error = exc
        finally:
            self.count(sender, path.name, Purpose.PINGS, answered=error is None)
            self.discard(sender)
        return error

    def discard(self, one: Any) -> None:
        """Close something of the SDK, in bounded time."""
        with contextlib.suppress(Exception):
            self.watch.run(one, lambda it: it.close(), CLOSE_S)

    def _look_for_detection(self, path: str) -> None:
        if self._wants_a_look(path):
            threading.Thread(
                target=self._detection, args=(path,), name=f"pairbus looks at {path}", daemon=True
            ).start()

    def _detection(self, path: str) -> None:
        try:
            tell = self._plan.managed(secondary=False)
            with administration_of(self._primary, tell=tell) as administration:
                try:
                    properties: Any = administration.get_queue(path)
                except (ResourceNotFoundError, AttributeError):  # so it says of a topic
                    properties = administration.get_topic(path)
        except Exception as exc:  # noqa: BLE001  it is only a hint
            duplicates.could_not(path, exc)
        else:
            duplicates.tell(path, properties)

    # Paths that are not healthy.

    def _attend(self, path: PathState) -> None:
        thread = threading.Thread(
            target=self._do_steps, args=(path,), name=f"pairbus attends to {path.name}", daemon=True
        )
        self._attendants.add(thread)
        thread.start()

    def _do_steps(self, path: PathState) -> None:
        receivers: dict[str, Any] = {}
        try:
            while (task := self._due(path)) is not None:
                if task is HealthTask.ENGAGE:
                    self.pairing.engage(path)
                elif task is HealthTask.LOOK:
                    cause = path.health.cause or TimeoutError()
                    self.pairing.looked(path, cause, self.ping(path), waits=False)
                elif task is HealthTask.PING:
                    self.pairing.pinged(path, self.ping(path))
                else:
                    self._peek(path, receivers)
        finally:
            for receiver in receivers.values():
                self.discard(receiver)
            self._attendants.discard(threading.current_thread())

    def _due(self, path: PathState) -> HealthTask | None:
        """Wait for the next thing to do. None: there is nothing more."""
        with self._changed:
            while (step := self.pairing.next_step(path)) is not None:
                wait_s = step.at - self.pairing.now()
                if wait_s <= 0:
                    return step.task
                self._changed.wait(wait_s)
            return None

    def _peek(self, path: PathState, receivers: dict[str, Any]) -> None:
        quiet = self.pairing.quiet(path)
        many = 1 if path.health.hold_until is not None else SMALL + 1
        looks: list[PeekResult] = []
        for queue in self.backlog_queues:
            if queue not in receivers:
                receiver = without_retries(self._plan.secondary).get_queue_receiver(queue)
                receivers[queue] = self._bounded(receiver)
            try:
                messages = self.watch.run(
                    receivers[queue],
                    lambda one: one.peek_messages(
                        max_message_count=many, sequence_number=1, timeout=self.ping_s
                    ),
                    self.ping_s,
                )
            except Exception as exc:  # noqa: BLE001  whatever it is: it is not known to be empty
                self.discard(receivers.pop(queue))
                self.pairing.peek_failed(path, exc)
                return
            looks.append(self.peeked(path.name, messages))
        self.pairing.peeked(path, looks, quiet=quiet)
