"""Plans that concentrate on one subject, in which defects would otherwise be rare."""

from dataclasses import replace
from random import Random

from tests.simulation.fault_kinds import (
    BACKLOG_FAULTS,
    FAULT_KINDS,
    NAMESPACE_FAULTS,
    OUTAGES,
    POLL_FAULTS,
    REDRIVE_FAULTS,
    SYPHON_STOPS,
    TASK_FAULTS,
)
from tests.simulation.plan import Fault, Plan, PlannedSend
from tests.simulation.plan_parts import (
    Size,
    Stream,
    random_bursts,
    random_faults,
    random_outage,
    random_sends,
)


def focus_on_failback(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan with bursts of messages in sessions while their path fails back, over a slow
    network. Between two bursts the backlog can become empty."""
    outage = random_outage(random, 1.0, random.uniform(3.0, 8.0) * size.scale)
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
        faults = random_faults(
            random, ("partition-syphon-primary", "syphon-freeze"), end, end + 3.0, 2
        )
    kinds = random.sample(FAULT_KINDS, 2)
    faults += random_faults(random, kinds, end, plan.fault_phase_s, random.choice((0, 0, 1, 2)))
    faults += random_faults(
        random, ("stale-peek",), end, plan.fault_phase_s, random.choice((0, 1, 3))
    )
    if random.random() < 0.15:
        marks = random.choice((1, 2))
        faults += random_faults(random, ("sender-mark-healthy",), outage.at, end + 8.0, marks)
    faults = tuple(sorted(faults, key=lambda fault: fault.at))
    sends = random_bursts(plan, random, start, timeout_s)
    return replace(plan, sends=sends, faults=(outage, *faults))


def focus_on_late_failures(plan: Plan, random: Random, size: Size) -> Plan:
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
    faults += random_faults(random, ("stale-peek",), 2.0, 8.0, random.choice((0, 1)))
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


def focus_on_shared_holds(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan in which two paths fail back together. The syphon stops for a while, so that
    several holds end too early, and peeks miss messages."""
    outage = random_outage(random, 1.0, random.uniform(1.0, 3.0))
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


def focus_on_tasks(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan in which the tasks of syphons fail while they drain, with short locks."""
    outage = random_outage(random, 1.0, random.uniform(8.0, 14.0) * size.scale)
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
    faults = random_faults(random, kinds, end, end + 15.0 * size.scale, random.randrange(1, 6))
    stream = Stream(0.8, 1.0, 12.0 * size.scale)
    session_share = random.choice((0.5, 1.0))
    sends = random_sends(plan, random, session_share, stream, count=round(40 * size.scale))
    return replace(plan, sends=sends, faults=(outage, *faults))


def focus_on_backlog(plan: Plan, random: Random, size: Size) -> Plan:
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
    faults = random_faults(random, kinds, outage.at, phase_s, random.randrange(1, 6))
    stream = Stream(0.5, outage.at, phase_s)
    sends = random_sends(plan, random, random.choice((0.0, 1.0)), stream, round(36 * size.scale))
    timeout_s = random.choice((None, None, 3.0))
    sends = tuple(replace(send, timeout_s=timeout_s) for send in sends)
    return replace(plan, sends=sends, faults=(outage, *faults))


def focus_on_polls(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan in which a syphon polls several backlog queues while its requests fail, because
    the namespace throttles them or answers are lost. Now and then it cannot reach the primary, so
    it must renew the locks of messages that it holds."""
    phase_s = 30.0 * size.scale
    plan = replace(
        plan,
        fault_phase_s=phase_s,
        backlog_queues=random.choice((2, 3, 4)),
        failover_interval_s=0.0,
        operation_timeout_s=random.choice((4.0, 8.0)),
        lock_s=5.0,
        tier=random.choice(("unlimited", "throttled", "scarce")),
        once=False,
        with_ledger=True,
    )
    faults = (Fault(0.5, "partition-sender-primary", phase_s, random.randrange(1000)),)
    faults += random_faults(random, ("partition-syphon-primary",), 1.0, phase_s, 2)
    faults += random_faults(random, POLL_FAULTS, 1.0, phase_s, random.randrange(5))
    stream = Stream(0.5, 0.5, phase_s)
    sends = random_sends(plan, random, random.choice((0.0, 1.0)), stream, round(60 * size.scale))
    return replace(plan, sends=sends, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


def focus_on_redrives(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan in which operators redrive dead letters of the backlog, with short locks, while
    both namespaces and the redrives fail."""
    phase_s = 30.0 * size.scale
    plan = replace(
        plan,
        fault_phase_s=phase_s,
        lock_s=5.0,
        failover_interval_s=0.0,
        operation_timeout_s=8.0,
        tier=random.choice(("unlimited", "unlimited", "throttled", "premium")),
        dead_letters=random.choice((3, 10, 40)),
        operators=random.choice((1, 1, 1, 2)),
        redrive_rate=random.choice((None, 1.0, 4.0)),
        with_ledger=random.random() < 0.5,
        once=True,
    )
    kinds = (*random.sample(REDRIVE_FAULTS, 2), *random.sample(NAMESPACE_FAULTS, 3))
    faults = random_faults(random, kinds, 0.5, phase_s / 2, random.randrange(1, 7))
    stream = Stream(0.5, 0.5, phase_s)
    sends = random_sends(plan, random, random.choice((0.0, 1.0)), stream, round(10 * size.scale))
    return replace(plan, sends=sends, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


def focus_on_controls(plan: Plan, random: Random, size: Size) -> Plan:
    """Return a plan in which operators pause and limit syphons while their tasks are slow, and the
    syphons start again, with micro-batches that they have planned before."""
    outage = random_outage(random, 1.0, random.uniform(4.0, 8.0) * size.scale)
    end = outage.at + outage.seconds
    plan = replace(
        plan,
        fault_phase_s=end + 30.0 * size.scale,
        paths=random.choice((1, 2, 3)),
        lock_s=5.0,
        failover_interval_s=0.0,
        operation_timeout_s=8.0,
    )
    faults = [outage]
    for _ in range(random.randrange(1, 4)):
        at = random.uniform(end, plan.fault_phase_s)
        target = random.randrange(1000)
        slow = random.choice(("task-late", "task-twice", "slow-network", "secondary-answers-late"))
        control = random.choice(("syphon-pause", "syphon-pause-path", "syphon-limit"))
        stop = random.choice(("syphon-kill", "syphon-kill", "syphon-restart"))
        faults += [
            Fault(max(0.0, at - 2.0), slow, 4.0, target),
            Fault(at, control, random.uniform(3.0, 10.0), target),
            Fault(at + random.uniform(0.0, 1.5), stop, 0.5, target),
        ]
    stream = Stream(0.5, 1.0, plan.fault_phase_s)
    session_share = random.choice((0.0, 0.5, 1.0))
    sends = random_sends(plan, random, session_share, stream, round(60 * size.scale))
    return replace(plan, sends=sends, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


def focus_on_credits(plan: Plan, random: Random, size: Size) -> Plan:
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
