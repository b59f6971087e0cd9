"""The pictures of the documentation."""

from pathlib import Path

import pytest

from tests.browser.__main__ import DOCS, ROOT

pytestmark = pytest.mark.rule("O2")

MAX_BYTES = 150_000


@pytest.mark.parametrize("name", DOCS.values())
def test_picture_is_small_and_in_the_documentation(name: str):
    folder: Path = ROOT / "docs"

    assert (folder / "images" / name).stat().st_size < MAX_BYTES
    page = (folder / "how-to" / "console.md").read_text(encoding="utf-8")
    assert f"](../images/{name})" in page
