"""The changelog has the format of Keep a Changelog, and a release a tag, a version and a date."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pairbus
from scripts.environments import ReleaseError
from scripts.release_check import CHANGELOG, HEADING, release_problem
from scripts.sbom import check

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
TEXT = "# Changelog\n\n## [1.2.0] - 2026-11-18\n\n## [1.1.0] - 2026-10-01\n"


def test_changelog_begins_with_the_version_of_the_package():
    text = CHANGELOG.read_text(encoding="utf-8")
    versions = [match["version"] for match in HEADING.finditer(text)]

    assert versions[0] == pairbus.__version__
    assert len(versions) == len(re.findall("^## ", text, re.MULTILINE))
    assert set(re.findall("^### (.+)$", text, re.MULTILINE)) <= KINDS


def test_citation_names_the_version_of_the_package():
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()

    assert f"version: {pairbus.__version__}" in lines


def test_citation_is_valid():
    command = ("-m", "check_jsonschema", "--builtin-schema", "vendor.citation-file-format")
    result = subprocess.run(
        [sys.executable, *command, ROOT / "CITATION.cff"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout


def test_release_with_tag_version_and_date():
    assert release_problem("v1.2.0", "1.2.0", TEXT) is None


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "problem"),
    [
        ("v1.3.0", "1.2.0", TEXT, "The tag is 'v1.3.0', and the version of the package is 1.2.0."),
        ("v1.3.0", "1.3.0", TEXT, "The newest section of CHANGELOG.md is not that of 1.3.0."),
        (
            "v1.2.0",
            "1.2.0",
            TEXT.replace("2026-11-18", "not released"),
            "CHANGELOG.md has no date for 1.2.0, but 'not released'.",
        ),
    ],
)
def test_release_that_is_not_complete_is_refused(
    tag: str, version: str, changelog: str, problem: str
):
    assert release_problem(tag, version, changelog) == problem


def bill(**licences: str) -> dict[str, Any]:
    """Return a bill of materials of pairbus with packages of version 1."""
    return {
        "metadata": {"component": {"name": "pairbus"}},
        "components": [
            {"name": name, "version": "1", "licenses": [{"expression": licence}] if licence else []}
            for name, licence in licences.items()
        ],
    }


def test_bill_of_materials_lists_what_is_installed():
    check(bill(rich="MIT", Typer="MIT"), {"rich": "1", "typer": "1"})


@pytest.mark.parametrize(
    ("installed", "problem"),
    [
        ({"rich": "1", "lark": "1"}, r"differ: \[\('lark', '1'\)\]"),
        ({"rich": "2"}, "differ"),
    ],
)
def test_bill_that_differs_from_the_environment_is_refused(installed: dict[str, str], problem: str):
    with pytest.raises(ReleaseError, match=problem):
        check(bill(rich="MIT"), installed)


def test_package_without_a_licence_is_refused():
    with pytest.raises(ReleaseError, match=r"no licence of \['rich'\]"):
        check(bill(rich=""), {"rich": "1"})
