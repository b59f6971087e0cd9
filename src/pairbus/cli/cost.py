"""`pairbus cost`: what a pairing costs."""

import json
import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pairbus.cli import cost_report
from pairbus.cli.console import consoles, print_error
from pairbus.cli.tables import natural_width
from pairbus.cost.alternatives import alternatives, changes
from pairbus.cost.forecast import Forecast
from pairbus.cost.forecast import forecast as forecast_cost
from pairbus.cost.plan import Outage, PairingProfile, Traffic
from pairbus.cost.prices import read_prices
from pairbus.cost.summary import PERIODS, summary
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions

WRONG = 2
EXAMPLE = (
    "Example: pairbus cost forecast --backlog-queues 10 --clients 4 --entities 3 --rate 100 "
    "--size 1024 --outage 2h"
)
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.ASCII)
_LEAST, _SMALL = Decimal("0.000001"), Decimal("0.001")

app = typer.Typer(help="What a pairing costs.", no_args_is_help=True)
app.command(epilog=cost_report.EXAMPLE)(cost_report.report)


@app.command(epilog=EXAMPLE)
def forecast(
    backlog_queues: Annotated[int, typer.Option(help="How many backlog queues there are.")] = 10,
    ping_interval: Annotated[
        str, typer.Option(help="How often a path in failover is tried: 60, 90s, 2m.")
    ] = "60s",
    failover_interval: Annotated[
        str, typer.Option(help="How long sending fails before failover.")
    ] = "60s",
    failback: Annotated[str, typer.Option(help="immediate, or after-drain.")] = "immediate",
    clients: Annotated[int, typer.Option(help="Processes that send; each pings.")] = 1,
    syphons: Annotated[int, typer.Option(help="Each polls all backlog queues.")] = 1,
    poll: Annotated[str, typer.Option(help="How long an idle receive waits.")] = "15m",
    drain_rate: Annotated[
        float, typer.Option(help="Messages a second that the syphons move.")
    ] = 1000,
    vain_receives: Annotated[
        int,
        typer.Option(help="Receives of each message while its destination is still down."),
    ] = 0,
    rate: Annotated[float, typer.Option(help="Messages a second, all together.")] = 0,
    size: Annotated[int, typer.Option(help="Bytes of a message, all of it.")] = 1024,
    entities: Annotated[int, typer.Option(help="Queues and topics that are sent to.")] = 1,
    outage: Annotated[str, typer.Option(help="How long: 90s, 15m, 2h, 1d12h.")] = "0",
    share: Annotated[float, typer.Option(help="The part of entities that is down, 0 to 1.")] = 1.0,
    tier: Annotated[str, typer.Option(help="basic, standard or premium.")] = "standard",
    messaging_units: Annotated[
        int, typer.Option(help="Of each namespace; matters with Premium only.")
    ] = 1,
    prices: Annotated[
        Path | None, typer.Option(help="A TOML file with your prices, instead of ours.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Forecast what a pairing costs: idle, in an outage, and beside the alternatives.

    Money is what something adds to the bill of 30 days.

    Exit status: 0 done; 2 a wrong option or file.
    """
    out, err = consoles()
    try:
        found = forecast_cost(
            pairing=PairingProfile(
                options=SendAvailabilityOptions(
                    backlog_queue_count=backlog_queues,
                    ping_primary_interval=_span("ping-interval", ping_interval),
                    failover_interval=_span("failover-interval", failover_interval),
                    failback=cast(Any, failback),
                ),
                clients=clients,
                syphons=syphons,
                poll=_span("poll", poll),
                drain_rate=drain_rate,
                vain_receives=vain_receives,
            ),
            traffic=Traffic(rate=rate, size=size, entities=entities),
            outage=Outage(length=_span("outage", outage), share=share),
            prices=read_prices(prices),
            tier=tier,
            messaging_units=messaging_units,
        )
    except ConfigurationError as exc:
        print_error(err, exc)
        raise typer.Exit(WRONG) from exc
    if as_json:
        typer.echo(json.dumps(summary(found), indent=2, ensure_ascii=False))
    else:
        _show(out, found)


def _span(name: str, text: str) -> timedelta:
    """A length of time as people write it: 90s, 15m, 2h, 1h30m; a number alone is seconds."""
    match = _SPAN.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ConfigurationError(f"--{name}: a time is written 90s, 15m, 2h or 1d12h, not {text!r}")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    try:
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise ConfigurationError(f"--{name}: {text!r} is too long") from None


def _show(out: Console, found: Forecast) -> None:
    prices, course = found.prices, found.course
    out.print(
        f"Prices of {prices.as_of} in {escape(prices.currency)}: {found.tier}, "
        f"{escape(prices.region)} ({escape(prices.name)})\n{escape(prices.source)}"
    )
    money = prices.currency
    month = found.month.total
    out.print(
        f"Normal traffic in 30 days: {month.amount.operations:,} operations, {_money(month.money)}"
    )
    if found.second_namespace:
        out.print(f"The second namespace in 30 days: {_money(found.second_namespace)}")

    idle = _table(out, "Idle: long polls of the syphons", "", "receives", money)
    for name, span in PERIODS.items():
        total = found.idle[span].total
        idle.add_row(name, f"{total.amount.operations:,}", _money(total.money))
    _print(out, idle)

    one = found.per_message
    through = _table(out, "One message through the backlog", "", "charges")
    through.add_row("2 sends, 2 receives", f"{one.units:,}")
    through.add_row("with the 2 completes of peek-lock", f"{one.units_with_completes:,}")
    _print(out, through)

    if course.paths:
        _show_outage(out, found)
    else:
        out.print("\nNo failover: give an --outage that is longer than --failover-interval.")

    changed = _table(
        out, "What other options would change", "", "30 days idle", money, "outage", money
    )
    for change in changes(found):
        changed.add_row(
            change.what,
            f"{change.idle_units:+,}",
            _money(change.idle_money),
            f"{change.outage_units:+,}",
            _money(change.outage_money),
        )
    _print(out, changed)

    ways = _table(
        out,
        "30 days with this, and with the alternatives",
        "",
        "charges",
        "GB",
        money,
        "in an outage",
    )
    for way in alternatives(found):
        ways.add_row(way.name, f"{way.units:,}", _gb(way.bytes), _money(way.money), way.outage)
    ways.columns[-1].justify = "left"
    _print(out, ways)


def _show_outage(out: Console, found: Forecast) -> None:
    course, bill = found.course, found.outage_bill
    out.print(
        f"\nAn outage of {found.outage.length}: {course.paths} of {found.traffic.entities} "
        f"entities in failover for {course.failover}"
    )
    out.print(
        f"{course.through_backlog:,} messages through the backlog; the drain takes "
        f"{_rounded(course.drain)} or more"
    )
    if course.refused:
        out.print(f"{course.refused:,} messages get an error first, before failover")
    outage = _table(
        out, "The outage by part", "", "operations", "charges", "GB", found.prices.currency
    )
    for part, charge in [*bill.parts.items(), ("all", bill.total)]:
        if part == "all":
            outage.add_section()
        amount = charge.amount
        outage.add_row(
            part,
            f"{amount.operations:,}",
            f"{amount.units:,}",
            _gb(amount.bytes),
            _money(charge.money),
        )
    instead = found.instead
    outage.add_row(
        "without an outage",
        f"{instead.amount.operations:,}",
        f"{instead.amount.units:,}",
        _gb(instead.amount.bytes),
        _money(instead.money),
    )
    added = bill.total.amount.units - instead.amount.units
    outage.add_row("so it adds", "", f"{added:+,}", "", _money(found.outage_adds))
    _print(out, outage)


def _print(out: Console, table: Table) -> None:
    # Nothing is cut, not even on a terminal that is too narrow: its lines are broken there.
    out.width = max(out.width, natural_width(out, table))
    out.print(table)


def _table(out: Console, title: str, *columns: str) -> Table:
    """A frame on a terminal, columns of text elsewhere."""
    framed = out.is_terminal
    table = Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if framed else None,
        pad_edge=framed,
        padding=(0, 1) if framed else (0, 2, 0, 0),
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table


def _money(value: Decimal) -> str:
    """Cents, and more digits where it is less than one."""
    if abs(value) >= 1 or value == 0:
        return f"{value:,.2f}"
    if abs(value) < _LEAST:
        return f"< {_LEAST}"
    return f"{value:.4f}" if abs(value) >= _SMALL else f"{value:.6f}"


def _gb(size: int) -> str:
    return f"{size / 1e9:,.3f}"


def _rounded(span: timedelta) -> timedelta:
    return timedelta(seconds=-(-span // timedelta(seconds=1)))
