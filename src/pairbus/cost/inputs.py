"""The inputs of a forecast: a pairing, its traffic and an outage."""

from dataclasses import dataclass, field
from datetime import timedelta

from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions

Number = int | float

MAX_RATE = 1e9
"""The highest rate that is accepted, in messages per second."""
MAX_OUTAGE = timedelta(days=30)
MIN_POLL, MAX_POLL = timedelta(seconds=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingProfile:
    """A pairing: its options, the number of its processes and the speed of its syphons.

    Raises ConfigurationError for a value that is out of range.
    """

    options: SendAvailabilityOptions = field(default_factory=SendAvailabilityOptions)
    clients: int = 1
    """Sending processes. Each of them pings every path that is in failover."""
    syphons: int = 1
    """Syphons. Each of them polls all backlog queues."""
    poll: timedelta = timedelta(minutes=15)
    """The wait time of a receive on an empty backlog queue, 1 s to 1 h."""
    drain_rate: Number = 1000
    """Messages per second that all syphons together move to the primary."""
    redeliveries: int = 0
    """Receives of each backlog message before the one after which it is delivered: the syphon
    receives a message again when its destination was still down. Each receive is billed."""

    def __post_init__(self) -> None:
        _check_integer("clients", self.clients, minimum=1)
        _check_integer("syphons", self.syphons, minimum=0)
        _check_integer("redeliveries", self.redeliveries, minimum=0)
        _check_timedelta("poll", self.poll, MIN_POLL, MAX_POLL)
        _check_number("drain_rate", self.drain_rate, MAX_RATE)
        if self.drain_rate == 0:
            raise ConfigurationError("drain_rate must be greater than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The messages that the application sends.

    Raises ConfigurationError for a value that is out of range.
    """

    rate: Number = 0
    """Messages per second, of all clients to all entities together."""
    size: int = 1024
    """Bytes of an encoded message: body, headers and properties. The last two take about 60 bytes
    or more."""
    entities: int = 1
    """Queues and topics of the primary that receive messages. Every client sends to all of them."""
    alias_bytes: int = 40
    """Bytes that the aliases add to a message in the backlog: about 20 and the length of the path,
    and a few more for a session id, a time-to-live or a scheduled enqueue time."""

    def __post_init__(self) -> None:
        _check_number("rate", self.rate, MAX_RATE)
        _check_integer("size", self.size, minimum=0)
        _check_integer("entities", self.entities, minimum=1)
        _check_integer("alias_bytes", self.alias_bytes, minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage of the primary: it accepts no messages.

    Raises ConfigurationError for a value that is out of range.
    """

    length: timedelta = timedelta()
    """0 to 30 days."""
    share: Number = 1
    """The fraction of the entities, and of the traffic, that is affected, 0 to 1."""

    def __post_init__(self) -> None:
        _check_timedelta("the outage length", self.length, timedelta(), MAX_OUTAGE)
        _check_number("share", self.share, 1)


def _check_integer(name: str, value: object, *, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigurationError(f"{name} must be an integer of at least {minimum}, not {value!r}")


def _check_number(name: str, value: object, maximum: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= maximum:
        raise ConfigurationError(f"{name} must be a number from 0 to {maximum:g}, not {value!r}")


def _check_timedelta(name: str, value: object, minimum: timedelta, maximum: timedelta) -> None:
    if not isinstance(value, timedelta):
        raise ConfigurationError(f"{name} must be a timedelta, not {value!r}")
    if not minimum <= value <= maximum:
        raise ConfigurationError(f"{name} must be {minimum} to {maximum}, not {value}")
