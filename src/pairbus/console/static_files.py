"""The files of the page: HTML, style sheets and scripts. They contain no data of a pairing."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
INDEX: Final = "index.html"


class StaticPages:
    """Reads all files once. A request cannot name a file outside of them."""

    def __init__(self) -> None:
        self._files = dict(_walk(files("pairbus.console").joinpath("static"), ""))

    def get(self, name: str) -> tuple[bytes, str] | None:
        """Return the content and the type of a file, or None if it does not exist."""
        return self._files.get(name)


def _walk(folder: Traversable, prefix: str) -> "list[tuple[str, tuple[bytes, str]]]":
    found: list[tuple[str, tuple[bytes, str]]] = []
    if not folder.is_dir():
        return found
    for item in folder.iterdir():
        name = f"{prefix}{item.name}"
        if item.is_dir():
            found += _walk(item, f"{name}/")
            continue
        suffix = f".{item.name.rpartition('.')[2]}"
        if suffix in TYPES:
            found.append((name, (item.read_bytes(), TYPES[suffix])))
    return found
