"""The options that redrive and purge share, in this process and on Spark."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

from pairbus.backlog.redrive_outcome import RedriveOutcome
from pairbus.errors import ConfigurationError
from pairbus.spark.usage import NO_USAGE, UsageRecorder

OnProgress: TypeAlias = Callable[[RedriveOutcome], None]
"""Called with the outcome so far."""


class RedriveOptions(TypedDict, total=False):
    """The keyword arguments of a redrive or purge."""

    max_rate: float | None
    """The highest number of messages a second. None: no limit."""
    usage: UsageRecorder
    """The ledger of billable operations."""
    cancel: threading.Event | None
    """Ends it after the messages that are being sent."""
    on_progress: OnProgress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveSettings:
    """The values of these options. Raises ConfigurationError for a rate that is not above 0."""

    max_rate: float | None = None
    usage: UsageRecorder = NO_USAGE
    cancel: threading.Event | None = None
    on_progress: OnProgress | None = None

    def __post_init__(self) -> None:
        if self.max_rate is not None and not self.max_rate > 0:
            raise ConfigurationError(
                f"The rate must be above 0 messages a second, not {self.max_rate:g}."
            )

    def report(self, outcome: RedriveOutcome) -> None:
        """Report the outcome so far."""
        if self.on_progress is not None:
            self.on_progress(outcome)
