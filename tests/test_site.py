"""The site of the documentation: it is built without a warning, and its links are valid."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site import Page, broken_links, build, external_links, is_address, read_site
from tests.documentation import ROOT, read_blocks

sys.path.insert(0, str(ROOT / "docs" / "_site"))

from diagrams import svg_of
from docstrings import with_code
from project_pages import to_site

PAGE = '<h1 id="top">Orders</h1>'
SECTIONS = {"tutorial", "how-to", "reference", "explanation"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site. Its warnings are errors."""
    site = tmp_path_factory.mktemp("site") / "html"
    assert build(site)
    return site


def test_site_has_every_page_and_no_broken_link(site: Path) -> None:
    pages = read_site(site)
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]

    assert list(broken_links(site, pages)) == []
    for source in sources:
        folder = source.parent if source.stem == "index" else source.with_suffix("")
        assert folder / "index.html" in pages
    assert {path.parts[0] for path in sources if len(path.parts) > 1} >= SECTIONS
    assert len(external_links(pages)) > 30


def test_options_keep_their_two_hyphens(site: Path) -> None:
    text = (site / "reference" / "cli" / "index.html").read_text(encoding="utf-8")

    assert "Bodies are shown with --json only." in text


def test_pages_load_nothing_from_other_sites(site: Path) -> None:
    loaded = [
        line
        for path in [*site.rglob("*.html"), *site.rglob("*.css")]
        for line in path.read_text(encoding="utf-8").splitlines()
        if ("<script" in line and 'src="http' in line)
        or ("<link" in line and 'href="http' in line and "canonical" not in line)
        or "@import" in line
        or "url(http" in line
    ]

    assert loaded == []


def test_public_names_are_on_the_site(site: Path) -> None:
    import pairbus
    import pairbus.aio
    import pairbus.emulator
    import pairbus.errors

    anchors = set().union(*(page.anchors for page in read_site(site).values()))
    names = {
        f"{module.__name__}.{name}"
        for module in (pairbus.aio, pairbus.emulator, pairbus.errors)
        for name in module.__all__
    }

    assert names - anchors == set()
    assert {f"pairbus.{name}" for name in pairbus.__all__ if name[0] != "_"} - anchors <= {
        # They are on the page of the module that defines them.
        f"pairbus.{name}"
        for name in (*pairbus.errors.__all__, "PathStatus", "StateChanged")
    }


@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        ("none/", "leads to no file"),
        ("../other/#none", "has no such anchor"),
        ("ftp://example.com/file", "is not an address with https"),
        ("https://example", "is not an address with https"),
    ],
)
def test_broken_links_are_found(tmp_path: Path, link: str, sentence: str) -> None:
    for name, text in (("first", f'<a href="{link}">link</a>'), ("other", PAGE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(text, encoding="utf-8")

    (problem,) = broken_links(tmp_path, read_site(tmp_path))

    assert problem.startswith("first/index.html has the link")
    assert sentence in problem


def test_links_to_pages_anchors_and_other_sites_are_valid(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text(PAGE, encoding="utf-8")
    links = ("other/", "other/#top", "#here", "https://example.com/a", "mailto:a@example.com")
    text = "".join(f'<a id="here" href="{link}">link</a>' for link in links)
    (tmp_path / "index.html").write_text(text, encoding="utf-8")

    pages = read_site(tmp_path)

    assert list(broken_links(tmp_path, pages)) == []
    assert external_links(pages) == ["https://example.com/a"]
    assert not is_address("http://example.com")
    assert Page(text).links == list(links)


def test_diagram_has_the_colors_of_the_page() -> None:
    svg = svg_of("digraph { a -> b [class=primary] }", "a to b")

    assert svg.startswith('<svg role="img" aria-label="a to b"')
    assert "black" not in svg
    assert 'class="edge primary"' in svg
    with pytest.raises(ValueError, match="syntax error"):
        svg_of("digraph { a -> }", "nothing")


def test_every_diagram_has_a_description() -> None:
    diagrams = [
        block
        for path in (ROOT / "docs").rglob("*.md")
        for block in read_blocks(path)
        if block.language == "dot"
    ]

    assert len(diagrams) >= 4
    assert [block.place for block in diagrams if not block.code.startswith(":alt: ")] == []


def test_indented_block_of_a_docstring_is_code() -> None:
    lines = ["Text.", "", "    a(", "        b", "    )", "", "    c()", "", "More."]

    assert with_code(lines) == ["Text.", "", "::", "", *lines[2:]]
    assert with_code(["Text", "    that goes on."]) == ["Text", "    that goes on."]


def test_link_to_a_file_of_the_project_leads_to_its_page() -> None:
    text = "[a](../../CHANGELOG.md) [b](../CONTRIBUTING.md#tests) [c](../../deploy/x.yml)"

    assert to_site(text) == (
        "[a](/project/changelog.md) [b](/project/contributing.md#tests) [c](../../deploy/x.yml)"
    )


def test_warning_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text('extensions = ["myst_parser"]\n', encoding="utf-8")
    (tmp_path / "index.md").write_text("# Title\n\n[broken](none.md)\n", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", tmp_path, tmp_path / "site"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 1
    assert "none.md" in result.stderr
