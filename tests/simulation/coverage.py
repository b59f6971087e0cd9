"""Coverage of faults by states of paths, and the choice of plans with rare ones."""

from collections import Counter

from tests.simulation.fault_kinds import OUTAGES
from tests.simulation.plan import Plan
from tests.simulation.seeded_plans import make_plan

STATES = ("healthy", "suspect", "failover", "draining")
ALTERNATIVE = 2**41
"""Added to a seed for its alternative."""

Coverage = Counter[tuple[str, str]]
"""The number of faults by kind, and state of a path at their beginning."""


def choose_plan(seed: int, coverage: Coverage) -> Plan:
    """Return the plan of a seed or that of its alternative, whichever has the rarer faults."""
    plans = make_plan(seed), make_plan(seed + ALTERNATIVE)
    return max(plans, key=lambda plan: rarity(plan, coverage))


def rarity(plan: Plan, coverage: Coverage) -> float:
    """Return how rare the rarest fault of a plan was so far, from 0 to 1."""
    return max(
        (1 / (1 + coverage[pair]) for pair in expected_pairs(plan)),
        default=0.0,
    )


def expected_pairs(plan: Plan) -> list[tuple[str, str]]:
    """Return the kinds of a plan's faults, each with the state that paths probably have then."""
    outage = next((fault for fault in plan.faults if fault.kind in OUTAGES), None)
    after = "draining" if plan.after_drain else "healthy"
    pairs = []
    for fault in plan.faults:
        if outage is None or fault.at <= outage.at:
            state = "healthy"
        elif fault.at <= outage.at + outage.seconds:
            state = "failover"
        else:
            state = after
        pairs.append((fault.kind, state))
    return pairs
