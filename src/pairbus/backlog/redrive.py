"""Redrive and purge of dead letters in this process, without Spark and Java."""

import threading
from collections.abc import Callable
from typing import TypeAlias

from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.duplicate_detection import duplicate_windows
from pairbus.backlog.redrive_outcome import RedriveOutcome
from pairbus.backlog.redrive_plan import RedrivePlan
from pairbus.backlog.redrive_round import RedriveRound
from pairbus.errors import ConfigurationError
from pairbus.spark.connections import close_all
from pairbus.spark.usage import NO_USAGE, UsageRecorder

ROUND = 50_000
"""Messages of one round. It bounds the memory."""

OnProgress: TypeAlias = Callable[[RedriveOutcome], None]
"""Called with the outcome so far."""


def redrive(
    source: DeadLetterSource,
    plan: RedrivePlan,
    *,
    max_rate: float | None = None,
    usage: UsageRecorder = NO_USAGE,
    cancel: threading.Event | None = None,
    on_progress: OnProgress | None = None,
) -> RedriveOutcome:
    """Send the dead letters of a plan to their destinations, and complete each after its
    destination has accepted it.

    `cancel` ends it after the messages that are being sent; nothing is lost. A message that its
    destination refuses stays, and does not stop the others; so does one that returns to its own
    queue or topic and would be dropped by its duplicate detection. Needs the Listen right on the
    entities, the Send right on the destinations, and for messages that return to their own queue
    or topic the Manage right, unless the source ignores duplicate detection. Raises
    ConfigurationError if it is unknown where the messages belong or if they would be dropped, and
    the errors of the client if the dead letters cannot be read.
    """
    source.require_destinations()
    return _run(source, plan, False, max_rate, usage, cancel, on_progress)


def purge(
    source: DeadLetterSource,
    plan: RedrivePlan,
    *,
    max_rate: float | None = None,
    usage: UsageRecorder = NO_USAGE,
    cancel: threading.Event | None = None,
    on_progress: OnProgress | None = None,
) -> RedriveOutcome:
    """Delete the dead letters of a plan. They cannot be restored. Needs the Listen right on the
    entities. Raises the errors of the client if they cannot be received."""
    return _run(source, plan, True, max_rate, usage, cancel, on_progress)


def check_rate(max_rate: float | None) -> None:
    """Raise ConfigurationError unless a rate is above 0."""
    if max_rate is not None and not max_rate > 0:
        raise ConfigurationError(f"The rate must be above 0 messages a second, not {max_rate:g}.")


def _run(
    source: DeadLetterSource,
    plan: RedrivePlan,
    is_purge: bool,
    max_rate: float | None,
    usage: UsageRecorder,
    cancel: threading.Event | None,
    on_progress: OnProgress | None,
) -> RedriveOutcome:
    check_rate(max_rate)
    windows = {} if is_purge else duplicate_windows(source, usage)
    event = cancel or threading.Event()
    total = RedriveOutcome()

    def report(change: RedriveOutcome) -> None:
        total.add(change)
        if on_progress is not None:
            on_progress(total)

    try:
        for entity, numbers in plan.queues.items():
            for start in range(0, len(numbers), ROUND):
                outcome = RedriveRound(
                    source,
                    entity,
                    numbers.part(start, ROUND),
                    purge=is_purge,
                    duplicate_window=windows.get(entity),
                    max_rate=max_rate,
                    usage=usage,
                    wait=event.wait,
                    on_progress=report,
                ).run()
                rest = max(0, len(numbers) - start - ROUND)
                total.add_end(outcome, not_started=0 if outcome.finished else rest)
                if not outcome.finished:
                    break  # later messages of the queue may belong to the same sessions
            if total.cancelled:
                break
    finally:
        close_all()
    return total
