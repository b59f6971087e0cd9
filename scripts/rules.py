"""List every rule of docs/rules.md with the tests that prove it.

    rules.py            print the list, and write it into docs/rules.md
    rules.py --check    change nothing; fail if a test names an unknown rule or the list is stale

Rules are the third-level headings of docs/rules.md. Tests name them with `@pytest.mark.rule("S4")`.
"""

import argparse
import contextlib
import io
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- make rules: begin -->\n"
END = "<!-- make rules: end -->"
HEADING = re.compile(
    r"^### (?P<id>[A-Z]\d*[a-z]?) (?P<title>.+) \((required|beyond)\)$", re.MULTILINE
)


class RulesError(Exception):
    """The rules or the tests cannot be read, or do not fit together."""


class Rule(NamedTuple):
    id: str
    title: str


class Claim(NamedTuple):
    """A test says that it proves a rule."""

    rule: str
    test: str


def parse_rules(text: str) -> list[Rule]:
    rules = [Rule(found["id"], found["title"]) for found in HEADING.finditer(text)]
    if len(rules) != len(re.findall(r"^### ", text, re.MULTILINE)):
        raise RulesError("docs/rules.md: a heading is not of the form '### S4 Title (required)'.")
    if len({rule.id for rule in rules}) != len(rules):
        raise RulesError("docs/rules.md: two rules have the same id.")
    return rules


class _Collector:
    """A pytest plugin that notes the claims of the tests that pytest finds."""

    def __init__(self) -> None:
        self.claims: set[Claim] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            # The cases of a parametrised test are one test here.
            test = item.nodeid.split("[")[0]
            for mark in item.iter_markers("rule"):
                self.claims |= {Claim(rule, test) for rule in mark.args}


def collect_claims(root: Path) -> set[Claim]:
    collector = _Collector()
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = pytest.main(["--collect-only", "-qq", f"--rootdir={root}"], plugins=[collector])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RulesError(f"The tests cannot be collected:\n{output.getvalue()}")
    return collector.claims


def unknown_rules(rules: Iterable[Rule], claims: Iterable[Claim]) -> list[str]:
    known = {rule.id for rule in rules}
    return sorted(
        f"{claim.test} names the rule {claim.rule}, which docs/rules.md does not have."
        for claim in claims
        if claim.rule not in known
    )


def proofs_of(rules: Iterable[Rule], claims: Iterable[Claim]) -> dict[Rule, list[str]]:
    claims = list(claims)
    return {rule: sorted(c.test for c in claims if c.rule == rule.id) for rule in rules}


def summary(proofs: dict[Rule, list[str]]) -> str:
    proven = sum(bool(tests) for tests in proofs.values())
    return f"{proven} of {len(proofs)} rules have a test; {len(proofs) - proven} have no test yet."


def as_text(proofs: dict[Rule, list[str]]) -> str:
    lines = []
    for rule, tests in proofs.items():
        lines.append(f"{rule.id:<4} {rule.title}")
        lines += [f"       {test}" for test in tests or ["no test yet"]]
    return "\n".join([*lines, "", summary(proofs)])


def as_markdown(proofs: dict[Rule, list[str]]) -> str:
    lines = [summary(proofs), ""]
    for rule, tests in proofs.items():
        if tests:
            lines.append(f"- **{rule.id}** {rule.title}")
            lines += [f"  - `{test}`" for test in tests]
        else:
            lines.append(f"- **{rule.id}** {rule.title}: no test yet")
    return "\n".join(lines) + "\n"


def with_generated_part(text: str, part: str) -> str:
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise RulesError("docs/rules.md has lost the markers of its generated part.")
    return head + begin + part + end + tail


def run(root: Path, *, check: bool) -> str:
    """Return what to print. Raise `RulesError` for what is wrong."""
    page = root / "docs" / "rules.md"
    text = page.read_text(encoding="utf-8")
    rules = parse_rules(text)
    claims = collect_claims(root)
    if unknown := unknown_rules(rules, claims):
        raise RulesError("\n".join(unknown))
    proofs = proofs_of(rules, claims)
    updated = with_generated_part(text, as_markdown(proofs))
    if not check:
        page.write_text(updated, encoding="utf-8")
        return as_text(proofs)
    if updated != text:
        raise RulesError("The list of tests in docs/rules.md is out of date: run 'make rules'.")
    return summary(proofs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail if stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project to look at")
    options = parser.parse_args()
    try:
        with contextlib.chdir(options.root):
            print(run(options.root.resolve(), check=options.check))
    except RulesError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
