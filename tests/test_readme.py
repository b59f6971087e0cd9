"""README.md's example can be run, and links in the docs lead somewhere."""

import ast
import builtins
import re
from pathlib import Path

import pytest

from scripts.wheel_example import first_example

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("", "docs", "examples")
    for path in (ROOT / folder).glob("**/*.md" if folder else "*.md")
)


def test_example_leaves_open_only_what_the_reader_has():
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


def test_page_without_an_example_is_said_to_have_none():
    with pytest.raises(SystemExit, match="no example"):
        first_example("# Words\n\n```\nmake demo\n```\n")


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as they are made of their words."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if not target.exists() or (heading and heading not in anchors(target)):
            lost.append(link)

    assert lost == []
