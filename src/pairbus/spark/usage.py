"""Records billable operations of Spark tasks in the usage ledger.

The parts of a query run in several processes, on several machines of a cluster. Each process writes
a separate ledger file.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pairbus.amqp.client import ClientOptions
from pairbus.servicebus.addresses import canonical_address, format_address
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Purpose

_ledgers: dict[str, Ledger] = {}


@dataclass(frozen=True, slots=True)
class UsageRecorder:
    """Records operations in the ledger of a folder; without a folder, does nothing.

    It consists of plain values, so that Spark can send it to workers.
    """

    folder: str | None = None
    primary: str = ""
    secondary: str = ""

    @classmethod
    def create(
        cls, folder: str | None, primary: ClientOptions, secondary: ClientOptions
    ) -> "UsageRecorder":
        """Return a recorder for operations on two namespaces."""
        return cls(folder, _label(primary), _label(secondary))

    @property
    def enabled(self) -> bool:
        """True if operations are recorded at all."""
        return self.folder is not None

    def add(
        self,
        kind: OperationKind,
        entity: str | None,
        sizes: Sequence[int] = (),
        *,
        purpose: Purpose = Purpose.DRAIN,
        answered: bool = True,
    ) -> None:
        """Record one operation for each message size, or one operation without a message.

        Sends are operations on the primary, all others on the secondary.
        """
        if self.folder is None:
            return
        self._ledger.add_messages(
            sizes,
            namespace=self.primary if kind is OperationKind.SEND else self.secondary,
            entity=entity or "",
            kind=kind,
            purpose=purpose,
            answered=answered,
        )

    def add_settlements(
        self, kind: OperationKind, destinations: Iterable[str], *, answered: bool = True
    ) -> None:
        """Record one operation of zero bytes for each message, given by its destination."""
        if self.folder is not None:
            for destination, count in Counter(destinations).items():
                self.add(kind, destination, [0] * count, answered=answered)

    def add_request(self, _: str, answered: bool) -> None:
        """Record a request to the administration API, as `on_request` of its client."""
        self.add(OperationKind.MANAGEMENT, None, answered=answered)

    def flush(self) -> None:
        """Write to disk. Spark may end a worker at any time after its task."""
        if self.folder is not None:
            self._ledger.flush()

    @property
    def _ledger(self) -> Ledger:
        assert self.folder is not None
        if self.folder not in _ledgers:
            _ledgers[self.folder] = Ledger(self.folder, writer="syphon")
        return _ledgers[self.folder]


NO_USAGE = UsageRecorder()


def _label(options: ClientOptions) -> str:
    return format_address(*canonical_address(options.host, options.port, options.endpoint_host))
