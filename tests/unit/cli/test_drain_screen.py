"""The progress display of `pairbus syphon`."""

import io
from collections import Counter
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from pairbus.cli.drain_screen import LINES, WINDOW_S, DrainScreen, RateMeter, seconds_to_go


@dataclass
class Status:
    moved: Counter[str] = field(default_factory=Counter)
    errors: dict[str, str] = field(default_factory=dict)
    unreadable: str | None = None


def screens(*, terminal: bool = True) -> tuple[DrainScreen, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    consoles = [
        Console(file=file, force_terminal=terminal, width=110, color_system=None, soft_wrap=True)
        for file in (out, err)
    ]
    return DrainScreen(*consoles), out, err


def picture(status: Status, left: int | None, speed: RateMeter) -> list[str]:
    screen, out, _ = screens()
    screen._out.print(screen.picture(status, left, speed))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_rate_covers_the_last_seconds_and_is_zero_without_progress():
    speed = RateMeter()
    assert speed.of() == 0.0
    for second in range(20):
        speed.note(second, Counter(a=100 * second, b=second))
    assert speed.of("a") == pytest.approx(100)
    assert speed.of() == pytest.approx(101)

    for second in range(20, 20 + int(WINDOW_S) + 1):
        speed.note(second, Counter(a=1900, b=19))

    assert speed.of() == 0.0


def test_time_to_go_needs_a_count_and_a_rate():
    assert seconds_to_go(100, 50.0) == 2.0
    assert seconds_to_go(None, 50.0) is None
    assert seconds_to_go(100, 0.0) is None


def test_screen_has_a_bar_for_all_and_a_line_for_each_destination():
    speed = RateMeter()
    speed.note(0.0, Counter())
    speed.note(10.0, Counter({"bills": 1000, "orders": 4000}))
    status = Status(moved=Counter({"bills": 1000, "orders": 4000}), errors={"[x]": "is down"})

    bar, *lines = picture(status, 45_000, speed)

    assert bar.endswith(" 5,000 moved, 45,000 left, 500/s, 0:01:30 to go")
    assert "━━━" in bar
    assert [line.split() for line in lines] == [
        ["[x]", "0", "moved", "0/s", "is", "down"],
        ["bills", "1,000", "moved", "100/s"],
        ["orders", "4,000", "moved", "400/s"],
    ]


def test_screen_shows_an_empty_and_an_unreadable_backlog():
    assert picture(Status(), 0, RateMeter())[0].endswith("waiting for messages")
    assert picture(Status(), None, RateMeter())[0].endswith("waiting for messages")
    assert "left" not in picture(Status(moved=Counter(a=1)), None, RateMeter())[0]
    unreadable = picture(Status(unreadable="refused"), None, RateMeter())
    assert unreadable[0].endswith("the backlog cannot be read")


def test_number_of_lines_is_limited():
    status = Status(moved=Counter({f"path-{n}": 1 for n in range(100)}))

    assert len(picture(status, 5, RateMeter())) == 1 + LINES


def test_output_that_is_not_a_terminal_gets_a_plain_line_every_few_seconds():
    screen, out, err = screens(terminal=False)
    speed = RateMeter()
    with screen:
        for half in range(41):
            moved = Counter(orders=10 * half)
            speed.note(half / 2, moved)
            screen.show(Status(moved, {"bills": "is down"}), 400 - 10 * half, speed, half / 2)

    assert out.getvalue().splitlines() == [
        "0 moved, 400 left, 0/s",
        "100 moved, 300 left, 20/s, 0:00:15 to go",
        "200 moved, 200 left, 20/s, 0:00:10 to go",
        "300 moved, 100 left, 20/s, 0:00:05 to go",
        "400 moved, 0 left, 20/s",
    ]
    assert err.getvalue() == "bills: is down\n"
