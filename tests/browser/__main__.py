"""Write screenshots of the console's page.

python -m tests.browser            every scene, width and color scheme, to build/browser
python -m tests.browser SCENE …    some scenes
python -m tests.browser --docs     the pictures of docs/how-to/console.md
"""

import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.browser_page import BrowserPage, launch
from tests.browser.scenes import SCENES
from tests.browser.stand_in import StandIn
from tests.browser.states import healthy
from tests.browser.views import VIEWS

ROOT = Path(__file__).resolve().parents[2]
DOCS = {
    "failover": "console-failover.png",
    "many_dead_letters": "console-dead-letters.png",
    "redrive": "console-dialog.png",
}
DOCS_VIEW = (1200, "light")
COLORS = 128


def write_scenes(page: BrowserPage, console: StandIn, names: list[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        SCENES[name].prepare(console)
        SCENES[name].show(page)
        for width, scheme in VIEWS:
            page.set_view(width, scheme)
            page.screenshot(folder / f"{name}-{width}-{scheme}.png")


def write_docs(page: BrowserPage, console: StandIn, folder: Path) -> None:
    page.set_view(*DOCS_VIEW)
    for name, file in DOCS.items():
        SCENES[name].prepare(console)
        SCENES[name].show(page)
        page.screenshot(folder / file)
        with Image.open(folder / file) as picture:
            smaller = picture.convert("RGB").quantize(COLORS)
        smaller.save(folder / file, optimize=True)


def main() -> None:
    arguments = sys.argv[1:]
    console = StandIn(healthy())
    console.start()
    with sync_playwright() as playwright:
        page = BrowserPage(launch(playwright), console.url, loads=False)
        if arguments == ["--docs"]:
            write_docs(page, console, ROOT / "docs" / "images")
        else:
            write_scenes(page, console, arguments or list(SCENES), ROOT / "build" / "browser")
        page.close()
    console.stop()


if __name__ == "__main__":
    main()
