"""What operations cost: a dated table in a file, which the user can replace."""

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
"""The bytes of a gigabyte. By powers of two a bill would be 7 % less."""
DEFAULT = "prices.toml"


class Tier(StrEnum):
    BASIC = "basic"
    STANDARD = "standard"
    PREMIUM = "premium"

    @classmethod
    def named(cls, name: str) -> "Tier":
        """The tier of this name. Raises ConfigurationError."""
        try:
            return cls(name.lower())
        except ValueError:
            raise ConfigurationError(
                f"{name!r} is not a tier: it is one of {', '.join(cls)}"
            ) from None


@dataclass(frozen=True, slots=True)
class Band:
    """What operations cost up to so many in a month."""

    up_to: int | None
    """None: without end."""
    per_million: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPrices:
    per_hour: Decimal
    """What there is to pay, done anything or not: for a subscription, or where `per_namespace` for
    each messaging unit of each namespace."""
    per_namespace: bool
    bands: tuple[Band, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A table of prices; `read_prices` makes one from a file."""

    name: str
    """The file that it is from."""
    as_of: date
    source: str
    currency: str
    region: str
    bandwidth_per_gb: Decimal
    geo_replication_per_gb: Decimal
    tiers: Mapping[Tier, TierPrices]

    def operations(self, tier: Tier, units: int, *, before: int = 0) -> Decimal:
        """What so many units add to the bill of a month that has had some before."""
        cost, start = Decimal(0), 0
        for band in self.tiers[tier].bands:
            end = before + units if band.up_to is None else min(band.up_to, before + units)
            cost += max(0, end - max(start, before)) * band.per_million
            start = end
        return cost / MILLION

    def bandwidth(self, size: int) -> Decimal:
        """What it costs to move so many bytes, once."""
        return size * self.bandwidth_per_gb / GB

    def fixed(self, tier: Tier, hours: int, *, namespaces: int, messaging_units: int) -> Decimal:
        """What there is to pay for so many hours without any operation."""
        prices = self.tiers[tier]
        count = namespaces * messaging_units if prices.per_namespace else 1
        return prices.per_hour * hours * count


def read_prices(path: Path | None = None) -> Prices:
    """The prices of a file, or those that come with this package. Raises ConfigurationError, which
    names the file and the field."""
    try:
        if path is None:
            name, text = DEFAULT, files("pairbus.cost").joinpath(DEFAULT).read_text("utf-8")
        else:
            name, text = str(path), path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{path}: the prices cannot be read: {exc}") from exc
    return parse_prices(text, name)


def parse_prices(text: str, name: str) -> Prices:
    """The prices of a text in TOML; `name` is what errors call it."""
    try:
        table = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigurationError(f"{name}: this is not TOML: {exc}") from exc
    top = _Section(name, "", table)
    bandwidth, tiers = top.section("bandwidth"), top.section("tiers")
    tiers.is_only(*Tier, what="a tier")
    basic, standard = tiers.section(Tier.BASIC), tiers.section(Tier.STANDARD)
    premium = tiers.section(Tier.PREMIUM)
    found = Prices(
        name=name,
        as_of=top.day("as_of"),
        source=top.text("source"),
        currency=top.text("currency"),
        region=top.text("region"),
        bandwidth_per_gb=bandwidth.price("per_gb"),
        geo_replication_per_gb=premium.price("geo_replication_per_gb"),
        tiers={
            Tier.BASIC: TierPrices(
                per_hour=Decimal(0),
                per_namespace=False,
                bands=(Band(None, basic.price("per_million")),),
            ),
            Tier.STANDARD: TierPrices(
                per_hour=standard.price("base_per_hour"),
                per_namespace=False,
                bands=_bands(standard),
            ),
            Tier.PREMIUM: TierPrices(
                per_hour=premium.price("unit_per_hour"),
                per_namespace=True,
                bands=(Band(None, Decimal(0)),),
            ),
        },
    )
    top.is_only("as_of", "source", "currency", "region", "bandwidth", "tiers")
    bandwidth.is_only("per_gb")
    basic.is_only("per_million")
    standard.is_only("base_per_hour", "bands")
    premium.is_only("unit_per_hour", "geo_replication_per_gb")
    return found


def _bands(standard: "_Section") -> tuple[Band, ...]:
    given = standard.sections("bands")
    bands: list[Band] = []
    reached = 0
    for section in given:
        section.is_only("up_to_million", "per_million")
        last = section is given[-1]
        if last == section.has("up_to_million"):
            section.wrong("up_to_million", "the last band has no end, and each other one has one")
        up_to = None
        if not last:
            up_to = section.whole("up_to_million") * MILLION
            if up_to <= reached:
                section.wrong("up_to_million", "each band ends above the one before it")
            reached = up_to
        bands.append(Band(up_to, section.price("per_million")))
    return tuple(bands)


class _Section:
    """A table of the file, which says what is wrong with it."""

    def __init__(self, file: str, path: str, table: Mapping[str, Any]) -> None:
        self._file = file
        self._path = path
        self._table = table

    def wrong(self, key: str, why: str) -> NoReturn:
        raise ConfigurationError(f"{self._file}: {self._name(key)}: {why}")

    def has(self, key: str) -> bool:
        return key in self._table

    def is_only(self, *keys: str, what: str = "a field of this table") -> None:
        for key in self._table:
            if key not in keys:
                self.wrong(key, f"this is not {what}; there are {', '.join(keys)}")

    def section(self, key: str) -> "_Section":
        return _Section(self._file, self._name(key), self._given(key, dict, "a table"))

    def sections(self, key: str) -> list["_Section"]:
        found = self._given(key, list, "a list of tables")
        if not found or not all(isinstance(one, dict) for one in found):
            self.wrong(key, "is a list of tables, at least one")
        return [
            _Section(self._file, f"{self._name(key)}[{index}]", one)
            for index, one in enumerate(found)
        ]

    def text(self, key: str) -> str:
        found: str = self._given(key, str, "a text")
        if not found.strip():
            self.wrong(key, "is empty")
        return found

    def day(self, key: str) -> date:
        found: date = self._given(key, date, "a date such as 2026-09-20")
        return found.date() if isinstance(found, datetime) else found

    def whole(self, key: str) -> int:
        found: int = self._given(key, int, "a whole number")
        return found

    def price(self, key: str) -> Decimal:
        found = Decimal(self._given(key, (int, Decimal), "a price: a number"))
        if not found.is_finite() or found < 0:
            self.wrong(key, f"a price is a number, 0 or more, not {found}")
        return found

    def _given(self, key: str, kind: Any, what: str) -> Any:
        if key not in self._table:
            self.wrong(key, f"is missing; it is {what}")
        found = self._table[key]
        if not isinstance(found, kind) or isinstance(found, bool):
            self.wrong(key, f"is {what}, not {found!r}")
        return found

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key
