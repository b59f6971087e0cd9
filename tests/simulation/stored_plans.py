"""Plans of defects that the simulation has found, as files: `tests/simulation/regressions`.

A seed has another plan after a change of `plan.py`; a stored plan stays. The delays of the network
still come from its seed, so a test plants each defect again and expects that its plan finds it.
`python -m tests.simulation.regressions` makes the files.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.simulation.plan import Fault, Plan, PlannedSend

FOLDER = Path(__file__).parent / "regressions"


@dataclass(frozen=True, slots=True)
class Regression:
    """A plan that broke a promise with a defect of `planted_defects.py`."""

    defect: str
    rule: str
    plan: Plan

    def to_json(self) -> dict[str, Any]:
        return {"defect": self.defect, "rule": self.rule, "plan": asdict(self.plan)}


def regression_from_json(data: dict[str, Any]) -> Regression:
    plan = data["plan"]
    sends = [PlannedSend(**{**send, "ids": tuple(send["ids"])}) for send in plan["sends"]]
    faults = [Fault(**fault) for fault in plan["faults"]]
    return Regression(
        data["defect"],
        data["rule"],
        Plan(**{**plan, "sends": tuple(sends), "faults": tuple(faults)}),
    )


def load(path: Path) -> Regression:
    return regression_from_json(json.loads(path.read_text()))
