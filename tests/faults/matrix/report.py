"""The report of a matrix: a line for each run, and the totals."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.faults.matrix.plan import CELLS, COMPONENTS, KINDS, STAGES, Cell, Run
from tests.faults.matrix.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The result of one run."""

    run: Run
    cells: tuple[Cell, ...]
    """The faults that were injected."""
    verdict: Verdict
    errors: Counter[str]
    """The errors of send calls, by class."""
    seconds: float


def summary_line(result: RunResult) -> str:
    """Return the result of a run as one line."""
    reconciliation = result.verdict.reconciliation
    faults = " ".join(map(str, result.cells))
    run = result.run
    return (
        f"run {run.number} (seed {run.seed}, outage {run.outage}, interval "
        f"{run.failover_interval_s:g} s, failback {run.failback}, tier {run.tier}): {faults}; "
        f"{reconciliation.sent:,} sent, {reconciliation.delivered:,} delivered, "
        f"{sum(reconciliation.duplicated.values()):,} duplicates, "
        f"{len(reconciliation.lost):,} lost, "
        f"{result.errors.total():,} failed calls; {result.seconds:.0f} s"
    )


@dataclass
class MatrixTotals:
    """The totals of many runs."""

    runs: int = 0
    tiers: Counter[str] = field(default_factory=Counter)
    ordered: int = 0
    """Runs whose sessions were judged by their order."""
    cells: Counter[Cell] = field(default_factory=Counter)
    sent: int = 0
    delivered: int = 0
    lost: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    """Counted by explanation."""
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, result: RunResult) -> None:
        reconciliation = result.verdict.reconciliation
        self.runs += 1
        self.tiers[result.run.tier] += 1
        self.ordered += result.run.failback == "after-drain"
        self.cells.update(result.cells)
        self.sent += reconciliation.sent
        self.delivered += reconciliation.delivered
        self.lost += len(reconciliation.lost)
        self.duplicates += result.verdict.explained
        self.errors += result.errors

    def text(self) -> str:
        covered = sum(cell in self.cells for cell in CELLS)
        return "\n".join(
            [
                f"{self.runs} runs, {self.cells.total()} faults, {covered} of {len(CELLS)} cells",
                ", ".join(f"{count} runs in tier {tier}" for tier, count in self.tiers.items())
                + f"; {self.ordered} runs judged by the order of sessions",
                *coverage_table(self.cells),
                f"{self.sent:,} messages sent, {self.delivered:,} delivered, {self.lost:,} lost",
                f"{self.duplicates.total():,} duplicates",
                *_listed("explanations of duplicates", self.duplicates),
                *_listed("errors of send calls", self.errors),
            ]
        )


def coverage_table(cells: Counter[Cell]) -> list[str]:
    """Return a table with the number of faults by component, kind and stage."""
    rows: list[tuple[str, ...]] = [("", *STAGES)]
    for component in COMPONENTS:
        for kind in KINDS:
            counts = (str(cells[Cell(component, kind, stage)]) for stage in STAGES)
            rows.append((f"{component} {kind}", *counts))
    first = max(len(row[0]) for row in rows)
    return ["  " + row[0].ljust(first) + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows]


def _listed(title: str, counts: Counter[str]) -> Iterable[str]:
    if counts:
        yield f"{title}:"
        yield from (f"  {count:>6,}  {name}" for name, count in counts.most_common())
