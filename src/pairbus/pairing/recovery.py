"""The operation that recovers a path: it pings the primary and peeks at the backlog until the path
is healthy again. It runs in the background, once for each path that is not healthy."""

from collections.abc import Callable, Iterable
from typing import Any

from pairbus.pairing.backlog_peeks import BacklogPeeks
from pairbus.pairing.effects import CallSdk, CloseAll, Discard, Operation, WaitForChange
from pairbus.pairing.health import HealthTask
from pairbus.pairing.link_factory import LinkFactory
from pairbus.pairing.ping import make_ping
from pairbus.pairing.sender_links import SenderLinks
from pairbus.pairing.standby_links import close_standby_links
from pairbus.pairing.state import PairingState, PathState
from pairbus.usage.operations import Purpose

PING_TIMEOUT_S = 10.0
"""The longest time to wait for the answer to a ping or a peek."""


def recover(
    pairing: PairingState,
    factory: LinkFactory,
    path: PathState,
    senders: Callable[[], Iterable[SenderLinks]] = tuple,
) -> Operation[None]:
    """Carry out the steps of a path until it is healthy or the pairing is closed. Then close the
    links to the backlog that its senders have not used."""
    receivers: dict[str, Any] = {}
    peeks = BacklogPeeks(pairing.rotation.queues, pairing.hold_s)
    try:
        while True:
            version = pairing.version
            step = pairing.next_step(path)
            if step is None:
                return
            wait_s = step.at - pairing.now()
            if wait_s > 0:
                yield WaitForChange(pairing.changed_since(version), wait_s)
                continue
            match step.task:
                case HealthTask.FAIL_OVER:
                    pairing.failover_timer_fired(path)
                case HealthTask.PROBE:
                    error = yield from ping(pairing, factory, path)
                    pairing.probed_in_background(path, error)
                case HealthTask.PING:
                    error = yield from ping(pairing, factory, path)
                    pairing.pinged(path, error, step)
                case HealthTask.PEEK:
                    yield from peek_backlog(pairing, factory, path, peeks, receivers)
    finally:
        yield CloseAll(tuple(receivers.values()))
        yield from close_standby_links(senders())


def ping(
    pairing: PairingState,
    factory: LinkFactory,
    path: PathState,
    timeout_s: float = PING_TIMEOUT_S,
) -> Operation[BaseException | None]:
    """Ping a path once over a new link. Return the error of the ping."""
    sender = factory.ping_sender(path.name)
    error: BaseException | None = None
    try:
        yield CallSdk(
            sender,
            lambda sender: sender.send_messages(make_ping()),
            min(timeout_s, PING_TIMEOUT_S, pairing.operation_timeout_s),
        )
    except Exception as exc:  # noqa: BLE001  any error is the result of the ping
        error = exc
    finally:
        if factory.usage is not None:
            factory.usage.add_transfers(sender, path.name, Purpose.PINGS, answered=error is None)
        yield Discard(sender)
    return error


def peek_backlog(
    pairing: PairingState,
    factory: LinkFactory,
    path: PathState,
    peeks: BacklogPeeks,
    receivers: dict[str, Any],
) -> Operation[None]:
    """Peek at the backlog queues for one round, and report the results. `receivers` are kept
    between rounds."""
    start = pairing.peek_begins(path)
    peek_round = peeks.begin_round(start)
    timeout_s = min(PING_TIMEOUT_S, pairing.operation_timeout_s)
    while (request := peek_round.next_peek()) is not None:
        if pairing.primary.down:
            return
        queue, number = request
        if queue not in receivers:
            receivers[queue] = factory.backlog_receiver(queue)
        try:
            messages = yield CallSdk(receivers[queue], _peek_from(number, timeout_s), timeout_s)
        except Exception as exc:  # noqa: BLE001  the queue is not known to be empty
            if factory.usage is not None:
                factory.usage.add_peek(path.name, None)
            yield Discard(receivers.pop(queue))
            pairing.peek_failed(path, exc)
            return
        if factory.usage is not None:
            factory.usage.add_peek(path.name, messages)
        if messages:
            age = pairing.wall_clock() - messages[0].enqueued_time_utc
            peek_round.add(messages[0].sequence_number, age.total_seconds())
        else:
            peek_round.add()
    peeks.end_round(peek_round)
    pairing.peeked(path, peek_round.results, idle=start.idle, queues=peek_round.peeked_queues)


def _peek_from(number: int, timeout_s: float) -> Callable[[Any], Any]:
    return lambda receiver: receiver.peek_messages(
        max_message_count=1, sequence_number=number, timeout=timeout_s
    )
