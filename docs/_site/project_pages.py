"""Pages of the repository that are outside of docs/, and links to them.

On the site, a link to a file at the root of the repository leads to the page that includes it, and
a link to another file outside of docs/ downloads it.
"""

import re
from typing import Any

from sphinx.application import Sphinx

PAGES = {"CHANGELOG.md": "/project/changelog.md", "CONTRIBUTING.md": "/project/contributing.md"}
LINK = re.compile(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, PAGES))})(#[\w-]+)?\)")


def to_site(text: str) -> str:
    """Return the text with links to pages of the site."""
    return LINK.sub(lambda link: f"]({PAGES[link[1]]}{link[2] or ''})", text)


def read(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = to_site(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", read)
    app.connect("include-read", lambda app, path, name, source: read(app, name, source))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
