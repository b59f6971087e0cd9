"""What a syphon is told."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

from pairbus.amqp.client import ClientOptions, SharedAccessKey, SharedAccessSignature
from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import namespace_name
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.syphon.usage import SyphonUsage

TimeToLive = Literal["restore", "deduct"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonOptions:
    """Two namespaces, and how to move the backlog from one to the other. Raises ConfigurationError
    where a value is out of bounds."""

    primary: ClientOptions = field(repr=False)
    """Where messages were going. A connection string, or ClientOptions with tokens of any kind.
    Spark sends them to its workers: where a credential gives the tokens, let them be a
    `pairbus.amqp.client.Credential` with a factory, which each worker calls for itself."""
    secondary: ClientOptions = field(repr=False)
    """Where the backlog is."""
    primary_name: str | None = None
    """The primary's name in the paths of backlog queues. None: the first label of its host."""
    backlog_queue_count: int = 10
    """As in the options of the pairing. Queues that are not there are passed over."""
    queues: tuple[str, ...] = ()
    """The backlog queues themselves, where several syphons share them out. Empty: all."""
    ttl: TimeToLive = "restore"
    """Restore a time-to-live in full, or less the time in the backlog."""
    only: tuple[str, ...] = ()
    """Move messages for these paths alone. Empty: all."""
    max_rate: float | None = None
    """Messages a second at most."""
    max_messages_per_trigger: int = 100_000
    poll: timedelta = timedelta(minutes=15)
    """How long an idle receive waits."""
    ledger: str | None = None
    """A folder for the ledger of what is billable, on each machine that takes part: see
    docs/cost.md. None: none is kept."""
    stuck_after: timedelta = timedelta(minutes=2)
    """A backlog of which nothing is confirmed for so long is unhealthy."""

    def __post_init__(self) -> None:
        for name in ("primary", "secondary"):
            given = getattr(self, name)
            if isinstance(given, str):
                object.__setattr__(self, name, ClientOptions.from_connection_string(given))
            elif not isinstance(given, ClientOptions):
                raise ConfigurationError(
                    f"{name} is a connection string or ClientOptions, not {type(given).__name__}"
                )
        if self.primary.address == self.secondary.address:
            raise ConfigurationError("primary and secondary are one namespace")
        for name in ("backlog_queue_count", "max_messages_per_trigger"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is at least 1, not {getattr(self, name)}")
        if self.max_rate is not None and not self.max_rate > 0:
            raise ConfigurationError(f"max_rate is above 0, not {self.max_rate}")
        if self.ttl not in get_args(TimeToLive):
            raise ConfigurationError(
                f"ttl is one of {', '.join(get_args(TimeToLive))}, not {self.ttl!r}"
            )
        if not timedelta(seconds=1) <= self.poll <= timedelta(hours=1):
            raise ConfigurationError(f"poll is 1 s to 1 h, not {self.poll}")
        if not self.stuck_after > timedelta():
            raise ConfigurationError(f"stuck_after is above 0, not {self.stuck_after}")
        for name in ("primary", "secondary"):
            _can_be_sent(name, getattr(self, name))
        if not self.queues and self.name is None:
            raise ConfigurationError(
                f"{self.primary.host} has no name of its own: set primary_name, as for the pairing"
            )

    @property
    def name(self) -> str | None:
        """The primary's name."""
        if self.primary_name is not None:
            return self.primary_name
        return namespace_name(self.primary.host)

    @property
    def books(self) -> SyphonUsage:
        """Where to write down what is billable."""
        return SyphonUsage.of(self.ledger, self.primary, self.secondary)

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        """The paths of the backlog queues."""
        if self.queues:
            return self.queues
        return tuple(backlog_paths(self.name or "", self.backlog_queue_count))


def _can_be_sent(name: str, options: ClientOptions) -> None:
    """Raises ConfigurationError where Spark could not send them to its workers."""
    if options.sasl is None and isinstance(
        options.tokens, SharedAccessKey | SharedAccessSignature | None
    ):
        return
    # As Spark does it, which takes more than `pickle`: functions of a notebook, for one.
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(options)  # type: ignore[no-untyped-call]
    except Exception as exc:  # pickling raises whatever the object does
        raise ConfigurationError(
            f"the tokens of {name} cannot be sent to Spark's workers ({exc}): give a Credential "
            "with a function that makes the credential, not the credential itself"
        ) from exc
