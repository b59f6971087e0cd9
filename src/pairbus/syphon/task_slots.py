"""The tasks of a query that run at a time, and what follows for the rate."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaskSlots:
    """The tasks that run at a time."""

    count: int | None = None
    """None: it is not known."""
    on_one_machine: bool = False
    """All tasks run on the machine of the driver, and share a schedule."""

    def rate_shares(self, queues: int) -> int:
        """Return the number of tasks among which the rate is divided."""
        return 1 if self.on_one_machine else min(self.count or queues, queues)

    def max_tasks(self, *, is_paced: bool) -> int | None:
        """Return the largest number of tasks of a micro-batch; None: one for each queue. Paced
        tasks all last equally long, and while one takes the place of another nothing is moved."""
        return self.count if is_paced and self.on_one_machine else None
