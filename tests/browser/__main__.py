"""Write screenshots of the console's page in every state, width and color scheme.

python -m tests.browser [FOLDER]    write them to a folder (default: build/browser)
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.browser_page import BrowserPage, launch
from tests.browser.stand_in import StandIn
from tests.browser.states import STATES
from tests.browser.views import VIEWS


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    console = StandIn(STATES["healthy"]())
    console.start()
    with sync_playwright() as playwright:
        page = BrowserPage(launch(playwright), console.url, loads=False)
        for name, state in STATES.items():
            console.snapshot = state()
            for width, scheme in VIEWS:
                page.set_view(width, scheme)
                page.load()
                page.screenshot(folder / f"{name}-{width}-{scheme}.png")
    console.stop()


if __name__ == "__main__":
    main(Path(*sys.argv[1:] or ["build", "browser"]))
