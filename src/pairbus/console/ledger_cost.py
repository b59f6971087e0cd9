"""The cost of an outage so far, from the ledger, which is read as it grows."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pairbus.cost.prices import Prices, Tier
from pairbus.usage.operations import Purpose

MAX_READ_BYTES: Final = 8 * 2**20
"""Bytes that are read at once. The rest follows with the next call."""
MAX_START_BYTES: Final = 64 * 2**20
"""Bytes of a file that exists already when the console starts. Older records are left out."""
KEPT_S: Final = 7 * 86400
UNITS_PER_WAITING_MESSAGE: Final = 3
"""Operations that a message in the backlog still makes: receive, send and complete."""
_PURPOSES: Final = (Purpose.PINGS.value, Purpose.BACKLOG.value, Purpose.DRAIN.value)


@dataclass(slots=True)
class _Sum:
    units: int = 0
    bytes: int = 0


class LedgerTail:
    """Sums up the operations of an outage by minute: pings, backlog and drain. One thread reads
    the ledger; others may ask for sums."""

    def __init__(
        self,
        folder: Path,
        namespaces: frozenset[str],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`namespaces` are the names of the two namespaces in the ledger."""
        self._folder = folder
        self._namespaces = namespaces
        self._now = now
        self._offsets: dict[tuple[int, int], int] = {}
        """The bytes that were read of each file, by device and inode."""
        self._minutes: defaultdict[int, _Sum] = defaultdict(_Sum)
        self._lock = threading.Lock()

    def read(self) -> None:
        """Read the records that were added. Files that cannot be read are left out."""
        oldest = self._now() - KEPT_S
        try:
            paths = sorted(self._folder.iterdir())
        except OSError:
            return
        budget = MAX_READ_BYTES
        for path in paths:
            try:
                budget -= self._read_file(path, oldest, budget)
            except OSError:
                continue
            if budget <= 0:
                break
        with self._lock:
            for minute in [minute for minute in self._minutes if minute * 60 < oldest]:
                del self._minutes[minute]

    def usage_since(self, time_s: float) -> tuple[int, int]:
        """Return the billable units and the bytes since a time, to the minute."""
        first = int(time_s) // 60
        with self._lock:
            sums = [total for minute, total in self._minutes.items() if minute >= first]
        return sum(total.units for total in sums), sum(total.bytes for total in sums)

    def _read_file(self, path: Path, oldest: float, budget: int) -> int:
        """Read a part of a file, and return the number of bytes."""
        stat = path.stat()
        key = stat.st_dev, stat.st_ino
        start = self._offsets.get(key)
        if start is None:
            if stat.st_mtime < oldest:
                return 0
            start = max(0, stat.st_size - MAX_START_BYTES)
        if stat.st_size <= start:
            return 0
        with path.open("rb") as file:
            file.seek(start)
            block = file.read(budget)
        complete = block[: block.rfind(b"\n") + 1]
        for record in _records(complete):
            self._add(record)
        self._offsets[key] = start + len(complete)
        return len(block)

    def _add(self, record: dict[str, Any]) -> None:
        match record:
            case {
                "time": int(time_s),
                "namespace": str(namespace),
                "purpose": str(purpose),
                "units": int(units),
                "bytes": int(size),
                "answered": True,
            } if namespace in self._namespaces and purpose in _PURPOSES:
                with self._lock:
                    total = self._minutes[time_s // 60]
                total.units += units
                total.bytes += size


@dataclass(frozen=True, slots=True)
class OutagePrice:
    """Converts usage to money."""

    prices: Prices
    tier: Tier

    def to_json(self, units: int, size: int, waiting: int) -> dict[str, Any]:
        """Return the cost so far, and with the messages that still have to be drained. The rate is
        that after the operations that a month includes."""
        return {
            "currency": self.prices.currency,
            "so_far": self.money(units, size),
            "forecast": self.money(units + waiting * UNITS_PER_WAITING_MESSAGE, size),
        }

    def money(self, units: int, size: int = 0) -> float:
        """Return the price of billable units and of bytes that are transferred."""
        included = self.prices.tiers[self.tier].bands[0].up_to or 0
        cost = self.prices.operations_cost(self.tier, units, before=included)
        return float(cost + self.prices.bandwidth_cost(size))


def _records(block: bytes) -> Iterator[dict[str, Any]]:
    for line in block.split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record
