"""The options of a pairing."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from numbers import Real
from typing import TYPE_CHECKING, Literal, get_args

from pairbus.errors import ConfigurationError
from pairbus.events import Event

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

    from pairbus.syphon.options import SyphonOptions

__all__ = ["Failback", "FailureKind", "SendAvailabilityOptions"]

Failback = Literal["immediate", "after-drain"]


class FailureKind(Enum):
    """The meaning of a failed call for its caller and for the health of the path."""

    UNAVAILABLE = "unavailable"
    """The primary cannot be reached or cannot answer. Starts the failover timer."""
    UNKNOWN = "unknown"
    """A link ended for a reason that the SDK hides. Counts as unavailable, but a probe over a new
    link decides before the path fails over."""
    BUSY = "busy"
    """The primary throttles. The caller gets the error, unless `failover_on_busy` is set and the
    time is over."""
    CALLER = "caller"
    """The request is at fault: the message is too large or cannot be encoded, the entity does not
    exist, a right is missing, an argument is wrong or a quota is exceeded. The caller gets the
    error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAvailabilityOptions:
    """The options of `pair_namespace`. Raises ConfigurationError when a value is out of bounds."""

    secondary: "str | ServiceBusClient | AsyncServiceBusClient | None" = field(
        default=None, repr=False
    )
    """The namespace that stores messages while the primary is down: a connection string, or a
    client of the Azure SDK (synchronous for `pair_namespace`, asynchronous for
    `aio.pair_namespace`). Its credential also creates the backlog queues."""
    primary_name: str | None = None
    """The name of the primary in the paths of backlog queues. None: the first label of its host
    name."""
    backlog_queue_count: int = 10
    """The number of backlog queues, at least 1."""
    create_backlog: bool = True
    """Create backlog queues that do not exist, and check the settings of those that do. False:
    assume that they exist with the right settings, which requires the Send right only."""
    failover_interval: timedelta = timedelta(minutes=1)
    """The time that sends to a path may fail before it fails over, 0 to 60 min. With 0, the
    messages of the first failed call go to the backlog."""
    failover_on_busy: timedelta | None = None
    """Fail over also when the primary throttles a path for this time, 0 to 60 min, and accepts none
    of its messages meanwhile. None: throttling never leads to failover. The traffic
    moves to the secondary, which may throttle as well, and drains into the primary later; the page
    Guarantees of the documentation lists the risks."""
    ping_primary_interval: timedelta = timedelta(minutes=1)
    """The time between two pings of a path in failover, 1 s to 30 min."""
    ping_jitter: float = 0.1
    """The fraction of that interval, 0 to 1, by which a ping may be earlier or later. Applies to
    `drain_check_interval` too."""
    enable_syphon: bool = False
    """Run a syphon in this process. Requires Spark and Java."""
    syphon_options: "SyphonOptions | None" = field(default=None, repr=False)
    """The options of that syphon. None: derive them from the two clients."""
    failback: Failback = "immediate"
    """`after-drain` keeps the order within sessions: a path returns to the primary when the backlog
    is empty."""
    failback_hold: timedelta = timedelta(seconds=5)
    """With `after-drain`: the longest time that sends wait for the rest of the backlog to be
    drained, 0.1 to 60 s."""
    drain_check_interval: timedelta = timedelta(seconds=30)
    """With `after-drain`: the longest time between two checks of the backlog, 1 s to 30 min. A
    check comes after half of the time to go, and after a thirtieth of this at the earliest.
    The page Many sender processes of the documentation has values for many processes."""
    drain_timeout: timedelta = timedelta(minutes=10)
    """With `after-drain`: emit DrainStalled when the backlog does not shrink for this time."""
    operation_timeout: timedelta = timedelta(seconds=60)
    """The longest time of one call, not counting the SDK's waits between retries."""
    backlog_cool_down: timedelta = timedelta(minutes=1)
    """The time for which a backlog queue that failed is not used."""
    check_backlog_size: bool = False
    """Refuse messages that would not fit into the backlog also while the primary is healthy."""
    check_duplicate_detection: bool = True
    """Warn once about each entity without duplicate detection. Requires the Manage right on the
    primary; without it there is no warning."""
    ledger: str | os.PathLike[str] | None = None
    """The folder for the usage ledger, which the page Cost of the documentation describes. None:
    keep no ledger."""
    console: str | None = None
    """The address of a console (`pairbus console`) to which this pairing reports its state every
    10 s and at each change, such as `https://console.example.com`. It must use https, unless the
    console runs on this computer. None: report nothing. A send never waits for a report."""
    console_token: str | Callable[[], str] | None = field(default=None, repr=False)
    """The token for senders of that console. Required, unless it runs on this computer. Tokens
    expire: a function is called before each report, in the thread of the reports, and can return a
    new one."""
    console_ca_file: str | os.PathLike[str] | None = None
    """The CA certificates by which that console is verified. None: those of the system."""
    console_application: str | None = None
    """The name of the application in the console. None: the name of the running program."""
    telemetry: bool | None = None
    """Record metrics and spans with OpenTelemetry. None: only if the application has set a provider
    before it pairs. True: also if it sets one later, which requires the package opentelemetry-api.
    The page Metrics and traces of the documentation lists them."""
    classify: Callable[[BaseException], FailureKind] | None = None
    """Replaces `pairbus.pairing.failures.classify_failure`, which decides what a failed call
    means."""
    on_event: Callable[[Event], None] | None = None
    """Called with every event, one at a time, in the order in which they occurred. With threads,
    it is called in one of the threads that use the pairing; with `aio`, in the event loop. It may
    call the pairing. Must return quickly: it delays later events, and the call in whose thread it
    runs."""

    def __post_init__(self) -> None:
        count: object = self.backlog_queue_count
        if not isinstance(count, Real) or count < 1 or count % 1 != 0:
            raise ConfigurationError(
                f"backlog_queue_count must be an integer of at least 1, not {count!r}"
            )
        hour, second = timedelta(hours=1), timedelta(seconds=1)
        self._check_range("failover_interval", timedelta(), hour)
        if self.failover_on_busy is not None:
            self._check_range("failover_on_busy", timedelta(), hour)
        self._check_range("ping_primary_interval", second, timedelta(minutes=30))
        self._check_range("failback_hold", timedelta(milliseconds=100), timedelta(minutes=1))
        self._check_range("drain_check_interval", second, timedelta(minutes=30))
        self._check_range("drain_timeout", second, timedelta(days=7))
        self._check_range("operation_timeout", second, hour)
        self._check_range("backlog_cool_down", timedelta(), hour)
        if self.failback == "after-drain" and self.failback_hold >= self.operation_timeout:
            raise ConfigurationError(
                f"failback_hold must be shorter than operation_timeout ({self.operation_timeout}), "
                f"not {self.failback_hold}: calls would time out while they are held"
            )
        jitter: object = self.ping_jitter
        if not isinstance(jitter, Real) or not 0 <= float(jitter) <= 1:
            raise ConfigurationError(f"ping_jitter must be between 0 and 1, not {jitter!r}")
        for name in ("classify", "on_event"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ConfigurationError(f"{name} must be a function, not {function!r}")
        if not isinstance(self.ledger, str | os.PathLike | None):
            raise ConfigurationError(f"ledger must be the path of a folder, not {self.ledger!r}")
        if self.failback not in get_args(Failback):
            raise ConfigurationError(
                f"failback must be one of {', '.join(get_args(Failback))}, not {self.failback!r}"
            )
        self._check_console()

    def _check_console(self) -> None:
        options = (self.console, self.console_token, self.console_ca_file, self.console_application)
        if any(option is not None for option in options):
            from pairbus.console_address import check_console_options

            check_console_options(*options)

    def _check_range(self, name: str, minimum: timedelta, maximum: timedelta) -> None:
        value = getattr(self, name)
        if not isinstance(value, timedelta):
            raise ConfigurationError(f"{name} must be a timedelta, not {value!r}")
        if not minimum <= value <= maximum:
            raise ConfigurationError(f"{name} must be between {minimum} and {maximum}, not {value}")
