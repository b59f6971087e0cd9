"""Redrive on Spark, for millions of dead letters: several dead-letter queues at once.

The redrive is a sequence of rounds. In each round every queue has one task, which moves some
messages as a redrive without Spark does; one task for each queue, so that sessions keep their
order. The driver keeps the plan, and learns the outcome of a round from its rows.
"""

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.duplicate_detection import duplicate_windows
from pairbus.backlog.redrive_options import RedriveOptions, RedriveSettings
from pairbus.backlog.redrive_outcome import RedriveOutcome, outcome_from_json
from pairbus.backlog.redrive_plan import RedrivePlan
from pairbus.backlog.redrive_round import RedriveRound
from pairbus.spark.driver_tokens import Tokens, TokenServer, deliver_tokens, request_tokens
from pairbus.spark.usage import UsageRecorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUND = 20_000
"""Messages of one queue in one round. A redrive is cancelled between rounds."""


def redrive_on_spark(
    session: "SparkSession",
    source: DeadLetterSource,
    plan: RedrivePlan,
    *,
    round_size: int = ROUND,
    **options: Unpack[RedriveOptions],
) -> RedriveOutcome:
    """Send the dead letters of a plan to their destinations, in tasks of a Spark session. See
    `pairbus.backlog.redrive` for what it promises, needs and raises; errors of tasks are those of
    Spark."""
    source.require_destinations()
    settings = RedriveSettings(**options)
    max_rate, usage, cancel = settings.max_rate, settings.usage, settings.cancel
    windows = duplicate_windows(source, usage)
    total = RedriveOutcome()
    positions = {entity: 0 for entity, numbers in plan.queues.items() if len(numbers)}
    with tempfile.TemporaryDirectory(prefix="pairbus-redrive-") as folder:
        server = TokenServer(Path(folder))
        try:
            target = server.replace_credential(source.target_namespace)
            shared = replace(
                source, namespace=server.replace_credential(source.namespace), target=target
            )
            while positions and not total.cancelled:
                if cancel is not None and cancel.is_set():
                    total.cancelled = True
                    break
                entities = list(positions)
                parts = [plan.queues[e].part(positions[e], round_size) for e in entities]
                work = _RoundWork(
                    shared,
                    entities,
                    parts,
                    None if max_rate is None else max_rate / len(entities),
                    usage,
                    request_tokens([shared.namespace, target]),
                    windows,
                )
                for entity, outcome in zip(entities, _run_round(session, work), strict=True):
                    positions[entity] += round_size
                    rest = len(plan.queues[entity]) - positions[entity]
                    total.add(outcome)
                    if not outcome.finished:
                        total.add_end(RedriveOutcome(), not_started=max(0, rest))
                    if rest <= 0 or not outcome.finished:
                        del positions[entity]
                settings.report(total)
        finally:
            server.close()
    for entity, position in positions.items():
        total.left[""] += len(plan.queues[entity]) - position
    return total


class _RoundWork:
    """The work of one round. Spark sends it to each task, which does the part of its number."""

    def __init__(
        self,
        source: DeadLetterSource,
        entities: list[str],
        parts: list[list[int]],
        max_rate: float | None,
        usage: UsageRecorder,
        tokens: Tokens,
        windows: dict[str, timedelta],
    ) -> None:
        self.source = source
        self.entities = entities
        self.parts = parts
        self._max_rate = max_rate
        self._usage = usage
        self._tokens = tokens
        self._windows = windows

    def run(self, number: int) -> RedriveOutcome:
        """Run one part, in a worker."""
        deliver_tokens(self._tokens)
        return RedriveRound(
            self.source,
            self.entities[number],
            self.parts[number],
            duplicate_window=self._windows.get(self.entities[number]),
            max_rate=self._max_rate,
            usage=self._usage,
            wait=threading.Event().wait,
        ).run()


def _run_round(session: "SparkSession", work: _RoundWork) -> list[RedriveOutcome]:
    count = len(work.entities)
    rows = (
        session.range(0, count, 1, count)  # one row in each partition
        .mapInArrow(_task(work), "number long, outcome string")
        .collect()
    )
    return [outcome_from_json(json.loads(row["outcome"])) for row in sorted(rows)]


def _task(
    work: _RoundWork,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcome = json.dumps(work.run(number).to_json())
                yield pa.RecordBatch.from_pydict({"number": [number], "outcome": [outcome]})

    return run
