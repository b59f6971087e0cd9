"""The metrics of a syphon, from its status and its progress."""

from collections.abc import Iterator

from pairbus.syphon.progress import DrainProgress
from pairbus.syphon.status import SyphonStatus
from pairbus.telemetry.metrics import (
    BACKLOG_ALL_MESSAGES,
    DEAD_LETTERS,
    DRAIN_RATE,
    DRAINED_MESSAGES,
    SYPHON_HEALTHY,
    SYPHON_PAUSED,
    SYPHON_THROTTLED,
    TIME_TO_GO,
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
    yield Sample(SYPHON_THROTTLED, status.throttled_sends, labels | {"role": "primary"})
    yield Sample(SYPHON_THROTTLED, status.throttled_receives, labels | {"role": "secondary"})
    if status.running:
        yield Sample(DRAIN_RATE, status.rate, labels)
        yield Sample(SYPHON_HEALTHY, float(status.healthy), labels)
        yield Sample(SYPHON_PAUSED, float(status.paused), labels)


def measured_samples(
    status: SyphonStatus, progress: DrainProgress, pairing: str
) -> Iterator[Sample]:
    """Return samples of a status and of the progress that was measured meanwhile, with the values
    of the status file. A syphon that ended with a problem is not healthy."""
    labels = {"pairing": pairing}
    for sample in status_samples(status, pairing):
        if sample.name != DRAIN_RATE:  # that of the last micro-batch
            yield sample
    if not status.running:
        if not status.healthy:
            yield Sample(SYPHON_HEALTHY, 0.0, labels)
        return
    yield Sample(DRAIN_RATE, progress.rate, labels)
    if progress.remaining is not None:
        yield Sample(BACKLOG_ALL_MESSAGES, progress.remaining, labels)
    if progress.seconds_to_go is not None:
        yield Sample(TIME_TO_GO, progress.seconds_to_go, labels)
