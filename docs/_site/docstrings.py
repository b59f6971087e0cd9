"""Docstrings as reStructuredText: an indented block is code."""

from typing import Any

from sphinx.application import Sphinx


def with_code(lines: list[str]) -> list[str]:
    """Return the lines with a mark before each indented block that follows an empty line."""
    result: list[str] = []
    for line in lines:
        starts = line.startswith("    ") and result and not result[-1]
        inside = next((text for text in reversed(result) if text), "").startswith("    ")
        if starts and not inside:
            result += ["::", ""]
        result.append(line)
    return result


def read(app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = with_code(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
