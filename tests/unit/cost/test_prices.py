"""Prices: the table that comes with the package, a user's own, and what can be wrong with one."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cost.prices import GB, MILLION, Tier, parse_prices, read_prices
from pairbus.errors import ConfigurationError
from tests.unit.cost.price_text import GOOD

OURS = read_prices()
units = st.integers(0, 5_000_000_000)


@pytest.mark.rule("C3")
def test_ours_are_dated_and_say_where_they_are_from() -> None:
    assert OURS.as_of == date(2026, 9, 20)
    assert "https://azure.microsoft.com/" in OURS.source
    assert OURS.currency == "USD"


@pytest.mark.parametrize(
    ("tier", "millions", "cost"),
    [
        (Tier.BASIC, 100, "5.00"),
        (Tier.STANDARD, 0, "0"),
        (Tier.STANDARD, 13, "0"),
        (Tier.STANDARD, 14, "0.80"),
        (Tier.STANDARD, 100, "69.60"),
        (Tier.STANDARD, 101, "70.10"),
        (Tier.STANDARD, 2500, "1269.60"),
        (Tier.STANDARD, 2501, "1269.80"),
        (Tier.PREMIUM, 9000, "0"),
    ],
)
def test_our_prices_of_operations(tier: Tier, millions: int, cost: str) -> None:
    assert OURS.operations(tier, millions * MILLION) == Decimal(cost)


def test_one_operation_above_what_is_included_has_its_price() -> None:
    assert OURS.operations(Tier.STANDARD, 1, before=13 * MILLION - 1) == 0
    assert OURS.operations(Tier.STANDARD, 1, before=13 * MILLION) == Decimal("0.0000008")


def test_what_there_is_to_pay_without_an_operation() -> None:
    assert OURS.fixed(Tier.BASIC, 720, namespaces=2, messaging_units=1) == 0
    assert OURS.fixed(Tier.STANDARD, 720, namespaces=1, messaging_units=1) == Decimal("9.72")
    assert OURS.fixed(Tier.STANDARD, 720, namespaces=2, messaging_units=4) == Decimal("9.72")
    assert OURS.fixed(Tier.PREMIUM, 720, namespaces=2, messaging_units=2) == Decimal("2672.64")


def test_bandwidth_is_by_the_gigabyte() -> None:
    assert OURS.bandwidth(GB) == Decimal("0.02")
    assert OURS.bandwidth(1) == Decimal("2E-11")


@pytest.mark.rule("C3")
def test_a_users_file_replaces_ours(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)

    prices = read_prices(file)

    assert (prices.name, prices.currency, prices.as_of) == (str(file), "EUR", date(2026, 1, 2))
    assert prices.operations(Tier.STANDARD, 4 * MILLION) == 21
    assert prices.operations(Tier.BASIC, MILLION) == 2
    assert prices.geo_replication_per_gb == Decimal("0.1")
    assert prices.fixed(Tier.STANDARD, 8, namespaces=1, messaging_units=1) == 2


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("as_of = ", "mine.toml: this is not TOML: "),
        (changed("[tiers.basic]", "[tiers.gold]"), "tiers.gold: this is not a tier"),
        (changed("[tiers.basic]\nper_million = 2\n", ""), "tiers.basic: is missing"),
        (changed("per_gb = 0.5", "per_gb = -0.5"), "bandwidth.per_gb: a price is .* not -0.5"),
        (
            changed("per_million = 10", "per_million = -10"),
            r"tiers.standard.bands\[1\].per_million: a price is .* not -10",
        ),
        (changed("unit_per_hour = 3", "unit_per_hour = nan"), "premium.unit_per_hour: a price is"),
        (changed("unit_per_hour = 3", "unit_per_hour = inf"), "premium.unit_per_hour: a price is"),
        (changed("unit_per_hour = 3\n", ""), "tiers.premium.unit_per_hour: is missing"),
        (changed("unit_per_hour = 3", 'unit_per_hour = "3"'), "unit_per_hour: is a price.* '3'"),
        (changed("unit_per_hour = 3", "unit_per_hour = true"), "unit_per_hour: is a price.* True"),
        (changed("as_of = 2026-01-02\n", ""), "as_of: is missing; it is a date"),
        (changed("as_of = 2026-01-02", 'as_of = "May"'), "as_of: is a date .* not 'May'"),
        (changed('source = "a contract"\n', ""), "source: is missing"),
        (changed('source = "a contract"', 'source = " "'), "source: is empty"),
        (changed('currency = "EUR"', "currency = 3"), "currency: is a text, not 3"),
        (changed('region = "West Europe"\n', ""), "region: is missing"),
        (changed("[bandwidth]\nper_gb = 0.5\n", ""), "bandwidth: is missing; it is a table"),
        (
            changed("[bandwidth]\nper_gb = 0.5\n", "").replace("as_of", "bandwidth = 1\nas_of"),
            "bandwidth: is a table, not 1",
        ),
        (changed("per_gb = 0.5", "per_gb = 0.5\nper_tb = 1"), "bandwidth.per_tb: this is not a"),
        (changed('region = "W', 'vat = 1\nregion = "W'), "vat: this is not a field"),
        (changed("up_to_million = 3", "up_to_million = 1"), r"bands\[1\].up_to_million: each band"),
        (changed("up_to_million = 1\n", "up_to_million = 0\n"), r"bands\[0\].up_to_million: each"),
        (changed("up_to_million = 3\n", ""), r"bands\[1\].up_to_million: the last band has no end"),
        (changed("up_to_million = 3", "up_to_million = 3.5"), "up_to_million: is a whole number"),
        (
            changed("per_million = 1\n", "up_to_million = 9\nper_million = 1\n"),
            r"bands\[2\].up_to_million: the last band has no end",
        ),
        (changed("per_million = 10", "price = 10"), r"bands\[1\].price: this is not a field"),
        (
            GOOD[: GOOD.index("[[tiers")] + "bands = []\n" + GOOD[GOOD.index("[tiers.premium]") :],
            "bands: is a list of tables, at least one",
        ),
        (
            GOOD[: GOOD.index("[[tiers")] + "bands = [1]\n" + GOOD[GOOD.index("[tiers.premium]") :],
            "bands: is a list of tables, at least one",
        ),
        (
            GOOD[: GOOD.index("[[tiers")] + GOOD[GOOD.index("[tiers.premium]") :],
            "tiers.standard.bands: is missing",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name_and_field(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        parse_prices(text, "mine.toml")

    assert str(caught.value).startswith("mine.toml: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"currency = '\xa3'")

    with pytest.raises(ConfigurationError, match=r"nothing\.toml: the prices cannot be read"):
        read_prices(tmp_path / "nothing.toml")
    with pytest.raises(ConfigurationError, match=r"latin\.toml: the prices cannot be read"):
        read_prices(latin)


@pytest.mark.parametrize("name", ["gold", "", "standard "])
def test_an_unknown_tier_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a tier: it is one of basic, standard"):
        Tier.named(name)


def test_a_tier_is_known_in_capitals() -> None:
    assert Tier.named("Premium") is Tier.PREMIUM


@given(st.sampled_from(Tier), units, units, units)
def test_what_is_bought_in_two_goes_costs_what_it_costs_in_one(
    tier: Tier, before: int, first: int, second: int
) -> None:
    both = OURS.operations(tier, first + second, before=before)

    assert both == OURS.operations(tier, first, before=before) + OURS.operations(
        tier, second, before=before + first
    )


@given(units, units)
def test_more_operations_never_cost_less_nor_more_than_the_dearest_band(
    before: int, more: int
) -> None:
    cost = OURS.operations(Tier.STANDARD, more, before=before)

    assert 0 <= cost <= more * Decimal("0.80") / MILLION
