"""The progress of a drain: a bar for the whole, and a line for each destination."""

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

WINDOW_S = 5.0
"""The time over which a rate is measured, and the interval of lines without a terminal."""
MAX_DESTINATIONS = 15
"""The maximum number of destinations on the screen."""


class RateMeter:
    """Measures messages a second over the last few seconds. The caller passes the time."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counter[str]]] = deque()

    def add(self, now: float, moved: Mapping[str, int]) -> None:
        """Add the number of messages moved so far, by destination."""
        self._samples.append((now, Counter(moved)))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()

    def rate(self, destination: str | None = None) -> float:
        """Return the rate of a destination, or of all destinations together."""
        if len(self._samples) < 2:
            return 0.0
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        moved = last - first
        count = moved.total() if destination is None else moved[destination]
        return count / (end - start) if end > start else 0.0


def seconds_to_go(remaining: int | None, rate: float) -> float | None:
    """Return the time until the drain is complete, or None if it is unknown."""
    return None if remaining is None or rate <= 0 else remaining / rate


class DrainScreen:
    """Shows the progress of a drain: live on a terminal, as lines elsewhere."""

    def __init__(self, out: Console, err: Console) -> None:
        self._out = out
        self._err = err
        self._live = Live(console=out, transient=True, auto_refresh=False)
        self._spinner = Spinner("dots")
        self._printed: tuple[int, int | None] = (0, None)
        self._printed_at = -WINDOW_S
        self._errors: dict[str, str] = {}
        self._moved_before = 0

    def __enter__(self) -> "DrainScreen":
        if self._out.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def show(self, status: Any, remaining: int | None, meter: RateMeter, now: float) -> None:
        """Show a status. `remaining` is the number of messages in the backlog, if it is known."""
        if remaining == 0:
            # Messages that arrive later are another backlog, and its bar starts at zero.
            self._moved_before = status.moved.total()
        if self._out.is_terminal:
            self._live.update(self.panel(status, remaining, meter), refresh=True)
        else:
            self._print_lines(status, remaining, meter, now)

    def panel(self, status: Any, remaining: int | None, meter: RateMeter) -> RenderableType:
        """Return the progress for a terminal."""
        top = Table.grid(padding=(0, 1))
        moved = status.moved.total() - self._moved_before
        empty = remaining == 0
        if status.unreadable is not None:
            top.add_row(self._spinner, Text("the backlog cannot be read", "yellow"))
        elif status.paused:
            top.add_row(self._spinner, Text("paused; see: pairbus syphon control", "yellow"))
        elif empty or (remaining is None and not status.moved and not status.errors):
            top.add_row(self._spinner, "waiting for messages")
        else:
            total = None if remaining is None else moved + remaining
            bar = ProgressBar(total=total, completed=moved, width=40)
            top.add_row(self._spinner, bar, _progress(moved, remaining, meter.rate()))
        lines = Table.grid(padding=(0, 2))
        for path in sorted({*status.moved, *status.errors})[:MAX_DESTINATIONS]:
            lines.add_row(
                f"  {escape(path)}",
                f"{status.moved[path]:,} moved",
                f"{meter.rate(path):,.0f}/s",
                Text(status.errors.get(path, ""), "yellow", no_wrap=True, overflow="ellipsis"),
            )
        return Group(top, lines)

    def _print_lines(
        self, status: Any, remaining: int | None, meter: RateMeter, now: float
    ) -> None:
        errors = dict(status.errors)
        if status.paused:
            errors["paused"] = "see: pairbus syphon control"
        if status.unreadable is not None:
            errors["the backlog cannot be read"] = status.unreadable
        for subject in sorted(errors.keys() - self._errors.keys()):
            self._err.print(escape(f"{subject}: {errors[subject]}"))
        self._errors = errors
        progress = status.moved.total(), remaining
        if now - self._printed_at < WINDOW_S or progress == self._printed or not any(progress):
            return
        self._printed, self._printed_at = progress, now
        self._out.print(_progress(status.moved.total(), remaining, meter.rate()))


def _progress(moved: int, remaining: int | None, rate: float) -> str:
    parts = [f"{moved:,} moved"]
    if remaining is not None:
        parts.append(f"{remaining:,} remaining")
    parts.append(f"{rate:,.0f}/s")
    seconds = seconds_to_go(remaining, rate)
    if seconds is not None and remaining:
        minutes, rest = divmod(round(seconds), 60)
        parts.append(f"{minutes // 60}:{minutes % 60:02}:{rest:02} to go")
    return ", ".join(parts)
