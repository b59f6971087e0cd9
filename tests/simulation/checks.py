"""The checks at the end of a simulation, by message id."""

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from pairbus.amqp.sections import Message
from tests.simulation.journal import Journal, MessageRecord
from tests.simulation.namespace import SimulatedNamespace
from tests.simulation.plan import Plan


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """A copy of a message in a queue."""

    id: str
    sequence: int
    session: str | None
    body: bytes
    enqueued_ms: int
    reason: str | None = None
    """The reason of a dead letter."""
    due_ms: int | None = None
    """The time at which a scheduled message becomes active; None if it is active."""


def contents(
    namespace: SimulatedNamespace, path: str, *, dead_letters: bool = False
) -> list[StoredCopy]:
    """Return the messages of a queue, or its dead letters, in the order of the queue."""
    entity = namespace.runtime.entities.find(path)
    if entity is None:
        return []
    message_queue = entity.dead_letters if dead_letters else entity.queue
    return [
        StoredCopy(
            **_parse(stored.rest),
            sequence=stored.sequence,
            enqueued_ms=stored.enqueued_ms,
            due_ms=stored.due_ms,
        )
        for stored in namespace.runtime.store.messages.all_after(message_queue.id, 0, 100_000)
    ]


@lru_cache(maxsize=2000)
def _parse(payload: bytes) -> dict[str, Any]:
    """Return what a message says itself. The same messages are read again and again."""
    message = Message.parse(payload)
    properties = message.read_properties()
    reason = message.read_application_properties().get("DeadLetterReason")
    return {
        "id": str(properties.message_id),
        "session": properties.group_id,
        "body": bytes(message.body),
        "reason": None if reason is None else str(reason),
    }


def check_messages(
    plan: Plan,
    journal: Journal,
    primary: SimulatedNamespace,
    secondary: SimulatedNamespace,
    backlog_queues: tuple[str, ...],
    received: dict[str, dict[int, StoredCopy]],
) -> None:
    """Compare what applications were told with what the namespaces hold, and with what consumers
    have received: by queue and sequence number."""
    delivered: dict[str, list[tuple[str, StoredCopy]]] = defaultdict(list)
    for number in range(plan.paths):
        path = f"queue{number}"
        copies = {copy.sequence: copy for copy in contents(primary, path)}
        for copy in (received.get(path, {}) | copies).values():
            delivered[copy.id].append((path, copy))
    stored: dict[str, list[StoredCopy]] = defaultdict(list)
    for path in backlog_queues:
        for copy in contents(secondary, path):
            stored[copy.id].append(copy)
        for copy in contents(secondary, path, dead_letters=True):
            # Faults of the primary do not last as long as the grace of missing destinations, and
            # the backlog refuses what a destination would refuse.
            if not is_dead_letter(copy.id):
                journal.violate("Y5", f"{copy.id} was dead-lettered: {copy.reason}")
            stored[copy.id].append(copy)
    for record in journal.messages.values():
        _check_message(plan, journal, record, delivered[record.id], stored[record.id])
    for id in {*delivered, *stored} - set(journal.messages):
        if delivered[id] or stored[id]:
            journal.violate("X1", f"{id} was never sent by an application")
    _check_order(journal, delivered, with_applications=plan.after_drain)


def _check_message(
    plan: Plan,
    journal: Journal,
    record: MessageRecord,
    delivered: list[tuple[str, StoredCopy]],
    stored: list[StoredCopy],
) -> None:
    id = record.id
    if record.acknowledged is not None and not (delivered or stored or record.may_be_revoked):
        journal.violate("X1", f"{id} was acknowledged and is lost")
    if (delivered or stored) and record.not_sent and not (record.acknowledged or record.unknown):
        journal.violate("S5", f"{id} was reported as not sent, and was sent")
    for path, copy in delivered:
        if path != record.path:
            journal.violate("Y4", f"{id} was sent to {record.path} and delivered to {path}")
        if f"body of {id}".encode() not in copy.body:
            journal.violate("S6", f"{id} has another body: {copy.body!r}")
        if copy.session != record.session:
            journal.violate("S6", f"{id} has session {copy.session}, not {record.session}")
        if record.scheduled_ms is not None:
            _check_schedule(journal, record.scheduled_ms, copy)
    copies = len(delivered) + len(stored)
    if record.is_revoked and copies >= record.transfers + max(0, journal.forwards.get(id, 0) - 1):
        journal.violate("S10", f"{id} was cancelled, and has {copies} copies")
    if copies < 2:
        return
    if plan.duplicate_detection and len(delivered) > 1:
        journal.violate("X2", f"{id} was delivered {len(delivered)} times despite detection")
    if record.accepted > 1 and not (record.unanswered or record.cancelled):
        journal.violate("X2", f"{id} was accepted {record.accepted} times without a lost answer")
    forwarded = journal.forwards.get(id, 0)
    if copies > record.transfers + max(0, forwarded - 1):
        journal.violate("X2", f"{id} has {copies} copies, and was sent less often")
    if not plan.faults and not record.cancelled:
        journal.violate("X2", f"{id} has {copies} copies without any fault")


def _check_schedule(journal: Journal, scheduled_ms: int, copy: StoredCopy) -> None:
    """Check that a message is delivered at the time for which it was scheduled. The SDK rounds."""
    if copy.due_ms is None:
        if copy.enqueued_ms < scheduled_ms - 1:
            early_s = (scheduled_ms - copy.enqueued_ms) / 1000
            journal.violate("S10", f"{copy.id} was delivered {early_s:.3f} s too early")
    elif abs(copy.due_ms - scheduled_ms) > 1:
        late_s = (copy.due_ms - scheduled_ms) / 1000
        journal.violate("S10", f"{copy.id} is due {late_s:.3f} s after the time of its schedule")


def is_dead_letter(id: str) -> bool:
    """Return whether a message was a dead letter when the simulation began."""
    return id.startswith("d")


def _check_order(
    journal: Journal,
    delivered: dict[str, list[tuple[str, StoredCopy]]],
    *,
    with_applications: bool,
) -> None:
    """Check that the first copies of each session are in the order in which they were sent: those
    of dead letters that were redriven, and those that applications sent."""
    sessions: dict[tuple[str, str], list[MessageRecord]] = defaultdict(list)
    for record in journal.messages.values():
        if record.session is None or record.scheduled_ms is not None:
            continue  # a schedule decides when a message is delivered
        is_checked = (
            not journal.refused_dead_letters if is_dead_letter(record.id) else with_applications
        )
        if not is_checked or record.path in journal.marked_paths:
            continue
        if record.acknowledged is not None and delivered[record.id]:
            sessions[record.path, record.session].append(record)
    for (path, session), records in sessions.items():
        records.sort(key=lambda record: record.begun)
        for before, after in pairwise(records):
            assert before.acknowledged is not None
            if before.acknowledged > after.begun:
                continue  # sent in one call, or at the same time
            first = min(copy.sequence for _, copy in delivered[before.id])
            second = min(copy.sequence for _, copy in delivered[after.id])
            if first > second:
                journal.violate(
                    "Y10", f"{after.id} passed {before.id} in session {session} of {path}"
                )
