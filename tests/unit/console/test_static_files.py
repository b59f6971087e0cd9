"""The files of the console's page: complete, offline, and without inline code."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

STATIC = Path(__file__).resolve().parents[3] / "src" / "pairbus" / "console" / "static"
OWN_FILES = sorted(
    path for path in STATIC.rglob("*") if path.is_file() and "vendor" not in path.parts
)
SCRIPTS = [path for path in OWN_FILES if path.suffix == ".js"]
MAX_LINES = 400

MARKUP_FROM_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|DOMParser"
    r"|srcdoc|\beval\(|new Function\("
)
ADDRESS = re.compile(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*")
SVG_NAMESPACE = "http://www.w3.org/2000/svg"


class Elements(HTMLParser):
    """Records the elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[str] = []
        self._tag = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self._tag in ("script", "style") and data.strip():
            self.inline.append(data)


@pytest.fixture(scope="module")
def page() -> Elements:
    return Elements((STATIC / "index.html").read_text(encoding="utf-8"))


@pytest.mark.rule("O3")
def test_page_has_no_inline_code(page: Elements):
    attributes = {name for _, attributes in page.elements for name in attributes}

    assert page.inline == []
    assert not {name for name in attributes if name.startswith("on") or name == "style"}


@pytest.mark.rule("O2")
def test_every_file_that_the_page_names_exists(page: Elements):
    names = [
        attributes.get("src") or attributes.get("href")
        for tag, attributes in page.elements
        if tag in ("script", "link")
    ]

    assert names
    assert all(name and name.startswith("/static/") for name in names)
    assert [name for name in names if not (STATIC / str(name)[8:]).is_file()] == []


@pytest.mark.rule("O2")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_module_that_a_script_imports_exists(path: Path):
    modules = re.findall(r'\bfrom "([^"]+)"', path.read_text(encoding="utf-8"))

    assert [module for module in modules if not (path.parent / module).is_file()] == []


@pytest.mark.rule("O2")
@pytest.mark.parametrize("path", OWN_FILES, ids=lambda path: path.name)
def test_file_names_no_other_server(path: Path):
    addresses = set(ADDRESS.findall(path.read_text(encoding="utf-8")))

    assert addresses <= {SVG_NAMESPACE}


@pytest.mark.rule("O3")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script_does_not_create_markup_from_text(path: Path):
    assert MARKUP_FROM_TEXT.findall(path.read_text(encoding="utf-8")) == []


def test_chart_library_creates_no_markup_from_text_and_has_its_license():
    vendor = STATIC / "vendor" / "uplot"

    assert MARKUP_FROM_TEXT.findall((vendor / "uPlot.iife.min.js").read_text("utf-8")) == []
    assert "MIT" in (vendor / "LICENSE").read_text("utf-8")


@pytest.mark.parametrize("path", OWN_FILES, ids=lambda path: path.name)
def test_file_is_short(path: Path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES
