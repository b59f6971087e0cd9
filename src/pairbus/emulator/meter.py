"""The meter: billable operations by entity and kind, counted as Service Bus bills them.

A batch of a hundred messages is a hundred operations. Each operation has one unit per 64 KB, at
least one. An empty receive is one operation without a message. Readings survive a restart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pairbus.emulator.storage.store import Store
from pairbus.servicebus.limits import BILLING_UNIT
from pairbus.usage.operations import billable_units


@dataclass(slots=True)
class MeterReading:
    """The totals of one kind of operation on one entity."""

    operations: int = 0
    messages: int = 0
    bytes: int = 0
    units: int = 0


class Meter:
    """Counts in memory, and writes the totals with each commit.

    `on_operation` is called with the kind and size of each operation.
    """

    def __init__(
        self, store: Store, on_operation: Callable[[str, int], None] | None = None
    ) -> None:
        self._store = store
        self._on_operation = on_operation
        self._readings: dict[tuple[str, str], MeterReading] = {
            (entity, kind): MeterReading(*totals) for entity, kind, *totals in store.meter_rows()
        }
        self._changed: set[tuple[str, str]] = set()

    def add_without_message(self, entity: str, kind: str) -> None:
        """Count one operation without a message."""
        self.add(entity, kind, messages=0)

    def add(self, entity: str, kind: str, size: int = 0, *, messages: int = 1) -> None:
        """Count one operation on one message of this size."""
        key = entity, kind
        reading = self._readings.get(key)
        if reading is None:
            reading = self._readings[key] = MeterReading()
        reading.operations += 1
        reading.messages += messages
        reading.bytes += size
        reading.units += billable_units(size)
        self._changed.add(key)
        if self._on_operation is not None:
            self._on_operation(kind, size)

    def add_messages(self, entity: str, kind: str, sizes: Sequence[int]) -> None:
        """Count one operation on each of some messages of these sizes."""
        if not sizes:
            return
        key = entity, kind
        reading = self._readings.setdefault(key, MeterReading())
        count = len(sizes)
        reading.operations += count
        reading.messages += count
        reading.bytes += sum(sizes)
        is_small = max(sizes) <= BILLING_UNIT
        reading.units += count if is_small else sum(map(billable_units, sizes))
        self._changed.add(key)
        if self._on_operation is not None:
            for size in sizes:
                self._on_operation(kind, size)

    def save(self) -> None:
        """Write changed totals, as part of the next commit."""
        if self._changed:
            self._store.put_meter_rows(
                (*key, r.operations, r.messages, r.bytes, r.units)
                for key, r in ((key, self._readings[key]) for key in self._changed)
            )
            self._changed.clear()

    def readings(self) -> dict[tuple[str, str], MeterReading]:
        """Return a copy of the totals by entity and kind of operation."""
        return {key: replace(reading) for key, reading in self._readings.items()}
