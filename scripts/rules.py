"""List every rule of docs/reference/rules.md with the tests that prove it.

    rules.py            print the list, and write it to build/rules-tests.md
    rules.py --check    write nothing; fail if a test names an unknown rule, or a rule has no test

A rule is a third-level heading of docs/reference/rules.md: `### S4 Sending in failover (required)`.
A test names the rules that it proves with `@pytest.mark.rule("S4")`. A rule marked `planned` needs
no test yet.
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
LIST = Path("build", "rules-tests.md")
HEADING = re.compile(
    r"^### (?P<id>[A-Z]\d*[a-z]?) (?P<title>.+) \((required|beyond)(?P<planned>, planned)?\)$",
    re.MULTILINE,
)


class RulesError(Exception):
    """Raised when the rules or the tests cannot be read, or contradict each other."""


class Rule(NamedTuple):
    id: str
    title: str
    planned: bool = False
    """The rule is specified, but no test proves it yet."""


class Claim(NamedTuple):
    """A test and a rule that it proves, according to its marker."""

    rule: str
    test: str


def parse_rules(text: str) -> list[Rule]:
    """Return the rules of the page, in its order."""
    rules = [
        Rule(match["id"], match["title"], match["planned"] is not None)
        for match in HEADING.finditer(text)
    ]
    if len(rules) != len(re.findall(r"^### ", text, re.MULTILINE)):
        raise RulesError(
            "A third-level heading of docs/reference/rules.md is not a rule. Write it as "
            "'### S4 Title (required)', with 'required' or 'beyond', and "
            "', planned' for a rule without tests."
        )
    if len({rule.id for rule in rules}) != len(rules):
        raise RulesError("Two rules of docs/reference/rules.md have the same id.")
    return rules


class _Collector:
    """A pytest plugin that records the rule markers of all collected tests."""

    def __init__(self) -> None:
        self.claims: set[Claim] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            test = item.nodeid.split("[")[0]  # list a parametrized test once
            for marker in item.iter_markers("rule"):
                self.claims |= {Claim(rule, test) for rule in marker.args}


def collect_claims(root: Path) -> set[Claim]:
    """Collect the tests of a project with pytest, and return their claims."""
    collector = _Collector()
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = pytest.main(["--collect-only", "-qq", f"--rootdir={root}"], plugins=[collector])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RulesError(f"pytest could not collect the tests:\n{output.getvalue()}")
    return collector.claims


def problems(rules: Iterable[Rule], claims: Iterable[Claim]) -> list[str]:
    """Return a sentence for each unknown rule in a marker, and for each rule without a test."""
    rules, claims = list(rules), list(claims)
    ids = {rule.id for rule in rules}
    proven = {claim.rule for claim in claims}
    unknown = sorted(
        f"{claim.test} names rule {claim.rule}, which is not in docs/reference/rules.md."
        for claim in claims
        if claim.rule not in ids
    )
    unproven = [
        f"No test proves rule {rule.id} ({rule.title}). Add a test, or mark the rule as planned."
        for rule in rules
        if not rule.planned and rule.id not in proven
    ]
    return unknown + unproven


def proofs_by_rule(rules: Iterable[Rule], claims: Iterable[Claim]) -> dict[Rule, list[str]]:
    claims = list(claims)
    return {rule: sorted(claim.test for claim in claims if claim.rule == rule.id) for rule in rules}


def summary(tests: dict[Rule, list[str]]) -> str:
    """Return the number of rules with tests, and the ids of those without."""
    missing = [rule.id for rule, names in tests.items() if not names]
    text = f"{len(tests) - len(missing)} of {len(tests)} rules have tests."
    return f"{text} Without tests: {', '.join(missing)}." if missing else text


def as_text(tests: dict[Rule, list[str]]) -> str:
    """Return the list for a terminal."""
    lines = []
    for rule, names in tests.items():
        lines.append(f"{rule.id:<4} {rule.title}")
        lines += [f"       {name}" for name in names or ["no test yet"]]
    return "\n".join([*lines, "", summary(tests)])


def as_markdown(tests: dict[Rule, list[str]]) -> str:
    """Return the list as a page."""
    lines = ["# Rules and their tests", "", summary(tests), ""]
    for rule, names in tests.items():
        if names:
            lines.append(f"- **{rule.id}** {rule.title}")
            lines += [f"  - `{name}`" for name in names]
        else:
            lines.append(f"- **{rule.id}** {rule.title}: no test yet")
    return "\n".join(lines) + "\n"


def run(root: Path, *, check: bool) -> str:
    """Return the text to print. Raises RulesError."""
    rules = parse_rules((root / "docs" / "reference" / "rules.md").read_text(encoding="utf-8"))
    claims = collect_claims(root)
    if messages := problems(rules, claims):
        raise RulesError("\n".join(messages))
    tests = proofs_by_rule(rules, claims)
    if check:
        return summary(tests)
    page = root / LIST
    page.parent.mkdir(exist_ok=True)
    page.write_text(as_markdown(tests), encoding="utf-8")
    return as_text(tests)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if rules and tests do not match"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="root folder of the project")
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
