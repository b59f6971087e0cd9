"""The forecast: known figures, exactly, and what holds for any."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cost import plan
from pairbus.cost.alternatives import alternatives, changes
from pairbus.cost.counts import CostKey, MessageGroup, TrafficCounts, tally
from pairbus.cost.forecast import DAY, HOUR, MONTH, CostItem, Forecast, forecast
from pairbus.cost.plan import Outage, PairingProfile, Traffic
from pairbus.cost.prices import parse_prices, read_prices
from pairbus.cost.summary import money, summary
from pairbus.errors import ConfigurationError
from pairbus.options import FailureKind, SendAvailabilityOptions
from pairbus.pairing import health
from pairbus.usage.operations import Amount, NamespaceRole, OperationKind, Part
from tests.unit.cost.price_text import GOOD

PRICES = read_prices()
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def pairing(**given: Any) -> PairingProfile:
    """A pairing; options of the pairing itself are recognised by their names."""
    mine = {
        name: given.pop(name) for name in list(given) if name in PairingProfile.__dataclass_fields__
    }
    return PairingProfile(options=SendAvailabilityOptions(**given), **mine)


def expected(
    length: timedelta = 2 * HOUR, rate: float = 100, *, size: int = 1024, **options: Any
) -> Forecast:
    """Four clients, three entities, an outage."""
    return forecast(
        pairing=pairing(**{"clients": 4, **options}),
        traffic=Traffic(rate=rate, size=size, entities=3),
        outage=Outage(length=length),
        prices=PRICES,
    )


# Known figures.


@pytest.mark.rule("C3", "Y6")
def test_ten_idle_backlog_queues_cost_40_receives_an_hour_960_a_day_28800_in_30_days() -> None:
    idle = forecast(prices=PRICES).idle

    assert {span: bill.total.amount for span, bill in idle.items()} == {
        HOUR: Amount(40, 40, 0),
        DAY: Amount(960, 960, 0),
        MONTH: Amount(28_800, 28_800, 0),
    }
    assert list(idle[MONTH].parts) == [Part.IDLE]


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
def test_idle_receives_an_hour(options: dict[str, Any], receives: int) -> None:
    idle = forecast(pairing=pairing(**options), prices=PRICES).idle

    assert idle[HOUR].total.amount.operations == receives


@pytest.mark.rule("C2", "C3")
@pytest.mark.parametrize(
    ("size", "units", "with_completes"),
    [(0, 4, 6), (1024, 4, 6), (64 * 1024, 6, 8), (64 * 1024 + 1, 8, 10), (200 * 1024, 16, 18)],
)
def test_a_message_through_the_backlog(size: int, units: int, with_completes: int) -> None:
    """At exactly 64 KB its aliases make it two units in the backlog, and one at the primary."""
    one = forecast(traffic=Traffic(size=size), prices=PRICES).per_message

    assert (one.units, one.units_with_completes) == (units, with_completes)
    assert one.bytes == 4 * size + 2 * 40


@pytest.mark.rule("C3")
def test_an_outage_by_part() -> None:
    """2 h: failover after 1 min, then a ping each minute, of which the 119th gets through."""
    found = expected()

    assert found.course.through_backlog == 714_000
    assert found.course.refused == 6_000
    assert found.course.pings == 119 * 4 * 3
    assert found.course.failover == 119 * MINUTE
    assert {part: charge.amount for part, charge in found.outage_bill.parts.items()} == {
        Part.PINGS: Amount(1_428, 1_428, 1_428 * 164),
        Part.BACKLOG: Amount(714_000, 714_000, 714_000 * 1064),
        Part.DRAIN: Amount(3 * 714_000, 3 * 714_000, 714_000 * (1064 + 1024)),
        Part.DELIVERY: Amount(2 * 714_000, 2 * 714_000, 714_000 * 1024),
    }
    assert found.outage_bill.total.amount.operations == 6 * 714_000 + 1_428


@pytest.mark.rule("C3")
def test_the_money_of_an_outage() -> None:
    """The traffic of the month is in the band of 0.50 for a million."""
    found = expected()
    drain = found.outage_bill.parts[Part.DRAIN]

    assert found.month.total.amount.units == 777_600_000
    assert found.month.total.for_operations == Decimal("69.60") + Decimal("0.5") * Decimal("677.6")
    assert drain.for_operations == Decimal("1.071")
    assert drain.for_bandwidth == Decimal("0.02") * 714_000 * 2088 / 10**9
    assert found.instead.for_operations == Decimal("1.071")
    # Three operations of six would have been anyway.
    assert found.outage_adds == (
        Decimal("0.5") * (3 * 714_000 + 1_428) / 10**6
        + Decimal("0.02") * (714_000 * 2 * 1064 + 1_428 * 164) / 10**9
    )


def test_what_goes_through_the_backlog_leaves_its_place_in_the_bands() -> None:
    """Without the messages of the outage the month is below the 13 million that are included."""
    found = forecast(
        pairing=pairing(failover_interval=timedelta()),
        traffic=Traffic(rate=1.7),
        outage=Outage(length=2 * DAY),
        prices=PRICES,
    )
    messages = 293_760
    without = 13_219_200 + 28_800
    month = without + 3 * messages + 2_880

    assert found.course.through_backlog == messages
    assert without - 3 * messages < 13_000_000 < without
    assert found.instead.for_operations == Decimal("0.8") * (without - 13_000_000) / 10**6
    assert found.outage_bill.total.for_operations == (Decimal("0.8") * (month - 13_000_000) / 10**6)


def test_an_outage_that_ends_before_failover_costs_nothing() -> None:
    found = expected(MINUTE)

    assert found.course.paths == found.course.pings == found.course.through_backlog == 0
    assert found.course.refused == 6_000
    assert found.outage_bill.total == CostItem()
    assert found.outage_adds == 0


@pytest.mark.parametrize(
    ("length", "pings"),
    [
        (MINUTE + SECOND, 1),
        (2 * MINUTE, 1),
        (2 * MINUTE + timedelta(microseconds=1), 2),
        (3 * MINUTE, 2),
    ],
)
def test_the_first_ping_after_the_outage_is_the_last(length: timedelta, pings: int) -> None:
    found = expected(length, clients=1)

    assert found.course.pings == pings * 3
    assert found.course.through_backlog == pings * 60 * 100


def test_pings_are_as_many_as_a_path_really_sends() -> None:
    """The forecast, beside the state machine itself."""
    length_s, found = (
        1000,
        expected(timedelta(seconds=1000), clients=1, ping_primary_interval=7 * SECOND),
    )
    settings = health.HealthSettings(
        failover_interval_s=60,
        ping_interval_s=7,
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
            path.pinged(now >= length_s, now)

    assert pings > 100
    assert found.course.pings == 3 * pings
    assert found.course.failover == timedelta(seconds=now - 60)


def test_with_no_interval_all_messages_of_the_outage_go_through_the_backlog() -> None:
    found = expected(failover_interval=timedelta())

    assert found.course.through_backlog == 720_000
    assert found.course.refused == 0
    assert found.course.pings == 120 * 4 * 3


def test_a_share_concerns_entities_and_traffic() -> None:
    found = forecast(
        pairing=pairing(),
        traffic=Traffic(rate=10, entities=3),
        outage=Outage(length=HOUR, share=0.5),
        prices=PRICES,
    )

    assert found.course.paths == 2
    assert found.course.pings == 59 * 2
    assert found.course.through_backlog == 59 * 60 * 5


def test_rates_are_what_they_are_written_as() -> None:
    found = forecast(traffic=Traffic(rate=0.1), prices=PRICES)

    assert found.month.parts[Part.TRAFFIC].amount.operations == 259_200


def test_receives_in_vain_are_receives() -> None:
    receive = CostKey(Part.DRAIN, NamespaceRole.SECONDARY, OperationKind.RECEIVE)
    once, thrice = expected().operations.slots, expected(vain_receives=2).operations.slots

    assert thrice[receive] == once[receive] * 3
    assert {**thrice, receive: once[receive]} == once


def test_after_drain_peeks_and_stores_more() -> None:
    found = expected(failback="after-drain")
    peek = found.operations.slots[CostKey(Part.DRAIN, NamespaceRole.SECONDARY, OperationKind.PEEK)]

    # 900 a second leave; 714 000 take 793.3 s, in which 79 333.3 more arrive.
    assert found.course.through_backlog == 793_334
    looks = 4 * 3 * 10
    assert peek.operations == looks * (794 * 11 + 3)
    assert found.course.drain > expected().course.drain


def test_after_drain_with_a_slow_syphon_never_ends_and_it_says_so() -> None:
    with pytest.raises(ConfigurationError, match="at 100 messages a second it never is, for 100"):
        expected(failback="after-drain", drain_rate=100)


def test_a_drain_of_years_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not empty within a year: set a higher drain_r"):
        expected(drain_rate=0.001)


def test_the_looks_of_after_drain_are_those_of_the_pairing() -> None:
    assert plan.SMALL == health.SMALL
    assert plan.DRAIN_CHECK_S == health.DRAIN_CHECK_S


@pytest.mark.rule("C5")
def test_the_forecast_is_the_arithmetic_of_counts() -> None:
    found = expected()
    run = TrafficCounts(
        stored=(MessageGroup(714_000, 1064),),
        taken=(MessageGroup(714_000, 1064),),
        settled=714_000,
        homed=(MessageGroup(714_000, 1024),),
        delivered=(MessageGroup(714_000, 1024),),
        completed=714_000,
        pings=1_428,
    )

    assert tally(run) == found.operations


# Tiers.


def test_premium_charges_namespaces_and_not_operations() -> None:
    found = forecast(
        traffic=Traffic(rate=100),
        outage=Outage(length=HOUR),
        prices=PRICES,
        tier="premium",
        messaging_units=2,
    )

    assert found.outage_bill.total.for_operations == 0
    assert found.outage_bill.total.for_bandwidth > 0
    assert found.second_namespace == Decimal("0.928") * 720 * 2


def test_a_second_standard_namespace_has_no_charge_of_its_own() -> None:
    assert forecast(prices=PRICES).second_namespace == 0


def test_idle_within_the_included_operations_is_free_and_above_them_it_is_not() -> None:
    quiet, busy = forecast(prices=PRICES), forecast(traffic=Traffic(rate=10), prices=PRICES)

    assert quiet.idle[MONTH].total.money == 0
    assert busy.idle[MONTH].total.money == Decimal("0.8") * 28_800 / 10**6


# Choices.


def test_what_other_options_would_change() -> None:
    found = {one.what: one for one in changes(expected())}

    assert list(found) == [
        "20 backlog queues, not 10",
        "pings every 30 s, not 60 s",
        "2 syphons, not 1",
        "failback after-drain",
    ]
    queues, pings, syphons, drain = found.values()
    assert (queues.idle_units, queues.outage_units) == (28_800, 0)
    assert queues.idle_money == Decimal("0.0144")
    assert (pings.idle_units, pings.outage_units) == (0, 119 * 12)
    assert (syphons.idle_units, syphons.outage_units) == (28_800, 0)
    assert drain.idle_units == 0
    # The messages that come while it drains are stored, received and completed; and the peeks.
    assert drain.outage_units == 3 * (793_334 - 714_000) + 120 * (794 * 11 + 3)


def test_changes_that_cannot_be_are_left_out() -> None:
    found = changes(expected(ping_primary_interval=SECOND, drain_rate=50))

    assert [one.what for one in found] == ["20 backlog queues, not 10", "2 syphons, not 1"]


def test_the_alternatives() -> None:
    found = expected()
    nothing, paired, active, geo = alternatives(found)

    assert [one.name for one in (nothing, paired, active, geo)] == [
        "nothing",
        "pairing",
        "active replication",
        "geo-replication",
    ]
    assert nothing.money == Decimal("9.72") + found.month.total.money
    assert paired.units == nothing.units + 28_800 + 3 * 714_000 + 1_428
    assert paired.money == nothing.money + Decimal("0.0144") + found.outage_adds
    assert active.units == 2 * nothing.units
    # The second half of the operations starts where the first ended.
    assert active.money == nothing.money + Decimal("0.5") * Decimal("777.6") + (
        Decimal("0.02") * nothing.bytes / 10**9
    )
    sent = 259_200_000 * 1024
    assert geo.bytes == nothing.bytes + sent
    assert geo.money == (
        Decimal("0.928") * 720 * 2
        + Decimal("0.02") * nothing.bytes / 10**9
        + Decimal("0.09") * sent / 10**9
    )


def test_prices_of_the_user_are_those_that_count() -> None:
    mine = parse_prices(GOOD, "mine.toml")
    found = forecast(traffic=Traffic(rate=1000), prices=mine)

    assert found.idle[MONTH].total.money == Decimal(28_800) / 10**6


# Wrong input.


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (PairingProfile, {"clients": 0}, "clients is a whole number, 1 or more, not 0"),
        (PairingProfile, {"clients": 1.5}, "clients is a whole number"),
        (PairingProfile, {"clients": True}, "clients is a whole number"),
        (PairingProfile, {"syphons": -1}, "syphons is a whole number, 0 or more, not -1"),
        (PairingProfile, {"vain_receives": -1}, "vain_receives is a whole number"),
        (PairingProfile, {"poll": timedelta()}, "poll is 0:00:01 to 1:00:00, not 0:00:00"),
        (PairingProfile, {"poll": 2 * HOUR}, "poll is 0:00:01 to 1:00:00, not 2:00:00"),
        (PairingProfile, {"poll": 900}, "poll is a timedelta, not 900"),
        (PairingProfile, {"drain_rate": 0}, "drain_rate is above 0, not 0"),
        (PairingProfile, {"drain_rate": "x"}, "drain_rate is a number"),
        (Traffic, {"rate": -1}, "rate is a number, 0 to 1e\\+09, not -1"),
        (Traffic, {"rate": float("nan")}, "rate is a number"),
        (Traffic, {"rate": float("inf")}, "rate is a number"),
        (Traffic, {"size": -1}, "size is a whole number, 0 or more, not -1"),
        (Traffic, {"entities": 0}, "entities is a whole number, 1 or more, not 0"),
        (Traffic, {"alias_bytes": -1}, "alias_bytes is a whole number"),
        (Outage, {"length": -SECOND}, "the length of the outage is 0:00:00 to 30 days"),
        (Outage, {"length": 31 * DAY}, "the length of the outage is 0:00:00 to 30 days"),
        (Outage, {"length": 7200}, "the length of the outage is a timedelta, not 7200"),
        (Outage, {"share": 1.1}, "share is a number, 0 to 1, not 1.1"),
        (Outage, {"share": -0.1}, "share is a number, 0 to 1, not -0.1"),
    ],
)
def test_input_out_of_bounds_is_refused(kind: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        kind(**given)


@pytest.mark.parametrize("given", [{"tier": "gold"}, {"messaging_units": 0}])
def test_a_forecast_refuses_what_it_does_not_know(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"gold|messaging_units"):
        forecast(prices=PRICES, **given)


# Properties.

forecasts = st.fixed_dictionaries(
    {
        "backlog_queue_count": st.integers(1, 50),
        "ping_primary_interval": st.integers(1, 1800).map(lambda s: timedelta(seconds=s)),
        "failover_interval": st.integers(0, 3600).map(lambda s: timedelta(seconds=s)),
        "clients": st.integers(1, 100),
        "syphons": st.integers(0, 5),
        "vain_receives": st.integers(0, 3),
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
@given(forecasts, traffics, outages, tiers)
def test_parts_add_up_to_the_whole_in_operations_bytes_and_money(
    options: dict[str, Any], traffic: Traffic, outage: Outage, tier: str
) -> None:
    found = forecast(
        pairing=pairing(**options), traffic=traffic, outage=outage, prices=PRICES, tier=tier
    )

    whole = found.outage_bill.total
    assert whole.amount == found.operations.total
    before = found.month.total.amount.units + found.idle[MONTH].total.amount.units
    rest = max(0, before - found.instead.amount.units)
    assert whole.for_operations == PRICES.operations(found.tier, whole.amount.units, before=rest)
    assert whole.for_bandwidth == PRICES.bandwidth(whole.amount.bytes)
    assert found.outage_adds >= 0
    for bill in (found.outage_bill, found.month, *found.idle.values()):
        assert all(charge.money >= 0 for charge in bill.parts.values())


def _whole(
    options: dict[str, Any], traffic: Traffic, outage: Outage
) -> tuple[int, int, int, int, int, int]:
    found = forecast(pairing=pairing(**options), traffic=traffic, outage=outage, prices=PRICES)
    idle, lost = found.idle[MONTH].total.amount, found.outage_bill.total.amount
    month = found.month.total.amount
    return (idle.units, lost.operations, lost.units, lost.bytes, month.units, month.bytes)


@given(forecasts, traffics, outages, st.data())
def test_more_of_anything_never_costs_less(
    options: dict[str, Any], traffic: Traffic, outage: Outage, data: st.DataObject
) -> None:
    more = data.draw(
        st.sampled_from(
            [
                *[{name: options[name] + 1} for name in ("backlog_queue_count", "clients")],
                *[{name: options[name] + 1} for name in ("syphons", "vain_receives")],
                replace(traffic, rate=traffic.rate + 0.5),
                replace(traffic, size=traffic.size + 1000),
                replace(traffic, entities=traffic.entities + 1),
                replace(outage, length=outage.length + timedelta(seconds=77)),
                replace(outage, share=min(1, round(outage.share + 0.1, 3))),
            ]
        )
    )
    before = _whole(options, traffic, outage)
    if isinstance(more, dict):
        after = _whole(options | more, traffic, outage)
    elif isinstance(more, Traffic):
        after = _whole(options, more, outage)
    else:
        after = _whole(options, traffic, more)

    assert all(b <= a for b, a in zip(before, after, strict=True))


@given(forecasts, traffics, outages)
def test_shorter_pings_are_never_fewer(
    options: dict[str, Any], traffic: Traffic, outage: Outage
) -> None:
    shorter = max(SECOND, options["ping_primary_interval"] / 2)
    some, more = (
        forecast(pairing=pairing(**o), traffic=traffic, outage=outage, prices=PRICES).course.pings
        for o in (options, options | {"ping_primary_interval": shorter})
    )

    assert some <= more


@given(forecasts, traffics, outages, tiers)
def test_any_forecast_has_a_summary_that_agrees(
    options: dict[str, Any], traffic: Traffic, outage: Outage, tier: str
) -> None:
    found = forecast(
        pairing=pairing(**options), traffic=traffic, outage=outage, prices=PRICES, tier=tier
    )
    data = summary(found)

    assert Decimal(data["outage"]["adds"]) == found.outage_adds
    assert data["outage"]["total"]["units"] == sum(
        one["units"] for one in data["outage"]["operations"]
    )
    assert [one["name"] for one in data["alternatives_30_days"]][:2] == ["nothing", "pairing"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "0.00"),
        ("10", "10.00"),
        ("0.0144", "0.0144"),
        ("2E-11", "0.00000000002"),
        ("-1.50", "-1.50"),
    ],
)
def test_money_for_programs_loses_nothing(value: str, text: str) -> None:
    assert money(Decimal(value)) == text
