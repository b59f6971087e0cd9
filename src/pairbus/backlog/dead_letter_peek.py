"""Peek at dead letters, and plan a redrive. Each message is billed as an operation. No message is
received or locked."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType

from pairbus.amqp.client import Client
from pairbus.backlog.dead_letter_filter import ALL, DeadLetterFilter
from pairbus.backlog.dead_letter_groups import DeadLetterGroups
from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.duplicate_detection import would_be_dropped
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import connected, peek
from pairbus.backlog.redrive_plan import PlanBuilder, RedrivePlan, SequenceNumberSet
from pairbus.errors import EntityNotFound, NotAuthorized
from pairbus.spark.usage import NO_USAGE, UsageRecorder
from pairbus.usage.operations import OperationKind

OnPeeked = Callable[[int], None]
"""Called with the number of messages peeked so far."""


def peek_dead_letters(
    source: DeadLetterSource,
    *,
    choice: DeadLetterFilter = ALL,
    usage: UsageRecorder = NO_USAGE,
    on_peeked: OnPeeked | None = None,
    from_sequence: int = 1,
) -> Iterator[BacklogMessage]:
    """Yield the chosen dead letters of all entities. Needs the Listen right. Raises EntityNotFound
    and the other errors of the client."""
    remaining = choice.count
    peeked = 0
    with connected(source.namespace) as client:
        for entity in source.entities:
            for messages in _peek_entity(client, source, entity, from_sequence, usage, source.read):
                for message in messages:
                    if choice.matches(message):
                        yield message
                        remaining = None if remaining is None else remaining - 1
                        if remaining == 0:
                            return
                peeked += len(messages)
                if on_peeked is not None:
                    on_peeked(peeked)


def group_dead_letters(
    source: DeadLetterSource,
    *,
    choice: DeadLetterFilter = ALL,
    usage: UsageRecorder = NO_USAGE,
    on_peeked: OnPeeked | None = None,
) -> DeadLetterGroups:
    """Return totals of the chosen dead letters by reason and destination. Needs the Listen right.
    Costs one operation for each dead letter. Raises the errors of the client."""
    groups = DeadLetterGroups()
    groups.add(peek_dead_letters(source, choice=choice, usage=usage, on_peeked=on_peeked))
    return groups


def plan_redrive(
    source: DeadLetterSource,
    *,
    choice: DeadLetterFilter = ALL,
    within: RedrivePlan | None = None,
    windows: Mapping[str, timedelta] = MappingProxyType({}),
    usage: UsageRecorder = NO_USAGE,
    on_peeked: OnPeeked | None = None,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> RedrivePlan:
    """Return a plan with the chosen dead letters that are there now. `within` is a plan that was
    interrupted: only its messages are taken, and its time is kept. `windows` are the time windows
    of duplicate detection, by entity, for the number of messages that it would drop. Needs the
    Listen right. Costs one operation for each dead letter. Raises the errors of the client."""
    builder = PlanBuilder(now_ms() if within is None else within.taken_ms)
    count = choice.count
    brief = (within is not None or choice.takes_all) and not windows
    read = source.read_briefly if brief else source.read
    with connected(source.namespace) as client:
        peeked = 0
        for entity in source.entities:
            known = None if within is None else within.queues.get(entity, SequenceNumberSet())
            window = windows.get(entity)
            for messages in _peek_entity(client, source, entity, 1, usage, read):
                for message in messages:
                    number = message.sequence_number
                    chosen = choice.matches(message) if known is None else number in known
                    if number is None or not chosen or count == 0:
                        builder.skip()
                    else:
                        duplicate = window is not None and would_be_dropped(
                            message.enqueued_ms, window, now_ms()
                        )
                        builder.add(entity, number, message.destination, duplicate=duplicate)
                        count = None if count is None else count - 1
                peeked += len(messages)
                if on_peeked is not None:
                    on_peeked(peeked)
    return builder.plan()


def _peek_entity(
    client: Client,
    source: DeadLetterSource,
    entity: str,
    from_sequence: int,
    usage: UsageRecorder,
    read: Callable[[str, bytes], BacklogMessage],
) -> Iterator[list[BacklogMessage]]:
    def record(payloads: list[bytes] | None) -> None:
        if usage.enabled:
            sizes = [len(payload) for payload in payloads or ()]
            usage.add(OperationKind.PEEK, entity, sizes, answered=payloads is not None)
            usage.flush()

    try:
        yield from peek(
            client,
            entity,
            dead_letters=True,
            from_sequence=from_sequence,
            read=read,
            on_peek=record,
        )
    except EntityNotFound as exc:
        raise missing_entity(source, entity) from exc
    except NotAuthorized as exc:
        raise NotAuthorized(
            f"The dead letters of {entity!r} cannot be read, which needs the Listen right: "
            f"{exc.description}"
        ) from exc


def missing_entity(source: DeadLetterSource, entity: str) -> EntityNotFound:
    """Return the error for an entity that does not exist."""
    return EntityNotFound(
        f"{source.namespace.host!r} has no queue or subscription {entity!r}. A subscription is "
        "written as topic/Subscriptions/name."
    )
