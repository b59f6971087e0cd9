"""The events of a drill on the screen."""

from io import StringIO

import pytest
from rich.console import Console

from pairbus.cli.drill_screen import DrillScreen

LINK = "http://127.0.0.1:8710/#token=" + "x" * 150
SENTENCE = "Watch the drill in a browser. This link is for one login, within 10 minutes:"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_link_is_on_one_line_of_its_own(is_terminal: bool) -> None:
    text = StringIO()
    out = Console(file=text, width=80, force_terminal=is_terminal, soft_wrap=True, highlight=False)

    DrillScreen(out, out).report(f"{SENTENCE}\n{LINK}")

    *sentence, link = text.getvalue().splitlines()
    assert link == LINK
    assert sentence
    assert is_terminal is (len(sentence) > 1)  # only a terminal has a width
