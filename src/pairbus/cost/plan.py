"""What a forecast is told: the pairing, its traffic, an outage; and the counts that come of it."""

from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from math import ceil

from pairbus.cost.counts import CostKey, MessageGroup, TrafficCounts
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions
from pairbus.usage.operations import NamespaceRole, OperationKind, Part

SMALL = 10
DRAIN_CHECK_S = 1
"""With `after-drain` the backlog is looked at so often, and up to `SMALL` + 1 messages of each
queue are peeked. Both are those of `pairing.health`; a test compares them."""
LAST_LOOKS = 3
"""Looks at a backlog that is empty: the one that finds it small, and two in the hold."""

Number = int | float
MOST = 1e9
"""Messages a second."""
DAY = timedelta(days=1)
LONGEST_DRAIN = 365 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingProfile:
    """What pings, polls and stores. Raises ConfigurationError where a value is out of bounds."""

    options: SendAvailabilityOptions = field(default_factory=SendAvailabilityOptions)
    clients: int = 1
    """Processes that send, each with a pairing of its own. Each pings for itself."""
    syphons: int = 1
    """Each polls all backlog queues."""
    poll: timedelta = timedelta(minutes=15)
    """How long an idle receive of a syphon waits, 1 s to 1 h."""
    drain_rate: Number = 1000
    """Messages a second that the syphons move together."""
    vain_receives: int = 0
    """How often a message is received from the backlog before its destination takes it."""

    def __post_init__(self) -> None:
        _whole("clients", self.clients, 1)
        _whole("syphons", self.syphons, 0)
        _whole("vain_receives", self.vain_receives, 0)
        _span("poll", self.poll, timedelta(seconds=1), timedelta(hours=1))
        if _number("drain_rate", self.drain_rate) <= 0:
            raise ConfigurationError(f"drain_rate is above 0, not {self.drain_rate}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What the application sends. Raises ConfigurationError where a value is out of bounds."""

    rate: Number = 0
    """Messages a second, of all clients to all entities together."""
    size: int = 1024
    """Bytes of a whole message: its body, and properties and headers, some 60 bytes or more."""
    entities: int = 1
    """Queues and topics of the primary that are sent to; each client sends to all."""
    alias_bytes: int = 40
    """By how much the aliases make a message larger in the backlog: 20 bytes and the path, and some
    more for a session, a time-to-live or a schedule."""

    def __post_init__(self) -> None:
        _number("rate", self.rate)
        _whole("size", self.size, 0)
        _whole("entities", self.entities, 1)
        _whole("alias_bytes", self.alias_bytes, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The primary takes no messages. Raises ConfigurationError where a value is out of bounds."""

    length: timedelta = timedelta()
    """0 to 30 days."""
    share: Number = 1
    """The part of the entities, and of the traffic, that it concerns, 0 to 1."""

    def __post_init__(self) -> None:
        _span("the length of the outage", self.length, timedelta(), 30 * DAY)
        _number("share", self.share, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageTimeline:
    """How an outage goes, by the rules of `pairing.health`, without jitter.

    Sends fail, and their callers see it, until `failover_interval` is over. Then they go to the
    backlog. Pings follow at each interval, and the first after the end of the outage gets through.
    """

    paths: int
    """Entities in failover."""
    refused: int
    """Messages whose callers got an error before failover. They count as sent later."""
    pings: int
    """Of all clients, for all paths."""
    failover: timedelta
    """How long sends go to the backlog."""
    through_backlog: int
    """Messages that go through the backlog."""
    drain: timedelta
    """How long the syphons need."""
    peeks: int
    """Messages that are peeked to see whether the backlog is empty, with `after-drain`."""
    empty_peeks: int


def course_of(pairing: PairingProfile, traffic: Traffic, outage: Outage) -> OutageTimeline:
    """Raises ConfigurationError where `after-drain` would never end."""
    options = pairing.options
    rate = _exact(traffic.rate) * _exact(outage.share)
    interval = _seconds(options.failover_interval)
    length = _seconds(outage.length)
    after_failover = length - interval
    paths = ceil(_exact(outage.share) * traffic.entities)
    # An outage as short as the interval ends before failover: a send succeeds, and the timer stops.
    if after_failover <= 0 or paths == 0:
        return OutageTimeline(
            paths=0,
            refused=ceil(rate * length),
            pings=0,
            failover=timedelta(),
            through_backlog=0,
            drain=timedelta(),
            peeks=0,
            empty_peeks=0,
        )
    ping = _seconds(options.ping_primary_interval)
    each = ceil(after_failover / ping)
    stored = rate * each * ping
    drain_rate = _exact(pairing.drain_rate)
    drain, looks = stored / drain_rate, 0
    failover = each * ping
    if options.failback == "after-drain":
        if drain_rate <= rate:
            raise ConfigurationError(
                f"with failback='after-drain' sends go to the backlog until it is empty: at "
                f"{pairing.drain_rate} messages a second it never is, for {float(rate):g} arrive"
            )
        # While it drains, more arrives.
        drain = stored / (drain_rate - rate)
        stored += rate * drain
        failover += drain
        looks = pairing.clients * paths * options.backlog_queue_count
    if drain > _seconds(LONGEST_DRAIN):
        raise ConfigurationError(
            f"at {pairing.drain_rate} messages a second the backlog is not empty within a year: "
            "set a higher drain_rate"
        )
    return OutageTimeline(
        paths=paths,
        refused=ceil(rate * interval),
        pings=each * paths * pairing.clients,
        failover=timedelta(seconds=float(failover)),
        through_backlog=ceil(stored),
        drain=timedelta(seconds=float(drain)),
        peeks=looks * ceil(drain / DRAIN_CHECK_S) * (SMALL + 1),
        empty_peeks=looks * LAST_LOOKS,
    )


def outage_counts(
    pairing: PairingProfile, traffic: Traffic, course: OutageTimeline
) -> TrafficCounts:
    """What happens because of an outage, and the delivery of what went through the backlog."""
    messages = course.through_backlog
    home = (MessageGroup(messages, traffic.size),)
    stored = (MessageGroup(messages, traffic.size + traffic.alias_bytes),)
    peeked = (MessageGroup(course.peeks, stored[0].size), MessageGroup(course.empty_peeks, 0))
    return TrafficCounts(
        stored=stored,
        taken=(MessageGroup(messages * (1 + pairing.vain_receives), stored[0].size),),
        settled=messages,
        homed=home,
        delivered=home,
        completed=messages,
        pings=course.pings,
        others={CostKey(Part.DRAIN, NamespaceRole.SECONDARY, OperationKind.PEEK): peeked},
    )


def idle_counts(pairing: PairingProfile, period: timedelta) -> TrafficCounts:
    """What the syphons do in some time while there is nothing to do."""
    polls = _seconds(period) // _seconds(pairing.poll)
    return TrafficCounts(polls=pairing.syphons * pairing.options.backlog_queue_count * polls)


def normal_counts(traffic: Traffic, period: timedelta) -> TrafficCounts:
    """What the application does in some time without an outage."""
    return direct_counts(traffic, ceil(_exact(traffic.rate) * _seconds(period)))


def direct_counts(traffic: Traffic, messages: int) -> TrafficCounts:
    """Some messages that are sent to the primary, received and completed."""
    some = (MessageGroup(messages, traffic.size),)
    return TrafficCounts(direct=some, delivered=some, completed=messages)


def _exact(value: Number) -> Fraction:
    """0.1 is a tenth."""
    return Fraction(str(value))


def _seconds(span: timedelta) -> Fraction:
    return Fraction(span // timedelta(microseconds=1), 1_000_000)


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name} is a whole number, {least} or more, not {value!r}")


def _number(name: str, value: object, most: float = MOST) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ConfigurationError(f"{name} is a number, 0 to {most:g}, not {value!r}")
    return value


def _span(name: str, value: timedelta, least: timedelta, most: timedelta) -> None:
    if not isinstance(value, timedelta):
        raise ConfigurationError(f"{name} is a timedelta, not {value!r}")
    if not least <= value <= most:
        raise ConfigurationError(f"{name} is {least} to {most}, not {value}")
