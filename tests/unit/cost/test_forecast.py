"""The forecast: exact known numbers, and properties of every forecast."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cost.counts import CostKey, MessageGroup, TrafficCounts, calculate_usage
from pairbus.cost.forecast import DAY, HOUR, MONTH, CostItem, forecast
from pairbus.cost.forecast_json import forecast_to_json
from pairbus.cost.inputs import Outage, Traffic
from pairbus.cost.money import exact_money, format_money
from pairbus.cost.prices import parse_prices, read_prices
from pairbus.errors import ConfigurationError
from pairbus.options import FailureKind
from pairbus.pairing import health
from pairbus.usage.operations import NamespaceRole, OperationKind, Purpose, Usage
from tests.unit.cost.conftest import MakeForecast, MakePairing
from tests.unit.cost.price_list import PRICE_LIST

PRICES = read_prices()
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)

# Idle.


@pytest.mark.rule("C3", "Y6")
def test_ten_idle_backlog_queues_cost_40_receives_an_hour_960_a_day_28800_in_30_days() -> None:
    idle = forecast().idle

    assert {period: bill.total.usage for period, bill in idle.items()} == {
        HOUR: Usage(40, 40, 0),
        DAY: Usage(960, 960, 0),
        MONTH: Usage(28_800, 28_800, 0),
    }
    assert list(idle[MONTH].by_purpose) == [Purpose.IDLE]


@pytest.mark.rule("C3")
@pytest.mark.parametrize(
    ("options", "receives"),
    [
        ({"backlog_queue_count": 1}, 4),
        ({"backlog_queue_count": 7, "syphons": 3}, 84),
        ({"syphons": 0}, 0),
        ({"poll": timedelta(minutes=1)}, 600),
        ({"poll": timedelta(minutes=7)}, 80),
        ({"clients": 1000}, 40),
    ],
)
def test_idle_receives_in_an_hour(
    make_pairing: MakePairing, options: dict[str, Any], receives: int
) -> None:
    idle = forecast(pairing=make_pairing(**options)).idle

    assert idle[HOUR].total.usage.operations == receives


def test_idle_polls_are_free_within_the_included_operations_only() -> None:
    quiet, busy = forecast(), forecast(traffic=Traffic(rate=10))

    assert quiet.idle[MONTH].total.cost == 0
    assert busy.idle[MONTH].total.cost == Decimal("0.8") * 28_800 / 10**6


# One message.


@pytest.mark.rule("C2", "C3")
@pytest.mark.parametrize(
    ("size", "units", "units_with_completes"),
    [(0, 4, 6), (1024, 4, 6), (64 * 1024, 6, 8), (64 * 1024 + 1, 8, 10), (200 * 1024, 16, 18)],
)
def test_units_of_a_message_through_the_backlog(
    size: int, units: int, units_with_completes: int
) -> None:
    """With 64 KB, a message has two units in the backlog due to its aliases, and one elsewhere."""
    message = forecast(traffic=Traffic(size=size)).per_message

    assert (message.units, message.units_with_completes) == (units, units_with_completes)
    assert message.bytes == 4 * size + 2 * 40


# An outage.


@pytest.mark.rule("C3")
def test_usage_of_an_outage_by_purpose(make_forecast: MakeForecast) -> None:
    """In 2 h a path fails over after 1 min, then pings each minute; the 119th ping succeeds."""
    result = make_forecast()

    assert result.timeline.through_backlog == 714_000
    assert result.timeline.failed_sends == 6_000
    assert result.timeline.pings == 119 * 4 * 3
    assert result.timeline.failover == 119 * MINUTE
    assert {purpose: item.usage for purpose, item in result.outage_bill.by_purpose.items()} == {
        Purpose.PINGS: Usage(1_428, 1_428, 1_428 * 164),
        Purpose.BACKLOG: Usage(714_000, 714_000, 714_000 * 1064),
        Purpose.DRAIN: Usage(3 * 714_000, 3 * 714_000, 714_000 * (1064 + 1024)),
        Purpose.DELIVERY: Usage(2 * 714_000, 2 * 714_000, 714_000 * 1024),
    }
    assert result.outage_bill.total.usage.operations == 6 * 714_000 + 1_428


@pytest.mark.rule("C3")
def test_cost_of_an_outage(make_forecast: MakeForecast) -> None:
    """The traffic of the month reaches the band with 0.50 per million."""
    result = make_forecast()
    traffic, drain = result.normal_traffic.total, result.outage_bill.by_purpose[Purpose.DRAIN]

    assert traffic.usage.units == 777_600_000
    assert traffic.operations_cost == Decimal("69.60") + Decimal("0.5") * Decimal("677.6")
    assert drain.operations_cost == Decimal("1.071")
    assert drain.bandwidth_cost == Decimal("0.02") * 714_000 * 2088 / 10**9
    assert result.without_outage.operations_cost == Decimal("1.071")
    # Three of the six operations would have been necessary without an outage, too.
    assert result.outage_extra_cost == (
        Decimal("0.5") * (3 * 714_000 + 1_428) / 10**6
        + Decimal("0.02") * (714_000 * 2 * 1064 + 1_428 * 164) / 10**9
    )


def test_messages_through_the_backlog_do_not_count_as_normal_traffic(
    make_pairing: MakePairing,
) -> None:
    """Without the messages of the outage, the month is below the 13 million included operations."""
    result = forecast(
        pairing=make_pairing(failover_interval=timedelta()),
        traffic=Traffic(rate=1.7),
        outage=Outage(length=2 * DAY),
    )
    messages = 293_760
    without_outage = 13_219_200 + 28_800
    with_outage = without_outage + 3 * messages + 2_880

    assert result.timeline.through_backlog == messages
    assert without_outage - 3 * messages < 13_000_000 < without_outage
    assert result.without_outage.operations_cost == (
        Decimal("0.8") * (without_outage - 13_000_000) / 10**6
    )
    assert result.outage_bill.total.operations_cost == (
        Decimal("0.8") * (with_outage - 13_000_000) / 10**6
    )


def test_outage_that_ends_before_failover_costs_nothing(make_forecast: MakeForecast) -> None:
    result = make_forecast(MINUTE)
    timeline = result.timeline

    assert timeline.paths == timeline.pings == timeline.through_backlog == 0
    assert timeline.failed_sends == 6_000
    assert result.outage_bill.total == CostItem()
    assert result.outage_extra_cost == 0


@pytest.mark.parametrize(
    ("length", "pings"),
    [
        (MINUTE + SECOND, 1),
        (2 * MINUTE, 1),
        (2 * MINUTE + timedelta(microseconds=1), 2),
        (3 * MINUTE, 2),
    ],
)
def test_first_ping_after_the_outage_is_the_last(
    make_forecast: MakeForecast, length: timedelta, pings: int
) -> None:
    timeline = make_forecast(length, clients=1).timeline

    assert timeline.pings == pings * 3
    assert timeline.through_backlog == pings * 60 * 100


def test_number_of_pings_is_that_of_the_path_health_state_machine(
    make_forecast: MakeForecast,
) -> None:
    outage_s, ping_interval_s = 1000, 7
    timeline = make_forecast(
        timedelta(seconds=outage_s),
        clients=1,
        ping_primary_interval=timedelta(seconds=ping_interval_s),
    ).timeline
    settings = health.HealthSettings(
        failover_interval_s=60,
        ping_interval_s=ping_interval_s,
        ping_jitter=0,
        after_drain=False,
        hold_s=5,
        drain_timeout_s=600,
    )
    path = health.PathHealth(settings, Random(1), 0.0)
    path.failed(FailureKind.UNAVAILABLE, TimeoutError(), 0.0)
    pings = 0
    now = 0.0
    while (step := path.next_step()) is not None:
        now = step.at
        if step.task is health.HealthTask.FAIL_OVER:
            path.fail_over(None, now)
        else:
            pings += 1
            path.pinged(now >= outage_s, now)

    assert pings > 100
    assert timeline.pings == 3 * pings
    assert timeline.failover == timedelta(seconds=now - 60)


def test_without_failover_interval_all_messages_of_the_outage_go_through_the_backlog(
    make_forecast: MakeForecast,
) -> None:
    timeline = make_forecast(failover_interval=timedelta()).timeline

    assert timeline.through_backlog == 720_000
    assert timeline.failed_sends == 0
    assert timeline.pings == 120 * 4 * 3


def test_share_applies_to_entities_and_traffic() -> None:
    timeline = forecast(
        traffic=Traffic(rate=10, entities=3), outage=Outage(length=HOUR, share=0.5)
    ).timeline

    assert timeline.paths == 2
    assert timeline.pings == 59 * 2
    assert timeline.through_backlog == 59 * 60 * 5


def test_decimal_rates_are_exact() -> None:
    traffic = forecast(traffic=Traffic(rate=0.1)).normal_traffic

    assert traffic.by_purpose[Purpose.TRAFFIC].usage.operations == 259_200


def test_redeliveries_add_receives_only(make_forecast: MakeForecast) -> None:
    receive = CostKey(Purpose.DRAIN, NamespaceRole.SECONDARY, OperationKind.RECEIVE)
    without = make_forecast().outage_usage.by_key
    with_two = make_forecast(redeliveries=2).outage_usage.by_key

    assert with_two[receive] == without[receive] * 3
    assert {**with_two, receive: without[receive]} == without


def test_after_drain_peeks_and_stores_more_messages(make_forecast: MakeForecast) -> None:
    result = make_forecast(failback="after-drain")
    peek = CostKey(Purpose.DRAIN, NamespaceRole.SECONDARY, OperationKind.PEEK)

    # 900 messages a second are drained; 714 000 take 793.3 s, in which 79 333.3 more arrive.
    assert result.timeline.through_backlog == 793_334
    # A peek each 30 s, and 5 more at the end.
    clients, paths, queues, rounds = 4, 3, 10, 27 + 5
    expected = clients * paths * (2 * rounds + 3 * queues)
    assert result.outage_usage.by_key[peek].operations == expected
    assert result.timeline.drain > make_forecast().timeline.drain


def test_after_drain_with_a_slow_syphon_is_rejected(make_forecast: MakeForecast) -> None:
    with pytest.raises(ConfigurationError, match="never empty: 100 messages per second arrive"):
        make_forecast(failback="after-drain", drain_rate=100)


def test_drain_of_more_than_a_year_is_rejected(make_forecast: MakeForecast) -> None:
    with pytest.raises(ConfigurationError, match=r"not empty within a year\. Set a higher drain_r"):
        make_forecast(drain_rate=0.001)


@pytest.mark.rule("C5")
def test_forecast_and_measured_counts_use_the_same_arithmetic(make_forecast: MakeForecast) -> None:
    measured = TrafficCounts(
        backlog_sends=(MessageGroup(714_000, 1064),),
        backlog_receives=(MessageGroup(714_000, 1064),),
        backlog_completes=714_000,
        drain_sends=(MessageGroup(714_000, 1024),),
        primary_receives=(MessageGroup(714_000, 1024),),
        primary_completes=714_000,
        pings=1_428,
    )

    assert calculate_usage(measured) == make_forecast().outage_usage


# Tiers and prices.


def test_premium_charges_messaging_units_and_not_operations() -> None:
    result = forecast(
        traffic=Traffic(rate=100),
        outage=Outage(length=HOUR),
        tier="premium",
        messaging_units=2,
    )

    assert result.outage_bill.total.operations_cost == 0
    assert result.outage_bill.total.bandwidth_cost > 0
    assert result.secondary_base_cost == Decimal("0.928") * 720 * 2


def test_second_standard_namespace_has_no_base_cost() -> None:
    assert forecast().secondary_base_cost == 0


def test_price_list_of_the_user_is_used() -> None:
    prices = parse_prices(PRICE_LIST, "mine.toml")
    result = forecast(traffic=Traffic(rate=1000), prices=prices)

    assert result.idle[MONTH].total.cost == Decimal(28_800) / 10**6


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "0.00"),
        ("10", "10.00"),
        ("0.0144", "0.0144"),
        ("2E-11", "0.00000000002"),
        ("-1.50", "-1.50"),
    ],
)
def test_exact_money_keeps_all_digits(amount: str, text: str) -> None:
    assert exact_money(Decimal(amount)) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "0.00"),
        ("1234.567", "1,234.57"),
        ("0.0144", "0.0144"),
        ("0.000719", "0.000719"),
        ("0.0000001", "< 0.000001"),
        ("-0.5", "-0.5000"),
    ],
)
def test_small_amounts_of_money_have_more_decimals(amount: str, text: str) -> None:
    assert format_money(Decimal(amount)) == text
    assert format_money(float(amount)) == text


# Properties.

pairing_values = st.fixed_dictionaries(
    {
        "backlog_queue_count": st.integers(1, 50),
        "ping_primary_interval": st.integers(1, 1800).map(lambda s: timedelta(seconds=s)),
        "failover_interval": st.integers(0, 3600).map(lambda s: timedelta(seconds=s)),
        "clients": st.integers(1, 100),
        "syphons": st.integers(0, 5),
        "redeliveries": st.integers(0, 3),
        "drain_rate": st.integers(2000, 5000),
        "failback": st.sampled_from(["immediate", "after-drain"]),
    }
)
traffics = st.builds(
    Traffic,
    rate=st.floats(0, 1000, allow_subnormal=False).map(lambda r: round(r, 3)),
    size=st.integers(0, 300_000),
    entities=st.integers(1, 50),
)
outages = st.builds(
    Outage,
    length=st.integers(0, 200_000).map(lambda s: timedelta(seconds=s)),
    share=st.floats(0, 1, allow_subnormal=False).map(lambda s: round(s, 3)),
)
tiers = st.sampled_from(["basic", "standard", "premium"])


@pytest.mark.rule("C3")
@given(pairing_values, traffics, outages, tiers)
def test_purposes_add_up_to_the_total_in_operations_bytes_and_cost(
    make_pairing: MakePairing, values: dict[str, Any], traffic: Traffic, outage: Outage, tier: str
) -> None:
    result = forecast(
        pairing=make_pairing(**values), traffic=traffic, outage=outage, tier=tier, prices=PRICES
    )

    total = result.outage_bill.total
    assert total.usage == result.outage_usage.total
    month = result.normal_traffic.total.usage.units + result.idle[MONTH].total.usage.units
    before = max(0, month - result.without_outage.usage.units)
    assert total.operations_cost == PRICES.operations_cost(
        result.tier, total.usage.units, before=before
    )
    assert total.bandwidth_cost == PRICES.bandwidth_cost(total.usage.bytes)
    assert result.outage_extra_cost >= 0
    for bill in (result.outage_bill, result.normal_traffic, *result.idle.values()):
        assert all(item.cost >= 0 for item in bill.by_purpose.values())


@given(pairing_values, traffics, outages, st.data())
def test_larger_inputs_never_reduce_the_usage(
    make_pairing: MakePairing,
    values: dict[str, Any],
    traffic: Traffic,
    outage: Outage,
    data: st.DataObject,
) -> None:
    def usage(
        values: dict[str, Any], traffic: Traffic, outage: Outage
    ) -> tuple[int, int, int, int, int, int]:
        result = forecast(
            pairing=make_pairing(**values), traffic=traffic, outage=outage, prices=PRICES
        )
        idle, in_outage = result.idle[MONTH].total.usage, result.outage_bill.total.usage
        normal = result.normal_traffic.total.usage
        return (
            idle.units,
            in_outage.operations,
            in_outage.units,
            in_outage.bytes,
            normal.units,
            normal.bytes,
        )

    counted = ("backlog_queue_count", "clients", "syphons", "redeliveries")
    larger = data.draw(
        st.sampled_from(
            [
                *[{name: values[name] + 1} for name in counted],
                replace(traffic, rate=traffic.rate + 0.5),
                replace(traffic, size=traffic.size + 1000),
                replace(traffic, entities=traffic.entities + 1),
                replace(outage, length=outage.length + timedelta(seconds=77)),
                replace(outage, share=min(1, round(outage.share + 0.1, 3))),
            ]
        )
    )
    before = usage(values, traffic, outage)
    if isinstance(larger, dict):
        after = usage(values | larger, traffic, outage)
    elif isinstance(larger, Traffic):
        after = usage(values, larger, outage)
    else:
        after = usage(values, traffic, larger)

    assert all(b <= a for b, a in zip(before, after, strict=True))


@given(pairing_values, traffics, outages)
def test_shorter_ping_interval_never_makes_fewer_pings(
    make_pairing: MakePairing, values: dict[str, Any], traffic: Traffic, outage: Outage
) -> None:
    shorter = max(SECOND, values["ping_primary_interval"] / 2)
    pings, more_pings = (
        forecast(
            pairing=make_pairing(**v), traffic=traffic, outage=outage, prices=PRICES
        ).timeline.pings
        for v in (values, values | {"ping_primary_interval": shorter})
    )

    assert pings <= more_pings


@given(pairing_values, traffics, outages, tiers)
def test_json_of_a_forecast_agrees_with_it(
    make_pairing: MakePairing, values: dict[str, Any], traffic: Traffic, outage: Outage, tier: str
) -> None:
    result = forecast(
        pairing=make_pairing(**values), traffic=traffic, outage=outage, tier=tier, prices=PRICES
    )
    data = forecast_to_json(result)

    assert Decimal(data["outage"]["extra_cost"]) == result.outage_extra_cost
    assert data["outage"]["total"]["units"] == sum(
        operations["units"] for operations in data["outage"]["operations"]
    )
    assert [alternative["name"] for alternative in data["alternatives_30_days"]][:2] == [
        "no protection",
        "pairing",
    ]
