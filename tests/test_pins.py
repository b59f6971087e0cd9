"""Every package that scripts/setup installs is pinned, without an address of a registry."""

import json
import re
from importlib.metadata import version
from pathlib import Path

from tests.requirements import group, installed_closure

ROOT = Path(__file__).resolve().parent.parent


def pin_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_constraints_are_names_and_exact_versions_only():
    invalid = [line for line in pin_lines() if not re.fullmatch(r"[a-z0-9-]+==\d[0-9a-z.]*", line)]

    assert invalid == []


def test_every_installed_package_has_its_pinned_version():
    pins = dict(line.split("==") for line in pin_lines())
    names = installed_closure("pairbus[all]", *group("dev"))

    assert {"azure-core", "pyspark", "cffi", "pytest", "zizmor"} <= names
    assert {name: version(name) for name in names} == {name: pins.get(name) for name in names}


def test_npm_lock_file_has_no_registry_address():
    text = (ROOT / "tests" / "peers" / "package-lock.json").read_text(encoding="utf-8")

    packages = json.loads(text)["packages"]
    for package in packages.values():
        package.pop("funding", None)  # a web page of the authors
    assert {"node_modules/rhea", "node_modules/@azure/service-bus"} <= packages.keys()
    assert "resolved" not in text
    assert "://" not in json.dumps(packages)
