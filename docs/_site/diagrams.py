"""The directive `dot`: a diagram in the language of Graphviz, as SVG inside the page.

The SVG uses the colors of the page, so that it is readable on a light and on a dark background. A
node, edge or cluster may have one of the classes `primary`, `secondary`, `problem` and `quiet`.
"""

import re
import subprocess
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DEFAULTS = """
bgcolor=transparent fontname=Helvetica fontsize=13
node [shape=box style=rounded fontname=Helvetica fontsize=13 margin="0.18,0.08"]
edge [fontname=Helvetica fontsize=11 arrowsize=0.7]
"""


def svg_of(source: str, description: str) -> str:
    """Return the diagram as an SVG element that follows the colors of the page."""
    head, brace, rest = source.partition("{")
    try:
        result = subprocess.run(
            ["dot", "-Tsvg"],
            input=head + brace + DEFAULTS + rest,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as exc:
        raise RuntimeError("The program 'dot' is missing. Install graphviz.") from exc
    if result.returncode or result.stderr:
        raise ValueError(f"dot: {result.stderr.strip()}")
    svg = result.stdout[result.stdout.index("<svg") :]
    svg = re.sub(r"<!--.*?-->\n?|<title>.*?</title>\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(fill|stroke)="black"', r'\1="currentColor"', svg)
    svg = re.sub(r"<text ", '<text fill="currentColor" ', svg)
    svg = re.sub(r'font-family="[^"]*"', "", svg)
    # The width of the drawing is the largest width; the page may give it less.
    svg = re.sub(r'width="(\d+)pt" height="\d+pt"', r'style="max-width: \1pt"', svg, count=1)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{description}" ', 1)


class Dot(SphinxDirective):
    has_content = True
    option_spec = {"alt": directives.unchanged_required}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        description = self.options.get("alt")
        if not description:
            raise self.error("A diagram needs the option :alt:, which describes it.")
        try:
            svg = svg_of("\n".join(self.content), description)
        except (RuntimeError, ValueError) as exc:
            raise self.error(str(exc)) from exc
        return [nodes.raw("", f'<div class="diagram">\n{svg}</div>', format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("dot", Dot)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
