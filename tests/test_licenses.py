"""Every package that users of pairbus install has a licence that its users can accept."""

import re
from importlib.metadata import metadata

import pytest

from tests.requirements import installed_closure

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Zlib",
    # Files of such a package stay under this licence when they are changed; others do not.
    "MPL-2.0",
}
NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Names in classifiers and in the field License."""
OPERATORS = re.compile(r"\s+(?:AND|OR|WITH)\s+|[()]")


def licences(package: str) -> set[str]:
    """Return the licences of an installed package: those of its expression, of its classifiers, or
    of its field License, if that is an expression."""
    fields = metadata(package)
    expression = fields.get("License-Expression")
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in fields.get_all("Classifier") or []
        if line.startswith("License :: ")
    ]
    if expression is None and classifiers:
        return {NAMES.get(name, name) for name in classifiers}
    text = expression or fields.get("License") or "unknown"
    return {NAMES.get(part, part) for part in OPERATORS.split(text) if part}


def refused(packages: set[str]) -> list[str]:
    """Return a sentence for each package with a licence that is not in the list."""
    return [
        f"{package} has the licence {', '.join(sorted(others))}. Use another package, or add the "
        "licence to ALLOWED if users can accept it."
        for package in sorted(packages)
        if (others := licences(package) - ALLOWED)
    ]


def test_licences_of_all_dependencies_are_allowed():
    packages = installed_closure("pairbus[all,connect]")

    assert {"azure-servicebus", "pyspark", "certifi", "grpcio"} <= packages
    assert refused(packages) == []


def test_other_licence_is_reported_with_its_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.test_licenses.ALLOWED", ALLOWED - {"MPL-2.0"})

    (sentence,) = refused({"certifi", "azure-servicebus"})

    assert sentence.startswith("certifi has the licence MPL-2.0. Use another package")
