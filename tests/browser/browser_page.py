"""A page of the console in a browser, and what a test can ask of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Playwright

DEADLINE_MS = 120_000
"""Long, because test machines can be busy."""
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
AXE = Path(__file__).resolve().parents[1] / "peers" / "node_modules" / "axe-core" / "axe.min.js"
RUN_AXE = """async (rules) => {
    const options = {resultTypes: ["violations"], ...(rules ? {runOnly: rules} : {})};
    const result = await axe.run(document, options);
    return result.violations.map(({id, nodes}) =>
        [id, ...nodes.slice(0, 3).map(node => node.html + " " + node.failureSummary)].join("\\n"));
}"""

FIND_CUT_OFF = """() => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const cut = [];
    while (texts.nextNode()) {
        const node = texts.currentNode;
        const box = node.parentElement.closest(
            ".figures > div, td, button, .card, .summary, .bar, dialog");
        if (box === null || node.parentElement.closest(".visually-hidden")) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        const {left, right} = box.getBoundingClientRect();
        const outside = rect => rect.width && (rect.left < left - 1 || rect.right > right + 1);
        if ([...range.getClientRects()].some(outside)) cut.push(node.data);
    }
    return cut;
}"""

NAME = 'node.getAttribute("aria-label") || node.textContent || node.placeholder'
FIND_FOCUSABLE = f"""() => [...document.querySelectorAll("a, button, input, [tabindex='0']")]
    .filter(node => node.checkVisibility()).map(node => {NAME})"""
FIND_FOCUS = f"""() => {{
    const node = document.activeElement;
    const {{outlineStyle, outlineWidth}} = getComputedStyle(node);
    const {{top, bottom, left, right}} = node.getBoundingClientRect();
    return {{
        name: {NAME},
        outline_px: outlineStyle === "none" ? 0 : parseFloat(outlineWidth),
        is_in_view: top >= 0 && left >= 0 && bottom <= innerHeight && right <= innerWidth,
    }};
}}"""


@dataclass(frozen=True, slots=True)
class Focus:
    """The control that has the keyboard focus."""

    name: str
    outline_px: float
    is_in_view: bool


def launch(playwright: Playwright) -> Browser:
    """Start Debian's Chromium. Playwright downloads nothing."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


class BrowserPage:
    """A page in a browser context of its own, or in that of another page."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        *,
        width: int = 1400,
        scheme: str = "light",
        beside: "BrowserPage | None" = None,
        expected_errors: tuple[str, ...] = (),
        loads: bool = True,
    ) -> None:
        self.context: BrowserContext = (
            beside.context
            if beside is not None
            else browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme=scheme,  # type: ignore[arg-type]
                timezone_id="UTC",
                locale="en-US",
            )
        )
        self.expected_errors = expected_errors
        self.errors: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(DEADLINE_MS)
        self.page.on("console", self._record)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.url = url
        if loads:
            self.load()

    def load(self) -> None:
        """Load the page, and wait until it shows a snapshot and its charts."""
        self.page.goto(self.url)
        self.page.locator("#dashboard").wait_for()
        self.page.locator(".chart canvas").nth(2).wait_for()

    def get(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def section(self, name: str) -> Locator:
        """Return the section with a heading, as assistive technology finds it."""
        return self.page.get_by_role("region", name=name, exact=True)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def visible_button_names(self) -> list[str]:
        """Return the names of all visible buttons, as assistive technology reads them."""
        buttons = self.page.get_by_role("button").all()
        return [b.get_attribute("aria-label") or b.inner_text() for b in buttons]

    def focusable_names(self) -> list[str]:
        """Return the names of all visible controls, in the order of the page."""
        return list(self.page.evaluate(FIND_FOCUSABLE))

    def focused(self) -> Focus:
        return Focus(**self.page.evaluate(FIND_FOCUS))

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def set_view(self, width: int, scheme: str) -> None:
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]

    def overflow(self) -> int:
        """Return by how many pixels the content is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def cut_off_texts(self) -> list[str]:
        """Return texts that reach beyond the box that they are in."""
        return list(self.page.evaluate(FIND_CUT_OFF))

    def accessibility_violations(self, *rules: str) -> list[str]:
        """Return the violations that axe-core finds: labels, roles, contrast and others, or only
        those of some rules."""
        if not self.page.evaluate("typeof axe !== 'undefined'"):
            self.page.evaluate(f"() => {{ {AXE.read_text(encoding='utf-8')} }}")
        return list(self.page.evaluate(RUN_AXE, rules or None))

    def memory(self) -> dict[str, float]:
        """Return the numbers of objects of the page after a garbage collection, by the names of
        Chromium."""
        session = self.context.new_cdp_session(self.page)
        session.send("Performance.enable")
        session.send("HeapProfiler.collectGarbage")
        metrics = session.send("Performance.getMetrics")["metrics"]
        session.detach()
        return {metric["name"]: metric["value"] for metric in metrics}

    def run(self, module: str, script: str, argument: Any = None) -> Any:
        """Return the value of an expression with the exports of a module of the page as `m` and an
        argument as `x`."""
        function = (
            f"async (x) => {{ const m = await import('/static/{module}'); return {script}; }}"
        )
        return self.page.evaluate(function, argument)

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page, or of the window if a dialog is open."""
        self.page.screenshot(path=path, full_page=self.dialog.count() == 0)

    def unexpected_errors(self) -> list[str]:
        return [e for e in self.errors if not any(text in e for text in self.expected_errors)]

    def close(self) -> None:
        self.context.close()

    def _record(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)
