"""What a syphon did, for the ledger: each operation that a namespace may bill.

Its parts run in several processes, on several machines where Spark does; each process has a file of
its own.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pairbus.amqp.client import ClientOptions
from pairbus.servicebus.addresses import canonical_address, format_address
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Part

_ledgers: dict[str, Ledger] = {}


@dataclass(frozen=True, slots=True)
class SyphonUsage:
    """Writes to a ledger, or to none. Plain values, which can be sent to workers."""

    folder: str | None
    primary: str
    secondary: str

    @classmethod
    def of(
        cls, folder: str | None, primary: ClientOptions, secondary: ClientOptions
    ) -> "SyphonUsage":
        return cls(folder, _label(primary), _label(secondary))

    def __bool__(self) -> bool:
        return self.folder is not None

    def add(
        self,
        kind: OperationKind,
        entity: str | None,
        sizes: Sequence[int] = (),
        *,
        part: Part = Part.DRAIN,
        answered: bool = True,
    ) -> None:
        """An operation on each of some messages, or one on none. Sends are to the primary, all else
        is at the secondary."""
        if self.folder is None:
            return
        self._ledger.add_each(
            sizes,
            namespace=self.primary if kind is OperationKind.SEND else self.secondary,
            entity=entity or "",
            kind=kind,
            part=part,
            answered=answered,
        )

    def settled(
        self, kind: OperationKind, entities: Iterable[str], *, answered: bool = True
    ) -> None:
        """An operation on each of some messages, by where they are going. It has no size."""
        if self.folder is not None:
            for entity, count in Counter(entities).items():
                self.add(kind, entity, [0] * count, answered=answered)

    def flush(self) -> None:
        """Write. A worker may be ended at any time when its task is over."""
        if self.folder is not None:
            self._ledger.flush()

    @property
    def _ledger(self) -> Ledger:
        assert self.folder is not None
        if self.folder not in _ledgers:
            _ledgers[self.folder] = Ledger(self.folder, writer="syphon")
        return _ledgers[self.folder]


def _label(options: ClientOptions) -> str:
    return format_address(*canonical_address(options.host, options.port, options.endpoint_host))
