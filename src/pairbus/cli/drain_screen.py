"""What is to be seen of a drain: a bar for the whole, and a line for each destination."""

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
"""A rate is of so many seconds."""
LINES = 15
"""Destinations that are shown at most."""


class RateMeter:
    """Messages a second, of the last few seconds. Whoever calls says what time it is."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Counter[str]]] = deque()

    def note(self, now: float, moved: Mapping[str, int]) -> None:
        self._seen.append((now, Counter(moved)))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW_S:
            self._seen.popleft()

    def of(self, path: str | None = None) -> float:
        """For one destination, or for all."""
        if len(self._seen) < 2:
            return 0.0
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        gone = last - first
        count = gone.total() if path is None else gone[path]
        return count / (ended - began) if ended > began else 0.0


def seconds_to_go(left: int | None, rate: float) -> float | None:
    """Seconds. None: nobody knows."""
    return None if left is None or rate <= 0 else left / rate


class DrainScreen:
    """Shows a drain: in a terminal as a picture that changes, else as lines."""

    def __init__(self, out: Console, err: Console) -> None:
        self._out = out
        self._err = err
        self._live = Live(console=out, transient=True, auto_refresh=False)
        self._spinner = Spinner("dots")
        self._told: tuple[int, int | None] = (0, None)
        self._told_at = -WINDOW_S
        self._complaints: dict[str, str] = {}
        self._moved_before = 0

    def __enter__(self) -> "DrainScreen":
        if self._out.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def show(self, status: Any, left: int | None, speed: RateMeter, now: float) -> None:
        """Show how it is. `left` is what the backlog queues hold, if that is known."""
        if left == 0:
            # What comes later is another backlog, with a bar of its own.
            self._moved_before = status.moved.total()
        if self._out.is_terminal:
            self._live.update(self.picture(status, left, speed), refresh=True)
        else:
            self._tell(status, left, speed, now)

    def picture(self, status: Any, left: int | None, speed: RateMeter) -> RenderableType:
        """One overall bar and a line for each destination."""
        top = Table.grid(padding=(0, 1))
        moved = status.moved.total() - self._moved_before
        waiting = left is None or left > 0
        if status.unreadable is not None:
            top.add_row(self._spinner, Text("the backlog cannot be read", "yellow"))
        elif not waiting or (left is None and not status.moved and not status.errors):
            top.add_row(self._spinner, "waiting for messages")
        else:
            bar = ProgressBar(
                total=None if left is None else moved + left, completed=moved, width=40
            )
            top.add_row(self._spinner, bar, _so_far(moved, left, speed.of()))
        lines = Table.grid(padding=(0, 2))
        for path in sorted({*status.moved, *status.errors})[:LINES]:
            lines.add_row(
                f"  {escape(path)}",
                f"{status.moved[path]:,} moved",
                f"{speed.of(path):,.0f}/s",
                Text(status.errors.get(path, ""), "yellow", no_wrap=True, overflow="ellipsis"),
            )
        return Group(top, lines)

    def _tell(self, status: Any, left: int | None, speed: RateMeter, now: float) -> None:
        complaints = dict(status.errors)
        if status.unreadable is not None:
            complaints["the backlog cannot be read"] = status.unreadable
        for what in sorted(complaints.keys() - self._complaints.keys()):
            self._err.print(escape(f"{what}: {complaints[what]}"))
        self._complaints = complaints
        news = status.moved.total(), left
        if now - self._told_at < WINDOW_S or news == self._told or not any(news):
            return
        self._told, self._told_at = news, now
        self._out.print(_so_far(status.moved.total(), left, speed.of()))


def _so_far(moved: int, left: int | None, rate: float) -> str:
    parts = [f"{moved:,} moved"]
    if left is not None:
        parts.append(f"{left:,} left")
    parts.append(f"{rate:,.0f}/s")
    seconds = seconds_to_go(left, rate)
    if seconds is not None and left:
        minutes, rest = divmod(round(seconds), 60)
        parts.append(f"{minutes // 60}:{minutes % 60:02}:{rest:02} to go")
    return ", ".join(parts)
