"""The progress of a drain: a bar for the whole, and a line for each destination."""

from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pairbus.cli.formatting import duration

if TYPE_CHECKING:
    from pairbus.syphon.progress import DrainProgress

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
        self._wait_reasons: set[str] = set()
        """The reasons that were printed. They may alternate, so each is printed once."""

    def __enter__(self) -> "DrainScreen":
        if self._out.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def show(self, status: Any, progress: "DrainProgress", meter: RateMeter, now: float) -> None:
        """Show a status and the progress of the drain."""
        if self._out.is_terminal:
            self._live.update(self.panel(status, progress, meter), refresh=True)
        else:
            self._print_lines(status, progress, now)

    def panel(self, status: Any, progress: "DrainProgress", meter: RateMeter) -> RenderableType:
        """Return the progress for a terminal."""
        top = Table.grid(padding=(0, 1))
        remaining = progress.remaining
        empty = remaining == 0 and progress.total == 0
        if status.unreadable is not None:
            top.add_row(self._spinner, Text("the backlog cannot be read", "yellow"))
        elif status.paused:
            top.add_row(self._spinner, Text("paused; see: pairbus syphon control", "yellow"))
        elif empty or (remaining is None and not status.moved and not status.errors):
            top.add_row(self._spinner, "waiting for messages")
        else:
            total = None if remaining is None else progress.total
            bar = ProgressBar(total=total, completed=progress.done, width=40)
            top.add_row(self._spinner, bar, _progress(progress.done, progress))
        lines = Table.grid(padding=(0, 2))
        for path in sorted({*status.moved, *status.errors})[:MAX_DESTINATIONS]:
            lines.add_row(
                f"  {escape(path)}",
                f"{status.moved[path]:,} moved",
                f"{meter.rate(path):,.0f}/s",
                Text(status.errors.get(path, ""), "yellow", no_wrap=True, overflow="ellipsis"),
            )
        if status.wait_reason is None:
            return Group(top, lines)
        waiting = Text(f"  waiting: {status.wait_reason}", "yellow")
        return Group(top, lines, waiting)

    def _print_lines(self, status: Any, progress: "DrainProgress", now: float) -> None:
        errors = dict(status.errors)
        if status.paused:
            errors["paused"] = "see: pairbus syphon control"
        if status.unreadable is not None:
            errors["the backlog cannot be read"] = status.unreadable
        for subject in sorted(errors.keys() - self._errors.keys()):
            self._err.print(escape(f"{subject}: {errors[subject]}"))
        self._errors = errors
        waiting = status.wait_reason
        if waiting is not None and waiting not in self._wait_reasons:
            self._wait_reasons.add(waiting)
            self._err.print(escape(f"waiting: {waiting}"))
        totals = status.moved.total(), progress.remaining
        if now - self._printed_at < WINDOW_S or totals == self._printed or not any(totals):
            return
        self._printed, self._printed_at = totals, now
        # Lines stay on the screen, so their numbers must not start again with another backlog.
        self._out.print(_progress(status.moved.total(), progress))


def _progress(moved: int, progress: "DrainProgress") -> str:
    parts = [f"{moved:,} moved"]
    if progress.remaining is not None:
        parts.append(f"{progress.remaining:,} remaining")
    parts.append(f"{progress.rate:,.0f}/s")
    if progress.remaining and progress.seconds_to_go is not None:
        parts.append(f"{duration(progress.seconds_to_go)} to go")
    return ", ".join(parts)
