"""Everything that the set-up installs is pinned, and no pin says where it comes from."""

import json
import re
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pin_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def installed_closure(root: str) -> set[str]:
    """The names of all packages that a requirement pulls in here, its own left out."""
    seen: set[str] = set()
    names: set[str] = set()
    waiting = [Requirement(root)]
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        names.add(normal(wanted.name))
        for line in requires(wanted.name) or []:
            below = Requirement(line)
            extras = wanted.extras or {""}
            if below.marker is None or any(below.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(below)
    return names - {normal(Requirement(root).name)}


def test_constraints_are_names_and_exact_versions_only():
    odd = [line for line in pin_lines() if not re.fullmatch(r"[a-z0-9-]+==\d[0-9a-z.]*", line)]

    assert odd == []


def test_every_package_that_is_pulled_in_has_the_pinned_version():
    pins = dict(line.split("==") for line in pin_lines())
    names = installed_closure("pairbus[all,dev]")

    assert {"azure-core", "pyspark", "cffi"} <= names
    assert {name: version(name) for name in names} == {name: pins.get(name) for name in names}


def test_npm_lock_names_no_registry():
    lock = (ROOT / "tests" / "peers" / "package-lock.json").read_text(encoding="utf-8")

    assert "node_modules/rhea" in json.loads(lock)["packages"]
    assert "resolved" not in lock
    assert "://" not in lock
