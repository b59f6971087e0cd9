"""The course of an outage, and the operations of pairing and application with and without one."""

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from math import ceil, log2

from pairbus.cost.counts import CostKey, MessageGroup, TrafficCounts
from pairbus.cost.inputs import Number, Outage, PairingProfile, Traffic
from pairbus.errors import ConfigurationError
from pairbus.pairing.health import CHECKS_PER_INTERVAL
from pairbus.usage.operations import NamespaceRole, OperationKind, Purpose

MESSAGES_PER_ROUND = 2
"""Messages that a draining path peeks at in a round at a backlog that is not small."""
PEEKS_OF_EMPTY_BACKLOG = 3
"""Peeks at an empty backlog before failback: the one that starts the hold, and two within it."""
MAX_DRAIN = timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageTimeline:
    """The course of an outage, by the rules of `pairing.health` and without jitter.

    Sends fail, and their callers get the error, until `failover_interval` has passed. From then on
    they go to the backlog. A ping follows at each interval, and the first one after the end of the
    outage succeeds.
    """

    paths: int
    """Paths in failover."""
    failed_sends: int
    """Sends that fail before failover. The forecast assumes that the callers repeat them later."""
    pings: int
    """Pings of all clients for all paths."""
    failover: timedelta
    """The time during which sends go to the backlog."""
    through_backlog: int
    """Messages that go through the backlog."""
    drain: timedelta
    """The time that the syphons need to empty the backlog."""
    peeks: int
    """Messages that are peeked with `after-drain` to see whether the backlog is nearly empty."""
    empty_peeks: int
    """Peeks with `after-drain` that return no message."""


def outage_timeline(pairing: PairingProfile, traffic: Traffic, outage: Outage) -> OutageTimeline:
    """Return the timeline of an outage.

    Raises ConfigurationError if the backlog would never be empty with `after-drain`, or not within
    a year.
    """
    options = pairing.options
    rate = _exact(traffic.rate) * _exact(outage.share)
    failover_interval = _seconds(options.failover_interval)
    length = _seconds(outage.length)
    down_after_failover = length - failover_interval
    paths = ceil(_exact(outage.share) * traffic.entities)
    # An outage that is no longer than the interval ends before failover: the next send succeeds,
    # and the path is healthy again.
    if down_after_failover <= 0 or paths == 0:
        return OutageTimeline(
            paths=0,
            failed_sends=ceil(rate * length),
            pings=0,
            failover=timedelta(),
            through_backlog=0,
            drain=timedelta(),
            peeks=0,
            empty_peeks=0,
        )
    ping_interval = _seconds(options.ping_primary_interval)
    pings_per_path = ceil(down_after_failover / ping_interval)
    failover = pings_per_path * ping_interval
    stored = rate * failover
    drain_rate = _exact(pairing.drain_rate)
    drain, draining_paths, rounds = stored / drain_rate, 0, 0
    if options.failback == "after-drain":
        if drain_rate <= rate:
            raise ConfigurationError(
                f"With failback='after-drain' the backlog is never empty: {float(rate):g} messages "
                f"per second arrive, and drain_rate is {pairing.drain_rate}. "
                "Set a higher drain_rate."
            )
        # More messages arrive during the drain.
        drain = stored / (drain_rate - rate)
        stored += rate * drain
        rounds = _peek_rounds(drain, _seconds(options.drain_check_interval))
        failover += drain
        draining_paths = pairing.clients * paths
    if drain > _seconds(MAX_DRAIN):
        raise ConfigurationError(
            f"At {pairing.drain_rate} messages per second the backlog is not empty within a year. "
            "Set a higher drain_rate."
        )
    return OutageTimeline(
        paths=paths,
        failed_sends=ceil(rate * failover_interval),
        pings=pings_per_path * paths * pairing.clients,
        failover=timedelta(seconds=float(failover)),
        through_backlog=ceil(stored),
        drain=timedelta(seconds=float(drain)),
        peeks=draining_paths * rounds * MESSAGES_PER_ROUND,
        empty_peeks=draining_paths * options.backlog_queue_count * PEEKS_OF_EMPTY_BACKLOG,
    )


def _peek_rounds(drain: Fraction, interval: Fraction) -> int:
    """Return the rounds of peeks of a path during a drain. Each comes after half of the time to go,
    or after the interval, if that is shorter."""
    halvings = ceil(log2(CHECKS_PER_INTERVAL))
    return ceil(drain / interval) + halvings


def outage_counts(
    pairing: PairingProfile, traffic: Traffic, timeline: OutageTimeline
) -> TrafficCounts:
    """Count the operations of an outage, with the delivery of the messages in the backlog."""
    messages = timeline.through_backlog
    stored_size = traffic.size + traffic.alias_bytes
    restored = (MessageGroup(messages, traffic.size),)
    peeks = (MessageGroup(timeline.peeks, stored_size), MessageGroup(timeline.empty_peeks, 0))
    return TrafficCounts(
        backlog_sends=(MessageGroup(messages, stored_size),),
        backlog_receives=(MessageGroup(messages * (1 + pairing.redeliveries), stored_size),),
        backlog_completes=messages,
        drain_sends=restored,
        primary_receives=restored,
        primary_completes=messages,
        pings=timeline.pings,
        others={CostKey(Purpose.DRAIN, NamespaceRole.SECONDARY, OperationKind.PEEK): peeks},
    )


def idle_counts(pairing: PairingProfile, period: timedelta) -> TrafficCounts:
    """Count the polls of the syphons in a period in which the backlog is empty."""
    polls_per_queue = period // pairing.poll
    queues = pairing.options.backlog_queue_count
    return TrafficCounts(empty_polls=pairing.syphons * queues * polls_per_queue)


def normal_counts(traffic: Traffic, period: timedelta) -> TrafficCounts:
    """Count the operations of the application in a period without an outage."""
    return direct_counts(traffic, ceil(_exact(traffic.rate) * _seconds(period)))


def direct_counts(traffic: Traffic, messages: int) -> TrafficCounts:
    """Count the operations for messages that are sent to the primary, received and completed."""
    group = (MessageGroup(messages, traffic.size),)
    return TrafficCounts(direct_sends=group, primary_receives=group, primary_completes=messages)


def _exact(value: Number) -> Fraction:
    """Return a number as it is written: 0.1 is a tenth."""
    return Fraction(str(value))


def _seconds(duration: timedelta) -> Fraction:
    return Fraction(duration // timedelta(microseconds=1), 1_000_000)
