"""The metrics of a pairing that are read from its state: states of paths, and messages."""

from collections.abc import Iterator

from pairbus.events import PathStatus
from pairbus.pairing.snapshots import PathSnapshot
from pairbus.pairing.state import PairingState
from pairbus.telemetry.metrics import ERROR, PATH_STATE, SENT_MESSAGES
from pairbus.telemetry.samples import Sample
from pairbus.telemetry.senders import SEND, ServerAddress, send_attributes


class PairingMetrics:
    """Returns samples of the state of a pairing. Can be used from any thread."""

    def __init__(
        self, pairing: PairingState, primary: ServerAddress, secondary: ServerAddress
    ) -> None:
        self._pairing = pairing
        self._primary = primary
        self._secondary = secondary

    def samples(self) -> Iterator[Sample]:
        """Return the current values."""
        for path, snapshot in self._pairing.status().paths.items():
            yield from self._state(path, snapshot.status)
            yield from self._messages(path, snapshot)

    def _state(self, path: str, current: PathStatus) -> Iterator[Sample]:
        if self._pairing.primary.closed:
            return
        for status in PathStatus:
            labels = {"path": path, "state": status.value}
            yield Sample(PATH_STATE, float(status is current), labels)

    def _messages(self, path: str, snapshot: PathSnapshot) -> Iterator[Sample]:
        counters = snapshot.counters
        primary = send_attributes(SEND, path, self._primary)
        yield Sample(SENT_MESSAGES, counters.sent, primary)
        if counters.stored:
            stored = send_attributes(SEND, path, self._secondary)
            yield Sample(SENT_MESSAGES, counters.stored, stored)
        for kind, messages in counters.failed.items():
            if messages:
                yield Sample(SENT_MESSAGES, messages, primary | {ERROR: kind.value})
