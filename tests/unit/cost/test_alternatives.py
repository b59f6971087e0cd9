"""Comparisons with other options and with other ways to survive an outage."""

from datetime import timedelta
from decimal import Decimal

from pairbus.cost.alternatives import alternatives, option_changes
from tests.unit.cost.conftest import MakeForecast


def test_effect_of_other_options(make_forecast: MakeForecast) -> None:
    changes = {change.description: change for change in option_changes(make_forecast())}

    assert list(changes) == [
        "20 backlog queues, not 10",
        "pings every 30 s, not 60 s",
        "2 syphons, not 1",
        "failback after-drain",
    ]
    queues, pings, syphons, after_drain = changes.values()
    assert (queues.idle_units, queues.outage_units) == (28_800, 0)
    assert queues.idle_cost == Decimal("0.0144")
    assert (pings.idle_units, pings.outage_units) == (0, 119 * 12)
    assert (syphons.idle_units, syphons.outage_units) == (28_800, 0)
    assert after_drain.idle_units == 0
    # Messages that arrive during the drain are stored, received and completed; peeks are added.
    assert after_drain.outage_units == 3 * (793_334 - 714_000) + 12 * (2 * 32 + 3 * 10)


def test_impossible_changes_are_left_out(make_forecast: MakeForecast) -> None:
    current = make_forecast(ping_primary_interval=timedelta(seconds=1), drain_rate=50)

    assert [change.description for change in option_changes(current)] == [
        "20 backlog queues, not 10",
        "2 syphons, not 1",
    ]


def test_cost_of_the_alternatives(make_forecast: MakeForecast) -> None:
    result = make_forecast()
    nothing, paired, active, geo = alternatives(result)

    assert [alternative.name for alternative in (nothing, paired, active, geo)] == [
        "no protection",
        "pairing",
        "active replication",
        "geo-replication",
    ]
    assert nothing.cost == Decimal("9.72") + result.normal_traffic.total.cost
    assert paired.units == nothing.units + 28_800 + 3 * 714_000 + 1_428
    assert paired.cost == nothing.cost + Decimal("0.0144") + result.outage_extra_cost
    assert active.units == 2 * nothing.units
    # The operations on the copies are billed after those on the originals.
    assert active.cost == nothing.cost + Decimal("0.5") * Decimal("777.6") + (
        Decimal("0.02") * nothing.bytes / 10**9
    )
    sent_bytes = 259_200_000 * 1024
    assert geo.bytes == nothing.bytes + sent_bytes
    assert geo.cost == (
        Decimal("0.928") * 720 * 2
        + Decimal("0.02") * nothing.bytes / 10**9
        + Decimal("0.09") * sent_bytes / 10**9
    )
