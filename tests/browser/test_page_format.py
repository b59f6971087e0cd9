"""Numbers, times and untrusted text as the page writes them."""

from collections.abc import Callable

import pytest

from pairbus.console import sentence
from tests.browser.browser_page import BrowserPage

OpenPage = Callable[..., BrowserPage]

pytestmark = pytest.mark.rule("O2")

DASH = "\u2013"
NOW = "Date.parse('2026-11-17T17:00:00Z')"
CASES = {
    "m.count(0)": "0",
    "m.count(999)": "999",
    "m.count(12430)": "12\u202f430",
    "m.count(-1234567)": "-1\u202f234\u202f567",
    "m.count(undefined)": DASH,
    "m.counted(1, 'message')": "1 message",
    "m.counted(2, 'message')": "2 messages",
    "m.rate(0)": "0",
    "m.rate(0.26)": "0.3",
    "m.rate(812.4)": "812",
    "m.duration(0)": "0 s",
    "m.duration(99)": "99 s",
    "m.duration(100)": "2 min",
    "m.duration(5999)": "1 h 40 min",
    "m.duration(7200)": "2 h",
    "m.duration(7260)": "2 h 1 min",
    "m.duration(1e6)": "11 d 13 h",
    "m.duration(-5)": "0 s",
    "m.duration(null ?? NaN)": DASH,
    "m.timeToGo(0.2)": "1 s",
    "m.timeToGo(0)": "0 s",
    "m.timeToGo(240)": "4 min",
    "m.timeToGo(null)": DASH,
    f"m.age('2026-11-17T16:59:18Z', {NOW})": "42 s",
    f"m.age(null, {NOW})": DASH,
    f"m.clock('2026-11-17T08:05:03Z', {NOW})": "08:05:03",
    f"m.clock('2026-11-16T08:05:03Z', {NOW})": "2026-11-16 08:05:03",
    f"m.clock('garbage', {NOW})": DASH,
    "m.money(0, 'USD')": "0.00 USD",
    "m.money(0.00001, 'USD')": "below 0.0001 USD",
    "m.money(0.0257, 'USD')": "0.0257 USD",
    "m.money(1234.5, 'EUR')": "1\u202f234.50 EUR",
    "m.visible('a\\u0007b\\u202ec')": "a⟨U+0007⟩b⟨U+202E⟩c",
    "m.visible('\\ud800x')": "⟨U+D800⟩x",
    "m.visible('😀 שלום')": "😀 שלום",
    "m.visible(null)": "",
    "m.visible('abcdef', 3)": "abc… (6 characters)",
    "m.visibleLines('a\\nb\\tc\\u0000', 100)": "a\nb\tc⟨U+0000⟩",
}


SECONDS = [1, 2.5, 99, 99.4, 100, 150, 210, 5_999, 7_200, 9_000, 172_799, 172_800, 400_000, 1e9]


def test_durations_and_numbers_are_those_of_the_sentence(open_page: OpenPage):
    page = open_page()

    durations = page.run("format.js", "x.map(m.duration)", SECONDS)
    assert durations == [sentence.duration(seconds) for seconds in SECONDS]
    numbers = [0, 999, 12_430, 1_234_567]
    assert page.run("format.js", "x.map(m.count)", numbers) == list(map(sentence.number, numbers))


def test_values_are_formatted(open_page: OpenPage):
    page = open_page()

    expressions = ", ".join(CASES)
    assert dict(zip(CASES, page.run("format.js", f"[{expressions}]"), strict=True)) == CASES
