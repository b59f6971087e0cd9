"""Plans of micro-batches, and their division among the tasks of a query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

from pairbus.spark.driver_tokens import Tokens
from pairbus.spark.messages import ReceivedMessage
from pairbus.spark.pace import RatePlan


@dataclass(frozen=True)
class PartitionPlan(InputPartition):
    """The part of a micro-batch that one task reads."""

    queues: tuple[str, ...]
    first_messages: tuple[ReceivedMessage, ...]
    """The messages that the long polls received, at most one of each queue."""
    max_messages: int
    blocked: frozenset[str]
    """Destinations that get no messages in this micro-batch."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """The most messages that each queue yields for a destination. Others have no limit."""
    tokens: Tokens = field(default=(), repr=False)
    """The tokens of the driver, for a task without a credential."""
    rate: RatePlan = field(default_factory=RatePlan)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A micro-batch."""

    max_messages: int
    first_messages: Mapping[str, ReceivedMessage]
    """The messages that the long polls received, by queue."""
    blocked: frozenset[str] = frozenset()
    """Destinations that get no messages in this micro-batch."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """The most messages that each queue yields for a destination."""
    rate: RatePlan = field(default_factory=RatePlan)
    max_tasks: int | None = None
    """None: as many as there are queues."""

    def split(
        self, queues: Sequence[str], partitions: int, number: int, tokens: Tokens = ()
    ) -> list[PartitionPlan]:
        """Divide the queues among at most `partitions` tasks. `number` counts the micro-batches.
        Each task gets the tokens.

        Only queues with a first message are read: a long poll waits on each of the others, and a
        message that it received meanwhile would be overtaken.
        """
        queues = [queue for queue in queues if queue in self.first_messages]
        partitions = min(partitions, len(queues), self.max_tasks or len(queues))
        max_messages = max(1, self.max_messages // partitions)
        plans = []
        for index in range(partitions):
            share = queues[index::partitions]
            # Rotate, so that every queue is read first from time to time.
            start = number % len(share)
            share = [*share[start:], *share[:start]]
            plans.append(
                PartitionPlan(
                    queues=tuple(share),
                    first_messages=tuple(self.first_messages[queue] for queue in share),
                    max_messages=max_messages,
                    blocked=self.blocked,
                    limits=self.limits,
                    tokens=tokens,
                    rate=self.rate,
                )
            )
        return plans
