"""Which faults happen in which run. Plain data, from a seed."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import NamedTuple

COMPONENTS = ("sender", "primary", "secondary", "driver", "worker")
KINDS = ("kill", "freeze", "cut")
STAGES = ("before", "filling", "failback", "draining")
"""Before failover; in it, while the backlog grows; when the primary is back, around the ping; when
the syphon has begun to move."""
BLOCK = len(COMPONENTS) * len(KINDS)
"""So many runs, with a fault at each stage, have every cell once."""
LOCK_S = 10
"""How long the backlog's locks last."""


class Cell(NamedTuple):
    """What happens to whom, and when."""

    component: str
    kind: str
    stage: str

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def parse(cls, text: str) -> "Cell":
        """Raises ValueError."""
        cell = cls(*text.split("/")) if text.count("/") == 2 else None
        if cell not in CELLS:
            raise ValueError(
                f"{text!r} is no cell: one of {', '.join(COMPONENTS)} / {', '.join(KINDS)} / "
                f"{', '.join(STAGES)}"
            )
        return cell


CELLS = tuple(Cell(*words) for words in product(COMPONENTS, KINDS, STAGES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    cell: Cell
    after_s: float
    """At failback: how long after the primary is back."""
    seconds: float
    """How long it lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One outage with its faults, in the order of the stages."""

    seed: int
    number: int
    outage: str
    """What the outage itself is: the primary killed, or cut off."""
    failover_interval_s: float
    failback: str
    faults: tuple[Fault, ...]

    def at(self, stage: str) -> tuple[Fault, ...]:
        return tuple(one for one in self.faults if one.cell.stage == stage)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(one.cell for one in self.faults)

    @property
    def chance(self) -> random.Random:
        """For whatever else is left to chance in this run."""
        return random.Random(f"{self.seed}, run {self.number}, else")


def plan(seed: int) -> Iterator[Run]:
    """Runs without end. Each has faults of four components, one at each stage; the first 15 have
    every cell once, and so have the next 15."""
    for number, cells in enumerate(_all_cells(seed), 1):
        yield make_run(seed, number, cells)


def make_run(seed: int, number: int, cells: Sequence[Cell]) -> Run:
    """A run with these faults. All else is from the seed and the number."""
    chance = random.Random(f"{seed}, run {number}")
    outage = chance.choice(("kill", "cut"))
    interval_s = chance.choice((0.0, 0.0, 0.5, 1.0))
    failback = chance.choice(("immediate", "immediate", "after-drain"))
    ordered = sorted(cells, key=lambda one: STAGES.index(one.stage))
    return Run(
        seed=seed,
        number=number,
        outage=outage,
        failover_interval_s=interval_s,
        failback=failback,
        faults=tuple(_fault(cell, chance) for cell in ordered),
    )


def _all_cells(seed: int) -> Iterator[list[Cell]]:
    for block in count():
        chance = random.Random(f"{seed}, block {block}")
        # Each component is the first of three runs. At other stages it is another's turn, by so
        # many places: four components in each run, and each of them three times at each stage.
        turns = list(range(len(COMPONENTS))) * len(KINDS)
        chance.shuffle(turns)
        places = chance.sample(range(len(COMPONENTS)), len(STAGES))
        kinds = {
            (component, stage): chance.sample(KINDS, len(KINDS))
            for component, stage in product(COMPONENTS, STAGES)
        }
        for turn in turns:
            cells = []
            for stage, place in zip(STAGES, places, strict=True):
                component = COMPONENTS[(turn + place) % len(COMPONENTS)]
                cells.append(Cell(component, kinds[component, stage].pop(), stage))
            yield cells


def _fault(cell: Cell, chance: random.Random) -> Fault:
    after_s = chance.uniform(0, 1.5)
    seconds = chance.uniform(1, 5)
    long_s = LOCK_S + chance.uniform(1, 3)
    # What Spark had locked is free again before it goes on.
    if chance.random() < 0.25 and cell.component in ("driver", "worker") and cell.kind != "kill":
        seconds = long_s
    return Fault(cell=cell, after_s=round(after_s, 2), seconds=round(seconds, 2))
