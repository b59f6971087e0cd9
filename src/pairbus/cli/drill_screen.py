"""What is to be seen of a drill: sentences as things happen, below them how it is now."""

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
from pairbus.cli.tables import new_table, print_table
from pairbus.drill.reconciliation import Reconciliation
from pairbus.drill.result import MOST, DrillResult
from pairbus.drill.run import DrillSnapshot
from pairbus.usage.operations import Usage

COLOURS = {"healthy": "green", "suspect": "yellow", "failover": "red", "draining": "cyan"}
PLAIN_S = 5.0
"""Without a terminal, how it is is said so often."""


class DrillScreen:
    """Shows a drill while it runs."""

    def __init__(self, out: Console, err: Console) -> None:
        self._out = out
        self._look: Callable[[], DrillSnapshot] | None = None
        self._drain = DrainScreen(out, err)
        self._speed = RateMeter()
        self._said_at = monotonic()
        self._live = Live(
            get_renderable=self._picture, console=out, transient=True, refresh_per_second=4
        )

    def __enter__(self) -> "DrillScreen":
        if self._out.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def watch(self, look: Callable[[], DrillSnapshot]) -> None:
        self._look = look

    def tell(self, what: str) -> None:
        """Something happened."""
        when = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
        path, arrow, state = what.partition(" → ")
        text = escape(what)
        if arrow and state in COLOURS:
            text = f"{escape(path)} → [{COLOURS[state]}]{state}[/]"
        elif "kill" in what or "disabled" in what or "cannot" in what:
            text = f"[bold red]{text}[/]"
        elif not arrow:
            text = f"[bold]{text}[/]"
        if self._out.is_terminal:
            line = Table.grid(padding=(0, 2))
            line.add_row(f"[dim]{when}[/]", text)
            self._out.print(line, soft_wrap=False)
        else:
            self._out.print(f"{when}  {text}")
        if not self._out.is_terminal and self._look and monotonic() - self._said_at > PLAIN_S:
            self._said_at = monotonic()
            for one in _lines(self._look()):
                self._out.print(f"          {one}")

    def _picture(self) -> RenderableType:
        now = self._look() if self._look is not None else None
        if now is None or not now.lines:
            return Text("")
        parts: list[RenderableType] = [board(now)]
        if now.syphon is not None and now.syphon.running:
            self._speed.note(monotonic(), now.syphon.moved)
            parts.append(self._drain.picture(now.syphon, now.left, self._speed))
        return Padding(Group(*parts), (1, 2))


def board(now: DrillSnapshot) -> Table:
    """A line for each path."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("path", "state"):
        made.add_column(name)
    for name in ("sent", "to primary", "to backlog", "errors"):
        made.add_column(name, justify="right")
    for path, line in now.lines.items():
        state = now.states[path].value if path in now.states else "healthy"
        made.add_row(
            escape(path),
            f"[{COLOURS[state]}]{state}[/]",
            f"{line.sent:,}",
            f"{line.sent - line.stored:,}",
            f"{line.stored:,}",
            f"{line.errors:,}",
        )
    made.caption = f"{now.pings} pings so far" if now.pings else None
    return made


def _lines(now: DrillSnapshot) -> list[str]:
    return [
        f"{path}: {now.states[path].value}, {line.sent:,} sent, {line.stored:,} of them to the "
        f"backlog, {line.errors:,} errors"
        for path, line in now.lines.items()
        if path in now.states
    ]


def show_result(out: Console, result: DrillResult) -> None:
    """The reckoning, what it cost, and a verdict."""
    reckoning = result.reckoning
    _show_reckoning(out, reckoning)
    if reckoning.not_acknowledged:
        out.print(
            f"{len(reckoning.not_acknowledged):,} more are there, whose senders were told of an "
            "error or of nothing."
        )
    for key in reckoning.lost[:MOST]:
        out.print(f"[red]lost: {escape(key.path)} {escape(key.id)}[/]")
    for reason in sorted(set(result.reasons.values())):
        out.print(f"[yellow]dead-lettered: {escape(reason)}[/]")
    _show_times(out, result)
    _show_cost(out, result)
    out.print()
    if result.passed:
        out.print("[bold green]Nothing was lost.[/]")
    elif reckoning.complete:
        out.print(f"[bold yellow]Nothing was lost, but: {escape(str(result.problem))}[/]")
    else:
        out.print(f"[bold red]{len(reckoning.lost):,} messages are lost.[/]")


def _show_reckoning(out: Console, whole: Reconciliation) -> None:
    out.print("\n[bold]Reconciled by message id[/]")
    numbers = (
        *("sent", "delivered", "in backlog", "dead-lettered", "lost", "duplicated"),
        "out of order",
    )
    made = new_table(out, ("", *numbers), numbers)

    def row(name: str, one: Reconciliation, style: str = "") -> None:
        lost, twice = len(one.lost), sum(one.duplicated.values())
        late = len(one.out_of_order)
        made.add_row(
            name,
            f"{one.sent:,}",
            f"{one.delivered:,}",
            f"{one.in_backlog:,}",
            f"{one.dead_lettered:,}",
            f"[bold red]{lost:,}[/]" if lost else "[bold green]0[/]",
            f"[yellow]{twice:,}[/]" if twice else "0",
            f"[yellow]{late:,}[/]" if late else "0",
            style=style,
        )

    for path, one in whole.by_path.items():
        row(escape(path), one)
    made.add_section()
    row("all", whole, "bold")
    print_table(out, made)


def _show_times(out: Console, result: DrillResult) -> None:
    found = result.moments
    steps = (
        ("down", "back", "the primary was down"),
        ("down", "failover", "until every path was in failover"),
        ("back", "pinged", "from its return until a ping got through for every path"),
        ("pinged", "drain", "until Spark had started"),
        ("drain", "drained", "until the backlog was empty, and every path healthy"),
    )
    out.print("\n[bold]What happened[/]")
    for start, end, what in steps:
        if start in found and end in found:
            lasted = (found[end] - found[start]).total_seconds()
            out.print(f"{lasted:>7.1f} s  {what}")
    out.print(
        f"{result.through_backlog:>7,}    messages went through the backlog\n"
        f"{result.errors:>7,}    calls got an error, and were made again\n"
        f"{result.pings:>7,}    pings"
    )


def _show_cost(out: Console, result: DrillResult) -> None:
    cost = result.cost
    out.print("\n[bold]What it cost, by the ledger, beside the forecast for such an outage[/]")
    numbers = ("forecast", "operations", "unanswered", "charges", "MB")
    made = new_table(out, ("", *numbers), numbers)

    def row(name: str, foretold: Usage, done: Usage, vain: Usage, style: str = "") -> None:
        made.add_row(
            name,
            f"{foretold.operations:,}",
            f"{done.operations:,}",
            f"{vain.operations:,}",
            f"{done.units:,}",
            f"{done.bytes / 1e6:,.1f}",
            style=style,
        )

    for part in cost.ledger:
        row(part.value, cost.forecast[part], cost.ledger[part], cost.unanswered[part])
    made.add_section()
    vain = sum(cost.unanswered.values(), Usage())
    row("all", cost.forecast_total, cost.total, vain, "bold")
    print_table(out, made)
    out.print(
        "Pings to a namespace that is down reach nobody and cost nothing; a forecast has them."
    )
    out.print(
        f"{cost.money:.4f} {escape(cost.prices.currency)} at list prices of {cost.prices.as_of}, "
        f"beyond what a month includes; the forecast said {cost.forecast_money:.4f}."
    )
