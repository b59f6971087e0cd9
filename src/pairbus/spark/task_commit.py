"""The outcome of a task as Spark carries it. Apart from `outcome`, which works without pyspark."""

from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from pairbus.spark.outcome import Outcome
from pairbus.telemetry.drains import DrainRecord


@dataclass
class TaskCommit(WriterCommitMessage):
    """Carries the outcome of a task from the worker to the driver."""

    outcome: Outcome
    batch: str = ""
    """The id of the micro-batch in reports of progress."""
    attempt: str = ""
    """The id of the attempt of the task in these reports."""
    drains: list[DrainRecord] = field(default_factory=list)
    """The messages that the task moved, for telemetry."""
