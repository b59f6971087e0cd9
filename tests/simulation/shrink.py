"""Shrinks a plan that breaks a promise to the fewest faults and messages that still break it."""

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.plan import Plan
from tests.simulation.simulation import Result, run_plan

MAX_RUNS = 300


class Shrinker:
    """Runs smaller and smaller plans, as long as the same promise is broken."""

    def __init__(self, plan: Plan, rules: set[str], run: Callable[[Plan], Result] = run_plan):
        self.plan = plan
        self.runs = 0
        self._rules = rules
        self._run = run

    def shrink(self) -> Plan:
        before = None
        while before != self.plan and self.runs < MAX_RUNS:
            before = self.plan
            self._remove_faults()
            self._remove_sends()
            self._simplify()
        return self.plan

    def _still_fails(self, plan: Plan) -> bool:
        if self.runs >= MAX_RUNS:
            return False
        self.runs += 1
        if any(violation.rule in self._rules for violation in self._run(plan).violations):
            self.plan = plan
            return True
        return False

    def _remove_faults(self) -> None:
        self._remove(lambda plan: len(plan.faults), lambda plan, gone: plan.without(faults=gone))

    def _remove_sends(self) -> None:
        self._remove(lambda plan: len(plan.sends), lambda plan, gone: plan.without(sends=gone))

    def _remove(
        self, count: Callable[[Plan], int], without: Callable[[Plan, set[int]], Plan]
    ) -> None:
        """Remove halves, then quarters, and so on, and single ones in the end."""
        size = max(1, count(self.plan) // 2)
        while True:
            start = 0
            while start < count(self.plan):
                gone = set(range(start, min(start + size, count(self.plan))))
                if not self._still_fails(without(self.plan, gone)):
                    start += size
            if size == 1:
                return
            size //= 2

    def _simplify(self) -> None:
        for changes in (
            {"asynchronous": False},
            {"shares_senders": False},
            {"syphons": 1},
            {"tier": "unlimited"},
            {"clock_offset_s": 0.0, "clock_rate": 1.0},
            {"with_ledger": False},
            {"once": False},
            {"task_slots": 1},
        ):
            simpler = replace(self.plan, **changes)  # type: ignore[arg-type]
            if simpler != self.plan:
                self._still_fails(simpler)
