"""What a matrix has shown so far, in words and as a table."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.faults.matrix.plan import CELLS, COMPONENTS, KINDS, STAGES, Cell, Run
from tests.faults.matrix.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a run."""

    run: Run
    cells: tuple[Cell, ...]
    """Faults that happened."""
    verdict: Verdict
    errors: Counter[str]
    """What senders were told, by class."""
    seconds: float


def line_of(result: Result) -> str:
    """One run."""
    found = result.verdict.reckoning
    faults = " ".join(map(str, result.cells))
    run = result.run
    return (
        f"run {run.number} (seed {run.seed}, outage {run.outage}, interval "
        f"{run.failover_interval_s:g} s, failback {run.failback}): {faults}; "
        f"{found.sent:,} sent, {found.delivered:,} delivered, "
        f"{sum(found.duplicated.values()):,} twice, {len(found.lost):,} lost, "
        f"{result.errors.total():,} failed calls; {result.seconds:.0f} s"
    )


@dataclass
class Tally:
    """The sums of many runs."""

    runs: int = 0
    cells: Counter[Cell] = field(default_factory=Counter)
    sent: int = 0
    delivered: int = 0
    lost: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    """By what explains them."""
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        found = result.verdict.reckoning
        self.runs += 1
        self.cells.update(result.cells)
        self.sent += found.sent
        self.delivered += found.delivered
        self.lost += len(found.lost)
        self.duplicates += result.verdict.explained
        self.errors += result.errors

    def text(self) -> str:
        covered = sum(cell in self.cells for cell in CELLS)
        return "\n".join(
            [
                f"{self.runs} runs, {self.cells.total()} faults, {covered} of {len(CELLS)} cells",
                *table(self.cells),
                f"{self.sent:,} messages sent, {self.delivered:,} delivered, {self.lost:,} lost",
                f"{self.duplicates.total():,} delivered twice",
                *_listed("twice, because of", self.duplicates),
                *_listed("senders were told", self.errors),
            ]
        )


def table(cells: Counter[Cell]) -> list[str]:
    """How often each fault happened, by stage."""
    rows: list[tuple[str, ...]] = [("", *STAGES)]
    for component in COMPONENTS:
        for kind in KINDS:
            counts = (str(cells[Cell(component, kind, stage)]) for stage in STAGES)
            rows.append((f"{component} {kind}", *counts))
    first = max(len(row[0]) for row in rows)
    return ["  " + row[0].ljust(first) + "".join(f"{one:>10}" for one in row[1:]) for row in rows]


def _listed(what: str, counts: Counter[str]) -> Iterable[str]:
    if counts:
        yield f"{what}:"
        yield from (f"  {count:>6,}  {name}" for name, count in counts.most_common())
