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
)
from pairbus.syphon.progress import DrainProgress


@dataclass
class Status:
    moved: Counter[str] = field(default_factory=Counter)
    errors: dict[str, str] = field(default_factory=dict)
    unreadable: str | None = None
    paused: bool = False
    wait_reason: str | None = None


def drain_screen(*, terminal: bool = True) -> tuple[DrainScreen, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    consoles = [
        Console(file=file, force_terminal=terminal, width=110, color_system=None, soft_wrap=True)
        for file in (out, err)
    ]
    return DrainScreen(*consoles), out, err


def progress_of(moved: int, remaining: int | None, seconds: float = 10.0) -> DrainProgress:
    """Return the progress of a drain that has moved messages in some seconds."""
    progress = DrainProgress()
    progress.add(0.0, 0)
    if remaining is not None:
        progress.add_count(0.0, 0, moved + remaining)
    progress.add(seconds, moved)
    return progress


def panel(status: Status, remaining: int | None, meter: RateMeter) -> list[str]:
    screen, out, _ = drain_screen()
    progress = progress_of(status.moved.total(), remaining)
    screen._out.print(screen.panel(status, progress, meter))
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


def test_reason_why_messages_wait_is_shown():
    status = Status(moved=Counter(a=1), wait_reason="another receiver has locked [5]")

    assert panel(status, 5, RateMeter())[-1] == "  waiting: another receiver has locked [5]"

    screen, _, err = drain_screen(terminal=False)
    with screen:
        for second, text in enumerate((status.wait_reason, None, status.wait_reason)):
            screen.show(Status(wait_reason=text), progress_of(1, 5), RateMeter(), second)
    assert err.getvalue() == "waiting: another receiver has locked [5]\n"


def test_panel_shows_a_limited_number_of_destinations():
    status = Status(moved=Counter({f"path-{n}": 1 for n in range(100)}))

    assert len(panel(status, 5, RateMeter())) == 1 + MAX_DESTINATIONS


def test_without_a_terminal_a_line_is_printed_every_few_seconds():
    screen, out, err = drain_screen(terminal=False)
    meter, progress = RateMeter(), DrainProgress()
    progress.add_count(0.0, 0, 400)
    with screen:
        for half in range(41):
            moved = Counter(orders=10 * half)
            progress.add(half / 2, moved.total())
            screen.show(Status(moved, {"bills": "is down"}), progress, meter, half / 2)

    assert out.getvalue().splitlines() == [
        "0 moved, 400 remaining, 0/s",
        "100 moved, 300 remaining, 20/s, 0:00:15 to go",
        "200 moved, 200 remaining, 20/s, 0:00:10 to go",
        "300 moved, 100 remaining, 20/s, 0:00:05 to go",
        "400 moved, 0 remaining, 20/s",
    ]
    assert err.getvalue() == "bills: is down\n"


def test_bar_grows_within_a_micro_batch_and_never_shrinks():
    """New messages make the total larger, and a count never makes it smaller."""
    screen, _, _ = drain_screen()
    progress, meter = DrainProgress(), RateMeter()
    totals, shares = [], []
    for second in range(60):
        removed = 100 * second
        if second % 5 == 0:  # a count that lags behind, as messages are completed late
            progress.add_count(second, removed, 10_000 - removed + (50 if second % 2 else 0))
        progress.add(second, removed)
        totals.append(progress.total)
        shares.append(progress.done / progress.total)
        screen.panel(Status(Counter(orders=removed)), progress, meter)
    assert totals == sorted(totals)
    assert shares[1:20] == sorted(shares[1:20])
    assert 0.5 < shares[-1] < 0.6


def test_panel_of_another_backlog_starts_at_zero():
    screen, out, _ = drain_screen()
    progress, meter = progress_of(500, 0), RateMeter()
    status = Status(Counter(orders=500))
    progress.add_count(11.0, 500, 0)
    screen._out.print(screen.panel(status, progress, meter))
    assert "waiting for messages" in out.getvalue()

    progress.add_count(12.0, 500, 200)
    screen._out.print(screen.panel(status, progress, meter))
    assert " 0 moved, 200 remaining" in out.getvalue()


def test_lines_of_another_backlog_continue_the_numbers():
    screen, out, _ = drain_screen(terminal=False)
    progress, meter, status = progress_of(500, 0), RateMeter(), Status(Counter(orders=500))
    with screen:
        progress.add_count(11.0, 500, 0)
        screen.show(status, progress, meter, 11.0)
        progress.add_count(18.0, 500, 200)
        screen.show(status, progress, meter, 18.0)

    first, second = out.getvalue().splitlines()
    assert first.startswith("500 moved, 0 remaining")
    assert second.startswith("500 moved, 200 remaining")


def test_pause_is_shown_instead_of_the_progress():
    assert panel(Status(paused=True), 5, RateMeter())[0].endswith(
        "paused; see: pairbus syphon control"
    )
