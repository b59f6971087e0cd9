"""The metrics of a syphon, from its status."""

from collections.abc import Iterator

from pairbus.syphon.status import SyphonStatus
from pairbus.telemetry.metrics import (
    DEAD_LETTERS,
    DRAIN_RATE,
    DRAINED_MESSAGES,
    SYPHON_HEALTHY,
    UNSETTLED_MESSAGES,
)
from pairbus.telemetry.samples import Sample


def status_samples(status: SyphonStatus, pairing: str) -> Iterator[Sample]:
    """Return samples of a status. `pairing` is the name of the primary in the paths of the backlog
    queues. A syphon that has ended has counters only."""
    labels = {"pairing": pairing}
    for destination, messages in status.moved.items():
        yield Sample(DRAINED_MESSAGES, messages, labels | {"destination": destination})
    for destination, reasons in status.dead_letter_reasons.items():
        for reason, messages in reasons.items():
            names = {"destination": destination, "reason": reason}
            yield Sample(DEAD_LETTERS, messages, labels | names)
    yield Sample(UNSETTLED_MESSAGES, status.unsettled, labels)
    if status.running:
        yield Sample(DRAIN_RATE, status.rate, labels)
        yield Sample(SYPHON_HEALTHY, float(status.healthy), labels)
