"""`pairbus cost`, and `pairbus cost forecast`: the cost of a pairing before it runs."""

from datetime import timedelta
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape

from pairbus.cli import cost_report
from pairbus.cli.console import consoles, print_error, print_json
from pairbus.cli.cost_report import PricesFile, TierName
from pairbus.cli.cost_tables import print_titled_table, titled_table
from pairbus.cli.durations import parse_duration
from pairbus.cli.option_errors import with_option
from pairbus.cli.pairing_options import AsJson
from pairbus.cost.alternatives import alternatives, option_changes
from pairbus.cost.forecast import CostItem, Forecast
from pairbus.cost.forecast import forecast as forecast_cost
from pairbus.cost.forecast_json import PERIODS, forecast_to_json
from pairbus.cost.inputs import Outage, PairingProfile, Traffic
from pairbus.cost.money import format_money
from pairbus.cost.prices import read_prices
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions

USAGE_ERROR = 2
EXAMPLE = (
    "Example: pairbus cost forecast --backlog-queues 10 --clients 4 --entities 3 --rate 100 "
    "--size 1024 --outage 2h"
)

app = typer.Typer(help="Forecast and report the cost of a pairing.", no_args_is_help=True)
app.command(epilog=cost_report.EXAMPLE)(cost_report.report)


@app.command(epilog=EXAMPLE)
def forecast(
    backlog_queues: Annotated[int, typer.Option(help="Number of backlog queues.")] = 10,
    ping_interval: Annotated[
        str, typer.Option(help="Time between pings of a path in failover: 60, 90s, 2m.")
    ] = "60s",
    failover_interval: Annotated[
        str, typer.Option(help="Time for which sends must fail before a path fails over.")
    ] = "60s",
    failback: Annotated[
        str,
        typer.Option(
            help="immediate: send to the primary as soon as it answers. "
            "after-drain: wait until the backlog is empty."
        ),
    ] = "immediate",
    clients: Annotated[
        int, typer.Option(help="Number of sending processes; each sends pings.")
    ] = 1,
    syphons: Annotated[
        int, typer.Option(help="Number of syphons; each polls all backlog queues.")
    ] = 1,
    poll: Annotated[
        str, typer.Option(help="Wait time of a receive on an empty backlog queue.")
    ] = "15m",
    drain_rate: Annotated[
        float, typer.Option(help="Messages per second that all syphons together drain.")
    ] = 1000,
    redeliveries: Annotated[
        int,
        typer.Option(
            help="How often the syphon receives a message that it cannot deliver yet "
            "(each receive is billed)."
        ),
    ] = 0,
    rate: Annotated[
        float, typer.Option(help="Messages per second that all clients together send.")
    ] = 0,
    size: Annotated[
        int, typer.Option(help="Size of a message in bytes, with headers and properties.")
    ] = 1024,
    entities: Annotated[
        int, typer.Option(help="Number of queues and topics that the clients send to.")
    ] = 1,
    outage: Annotated[str, typer.Option(help="Length of the outage: 90s, 15m, 2h, 1d12h.")] = "0",
    share: Annotated[
        float, typer.Option(help="Fraction of the entities that the outage affects, 0 to 1.")
    ] = 1.0,
    tier: TierName = "standard",
    messaging_units: Annotated[
        int, typer.Option(help="Messaging units of each namespace (Premium only).")
    ] = 1,
    prices: PricesFile = None,
    as_json: AsJson = False,
) -> None:
    """Forecast the cost of a pairing, and compare it with the alternatives.

    The forecast covers an idle pairing and an outage. Each cost is the amount that is added to the
    bill of 30 days.

    Exit status: 0 success; 2 invalid option or file.
    """
    out, err = consoles()
    try:
        result = forecast_cost(
            pairing=PairingProfile(
                options=SendAvailabilityOptions(
                    backlog_queue_count=backlog_queues,
                    ping_primary_interval=parse_duration("ping-interval", ping_interval),
                    failover_interval=parse_duration("failover-interval", failover_interval),
                    failback=cast(Any, failback),
                ),
                clients=clients,
                syphons=syphons,
                poll=parse_duration("poll", poll),
                drain_rate=drain_rate,
                redeliveries=redeliveries,
            ),
            traffic=Traffic(rate=rate, size=size, entities=entities),
            outage=Outage(length=parse_duration("outage", outage), share=share),
            prices=read_prices(prices),
            tier=tier,
            messaging_units=messaging_units,
        )
    except ConfigurationError as exc:
        print_error(err, with_option(exc))
        raise typer.Exit(USAGE_ERROR) from exc
    if as_json:
        print_json(forecast_to_json(result))
    else:
        _print_forecast(out, result)


def _print_forecast(out: Console, result: Forecast) -> None:
    prices, traffic = result.prices, result.normal_traffic.total
    out.print(
        f"Prices of {prices.as_of} in {escape(prices.currency)}: {result.tier}, "
        f"{escape(prices.region)} ({escape(prices.name)}), from\n{escape(prices.source)}"
    )
    out.print(
        f"Normal traffic in 30 days: {traffic.usage.operations:,} operations, "
        f"{format_money(traffic.cost)} {escape(prices.currency)}"
    )
    if result.secondary_base_cost:
        out.print(
            "Base price of the secondary in 30 days: "
            f"{format_money(result.secondary_base_cost)} {escape(prices.currency)}"
        )
    _print_idle(out, result)
    _print_message(out, result)
    if result.timeline.paths:
        _print_outage(out, result)
    else:
        out.print("\nNo failover. Set --outage to more than --failover-interval to see its cost.")
    _print_option_changes(out, result)
    _print_alternatives(out, result)


def _print_idle(out: Console, result: Forecast) -> None:
    columns = ("period", "receives", result.prices.currency)
    table = titled_table(out, "Idle: long polls of the syphons", columns)
    for name, period in PERIODS.items():
        total = result.idle[period].total
        table.add_row(name, f"{total.usage.operations:,}", format_money(total.cost))
    print_titled_table(out, table)


def _print_message(out: Console, result: Forecast) -> None:
    message = result.per_message
    table = titled_table(out, "One message through the backlog", ("operations", "units"))
    table.add_row("2 sends, 2 receives", f"{message.units:,}")
    table.add_row("with the 2 completes of peek-lock", f"{message.units_with_completes:,}")
    print_titled_table(out, table)


def _print_outage(out: Console, result: Forecast) -> None:
    timeline, bill, without_outage = result.timeline, result.outage_bill, result.without_outage
    out.print(
        f"\nOutage of {result.outage.length}: {timeline.paths} of {result.traffic.entities} "
        f"entities are in failover for {timeline.failover}"
    )
    out.print(
        f"{timeline.through_backlog:,} messages go through the backlog; the drain takes at least "
        f"{_round_up(timeline.drain)}"
    )
    if timeline.failed_sends:
        out.print(f"{timeline.failed_sends:,} sends fail before failover")
    columns = ("purpose", "operations", "units", "GB", result.prices.currency)
    table = titled_table(out, "Outage by purpose", columns)
    for purpose, item in bill.by_purpose.items():
        table.add_row(*_item_cells(purpose, item))
    table.add_section()
    table.add_row(*_item_cells("total", bill.total))
    table.add_row(*_item_cells("without an outage", without_outage))
    extra_units = bill.total.usage.units - without_outage.usage.units
    table.add_row(
        "added by the outage", "", f"{extra_units:+,}", "", format_money(result.outage_extra_cost)
    )
    print_titled_table(out, table)


def _item_cells(name: str, item: CostItem) -> tuple[str, ...]:
    usage = item.usage
    return (
        name,
        f"{usage.operations:,}",
        f"{usage.units:,}",
        _format_gb(usage.bytes),
        format_money(item.cost),
    )


def _print_option_changes(out: Console, result: Forecast) -> None:
    currency = result.prices.currency
    columns = ("change", "idle units", currency, "outage units", currency)
    table = titled_table(out, "Effect of other options in 30 days", columns)
    for change in option_changes(result):
        table.add_row(
            change.description,
            f"{change.idle_units:+,}",
            format_money(change.idle_cost),
            f"{change.outage_units:+,}",
            format_money(change.outage_cost),
        )
    print_titled_table(out, table)


def _print_alternatives(out: Console, result: Forecast) -> None:
    columns = ("alternative", "units", "GB", result.prices.currency, "in an outage")
    table = titled_table(out, "30 days with the outage, by alternative", columns)
    table.columns[-1].justify = "left"
    for alternative in alternatives(result):
        table.add_row(
            alternative.name,
            f"{alternative.units:,}",
            _format_gb(alternative.bytes),
            format_money(alternative.cost),
            alternative.in_outage,
        )
    print_titled_table(out, table)


def _format_gb(size: int) -> str:
    return f"{size / 1e9:,.3f}"


def _round_up(duration: timedelta) -> timedelta:
    """Round up to seconds."""
    return timedelta(seconds=-(-duration // timedelta(seconds=1)))
