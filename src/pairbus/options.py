"""How to pair two namespaces."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, get_args

from pairbus.errors import ConfigurationError
from pairbus.events import Event

Failback = Literal["immediate", "after-drain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAvailabilityOptions:
    """What `pair_namespace` needs to know. Raises ConfigurationError where a value is out of
    bounds."""

    secondary: Any = field(default=None, repr=False)
    """The namespace that stores messages while the primary is down: a connection string, or a
    client of the Azure SDK (a sync one for `pair_namespace`, an async one for `aio`)."""
    secondary_administration: Any = field(default=None, repr=False)
    """The SDK's administration client of the secondary. None: one is made with the same
    credential."""
    primary_name: str | None = None
    """The primary's name in the paths of backlog queues. None: the first label of its host."""
    backlog_queue_count: int = 10
    """How many backlog queues there are, at least 1."""
    create_backlog: bool = True
    """False: the backlog queues are there, and used unseen. It needs the right to send only."""
    failover_interval: timedelta = timedelta(minutes=1)
    """How long sending may fail before a path fails over, 0 to 60 min. With 0 the very call that
    failed goes on into the backlog."""
    ping_primary_interval: timedelta = timedelta(minutes=1)
    """How often a path in failover is tried, 1 s to 30 min."""
    ping_jitter: float = 0.1
    """The part of that interval, 0 to 1, by which a ping may come earlier or later."""
    enable_syphon: bool = False
    """Run a syphon in this process. It needs Spark and Java."""
    syphon_options: Any = field(default=None, repr=False)
    """A `pairbus.syphon.SyphonOptions` for that syphon. None: made from the two clients."""
    failback: Failback = "immediate"
    """`after-drain` keeps the order within sessions: the backlog must be empty first."""
    failback_hold: timedelta = timedelta(seconds=5)
    """With `after-drain`: how long sends may wait for the last of the backlog, 0.1 to 60 s."""
    drain_timeout: timedelta = timedelta(minutes=10)
    """With `after-drain`: no progress for so long is an event."""
    operation_timeout: timedelta = timedelta(seconds=60)
    """How long one call may take, besides the waits between retries that the SDK is set to."""
    backlog_cool_down: timedelta = timedelta(minutes=1)
    """How long a backlog queue that failed is left alone."""
    check_backlog_size: bool = False
    """Refuse what would not fit the backlog while the primary is healthy, too."""
    check_duplicate_detection: bool = True
    """Look once whether an entity removes duplicates, and warn where it does not. It needs the
    right to manage the primary; without it, nothing is said."""
    ledger: Any = None
    """A folder for the ledger of what is billable: see docs/cost.md. None: none is kept."""
    classify: Callable[[BaseException], Any] | None = None
    """Replaces `pairbus.pairing.kind_of`, which says what a failed call means."""
    on_event: Callable[[Event], None] | None = None
    """Is called with every event, in the thread where it happens. It should return soon."""

    def __post_init__(self) -> None:
        if (
            self.backlog_queue_count < 1
            or int(self.backlog_queue_count) != self.backlog_queue_count
        ):
            raise ConfigurationError(
                f"backlog_queue_count is at least 1, not {self.backlog_queue_count}"
            )
        hour, second = timedelta(hours=1), timedelta(seconds=1)
        self._within("failover_interval", timedelta(), hour)
        self._within("ping_primary_interval", second, timedelta(minutes=30))
        self._within("failback_hold", timedelta(milliseconds=100), timedelta(minutes=1))
        self._within("drain_timeout", second, timedelta(days=7))
        self._within("operation_timeout", second, hour)
        self._within("backlog_cool_down", timedelta(), hour)
        if self.failback == "after-drain" and self.failback_hold >= self.operation_timeout:
            raise ConfigurationError(
                f"failback_hold is shorter than operation_timeout, not {self.failback_hold}: calls "
                "would end while they wait"
            )
        if not 0 <= self.ping_jitter <= 1:
            raise ConfigurationError(f"ping_jitter is 0 to 1, not {self.ping_jitter}")
        if self.failback not in get_args(Failback):
            raise ConfigurationError(
                f"failback is one of {', '.join(get_args(Failback))}, not {self.failback!r}"
            )

    def _within(self, name: str, least: timedelta, most: timedelta) -> None:
        value = getattr(self, name)
        if not isinstance(value, timedelta):
            raise ConfigurationError(f"{name} is a timedelta, not {value!r}")
        if not least <= value <= most:
            raise ConfigurationError(f"{name} is {least} to {most}, not {value}")
