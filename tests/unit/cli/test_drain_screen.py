"""The progress of a drain on the screen."""

import io
from collections import Counter
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from pairbus.cli.drain_screen import (
    MAX_DESTINATIONS,
    WINDOW_S,
    DrainScreen,
    RateMeter,
    seconds_to_go,
)


@dataclass
class Status:
    moved: Counter[str] = field(default_factory=Counter)
    errors: dict[str, str] = field(default_factory=dict)
    unreadable: str | None = None
    paused: bool = False


def drain_screen(*, terminal: bool = True) -> tuple[DrainScreen, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    consoles = [
        Console(file=file, force_terminal=terminal, width=110, color_system=None, soft_wrap=True)
        for file in (out, err)
    ]
    return DrainScreen(*consoles), out, err


def panel(status: Status, remaining: int | None, meter: RateMeter) -> list[str]:
    screen, out, _ = drain_screen()
    screen._out.print(screen.panel(status, remaining, meter))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_rate_is_measured_over_the_last_seconds():
    meter = RateMeter()
    assert meter.rate() == 0.0
    for second in range(20):
        meter.add(second, Counter(a=100 * second, b=second))
    assert meter.rate("a") == pytest.approx(100)
    assert meter.rate() == pytest.approx(101)

    for second in range(20, 20 + int(WINDOW_S) + 1):
        meter.add(second, Counter(a=1900, b=19))

    assert meter.rate() == 0.0


def test_time_to_go_is_unknown_without_a_count_or_a_rate():
    assert seconds_to_go(100, 50.0) == 2.0
    assert seconds_to_go(None, 50.0) is None
    assert seconds_to_go(100, 0.0) is None


def test_panel_has_a_bar_and_a_line_for_each_destination():
    meter = RateMeter()
    meter.add(0.0, Counter())
    meter.add(10.0, Counter({"bills": 1000, "orders": 4000}))
    status = Status(moved=Counter({"bills": 1000, "orders": 4000}), errors={"[x]": "is down"})

    bar, *lines = panel(status, 45_000, meter)

    assert bar.endswith(" 5,000 moved, 45,000 remaining, 500/s, 0:01:30 to go")
    assert "━━━" in bar
    assert [line.split() for line in lines] == [
        ["[x]", "0", "moved", "0/s", "is", "down"],
        ["bills", "1,000", "moved", "100/s"],
        ["orders", "4,000", "moved", "400/s"],
    ]


def test_panel_without_progress_shows_the_reason():
    assert panel(Status(), 0, RateMeter())[0].endswith("waiting for messages")
    assert panel(Status(), None, RateMeter())[0].endswith("waiting for messages")
    assert "remaining" not in panel(Status(moved=Counter(a=1)), None, RateMeter())[0]
    unreadable = panel(Status(unreadable="refused"), None, RateMeter())
    assert unreadable[0].endswith("the backlog cannot be read")


def test_panel_shows_a_limited_number_of_destinations():
    status = Status(moved=Counter({f"path-{n}": 1 for n in range(100)}))

    assert len(panel(status, 5, RateMeter())) == 1 + MAX_DESTINATIONS


def test_without_a_terminal_a_line_is_printed_every_few_seconds():
    screen, out, err = drain_screen(terminal=False)
    meter = RateMeter()
    with screen:
        for half in range(41):
            moved = Counter(orders=10 * half)
            meter.add(half / 2, moved)
            screen.show(Status(moved, {"bills": "is down"}), 400 - 10 * half, meter, half / 2)

    assert out.getvalue().splitlines() == [
        "0 moved, 400 remaining, 0/s",
        "100 moved, 300 remaining, 20/s, 0:00:15 to go",
        "200 moved, 200 remaining, 20/s, 0:00:10 to go",
        "300 moved, 100 remaining, 20/s, 0:00:05 to go",
        "400 moved, 0 remaining, 20/s",
    ]
    assert err.getvalue() == "bills: is down\n"


def test_pause_is_shown_instead_of_the_progress():
    assert panel(Status(paused=True), 5, RateMeter())[0].endswith(
        "paused; see: pairbus syphon control"
    )
