"""Redrive and purge of dead letters in this process, without Spark and Java."""

import threading
from typing import Unpack

from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.duplicate_detection import duplicate_windows
from pairbus.backlog.redrive_options import RedriveOptions, RedriveSettings
from pairbus.backlog.redrive_outcome import RedriveOutcome
from pairbus.backlog.redrive_plan import RedrivePlan
from pairbus.backlog.redrive_round import RedriveRound
from pairbus.spark.connections import close_all

ROUND = 50_000
"""Messages of one round. It bounds the memory."""


def redrive(
    source: DeadLetterSource, plan: RedrivePlan, **options: Unpack[RedriveOptions]
) -> RedriveOutcome:
    """Send the dead letters of a plan to their destinations, and complete each after its
    destination has accepted it.

    `options` are `max_rate`, `usage`, `cancel` and `on_progress`. `cancel` ends it after the
    messages that are being sent; nothing is lost. A message that its destination refuses stays, and
    does not stop the others; so does one that returns to its own queue or topic and would be
    dropped by its duplicate detection. Needs the Listen right on the entities, the Send right on
    the destinations, and for messages that return to their own queue or topic the Manage right,
    unless the source ignores duplicate detection. Raises ConfigurationError if it is unknown where
    the messages belong or if they would be dropped, and the errors of the client if the dead
    letters cannot be read.
    """
    source.require_destinations()
    return _run(source, plan, RedriveSettings(**options), is_purge=False)


def purge(
    source: DeadLetterSource, plan: RedrivePlan, **options: Unpack[RedriveOptions]
) -> RedriveOutcome:
    """Delete the dead letters of a plan. They cannot be restored. The options are those of
    `redrive`. Needs the Listen right on the entities. Raises the errors of the client if they
    cannot be received."""
    return _run(source, plan, RedriveSettings(**options), is_purge=True)


def _run(
    source: DeadLetterSource, plan: RedrivePlan, settings: RedriveSettings, *, is_purge: bool
) -> RedriveOutcome:
    windows = {} if is_purge else duplicate_windows(source, settings.usage)
    event = settings.cancel or threading.Event()
    total = RedriveOutcome()

    def report(change: RedriveOutcome) -> None:
        total.add(change)
        settings.report(total)

    try:
        for entity, numbers in plan.queues.items():
            if total.cancelled:
                total.left[""] += len(numbers)
                continue
            for start in range(0, len(numbers), ROUND):
                outcome = RedriveRound(
                    source,
                    entity,
                    numbers.part(start, ROUND),
                    purge=is_purge,
                    duplicate_window=windows.get(entity),
                    max_rate=settings.max_rate,
                    usage=settings.usage,
                    wait=event.wait,
                    on_progress=report,
                ).run()
                rest = max(0, len(numbers) - start - ROUND)
                total.add_end(outcome, not_started=0 if outcome.finished else rest)
                if not outcome.finished:
                    break  # later messages of the queue may belong to the same sessions
    finally:
        close_all()
    return total
