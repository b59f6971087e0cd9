"""The plan of the matrix: the faults of each run, derived from a seed."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import NamedTuple

COMPONENTS = ("sender", "primary", "secondary", "driver", "worker", "redrive", "console")
TIERS = ("unlimited", "standard", "premium")
KINDS = ("kill", "freeze", "cut", "lose-answers")
"""`cut`: no data passes. `lose-answers`: requests arrive, but their answers do not."""
STAGES = ("before", "filling", "failback", "draining")
"""Before failover; in failover, while the backlog grows; when the primary is back, around the ping;
and after the syphon has begun to move messages."""
BLOCK = len(COMPONENTS) * len(KINDS)
"""The number of runs that contain every cell exactly once."""
LOCK_S = 10
"""The lock duration of the backlog queues."""


class Cell(NamedTuple):
    """A component, the kind of its fault, and the stage of the outage."""

    component: str
    kind: str
    stage: str

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def parse(cls, text: str) -> "Cell":
        """Parse COMPONENT/FAULT/STAGE. Raises ValueError."""
        cell = cls(*text.split("/")) if text.count("/") == 2 else None
        if cell not in CELLS:
            raise ValueError(
                f"{text!r} is not a cell. Use {', '.join(COMPONENTS)} / {', '.join(KINDS)} / "
                f"{', '.join(STAGES)}"
            )
        return cell


CELLS = tuple(Cell(*parts) for parts in product(COMPONENTS, KINDS, STAGES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault with its timing."""

    cell: Cell
    after_s: float
    """At failback: the delay after the return of the primary."""
    seconds: float
    """The duration of the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One outage with its faults, in the order of the stages."""

    seed: int
    number: int
    outage: str
    """The kind of the outage itself: the primary is killed (`kill`) or disconnected (`cut`)."""
    failover_interval_s: float
    failback: str
    tier: str
    """The tier of both namespaces."""
    faults: tuple[Fault, ...]

    def at(self, stage: str) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if fault.cell.stage == stage)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(fault.cell for fault in self.faults)


def plan(seed: int) -> Iterator[Run]:
    """Yield an endless sequence of runs. Each has faults of four components, one at each stage.
    Every block of 28 runs has every cell once."""
    for number, cells in enumerate(_all_cells(seed), 1):
        yield make_run(seed, number, cells)


def make_run(seed: int, number: int, cells: Sequence[Cell]) -> Run:
    """Return a run with these faults. Everything else is derived from the seed and the number."""
    rng = random.Random(f"{seed}, run {number}")
    outage = rng.choice(("kill", "cut"))
    interval_s = rng.choice((0.0, 0.0, 0.5, 1.0))
    failback = rng.choice(("immediate", "immediate", "after-drain"))
    tier = rng.choice(TIERS)
    ordered = sorted(cells, key=lambda cell: STAGES.index(cell.stage))
    return Run(
        seed=seed,
        number=number,
        outage=outage,
        failover_interval_s=interval_s,
        failback=failback,
        tier=tier,
        faults=tuple(_fault(cell, rng) for cell in ordered),
    )


def _all_cells(seed: int) -> Iterator[list[Cell]]:
    for block in count():
        rng = random.Random(f"{seed}, block {block}")
        # The offsets of the run and of the stage add up to the component. So each run has four
        # components, and each component occurs four times at each stage.
        offsets = list(range(len(COMPONENTS))) * len(KINDS)
        rng.shuffle(offsets)
        stage_offsets = rng.sample(range(len(COMPONENTS)), len(STAGES))
        kinds = {
            (component, stage): rng.sample(KINDS, len(KINDS))
            for component, stage in product(COMPONENTS, STAGES)
        }
        for offset in offsets:
            cells = []
            for stage, stage_offset in zip(STAGES, stage_offsets, strict=True):
                component = COMPONENTS[(offset + stage_offset) % len(COMPONENTS)]
                cells.append(Cell(component, kinds[component, stage].pop(), stage))
            yield cells


def _fault(cell: Cell, rng: random.Random) -> Fault:
    after_s = rng.uniform(0, 1.5)
    seconds = rng.uniform(1, 5)
    long_s = LOCK_S + rng.uniform(1, 3)
    # The locks of Spark expire before it continues.
    if rng.random() < 0.25 and cell.component in ("driver", "worker") and cell.kind != "kill":
        seconds = long_s
    return Fault(cell=cell, after_s=round(after_s, 2), seconds=round(seconds, 2))
