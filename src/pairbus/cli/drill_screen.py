"""The screen of a running drill: its events, and below them its state."""

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pairbus.cli.drain_screen import DrainScreen, RateMeter
from pairbus.drill.run import DrillSnapshot

COLOURS = {"healthy": "green", "suspect": "yellow", "failover": "red", "draining": "cyan"}
PLAIN_INTERVAL_S = 5.0
"""Without a terminal, the state is printed at most once in this time."""


class DrillScreen:
    """Shows a drill while it runs."""

    def __init__(self, out: Console, err: Console) -> None:
        self._out = out
        self._snapshot: Callable[[], DrillSnapshot] | None = None
        self._drain = DrainScreen(out, err)
        self._meter = RateMeter()
        self._printed_at = monotonic()
        self._live = Live(
            get_renderable=self._panel, console=out, transient=True, refresh_per_second=4
        )

    def __enter__(self) -> "DrillScreen":
        if self._out.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the state from the terminal. Idempotent."""
        self._live.stop()

    def show(self, snapshot: Callable[[], DrillSnapshot]) -> None:
        """Show the state of a drill from now on."""
        self._snapshot = snapshot

    def report(self, event: str) -> None:
        """Print an event with its time. Lines after the first one are links: they are not wrapped,
        so that a terminal can open them."""
        time = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
        event, *links = event.split("\n")
        text = _coloured(event)
        if self._out.is_terminal:
            line = Table.grid(padding=(0, 2))
            line.add_row(f"[dim]{time}[/]", text)
            self._out.print(line, soft_wrap=False)
        else:
            self._out.print(f"{time}  {text}")
        for link in links:
            self._out.print(link, markup=False)
        if not self._out.is_terminal:
            self._print_state_if_due()

    def _print_state_if_due(self) -> None:
        if self._snapshot and monotonic() - self._printed_at > PLAIN_INTERVAL_S:
            self._printed_at = monotonic()
            for state in _state_lines(self._snapshot()):
                self._out.print(f"          {escape(state)}")

    def _panel(self) -> RenderableType:
        snapshot = self._snapshot() if self._snapshot is not None else None
        if snapshot is None or not snapshot.counts:
            return Text("")
        parts: list[RenderableType] = [state_table(snapshot)]
        syphon, progress = snapshot.syphon, snapshot.progress
        if syphon is not None and syphon.running and progress is not None:
            self._meter.add(monotonic(), syphon.moved)
            parts.append(self._drain.panel(syphon, progress, self._meter))
        return Padding(Group(*parts), (1, 2))


def _coloured(event: str) -> str:
    path, arrow, state = event.rpartition(" → ")
    if arrow and state in COLOURS:
        return f"{escape(path)} → [{COLOURS[state]}]{state}[/]"
    if event.startswith("OUTAGE") or "cannot" in event or "Could not" in event:
        return f"[bold red]{escape(event)}[/]"
    return f"[bold]{escape(event)}[/]"


def state_table(snapshot: DrillSnapshot) -> Table:
    """Return a table with a row for each path."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("path", "state"):
        table.add_column(name)
    for name in ("sent", "to primary", "to backlog", "errors"):
        table.add_column(name, justify="right")
    for path, counts in snapshot.counts.items():
        state = snapshot.states[path].value if path in snapshot.states else "healthy"
        table.add_row(
            escape(path),
            f"[{COLOURS[state]}]{state}[/]",
            f"{counts.sent:,}",
            f"{counts.sent - counts.to_backlog:,}",
            f"{counts.to_backlog:,}",
            f"{counts.errors:,}",
        )
    table.caption = f"{snapshot.pings} pings so far" if snapshot.pings else None
    return table


def _state_lines(snapshot: DrillSnapshot) -> list[str]:
    return [
        f"{path}: {snapshot.states[path].value}, {counts.sent:,} sent, {counts.to_backlog:,} of "
        f"them to the backlog, {counts.errors:,} errors"
        for path, counts in snapshot.counts.items()
        if path in snapshot.states
    ]
