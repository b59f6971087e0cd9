"""Observers of clients: the messages that arrive, what the tasks of syphons send, and whether their
locks are still valid."""

from collections.abc import Callable
from typing import Any

import pairbus.amqp.client.sender
from pairbus.amqp.batch import BATCH_FORMAT, split_batch
from pairbus.amqp.client import Management, PendingDelivery, Receiver
from pairbus.errors import EntityNotFound
from pairbus.spark.destination_sender import DestinationSender
from pairbus.spark.messages import RestoredMessage
from pairbus.syphon.live_control import LiveControl
from tests.simulation.journal import Journal, id_of
from tests.simulation.world import World


def observe_locks(journal: Journal, world: World) -> Callable[[], None]:
    """Check that syphons send nothing whose lock has expired, and nothing that had left the backlog
    before another attempt of a task began, until the returned function is called. (A first attempt
    may do so: a delivery that is late does not tell for how long it was on its way.)"""
    start = DestinationSender._start

    def checked(sender: DestinationSender, messages: list[RestoredMessage]) -> Any:
        result = start(sender, messages)
        if isinstance(result, PendingDelivery):
            now_ms = world.scheduler.process.wall() * 1000
            attempt = world.scheduler.current_task().context
            if sender._path in attempt.paused_paths:
                journal.violate("Y12", f"{sender._path} is paused and gets messages")
            for message in messages:
                id = id_of(message.payload)
                if attempt.attemptNumber() > 0 and id in attempt.settled:
                    journal.violate("Y13", f"{id} was sent again by another attempt of a task")
                if message.lock_token is not None and message.locked_until < now_ms:
                    late_s = (now_ms - message.locked_until) / 1000
                    journal.violate(
                        "Y2",
                        f"{id_of(message.payload)} was sent {late_s:.2f} s after its lock expired",
                    )
        return result

    DestinationSender._start = checked  # type: ignore[method-assign]

    def restore() -> None:
        DestinationSender._start = start  # type: ignore[method-assign]

    return restore


def observe_controls(world: World) -> Callable[[], None]:
    """Note what planners of syphons have read last from their control files, until the returned
    function is called."""
    refresh = LiveControl.refresh

    def observed(control: LiveControl) -> bool:
        changed = refresh(control)
        world.scheduler.process.__dict__["control"] = control._control
        return changed

    LiveControl.refresh = observed  # type: ignore[method-assign]

    def restore() -> None:
        LiveControl.refresh = refresh  # type: ignore[method-assign]

    return restore


def observe_arrivals(journal: Journal) -> Callable[[], None]:
    """Count the messages that clients receive and peek, until the returned function is called."""
    receiver_class: Any = Receiver
    on_delivery, peek = receiver_class.on_delivery, Management.peek

    def received(receiver: Any, delivery: Any) -> None:
        journal.arrivals[receiver.client.options.host, "receive"] += 1
        on_delivery(receiver, delivery)

    def peeked(management: Any, *arguments: Any, **options: Any) -> list[bytes]:
        host = management.client.options.host
        try:
            messages = peek(management, *arguments, **options)
        except EntityNotFound:
            journal.peeks_not_found[host] += 1
            raise
        except Exception:
            journal.peeks[host] += 1
            raise
        journal.peeks[host] += max(1, len(messages))
        journal.arrivals[host, "peek"] += len(messages)
        return messages

    receiver_class.on_delivery, Management.peek = received, peeked  # type: ignore[method-assign]

    def restore() -> None:
        receiver_class.on_delivery, Management.peek = on_delivery, peek  # type: ignore[method-assign]

    return restore


def observe_forwards(journal: Journal, world: World) -> Callable[[], None]:
    """Record the messages that syphons transfer, until the returned function is called."""
    sender_class: Any = pairbus.amqp.client.sender.Sender
    post = sender_class.post

    def recorded(sender: Any, payload: bytes, *, message_format: int = 0, **options: Any) -> Any:
        pending = post(sender, payload, message_format=message_format, **options)
        members = split_batch(payload) if message_format == BATCH_FORMAT else [payload]
        ids = [id_of(member) for member in members]
        for id in ids:
            journal.forwards[id] = journal.forwards.get(id, 0) + 1
        world.trace(world.scheduler.process.name, f"forwards {' '.join(ids)} to {sender.path}")
        return pending

    sender_class.post = recorded

    def restore() -> None:
        sender_class.post = post

    return restore
