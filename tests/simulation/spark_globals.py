"""Global variables of pairbus and Spark that differ from one simulated process to the next."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pyspark import TaskContext

import pairbus.spark.usage
import pairbus.syphon.source
from pairbus.amqp.client import ClientOptions
from pairbus.spark.emptiness import EmptinessCheck
from pairbus.syphon.sequence_ranges import SequenceRanges
from tests.simulation import standard_library

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A global variable of pairbus that has another value in each simulated process."""

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create

    def _value(self) -> T:
        values = standard_library.current().process.__dict__.setdefault("globals", {})
        if self not in values:
            values[self] = self._create()
        value: T = values[self]
        return value

    def __getitem__(self, key: Any) -> Any:
        return self._value()[key]  # type: ignore[index]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._value()[key] = value  # type: ignore[index]

    def __contains__(self, key: Any) -> bool:
        return key in self._value()  # type: ignore[operator]


class Attempt:
    """In the place of the TaskContext of a running task."""

    def __init__(self, number: int, settled: frozenset[str], paused_paths: tuple[str, ...]) -> None:
        """`settled` are the messages that were not in the backlog any more when it began,
        `paused_paths` the destinations that are to get no messages."""
        self._number = number
        self.settled = settled
        self.paused_paths = paused_paths

    def attemptNumber(self) -> int:  # noqa: N802
        return self._number


def _task_context() -> Attempt | None:
    task = standard_library.current().task
    return None if task is None else task.context


class _Credits:
    """In the place of `CreditLimit`, which asks the administration API for the tier."""

    def __init__(self, options: ClientOptions, usage: object) -> None:
        pass

    def applies(self) -> bool:
        return credits_apply


credits_apply = False


def install() -> None:
    """Give each simulated process its own globals, and tasks their context."""
    pairbus.syphon.source._unordered = PerProcess(lambda: defaultdict(SequenceRanges))  # type: ignore[assignment]
    pairbus.spark.usage._ledgers = PerProcess(dict)  # type: ignore[assignment]
    pairbus.syphon.source.CreditLimit = _Credits  # type: ignore[misc, assignment]
    check: Any = EmptinessCheck
    are_empty = check.are_empty

    def are_empty_and_when(self: Any) -> bool:
        scheduler = standard_library.current()
        scheduler.process.__dict__["emptiness_checked_at"] = scheduler.now
        return bool(are_empty(self))

    check.are_empty = are_empty_and_when
    TaskContext.get = staticmethod(_task_context)  # type: ignore[assignment, method-assign]


install()
