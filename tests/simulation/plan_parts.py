"""Parts of plans: their sizes, and faults and calls at random times."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.simulation.fault_kinds import OUTAGES
from tests.simulation.plan import Fault, Plan, PlannedSend


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a plan. Most are small: they are fast, and few messages and faults suffice for
    most defects. Long ones find what needs time or load."""

    phases_s: tuple[float, ...]
    messages: tuple[int, int]
    max_faults: int
    paths: tuple[int, ...]
    backlog_queues: tuple[int, ...]
    processes: tuple[int, ...]
    syphons: tuple[int, ...]
    scale: float
    """Durations of plans with a focus are multiplied by it."""


def random_outage(random: Random, at: float, seconds: float) -> Fault:
    return Fault(at, random.choice(OUTAGES), seconds, random.randrange(1000))


def random_faults(
    random: Random, kinds: Sequence[str], start: float, end: float, count: int
) -> tuple[Fault, ...]:
    faults = [
        Fault(
            random.uniform(start, end),
            random.choice(kinds),
            random.choice((0.3, 2.0, 5.0, 15.0)) * random.uniform(0.5, 1.5),
            random.randrange(1000),
        )
        for _ in range(count)
    ]
    return tuple(sorted(faults, key=lambda fault: fault.at))


def random_bursts(
    plan: Plan, random: Random, start: float, timeout_s: float | None
) -> tuple[PlannedSend, ...]:
    """Return calls that follow each other quickly, with pauses, each caller in its own session."""
    sends: list[PlannedSend] = []
    for caller in range(plan.callers):
        at = start + random.random()
        path = f"queue{random.randrange(plan.paths)}"
        while at < plan.fault_phase_s:
            for _ in range(random.choice((1, 2, 3))):
                ids = (f"m{len(sends)}",)
                sends.append(
                    PlannedSend(at, 0, caller, path, ids, f"s{caller}", timeout_s=timeout_s)
                )
                at += random.uniform(0.0, 0.3)
            at += random.choice((0.3, 1.5, 4.0)) * random.uniform(0.5, 1.5) * plan.callers
    return tuple(sorted(sends, key=lambda send: send.at))


class Stream(NamedTuple):
    """A part of the messages is sent by one caller to one path, in one session."""

    share: float
    at: float
    seconds: float


def random_sends(
    plan: Plan, random: Random, session_share: float, stream: Stream, count: int
) -> tuple[PlannedSend, ...]:
    """Return the calls of the applications, with this number of messages."""
    sends: list[PlannedSend] = []
    batch_share = random.choice((0.0, 0.1, 0.4, 0.8))
    refused_share = random.choice((0.0, 0.0, 0.15, 0.4))
    full_share = random.choice((0.0, 0.0, 0.2))
    planned = 0
    while planned < count:
        process, caller = random.randrange(plan.processes), random.randrange(plan.callers)
        path = f"queue{random.randrange(plan.paths)}"
        number = random.randrange(2)
        at = random.uniform(0.0, plan.fault_phase_s * 1.1)
        if random.random() < stream.share:
            process, caller, path, number = 0, 0, "queue0", 0
            at = stream.at + random.random() * stream.seconds
        session = f"s{process}{caller}{number}" if random.random() < session_share else None
        size = random.randrange(2, 5) if random.random() < batch_share else 1
        ids = tuple(f"m{planned + number}" for number in range(size))
        planned += size
        is_refused = random.random() < refused_share
        if is_refused:
            ids = tuple(id + "-" * 200 for id in ids)
        is_full = size > 1 and not is_refused and random.random() < full_share
        sends.append(PlannedSend(at, process, caller, path, ids, session, is_refused, is_full))
    return tuple(sorted(sends, key=lambda send: send.at))
