"""The report at the end of a drill: reconciliation, times, cost and verdict."""

from rich.console import Console
from rich.markup import escape

from pairbus.cli.tables import new_table, print_table
from pairbus.drill.milestones import Milestone
from pairbus.drill.reconciliation import Reconciliation
from pairbus.drill.result import MAX_LOST_IDS, DrillResult
from pairbus.usage.operations import Usage

_STAGES = (
    (Milestone.OUTAGE_STARTED, Milestone.OUTAGE_ENDED, "length of the outage"),
    (Milestone.OUTAGE_STARTED, Milestone.FAILED_OVER, "until every path was in failover"),
    (
        *(Milestone.OUTAGE_ENDED, Milestone.PING_SUCCEEDED),
        "from the end of the outage until a ping of every path succeeded",
    ),
    (Milestone.PING_SUCCEEDED, Milestone.DRAIN_STARTED, "until the syphon was running"),
    (
        *(Milestone.DRAIN_STARTED, Milestone.DRAINED),
        "until the backlog was empty and every path healthy",
    ),
)


def print_result(out: Console, result: DrillResult, *, console_operations: int = 0) -> None:
    """Print the report. `console_operations` are those of a console, which the ledger of the drill
    does not contain."""
    reconciliation = result.reconciliation
    _print_reconciliation(out, reconciliation)
    if reconciliation.not_acknowledged:
        out.print(
            f"{len(reconciliation.not_acknowledged):,} more messages arrived although their send "
            "was not acknowledged."
        )
    for key in reconciliation.lost[:MAX_LOST_IDS]:
        out.print(f"[red]lost: {escape(key.path)} {escape(key.id)}[/]")
    for reason in sorted(set(result.dead_letter_reasons.values())):
        out.print(f"[yellow]dead-lettered: {escape(reason)}[/]")
    _print_times(out, result)
    _print_cost(out, result)
    if console_operations:
        out.print(
            f"The console needed {console_operations:,} more operations, which this cost does not "
            "include."
        )
    out.print()
    if result.passed:
        out.print(f"[bold green]PASSED: none of {reconciliation.sent:,} messages was lost.[/]")
    elif reconciliation.complete:
        out.print(
            f"[bold yellow]No message was lost, but the drill was not completed: "
            f"{escape(str(result.problem))}[/]"
        )
    else:
        out.print(f"[bold red]FAILED: {len(reconciliation.lost):,} messages were lost.[/]")


def _print_reconciliation(out: Console, reconciliation: Reconciliation) -> None:
    out.print("\n[bold]Reconciliation by message id[/]")
    split = "\n" if out.is_terminal else " "  # with two lines, all columns fit into 80 characters
    numbers = (
        *("sent", "delivered", f"in{split}backlog", f"dead-{split.strip(' ')}lettered", "lost"),
        *("duplicated", f"out of{split}order"),
    )
    table = new_table(out, ("path", *numbers), numbers)

    def add(name: str, part: Reconciliation, style: str = "") -> None:
        lost, duplicated = len(part.lost), sum(part.duplicated.values())
        reordered = len(part.out_of_order)
        table.add_row(
            name,
            f"{part.sent:,}",
            f"{part.delivered:,}",
            f"{part.in_backlog:,}",
            f"{part.dead_lettered:,}",
            f"[bold red]{lost:,}[/]" if lost else "[bold green]0[/]",
            f"[yellow]{duplicated:,}[/]" if duplicated else "0",
            f"[yellow]{reordered:,}[/]" if reordered else "0",
            style=style,
        )

    for path, part in reconciliation.by_path.items():
        add(escape(path), part)
    table.add_section()
    add("total", reconciliation, "bold")
    print_table(out, table)


def _print_times(out: Console, result: DrillResult) -> None:
    times = result.times
    out.print("\n[bold]Times and counts[/]")
    for start, end, description in _STAGES:
        if start in times and end in times:
            seconds = (times[end] - times[start]).total_seconds()
            out.print(f"{seconds:>7.1f} s  {description}")
    out.print(
        f"{result.through_backlog:>7,}    messages sent to the backlog\n"
        f"{result.errors:>7,}    calls that failed and were repeated\n"
        f"{result.pings:>7,}    pings"
    )


def _print_cost(out: Console, result: DrillResult) -> None:
    cost = result.cost
    out.print("\n[bold]Cost by the ledger, compared with the forecast for such an outage[/]")
    numbers = ("forecast", "operations", "unanswered", "units", "MB")
    table = new_table(out, ("purpose", *numbers), numbers)

    def add(name: str, forecast: Usage, ledger: Usage, unanswered: Usage, style: str = "") -> None:
        table.add_row(
            name,
            f"{forecast.operations:,}",
            f"{ledger.operations:,}",
            f"{unanswered.operations:,}",
            f"{ledger.units:,}",
            f"{ledger.bytes / 1e6:,.1f}",
            style=style,
        )

    for purpose, usage in cost.ledger.items():
        add(purpose.value, cost.forecast[purpose], usage, cost.unanswered[purpose])
    table.add_section()
    unanswered = sum(cost.unanswered.values(), Usage())
    add("total", cost.forecast_total, cost.total, unanswered, "bold")
    print_table(out, table)
    out.print(
        "The forecast counts every ping. A namespace that is down bills none, so the real number "
        "is lower."
    )
    currency = escape(cost.prices.currency)
    out.print(
        f"Cost: {cost.money:.4f} {currency} (forecast: {cost.forecast_money:.4f} {currency}), at "
        f"list prices of {cost.prices.as_of} and the rate charged after the monthly included "
        "operations are used up."
    )
