"""Build the site of the documentation into build/site, and check its links.

    python -m scripts.site

Warnings of Sphinx are errors. Links inside the site must lead to a page and an anchor that exist.
Links to other sites are not followed: they must be addresses with https, and are listed in
build/site-links.txt.
"""

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SITE, EXTERNAL_LINKS = Path("build", "site"), Path("build", "site-links.txt")
PLAIN_HTTP = {"localhost", "127.0.0.1", "www.w3.org"}


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def build(site: Path) -> bool:
    """Build the site, and return whether that succeeded without a warning."""
    command = ["--builder", "dirhtml", "--nitpicky", "--fail-on-warning", "--keep-going"]
    trees = site.with_name(f"{site.name}-doctrees")
    result = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", *command, "--quiet", "--jobs", "2"),
            *("--doctree-dir", trees, ROOT / "docs", site),
        ],
        check=False,
    )
    return result.returncode == 0


def read_site(site: Path) -> dict[Path, Page]:
    """Return all pages of a site by their path."""
    return {
        path.relative_to(site): Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }


def broken_links(site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Yield a sentence for each link inside the site that leads nowhere, and for each link to
    another site that is not an address."""
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if not is_address(link):
                    yield f"{path} has the link {link}, which is not an address with https."
                continue
            target = (site / path).parent / unquote(parts.path) if parts.path else site / path
            target = target.resolve()
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{path} has the link {link}, which leads to no file."
            elif parts.fragment and target.suffix == ".html":
                anchors = pages[target.relative_to(site.resolve())].anchors
                if unquote(parts.fragment) not in anchors:
                    yield f"{path} has the link {link}, whose page has no such anchor."


def is_address(link: str) -> bool:
    """Return whether a link is a complete address of a web page or of mail."""
    parts = urlsplit(link)
    if parts.scheme in ("mailto", "data"):
        return True
    host = parts.hostname or ""
    return host in PLAIN_HTTP if parts.scheme == "http" else parts.scheme == "https" and "." in host


def external_links(pages: dict[Path, Page]) -> list[str]:
    """Return the addresses of all other sites, each once."""
    links = {link for page in pages.values() for link in page.links}
    return sorted(link for link in links if urlsplit(link).scheme in ("http", "https"))


def main() -> int:
    if not build(ROOT / SITE):
        return 1
    pages = read_site(ROOT / SITE)
    broken = list(broken_links(ROOT / SITE, pages))
    for sentence in broken:
        print(sentence, file=sys.stderr)
    others = external_links(pages)
    (ROOT / EXTERNAL_LINKS).write_text("".join(f"{link}\n" for link in others), encoding="utf-8")
    print(f"{SITE}: {len(pages)} pages, {len(broken)} broken links, {len(others)} external links")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
