"""Price lists: the built-in one, a user's file, and invalid files."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cost.prices import GB, MILLION, Tier, parse_prices, read_prices
from pairbus.errors import ConfigurationError
from tests.unit.cost.price_list import PRICE_LIST

BUILT_IN = read_prices()
unit_counts = st.integers(0, 5_000_000_000)


@pytest.mark.rule("C3")
def test_built_in_prices_have_a_date_and_a_source() -> None:
    assert BUILT_IN.as_of == date(2026, 9, 20)
    assert "https://azure.microsoft.com/" in BUILT_IN.source
    assert BUILT_IN.currency == "USD"


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
def test_operations_are_billed_by_bands(tier: Tier, millions: int, cost: str) -> None:
    assert BUILT_IN.operations_cost(tier, millions * MILLION) == Decimal(cost)


def test_first_operation_after_the_included_ones_is_billed() -> None:
    assert BUILT_IN.operations_cost(Tier.STANDARD, 1, before=13 * MILLION - 1) == 0
    assert BUILT_IN.operations_cost(Tier.STANDARD, 1, before=13 * MILLION) == Decimal("0.0000008")


@pytest.mark.parametrize(
    ("tier", "namespaces", "messaging_units", "cost"),
    [
        (Tier.BASIC, 2, 1, "0"),
        (Tier.STANDARD, 1, 1, "9.72"),
        (Tier.STANDARD, 2, 4, "9.72"),
        (Tier.PREMIUM, 2, 2, "2672.64"),
    ],
)
def test_base_cost_of_namespaces(
    tier: Tier, namespaces: int, messaging_units: int, cost: str
) -> None:
    assert BUILT_IN.base_cost(
        tier, 720, namespaces=namespaces, messaging_units=messaging_units
    ) == Decimal(cost)


def test_bandwidth_is_billed_per_gigabyte() -> None:
    assert BUILT_IN.bandwidth_cost(GB) == Decimal("0.02")
    assert BUILT_IN.bandwidth_cost(1) == Decimal("2E-11")


@pytest.mark.rule("C3")
def test_price_list_of_the_user_replaces_the_built_in_one(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(PRICE_LIST)

    prices = read_prices(file)

    assert (prices.name, prices.currency, prices.as_of) == (str(file), "EUR", date(2026, 1, 2))
    assert prices.operations_cost(Tier.STANDARD, 4 * MILLION) == 21
    assert prices.operations_cost(Tier.BASIC, MILLION) == 2
    assert prices.geo_replication_per_gb == Decimal("0.1")
    assert prices.base_cost(Tier.STANDARD, 8, namespaces=1, messaging_units=1) == 2


def price_list_with(old: str, new: str) -> str:
    assert PRICE_LIST.count(old) == 1
    return PRICE_LIST.replace(old, new)


BEFORE_BANDS = PRICE_LIST[: PRICE_LIST.index("[[tiers")]
AFTER_BANDS = PRICE_LIST[PRICE_LIST.index("[tiers.premium]") :]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("as_of = ", "mine.toml: the file is not valid TOML: "),
        (
            price_list_with("[tiers.basic]", "[tiers.gold]"),
            "tiers.gold is an unknown tier; known are basic, standard, premium",
        ),
        (price_list_with("[tiers.basic]\nper_million = 2\n", ""), "tiers.basic is missing"),
        (
            price_list_with("per_gb = 0.5", "per_gb = -0.5"),
            "bandwidth.per_gb must be a price of at least 0, not -0.5",
        ),
        (
            price_list_with("per_million = 10", "per_million = -10"),
            r"tiers.standard.bands\[1\].per_million must be a price of at least 0, not -10",
        ),
        (
            price_list_with("unit_per_hour = 3", "unit_per_hour = nan"),
            "premium.unit_per_hour must be a price",
        ),
        (
            price_list_with("unit_per_hour = 3", "unit_per_hour = inf"),
            "premium.unit_per_hour must be a price",
        ),
        (
            price_list_with("unit_per_hour = 3\n", ""),
            "tiers.premium.unit_per_hour is missing; set it to a number",
        ),
        (
            price_list_with("unit_per_hour = 3", 'unit_per_hour = "3"'),
            "unit_per_hour must be a number, not '3'",
        ),
        (
            price_list_with("unit_per_hour = 3", "unit_per_hour = true"),
            "unit_per_hour must be a number, not True",
        ),
        (
            price_list_with("as_of = 2026-01-02\n", ""),
            "as_of is missing; set it to a date such as 2026-09-20",
        ),
        (
            price_list_with("as_of = 2026-01-02", 'as_of = "May"'),
            "as_of must be a date .* not 'May'",
        ),
        (price_list_with('source = "a contract"\n', ""), "source is missing"),
        (price_list_with('source = "a contract"', 'source = " "'), "source must not be empty"),
        (
            price_list_with('currency = "EUR"', "currency = 3"),
            "currency must be text, not 3",
        ),
        (price_list_with('region = "West Europe"\n', ""), "region is missing"),
        (
            price_list_with("[bandwidth]\nper_gb = 0.5\n", ""),
            "bandwidth is missing; set it to a table",
        ),
        (
            price_list_with("[bandwidth]\nper_gb = 0.5\n", "").replace(
                "as_of", "bandwidth = 1\nas_of"
            ),
            "bandwidth must be a table, not 1",
        ),
        (
            price_list_with("per_gb = 0.5", "per_gb = 0.5\nper_tb = 1"),
            "bandwidth.per_tb is an unknown field; known are per_gb",
        ),
        (price_list_with('region = "W', 'vat = 1\nregion = "W'), "vat is an unknown field"),
        (
            price_list_with("up_to_million = 3", "up_to_million = 1"),
            r"bands\[1\].up_to_million must be greater than in the band before",
        ),
        (
            price_list_with("up_to_million = 1\n", "up_to_million = 0\n"),
            r"bands\[0\].up_to_million must be greater than in the band before",
        ),
        (
            price_list_with("up_to_million = 3\n", ""),
            r"bands\[1\].up_to_million must be set in every band but the last",
        ),
        (
            price_list_with("up_to_million = 3", "up_to_million = 3.5"),
            "up_to_million must be an integer",
        ),
        (
            price_list_with("per_million = 1\n", "up_to_million = 9\nper_million = 1\n"),
            r"bands\[2\].up_to_million must be set in every band but the last",
        ),
        (
            price_list_with("per_million = 10", "price = 10"),
            r"bands\[1\].price is an unknown field",
        ),
        (
            f"{BEFORE_BANDS}bands = []\n{AFTER_BANDS}",
            "bands must be a list of at least one table",
        ),
        (
            f"{BEFORE_BANDS}bands = [1]\n{AFTER_BANDS}",
            "bands must be a list of at least one table",
        ),
        (f"{BEFORE_BANDS}{AFTER_BANDS}", "tiers.standard.bands is missing"),
    ],
)
def test_error_in_a_price_list_names_file_and_field(text: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error) as caught:
        parse_prices(text, "mine.toml")

    assert str(caught.value).startswith("mine.toml: ")
    assert "\n" not in str(caught.value)


def test_unreadable_price_list_is_named(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"currency = '\xa3'")

    with pytest.raises(ConfigurationError, match=r"nothing\.toml: the price list cannot be read"):
        read_prices(tmp_path / "nothing.toml")
    with pytest.raises(ConfigurationError, match=r"latin\.toml: the price list cannot be read"):
        read_prices(latin)


@pytest.mark.parametrize("name", ["gold", "", "standard "])
def test_unknown_tier_is_rejected(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"Unknown tier .* Choose one of basic, standard, premium"
    ):
        Tier.named(name)


def test_tier_name_is_case_insensitive() -> None:
    assert Tier.named("Premium") is Tier.PREMIUM


@given(st.sampled_from(Tier), unit_counts, unit_counts, unit_counts)
def test_cost_of_a_sum_is_the_sum_of_the_costs(
    tier: Tier, before: int, first: int, second: int
) -> None:
    both = BUILT_IN.operations_cost(tier, first + second, before=before)

    assert both == BUILT_IN.operations_cost(tier, first, before=before) + BUILT_IN.operations_cost(
        tier, second, before=before + first
    )


@given(unit_counts, unit_counts)
def test_cost_is_between_zero_and_the_price_of_the_most_expensive_band(
    before: int, added: int
) -> None:
    cost = BUILT_IN.operations_cost(Tier.STANDARD, added, before=before)

    assert 0 <= cost <= added * Decimal("0.80") / MILLION
