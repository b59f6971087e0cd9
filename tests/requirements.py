"""The packages that a requirement or a dependency group of this project needs."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def group(name: str) -> list[str]:
    """Return the requirements of a dependency group, and of those that it includes."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "dependency-groups"
    ]
    requirements = []
    for entry in groups[name]:
        match entry:
            case {"include-group": other}:
                requirements += group(other)
            case _:
                requirements.append(entry)
    return requirements


def installed_closure(*roots: str) -> set[str]:
    """Return the names of all packages that requirements depend on in this environment, without
    pairbus itself."""
    seen: set[str] = set()
    names: set[str] = set()
    pending = [Requirement(root) for root in roots]
    while pending:
        requirement = pending.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        names.add(normalized(requirement.name))
        for line in requires(requirement.name) or []:
            dependency = Requirement(line)
            extras = requirement.extras or {""}
            if dependency.marker is None or any(
                dependency.marker.evaluate({"extra": e}) for e in extras
            ):
                pending.append(dependency)
    return names - {"pairbus"}
