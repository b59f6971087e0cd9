"""The site of the documentation, for Sphinx. `make docs` builds it, without a network."""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS / "_site"))

from pairbus import __version__  # noqa: E402

project = "pairbus"
author = "The pairbus maintainers"
copyright = "The pairbus maintainers"  # noqa: A001
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "diagrams", "docstrings", "project_pages"]
exclude_patterns = ["_site"]
source_suffix = {".md": "markdown"}

smartquotes_action = "qe"  # without D, which makes a dash of the two hyphens of an option

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3  # as the links on a page of the repository
myst_fence_as_directive = ["dot"]
suppress_warnings = ["myst.header"]  # pages of the repository may skip a level

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
autodoc_preserve_defaults = True
default_role = "literal"
"""Docstrings have names in single backquotes, as in Markdown."""
nitpick_ignore_regex = [
    # Names of other packages have no pages here, and their inventories would need a network.
    (r"py:.*", r"(?!pairbus\b).*"),
    # Types of inner modules have no pages, apart from those that public modules export.
    (r"py:.*", r"pairbus\.\w+\.\w+\..*"),
]

toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"pairbus {version}"
html_static_path = ["_site/static"]
html_css_files = ["pairbus.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
highlight_language = "text"
pygments_style = "default"
pygments_dark_style = "github-dark"
