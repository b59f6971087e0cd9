"""Write screenshots of the console's page.

python -m tests.browser           every state, width and color scheme, to build/browser
python -m tests.browser --docs    the pictures of docs/console-page.md
"""

import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.browser_page import BrowserPage, launch
from tests.browser.stand_in import StandIn
from tests.browser.states import STATES
from tests.browser.views import VIEWS

ROOT = Path(__file__).resolve().parents[2]
DOCS = {"failover": "console-failover.png", "many_dead_letters": "console-dead-letters.png"}
DOCS_VIEW = (1400, "light")
COLORS = 128


def write_all(page: BrowserPage, console: StandIn, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, state in STATES.items():
        console.snapshot = state()
        for width, scheme in VIEWS:
            page.set_view(width, scheme)
            page.load()
            page.screenshot(folder / f"{name}-{width}-{scheme}.png")


def write_docs(page: BrowserPage, console: StandIn, folder: Path) -> None:
    page.set_view(*DOCS_VIEW)
    for name, file in DOCS.items():
        console.snapshot = STATES[name]()
        page.load()
        page.screenshot(folder / file)
        with Image.open(folder / file) as picture:
            smaller = picture.convert("RGB").quantize(COLORS)
        smaller.save(folder / file, optimize=True)


def main() -> None:
    console = StandIn(STATES["healthy"]())
    console.start()
    with sync_playwright() as playwright:
        page = BrowserPage(launch(playwright), console.url, loads=False)
        if "--docs" in sys.argv[1:]:
            write_docs(page, console, ROOT / "docs")
        else:
            write_all(page, console, ROOT / "build" / "browser")
    console.stop()


if __name__ == "__main__":
    main()
