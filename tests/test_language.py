"""The language rules of CONTRIBUTING.md that a program can check."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

UNWANTED = (
    "somebody",
    "nobody",
    "anybody",
    "whoever",
    "in vain",
    "goes home",
    "go home",
    "heap of",
    "reckoning",
    "turned back",
)
WORDS = re.compile(rf"\b({'|'.join(UNWANTED)})\b", re.IGNORECASE)
RULE_ID = re.compile(r"\brules? [A-Z]\d{1,2}[a-z]?\b|\([A-Z]\d{1,2}[a-z]?\)")
FILE_OF_THE_REPOSITORY = re.compile(r"\b(docs|tests|scripts|examples|deploy)/|\b\w+\.md\b")
NAMED_PAGE = re.compile(r"\b[Tt]he\s+page\s+([A-Z][\w\s]*?)\s+of\s+the\s+documentation\b")
NOUN_CLAUSE = re.compile(r"(What|Whether|Where|How|Who|Which)\b")
TWINS = {"PairedClient", "PairedSender"}
"""Public classes that exist once for threads and once for event loops, as in the Azure SDK."""


def lines_that_match(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every docstring of a module, also those of attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every string of a module: docstrings, messages, help texts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Constant(value=str(text)):
                yield node.lineno, text


def test_unwanted_words_do_not_appear_in_source_and_documentation():
    assert lines_that_match(WORDS, SOURCES + PAGES) == []


def test_rule_ids_do_not_appear_in_source():
    assert lines_that_match(RULE_ID, SOURCES) == []


def test_source_names_no_file_that_a_wheel_lacks():
    """A user of the wheel finds a page of the documentation by its title, not by its path."""
    assert lines_that_match(FILE_OF_THE_REPOSITORY, SOURCES) == []


def test_page_that_source_names_has_that_title():
    titles = {page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for page in PAGES}
    named = {
        " ".join(title.split())
        for path in SOURCES
        for _, text in strings(path)
        for title in NAMED_PAGE.findall(text)
    }

    assert "Columns" in named
    assert named - titles == set()


def test_docstrings_start_with_a_verb_or_name_the_thing():
    violations = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in SOURCES
        for line, text in docstrings(path)
        if NOUN_CLAUSE.match(text)
    ]

    assert violations == []


def test_class_names_are_defined_once():
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name not in TWINS:
                places[node.name].append(path.relative_to(ROOT).as_posix())

    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (WORDS, "Nobody waits for it."),
        (WORDS, "It was received in vain."),
        (RULE_ID, "decided here (rule S2)."),
        (RULE_ID, "Settled in the sink (Y2)."),
        (FILE_OF_THE_REPOSITORY, "docs/reference/columns.md describes them."),
        (NAMED_PAGE, "The page Service Bus\n    connector of the documentation has more."),
        (NOUN_CLAUSE, "Whether a queue is empty."),
    ],
)
def test_each_pattern_finds_its_kind(pattern: re.Pattern[str], text: str):
    assert pattern.search(text)
