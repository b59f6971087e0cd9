"""The plan of a simulation: everything that a seed decides before the world starts.

A plan can be changed and run again, so a failing one can be shrunk: fewer faults, fewer messages.
The world draws its own random numbers (delays, the order of events at one time) from the seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

FAULT_KINDS = (
    "primary-crash",
    "primary-silent-crash",
    "primary-freeze",
    "primary-disk",
    "primary-lose-answers",
    "primary-detach",
    "primary-detach-freeze",
    "primary-throttle",
    "primary-internal-error",
    "primary-disable",
    "primary-silence",
    "secondary-crash",
    "secondary-silent-crash",
    "secondary-freeze",
    "secondary-disk",
    "secondary-lose-answers",
    "secondary-detach",
    "secondary-throttle",
    "secondary-internal-error",
    "secondary-disable",
    "uneven-outage",
    "cut",
    "silence",
    "slow-network",
    "partition-sender-primary",
    "partition-sender-secondary",
    "partition-syphon-primary",
    "partition-syphon-secondary",
    "sender-kill",
    "sender-freeze",
    "syphon-kill",
    "syphon-freeze",
    "reader-kill",
    "writer-kill",
    "writer-kill-settled",
    "writer-freeze",
    "task-late",
    "task-twice",
    "stale-peek",
)
OFTEN = (
    "primary-disk",
    "secondary-disk",
    "secondary-lose-answers",
    "slow-network",
    "sender-freeze",
    "syphon-kill",
    "reader-kill",
    "writer-kill",
    "writer-freeze",
    "writer-freeze",
)
"""Faults that happen more often, because few of them come at a moment at which they matter."""
TASK_FAULTS = (
    "partition-syphon-primary",
    "partition-syphon-secondary",
    "syphon-kill",
    "syphon-freeze",
    "reader-kill",
    "writer-kill",
    "writer-kill-settled",
    "writer-freeze",
    "writer-freeze",
    "task-late",
    "task-twice",
    "cut",
    "primary-detach",
    "primary-throttle",
    "primary-internal-error",
)
"""Faults of syphons and their tasks, and of the primary to which these send."""
BACKLOG_FAULTS = (
    "secondary-lose-answers",
    "secondary-lose-answers",
    "secondary-detach",
    "secondary-throttle",
    "secondary-internal-error",
    "secondary-disable",
    "secondary-freeze",
    "secondary-disk",
    "secondary-crash",
    "partition-sender-secondary",
    "silence",
    "cut",
)
"""Faults of the backlog, while senders need it."""
OUTAGES = ("primary-crash", "primary-silent-crash", "primary-freeze", "partition-sender-primary")
"""Faults after which senders fail over."""
SYPHON_STOPS = ("partition-syphon-primary", "partition-syphon-secondary", "syphon-freeze")
"""Faults during which a syphon forwards no message."""


UNAVAILABLE = ("crash", "silent-crash", "freeze", "disk", "disable")
"""Faults of a namespace during which it serves nobody."""


def is_outage(kind: str) -> bool:
    """Return whether a namespace serves nobody, or no sender, during a fault of this kind."""
    host, _, what = kind.partition("-")
    is_namespace = host in ("primary", "secondary")
    return (is_namespace and what in UNAVAILABLE) or kind.startswith("partition-sender")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks at a time, for a time."""

    at: float
    kind: str
    seconds: float
    number: int
    """Chooses among several targets."""

    def __str__(self) -> str:
        return f"at {self.at:.1f} s for {self.seconds:.1f} s: {self.kind}"


@dataclass(frozen=True, slots=True)
class PlannedSend:
    """One call of `send_messages` by an application."""

    at: float
    process: int
    caller: int
    path: str
    ids: tuple[str, ...]
    session: str | None
    is_refused: bool = False
    """The ids are so long that every queue refuses the messages."""
    fills_batch: bool = False
    """The messages are as large as a batch can be."""
    timeout_s: float | None = None
    """The timeout of the call; None: that of the pairing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is decided before a simulation starts."""

    seed: int
    fault_phase_s: float
    paths: int
    backlog_queues: int
    processes: int
    callers: int
    after_drain: bool
    duplicate_detection: bool
    failover_interval_s: float
    ping_interval_s: float
    operation_timeout_s: float
    retries: int
    """The retries of the SDK."""
    cool_down_s: float
    hold_s: float
    lock_s: float
    tier: str
    slow_share: float
    """The share of connections that are much slower than others."""
    delay_s: float
    """The longest delay of the network."""
    clock_offset_s: float
    clock_rate: float
    once: bool
    syphons: int
    task_slots: int
    syphon_batch: int
    """The most messages of one delivery of a syphon, so that few messages need several."""
    with_ledger: bool
    with_tokens: bool
    with_consumer: bool
    preloaded: int
    """The number of messages that are in the backlog when the simulation begins."""
    sends: tuple[PlannedSend, ...] = field(repr=False)
    faults: tuple[Fault, ...] = field(repr=False)

    @property
    def messages(self) -> int:
        return sum(len(send.ids) for send in self.sends)

    def without(self, *, faults: set[int] | None = None, sends: set[int] | None = None) -> "Plan":
        """Return a plan without some faults and sends, by their positions."""
        return replace(
            self,
            faults=tuple(f for i, f in enumerate(self.faults) if i not in (faults or ())),
            sends=tuple(s for i, s in enumerate(self.sends) if i not in (sends or ())),
        )

    def describe(self) -> str:
        lines = [repr(self)]
        lines += [f"fault {fault}" for fault in self.faults]
        lines += [
            f"send at {send.at:.1f} s by process {send.process}, caller {send.caller}: "
            f"{', '.join(send.ids)} to {send.path}"
            + ("" if send.session is None else f", session {send.session}")
            for send in self.sends
        ]
        return "\n".join(lines)


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


SMALL = Size((8.0, 12.0), (4, 15), 4, (1, 1, 1, 2), (1, 2, 3), (1,), (1,), 0.5)
MEDIUM = Size((15.0, 30.0), (10, 36), 6, (1, 1, 2), (1, 2, 3, 4), (1, 1, 2), (1, 1, 1, 2), 0.8)
LARGE = Size((30.0, 60.0), (20, 61), 8, (1, 2, 3), (1, 2, 3, 4), (1, 1, 2), (1, 1, 2), 1.0)
SIZES = (*6 * (SMALL,), *3 * (MEDIUM,), LARGE)


def make_plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    random = Random(seed * 7919 + 17)
    size = random.choice(SIZES)
    after_drain = random.random() < 0.6
    session_share = random.choice((0.0, 0.5, 1.0)) if not after_drain else random.choice((0.7, 1.0))
    plan = Plan(
        seed=seed,
        fault_phase_s=random.choice(size.phases_s),
        paths=random.choice(size.paths),
        backlog_queues=random.choice(size.backlog_queues),
        processes=random.choice(size.processes),
        callers=random.choice((1, 2, 3)),
        after_drain=after_drain,
        duplicate_detection=random.random() < 0.4,
        failover_interval_s=random.choice((0.0, 0.0, 0.5, 2.0, 6.0)) * size.scale,
        ping_interval_s=random.choice((1.0, 1.0, 2.0, 5.0)),
        operation_timeout_s=random.choice((4.0, 8.0, 20.0)),
        retries=random.choice((0, 1, 3)),
        cool_down_s=random.choice((1.0, 5.0, 15.0)),
        hold_s=random.choice((0.5, 1.0, 3.0, 3.0)),
        lock_s=random.choice((5.0, 8.0, 15.0)),
        tier=random.choice(("unlimited", "unlimited", "standard", "throttled", "premium")),
        slow_share=random.choice((0.0, 0.0, 0.15)),
        delay_s=random.choice((0.003, 0.003, 0.03, 0.15)),
        clock_offset_s=random.choice((0.0, 0.0, 0.5, -0.5, 2.0, -2.0)),
        clock_rate=random.choice((1.0, 1.0, 1.001, 0.999)),
        once=random.random() < 0.4,
        syphons=random.choice(size.syphons),
        task_slots=random.choice((1, 2, 4)),
        syphon_batch=random.choice((1, 2, 3, 500, 500)),
        with_ledger=random.random() < 0.2,
        with_tokens=random.random() < 0.2,
        with_consumer=random.random() < 0.3,
        preloaded=0,
        sends=(),
        faults=(),
    )
    (focus,) = random.choices(list(FOCUS_WEIGHTS), list(FOCUS_WEIGHTS.values()))
    if focus is None:
        return _unfocused(plan, random, size, session_share)
    return focus(plan, random, size)


def _unfocused(plan: Plan, random: Random, size: Size, session_share: float) -> Plan:
    """Return a plan with an outage of the primary and further faults of some kinds during the
    outage and the drain after it. Each seed turns the other kinds off (swarm testing)."""
    phase_s = plan.fault_phase_s
    kinds = random.sample((*FAULT_KINDS, *OFTEN), random.randrange(1, 7))
    start = end = 0.0
    faults = []
    if random.random() < 0.9:
        start = random.uniform(0.0, 0.2) * phase_s
        outage = _outage(random, start, random.uniform(0.2, 0.6) * phase_s)
        end = outage.at + outage.seconds
        faults.append(outage)
    faults += _faults(random, kinds, start, phase_s, random.randrange(0, size.max_faults))
    stream = Stream(
        random.choice((0.3, 0.6, 0.9)), random.choice((start, end)), random.choice((2.0, 8.0, 25.0))
    )
    count = random.randrange(*size.messages)
    sends = _sends(plan, random, session_share, stream, count)
    return replace(plan, sends=sends, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


def _focus_on_failback(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan with bursts of messages in sessions while their path fails back, over a slow
    network. Between two bursts the backlog can become empty."""
    outage = _outage(random, 1.0, random.uniform(3.0, 8.0) * size.scale)
    start = 2.0
    is_uneven = random.random() < 0.3  # a call that waits for its answer fails after the others
    if is_uneven:
        start = 0.3
        outage = Fault(random.uniform(2.0, 5.0), "uneven-outage", random.uniform(1.0, 3.0), 0)
    end = outage.at + outage.seconds
    plan = replace(
        plan,
        paths=1 if is_uneven else random.choice((1, 2)),
        callers=3 if is_uneven else plan.callers,
        fault_phase_s=end + 20.0 * size.scale,
        after_drain=True,
        backlog_queues=random.choice((2, 3, 4)),
        hold_s=3.0,
        delay_s=random.choice((0.03, 0.08, 0.15)),
        ping_interval_s=1.0,
        failover_interval_s=0.0,
        operation_timeout_s=8.0,
        tier="unlimited",
        once=False,
    )
    timeout_s = None
    faults: tuple[Fault, ...] = ()
    if random.random() < 0.2:  # calls wait less than a hold may last, if the syphon stops
        timeout_s = 1.5
        plan = replace(plan, hold_s=15.0, operation_timeout_s=20.0, delay_s=0.03, slow_share=0.0)
        faults = _faults(random, ("partition-syphon-primary", "syphon-freeze"), end, end + 3.0, 2)
    kinds = random.sample(FAULT_KINDS, 2)
    faults += _faults(random, kinds, end, plan.fault_phase_s, random.choice((0, 0, 1, 2)))
    faults += _faults(random, ("stale-peek",), end, plan.fault_phase_s, random.choice((0, 1, 3)))
    faults = tuple(sorted(faults, key=lambda fault: fault.at))
    sends = _bursts(plan, random, start, timeout_s)
    return replace(plan, sends=sends, faults=(outage, *faults))


def _focus_on_late_failures(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan in which calls wait for an answer of the primary that never comes. The one with
    the shortest timeout leads to failover, and others fail while the path fails back. Round trips
    are slow, so a round of peeks takes so long that some calls fail within it."""
    plan = replace(
        plan,
        paths=1,
        processes=1,
        callers=4,
        fault_phase_s=15.0,
        after_drain=True,
        backlog_queues=random.choice((2, 3, 4)),
        hold_s=3.0,
        delay_s=random.choice((0.05, 0.1, 0.15)),
        ping_interval_s=1.0,
        failover_interval_s=0.0,
        operation_timeout_s=20.0,
        slow_share=0.0,
        tier="unlimited",
        once=False,
    )
    faults = (Fault(2.0, "primary-silence", 0.0, 0),)
    faults += _faults(random, ("stale-peek",), 2.0, 8.0, random.choice((0, 1)))
    sends: list[PlannedSend] = []
    for caller in range(plan.callers):
        timeout_s = 3.0 if caller == 0 else random.uniform(10.0, 20.0)
        # A call that opens the connection, one that gets no answer, and one after the failback.
        for earliest, latest in ((0.0, 0.5), (2.0, 3.0), (12.0, 15.0)):
            at, ids = random.uniform(earliest, latest), (f"m{len(sends)}",)
            sends.append(
                PlannedSend(at, 0, caller, "queue0", ids, f"s{caller}", timeout_s=timeout_s)
            )
    sends.sort(key=lambda send: send.at)
    return replace(plan, sends=tuple(sends), faults=faults)


def _focus_on_shared_holds(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan in which two paths fail back together. The syphon stops for a while, so that
    several holds end too early, and peeks miss messages."""
    outage = _outage(random, 1.0, random.uniform(1.0, 3.0))
    end = outage.at + outage.seconds
    plan = replace(
        plan,
        paths=2,
        processes=1,
        callers=2,
        fault_phase_s=end + 15.0,
        after_drain=True,
        backlog_queues=random.choice((1, 2, 3)),
        hold_s=random.choice((0.5, 1.0)),
        delay_s=random.choice((0.03, 0.08)),
        ping_interval_s=1.0,
        failover_interval_s=0.0,
        operation_timeout_s=8.0,
        tier="unlimited",
        once=False,
    )
    faults = (
        outage,
        Fault(end, random.choice(SYPHON_STOPS), random.uniform(2.0, 12.0), 0),
        Fault(end, "stale-peek", random.uniform(5.0, 15.0), 0),
    )
    times = sorted(random.uniform(0.5, end + 3.0) for _ in range(10))
    sends = tuple(
        PlannedSend(at, 0, number % 2, f"queue{number % 2}", (f"m{number}",), f"s{number % 2}")
        for number, at in enumerate(times)
    )
    return replace(plan, sends=sends, faults=faults)


def _focus_on_tasks(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan in which the tasks of syphons fail while they drain, with short locks."""
    outage = _outage(random, 1.0, random.uniform(8.0, 14.0) * size.scale)
    end = outage.at + outage.seconds
    plan = replace(
        plan,
        fault_phase_s=end + 25.0 * size.scale,
        lock_s=5.0,
        delay_s=random.choice((0.003, 0.03, 0.15)),
        failover_interval_s=0.0,
        operation_timeout_s=8.0,
    )
    kinds = random.sample(TASK_FAULTS, 3)
    faults = _faults(random, kinds, end, end + 15.0 * size.scale, random.randrange(1, 6))
    stream = Stream(0.8, 1.0, 12.0 * size.scale)
    session_share = random.choice((0.5, 1.0))
    sends = _sends(plan, random, session_share, stream, count=round(40 * size.scale))
    return replace(plan, sends=sends, faults=(outage, *faults))


def _focus_on_backlog(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan in which the backlog fails while senders need it, with batches and messages
    that are refused."""
    kind = random.choice((*OUTAGES, "primary-detach-freeze"))
    phase_s = 16.0 * size.scale
    outage = Fault(random.uniform(0.5, 2.0), kind, phase_s, random.randrange(1000))
    plan = replace(
        plan,
        fault_phase_s=phase_s,
        failover_interval_s=0.0,
        operation_timeout_s=8.0,
        delay_s=random.choice((0.003, 0.03)),
        slow_share=0.0,
        cool_down_s=1.0,
        hold_s=1.0,
    )
    kinds = random.sample(BACKLOG_FAULTS, 3)
    faults = _faults(random, kinds, outage.at, phase_s, random.randrange(1, 6))
    stream = Stream(0.5, outage.at, phase_s)
    sends = _sends(plan, random, random.choice((0.0, 1.0)), stream, round(36 * size.scale))
    timeout_s = random.choice((None, None, 3.0))
    sends = tuple(replace(send, timeout_s=timeout_s) for send in sends)
    return replace(plan, sends=sends, faults=(outage, *faults))


def _focus_on_credits(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan without faults, in which live calls and the drain of a backlog share the few
    credits of a namespace."""
    plan = replace(
        plan,
        fault_phase_s=20.0,
        paths=1,
        processes=1,
        failover_interval_s=2.0,
        tier="scarce",
        slow_share=0.0,
        delay_s=0.003,
        lock_s=15.0,
        once=False,
        syphons=1,
        syphon_batch=500,
        with_consumer=True,
        preloaded=random.choice((300, 500)),
    )
    sends = tuple(
        PlannedSend(0.5 + number / 4, 0, number % plan.callers, "queue0", (f"m{number}",), None)
        for number in range(60)
    )
    return replace(plan, sends=sends)


def _outage(random: Random, at: float, seconds: float) -> Fault:
    return Fault(at, random.choice(OUTAGES), seconds, random.randrange(1000))


def _faults(
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


def _bursts(
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


def _sends(
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


FOCUS_WEIGHTS = {
    None: 24,
    _focus_on_failback: 12,
    _focus_on_late_failures: 3,
    _focus_on_shared_holds: 3,
    _focus_on_tasks: 12,
    _focus_on_backlog: 12,
    _focus_on_credits: 1,
}
"""How often plans concentrate on a subject. Those for credits take ten times as long as others."""
