"""Options of a syphon."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal, get_args

from pairbus.amqp.client import (
    ClientOptions,
    HeldCredential,
    SharedAccessKey,
    SharedAccessSignature,
)
from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import namespace_name
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.spark.usage import UsageRecorder

TimeToLive = Literal["restore", "deduct"]
ArchiveFormat = Literal["parquet", "orc", "json", "csv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonOptions:
    """The namespaces of a pairing, and how to drain the backlog. Raises ConfigurationError for a
    value that is not valid."""

    primary: ClientOptions = field(repr=False)
    """The namespace of the destinations: a connection string, or ClientOptions.

    Spark sends the options to its workers, but not a credential: it stays in the driver, which
    sends tokens with each micro-batch. A function that creates the credential
    (`pairbus.amqp.client.Credential`) is called in each worker instead."""
    secondary: ClientOptions = field(repr=False)
    """The namespace of the backlog: a connection string, or ClientOptions."""
    primary_name: str | None = None
    """The primary's name in the paths of the backlog queues, as in the options of the pairing.
    None: the first label of its host."""
    backlog_queue_count: int = 10
    """The number of backlog queues, as in the options of the pairing. Queues that do not exist are
    skipped."""
    queues: tuple[str, ...] = ()
    """The paths of the backlog queues, if several syphons share them. Empty: all queues."""
    ttl: TimeToLive = "restore"
    """The time-to-live after the drain. restore: the full original value. deduct: the original
    value minus the time spent in the backlog; expired messages are dead-lettered."""
    only: tuple[str, ...] = ()
    """Move only messages for these paths. Empty: all messages."""
    where: str | None = None
    """Move only messages for which this SQL expression of Spark is true. The page Columns
    of the documentation lists the columns. Messages that have to be dead-lettered always are. None:
    all messages."""
    max_rate: float | None = None
    """The highest number of messages a second. None: no limit."""
    max_rates: Mapping[str, float] = field(default_factory=dict)
    """The highest number of messages a second for single destinations."""
    max_messages_per_trigger: int = 200_000
    """The highest number of messages in a micro-batch."""
    poll: timedelta = timedelta(minutes=15)
    """The time for which a receive waits while the backlog is empty. Each receive is billed."""
    archive: str | None = None
    """A folder for files with every moved message, on each machine of the query or shared by them.
    A message may be in it twice, and is never missing. None: no archive."""
    archive_format: ArchiveFormat = "parquet"
    """The format of these files."""
    control_file: str | None = None
    """The file through which `pairbus syphon control` pauses the syphon and changes its rates. A
    pause in it survives a restart. None: a temporary file."""
    ledger: str | None = None
    """A folder for the usage ledger, on each machine of the query. The page Cost of the
    documentation describes it. None: no ledger."""
    stuck_after: timedelta = timedelta(minutes=2)
    """The syphon is unhealthy if it makes no progress for this long while messages wait."""
    telemetry: bool | None = None
    """Record metrics and spans with OpenTelemetry. None: only if the application has set a provider
    before it starts the syphon. True: also if it sets one later, which requires the package
    opentelemetry-api. The page Metrics and traces of the documentation lists them."""
    missing_destination_grace: timedelta | None = timedelta(hours=1)
    """The time for which messages wait for a destination that does not exist, counted from the
    first attempt of this syphon. Then they are dead-lettered. Zero: at once; None: they wait until
    the destination is created."""

    def __post_init__(self) -> None:
        for name in ("primary", "secondary"):
            value = getattr(self, name)
            if isinstance(value, str):
                object.__setattr__(self, name, ClientOptions.from_connection_string(value))
            elif not isinstance(value, ClientOptions):
                raise ConfigurationError(
                    f"{name} must be a connection string or ClientOptions, not "
                    f"{type(value).__name__}."
                )
        if self.primary.address == self.secondary.address:
            raise ConfigurationError(
                "primary and secondary are the same namespace. Use two different ones."
            )
        for name in ("backlog_queue_count", "max_messages_per_trigger"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.archive is not None and not Path(self.archive).is_absolute():
            raise ConfigurationError(
                f"archive must be the absolute path of a folder, not {self.archive!r}: workers "
                "have other working directories."
            )
        if self.archive_format not in get_args(ArchiveFormat):
            raise ConfigurationError(
                f"archive_format must be one of {', '.join(get_args(ArchiveFormat))}, not "
                f"{self.archive_format!r}. For another format of Spark, let a query follow the "
                "archive with `readStream`."
            )
        if self.max_rate is not None and not self.max_rate > 0:
            raise ConfigurationError(f"max_rate must be above 0, not {self.max_rate}.")
        for path, rate in self.max_rates.items():
            if not rate > 0:
                raise ConfigurationError(f"max_rates[{path!r}] must be above 0, not {rate}.")
        if self.ttl not in get_args(TimeToLive):
            raise ConfigurationError(
                f"ttl must be one of {', '.join(get_args(TimeToLive))}, not {self.ttl!r}."
            )
        if not timedelta(seconds=1) <= self.poll <= timedelta(hours=1):
            raise ConfigurationError(f"poll must be from 1 s to 1 h, not {self.poll}.")
        if not self.stuck_after > timedelta():
            raise ConfigurationError(f"stuck_after must be above 0, not {self.stuck_after}.")
        grace = self.missing_destination_grace
        if grace is not None and grace < timedelta():
            raise ConfigurationError(f"missing_destination_grace must not be below 0, not {grace}.")
        for name in ("primary", "secondary"):
            _check_picklable(name, getattr(self, name))
        if not self.queues and self.name is None:
            raise ConfigurationError(
                f"{self.primary.host!r} does not name a namespace. Set primary_name to the same "
                "value as in the options of the pairing."
            )

    @property
    def name(self) -> str | None:
        """The primary's name. None: only `queues` are known."""
        if self.primary_name is not None:
            return self.primary_name
        return namespace_name(self.primary.host)

    @property
    def usage(self) -> UsageRecorder:
        """A recorder for the usage ledger."""
        return UsageRecorder.create(self.ledger, self.primary, self.secondary)

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        """The paths of the backlog queues."""
        if self.queues:
            return self.queues
        return tuple(backlog_paths(self.name or "", self.backlog_queue_count))


def _check_picklable(name: str, options: ClientOptions) -> None:
    """Raise ConfigurationError if Spark could not send the options to its workers."""
    if options.sasl is None and isinstance(
        options.tokens, HeldCredential | SharedAccessKey | SharedAccessSignature | None
    ):
        return
    # Spark uses cloudpickle, which pickles more than `pickle` does: the functions of a notebook.
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(options)  # type: ignore[no-untyped-call]
    except Exception as exc:  # an object may raise anything when it is pickled
        raise ConfigurationError(
            f"The tokens of {name} cannot be sent to Spark's workers ({exc}). Use the credential "
            "itself (ClientOptions.from_host), or a function that creates the credential."
        ) from exc
