"""The price list: a dated table in a TOML file, which the user can replace."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

from pairbus.errors import ConfigurationError

MILLION = 1_000_000
GB = 1_000_000_000
"""Bytes of a gigabyte. With 2^30 bytes a bill would be 7 % lower."""
DEFAULT_FILE = "prices.toml"


class Tier(StrEnum):
    BASIC = "basic"
    STANDARD = "standard"
    PREMIUM = "premium"

    @classmethod
    def named(cls, name: str) -> "Tier":
        """Return the tier with this name, in any case. Raises ConfigurationError."""
        try:
            return cls(name.lower())
        except ValueError:
            raise ConfigurationError(
                f"Unknown tier {name!r}. Choose one of {', '.join(cls)}."
            ) from None


@dataclass(frozen=True, slots=True)
class Band:
    """The price of operations up to a number of operations per month."""

    up_to: int | None
    """The last operation of the band; None for the last band, which has no end."""
    per_million: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPrices:
    per_hour: Decimal
    """The base price: for the subscription, or with `per_messaging_unit` for each messaging unit of
    each namespace."""
    per_messaging_unit: bool
    bands: tuple[Band, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A price list; `read_prices` reads one from a file."""

    name: str
    """The name of the file."""
    as_of: date
    source: str
    currency: str
    region: str
    bandwidth_per_gb: Decimal
    geo_replication_per_gb: Decimal
    tiers: Mapping[Tier, TierPrices]

    def operations_cost(self, tier: Tier, units: int, *, before: int = 0) -> Decimal:
        """Return the cost of billable units, after `before` units in the same month."""
        cost, start = Decimal(0), 0
        for band in self.tiers[tier].bands:
            end = before + units if band.up_to is None else min(band.up_to, before + units)
            cost += max(0, end - max(start, before)) * band.per_million
            start = end
        return cost / MILLION

    def bandwidth_cost(self, size: int) -> Decimal:
        """Return the cost of transferring bytes once."""
        return size * self.bandwidth_per_gb / GB

    def base_cost(
        self, tier: Tier, hours: int, *, namespaces: int, messaging_units: int
    ) -> Decimal:
        """Return the cost of namespaces without any operation."""
        prices = self.tiers[tier]
        count = namespaces * messaging_units if prices.per_messaging_unit else 1
        return prices.per_hour * hours * count

    def to_json(self, tier: Tier) -> dict[str, str]:
        """Return the origin of the prices, for the JSON of forecast and report."""
        return {
            "file": self.name,
            "as_of": self.as_of.isoformat(),
            "source": self.source,
            "currency": self.currency,
            "region": self.region,
            "tier": str(tier),
        }


def read_prices(path: Path | None = None) -> Prices:
    """Read a price list, or the one that comes with this package.

    Raises ConfigurationError, which names the file and the field.
    """
    try:
        if path is None:
            name, text = (
                DEFAULT_FILE,
                files("pairbus.cost").joinpath(DEFAULT_FILE).read_text("utf-8"),
            )
        else:
            name, text = str(path), path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{path}: the price list cannot be read: {exc}") from exc
    return parse_prices(text, name)


def parse_prices(text: str, name: str) -> Prices:
    """Parse a price list in TOML. `name` is the name of the file, for errors."""
    try:
        document = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigurationError(f"{name}: the file is not valid TOML: {exc}") from exc
    root = _TomlTable(name, "", document)
    bandwidth, tiers = root.table("bandwidth"), root.table("tiers")
    tiers.check_keys(*Tier, noun="tier")
    basic, standard = tiers.table(Tier.BASIC), tiers.table(Tier.STANDARD)
    premium = tiers.table(Tier.PREMIUM)
    prices = Prices(
        name=name,
        as_of=root.day("as_of"),
        source=root.text("source"),
        currency=root.text("currency"),
        region=root.text("region"),
        bandwidth_per_gb=bandwidth.price("per_gb"),
        geo_replication_per_gb=premium.price("geo_replication_per_gb"),
        tiers={
            Tier.BASIC: TierPrices(
                per_hour=Decimal(0),
                per_messaging_unit=False,
                bands=(Band(None, basic.price("per_million")),),
            ),
            Tier.STANDARD: TierPrices(
                per_hour=standard.price("base_per_hour"),
                per_messaging_unit=False,
                bands=_parse_bands(standard),
            ),
            Tier.PREMIUM: TierPrices(
                per_hour=premium.price("unit_per_hour"),
                per_messaging_unit=True,
                bands=(Band(None, Decimal(0)),),
            ),
        },
    )
    root.check_keys("as_of", "source", "currency", "region", "bandwidth", "tiers")
    bandwidth.check_keys("per_gb")
    basic.check_keys("per_million")
    standard.check_keys("base_per_hour", "bands")
    premium.check_keys("unit_per_hour", "geo_replication_per_gb")
    return prices


def _parse_bands(standard: "_TomlTable") -> tuple[Band, ...]:
    tables = standard.tables("bands")
    bands: list[Band] = []
    previous_end = 0
    for table in tables:
        table.check_keys("up_to_million", "per_million")
        is_last = table is tables[-1]
        if is_last == table.has("up_to_million"):
            table.fail("up_to_million", "must be set in every band but the last")
        up_to = None
        if not is_last:
            up_to = table.integer("up_to_million") * MILLION
            if up_to <= previous_end:
                table.fail("up_to_million", "must be greater than in the band before")
            previous_end = up_to
        bands.append(Band(up_to, table.price("per_million")))
    return tuple(bands)


class _TomlTable:
    """A table of a TOML document, with checked access to its values."""

    def __init__(self, file: str, path: str, values: Mapping[str, Any]) -> None:
        self._file = file
        self._path = path
        self._values = values

    def fail(self, key: str, problem: str) -> NoReturn:
        raise ConfigurationError(f"{self._file}: {self._full_name(key)} {problem}")

    def has(self, key: str) -> bool:
        return key in self._values

    def check_keys(self, *keys: str, noun: str = "field") -> None:
        for key in self._values:
            if key not in keys:
                self.fail(key, f"is an unknown {noun}; known are {', '.join(keys)}")

    def table(self, key: str) -> "_TomlTable":
        return _TomlTable(self._file, self._full_name(key), self._value(key, dict, "a table"))

    def tables(self, key: str) -> list["_TomlTable"]:
        values = self._value(key, list, "a list of tables")
        if not values or not all(isinstance(value, dict) for value in values):
            self.fail(key, "must be a list of at least one table")
        return [
            _TomlTable(self._file, f"{self._full_name(key)}[{index}]", value)
            for index, value in enumerate(values)
        ]

    def text(self, key: str) -> str:
        value: str = self._value(key, str, "text")
        if not value.strip():
            self.fail(key, "must not be empty")
        return value

    def day(self, key: str) -> date:
        value: date = self._value(key, date, "a date such as 2026-09-20")
        return value.date() if isinstance(value, datetime) else value

    def integer(self, key: str) -> int:
        value: int = self._value(key, int, "an integer")
        return value

    def price(self, key: str) -> Decimal:
        price = Decimal(self._value(key, (int, Decimal), "a number"))
        if not price.is_finite() or price < 0:
            self.fail(key, f"must be a price of at least 0, not {price}")
        return price

    def _value(self, key: str, types: Any, noun: str) -> Any:
        if key not in self._values:
            self.fail(key, f"is missing; set it to {noun}")
        value = self._values[key]
        if not isinstance(value, types) or isinstance(value, bool):
            self.fail(key, f"must be {noun}, not {value!r}")
        return value

    def _full_name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key
