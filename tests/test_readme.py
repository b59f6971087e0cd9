"""The example of README.md is complete, and links in the docs are valid."""

import ast
import builtins
import re
from pathlib import Path

import pytest

from scripts.wheel_example import first_example

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("", "deploy", "docs", "examples")
    for path in (ROOT / folder).glob("**/*.md" if folder else "*.md")
)


def test_example_uses_only_three_names_that_it_does_not_define():
    tree = ast.parse(first_example((ROOT / "README.md").read_text(encoding="utf-8")))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    known = {name.id for name in names if isinstance(name.ctx, ast.Store)} | set(dir(builtins))
    known |= {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert {name.id for name in names} - known == {"PRIMARY", "SECONDARY", "orders"}


def test_page_without_an_example_is_an_error():
    with pytest.raises(SystemExit, match="no example"):
        first_example("# Words\n\n```\nmake demo\n```\n")


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_are_valid(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if not target.exists() or (heading and heading not in anchors(target)):
            broken.append(link)

    assert broken == []
