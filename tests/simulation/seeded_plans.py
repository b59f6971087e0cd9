"""The plans of seeds."""

from dataclasses import replace
from random import Random

from tests.simulation.fault_kinds import FAULT_KINDS, OFTEN
from tests.simulation.focused_plans import (
    focus_on_backlog,
    focus_on_controls,
    focus_on_credits,
    focus_on_failback,
    focus_on_late_failures,
    focus_on_polls,
    focus_on_redrives,
    focus_on_shared_holds,
    focus_on_tasks,
)
from tests.simulation.plan import Plan
from tests.simulation.plan_parts import Size, Stream, random_faults, random_outage, random_sends

SMALL = Size((8.0, 12.0), (4, 15), 4, (1, 1, 1, 2), (1, 2, 3), (1,), (1,), 0.5)
MEDIUM = Size((15.0, 30.0), (10, 36), 6, (1, 1, 2), (1, 2, 3, 4), (1, 1, 2), (1, 1, 1, 2), 0.8)
LARGE = Size((30.0, 60.0), (20, 61), 8, (1, 2, 3), (1, 2, 3, 4), (1, 1, 2), (1, 1, 2), 1.0)
SIZES = (*6 * (SMALL,), *3 * (MEDIUM,), LARGE)

FOCUS_WEIGHTS = {
    None: 24,
    focus_on_failback: 12,
    focus_on_late_failures: 3,
    focus_on_shared_holds: 3,
    focus_on_tasks: 12,
    focus_on_backlog: 12,
    focus_on_polls: 6,
    focus_on_controls: 6,
    focus_on_redrives: 6,
    focus_on_credits: 1,
}
"""How often plans concentrate on a subject. Those for credits take ten times as long as others."""
ASYNCHRONOUS_SHARE = 0.3
SCHEDULING_SHARE = 0.3
BUSY_FAILOVER_SHARE = 0.15
SCHEDULES_S = (-1.0, 3.0, 10.0, 60.0, 600.0)
"""The longest times for which messages are scheduled. Some are over when the call is made."""
REVOKE_AFTER_S = (0.0, 2.0, 10.0)
CANCEL_AFTER_S = (0.01, 0.1, 1.0, 10.0)
"""The longest times after which calls are cancelled."""


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
        plan = _unfocused(plan, random, size, session_share)
    else:
        plan = focus(plan, random, size)
    plan = replace(plan, shares_senders=plan.callers > 1 and random.random() < 0.3)
    if random.random() < ASYNCHRONOUS_SHARE:
        plan = _asynchronous(plan, random)
    if random.random() < SCHEDULING_SHARE:
        plan = _scheduling(plan, random)
    if random.random() < BUSY_FAILOVER_SHARE:
        plan = replace(plan, busy_failover_s=random.choice((0.0, 1.0, 3.0)))
    with_tokens = plan.with_tokens or any(fault.kind.endswith("tokens") for fault in plan.faults)
    return replace(plan, with_tokens=with_tokens)


def _scheduling(plan: Plan, random: Random) -> Plan:
    """Return the plan with some messages that are scheduled, of which some are cancelled."""
    share, revoked_share = random.choice((0.1, 0.3, 0.8)), random.choice((0.0, 0.3))
    sends = []
    for send in plan.sends:
        if not send.is_refused and not send.fills_batch and random.random() < share:
            calls = random.random() < 0.7
            send = replace(
                send,
                schedule_s=random.choice(SCHEDULES_S) * random.random(),
                calls_schedule=calls,
                revoke_after_s=random.choice(REVOKE_AFTER_S) * random.random()
                if calls and random.random() < revoked_share
                else None,
            )
        sends.append(send)
    return replace(plan, sends=tuple(sends))


def _asynchronous(plan: Plan, random: Random) -> Plan:
    """Return the plan with asynchronous applications, which may cancel calls."""
    cancelled_share = random.choice((0.0, 0.0, 0.2))
    sends = tuple(
        replace(send, cancel_after_s=random.choice(CANCEL_AFTER_S) * random.random())
        if random.random() < cancelled_share
        else send
        for send in plan.sends
    )
    return replace(plan, sends=sends, asynchronous=True)


def _unfocused(plan: Plan, random: Random, size: Size, session_share: float) -> Plan:
    """Return a plan with an outage of the primary and further faults of some kinds during the
    outage and the drain after it. Each seed turns the other kinds off (swarm testing)."""
    phase_s = plan.fault_phase_s
    kinds = random.sample((*FAULT_KINDS, *OFTEN), random.randrange(1, 7))
    start = end = 0.0
    faults = []
    if random.random() < 0.9:
        start = random.uniform(0.0, 0.2) * phase_s
        outage = random_outage(random, start, random.uniform(0.2, 0.6) * phase_s)
        end = outage.at + outage.seconds
        faults.append(outage)
    faults += random_faults(random, kinds, start, phase_s, random.randrange(0, size.max_faults))
    stream = Stream(
        random.choice((0.3, 0.6, 0.9)), random.choice((start, end)), random.choice((2.0, 8.0, 25.0))
    )
    count = random.randrange(*size.messages)
    sends = random_sends(plan, random, session_share, stream, count)
    return replace(plan, sends=sends, faults=tuple(sorted(faults, key=lambda fault: fault.at)))
