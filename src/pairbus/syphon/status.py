"""The status of a syphon, and whether it is healthy.

Healthy means progress: a backlog from which nothing is removed for a while is a problem, even if
the reason is not known.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pairbus.syphon.reader_status import ReaderStatus
from pairbus.syphon.writer_status import WriterStatus

STARTUP_S = 30.0
"""Additional time for the first report of a reader: Spark starts slowly."""
MAX_LOCK_S = 330.0
"""Longer than any lock: a message that was not delivered and is still there was received again by
then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonStatus:
    """The progress and health of a syphon."""

    running: bool
    started: bool = False
    """The query has begun to read the backlog. Spark takes some seconds for that."""
    batches: int
    """Micro-batches that contained messages."""
    moved: Counter[str]
    """Messages that the primary accepted, by destination."""
    dead_lettered: Counter[str]
    """Messages that were dead-lettered in the backlog, by destination. A message without a valid
    destination counts for an empty path."""
    dead_letter_reasons: dict[str, Counter[str]]
    """The same by destination and reason."""
    left: Counter[str]
    """Messages of the last micro-batch that stayed in the backlog, by destination."""
    errors: dict[str, str]
    """The last error of each destination that does not accept messages at the moment."""
    bytes: int
    """The size of all moved messages."""
    unsettled: int
    """Messages that the primary accepted and that are sent again, because they could not be
    completed in the backlog."""
    throttled_sends: int
    """Deliveries that the primary throttled, and that were sent again later."""
    throttled_receives: int
    """Receives, polls and peeks that the secondary throttled. Those of tasks on other machines are
    not counted."""
    rate: float
    """Messages a second of the last micro-batch."""
    healthy: bool
    """There is progress, or there is nothing to do."""
    problem: str | None
    """The reason why the syphon is not healthy."""
    unreadable: str | None
    """The reason why the backlog cannot be read at the moment."""
    failure: str | None
    """The error that ended the query."""
    paused: bool = False
    """An operator has paused the syphon. A paused syphon is healthy."""
    wait_reason: str | None = None
    """The reason why messages wait at the moment, such as locks of another receiver or a primary
    that cannot be reached. None: they do not wait, or the reason is not known."""
    drained: bool
    """A run with `once` has ended, and a peek of every backlog queue showed that no message is left
    that should be moved."""


def initial_status() -> SyphonStatus:
    """Return the status of a syphon that starts."""
    return combine(ReaderStatus(), WriterStatus(), running=True, failure=None, problem=None)


def combine(
    reader: ReaderStatus,
    writer: WriterStatus,
    *,
    running: bool,
    failure: str | None,
    problem: str | None,
) -> SyphonStatus:
    """Return the status of a syphon from those of its processes."""
    return SyphonStatus(
        running=running,
        started=reader.reported_at > 0,
        batches=writer.batches,
        moved=writer.moved,
        dead_lettered=writer.dead_lettered,
        dead_letter_reasons=writer.dead_letter_reasons,
        left=writer.left,
        errors=writer.errors,
        bytes=writer.bytes,
        unsettled=writer.unsettled,
        throttled_sends=writer.throttled,
        throttled_receives=reader.throttled,
        rate=writer.rate,
        healthy=problem is None,
        problem=problem,
        unreadable=reader.error,
        failure=failure,
        paused=running and reader.paused,
        wait_reason=reader.remaining if running else None,
        drained=failure is None and reader.drained,
    )


def find_problem(
    reader: ReaderStatus,
    writer: WriterStatus,
    *,
    started_at: float,
    now: float,
    stuck_after_s: float,
    missing: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
    """Return the reason why a running syphon is not healthy, or None if it is. `missing` says what
    happens to messages for destinations that do not exist: they are a problem at once."""
    if reader.drained:
        return None
    if reader.paused and now - reader.reported_at <= stuck_after_s:
        return None
    if reader.failing_since is not None and now - reader.failing_since > stuck_after_s:
        return f"the backlog cannot be read: {reader.error}"
    last_progress = max(started_at, writer.progress_at, reader.paused_until)
    waiting_since = [] if reader.waiting_since is None else [reader.waiting_since]
    # Messages for a failing destination are locked, so the reader does not see them for a while.
    are_gone = reader.empty_since is not None and now - reader.empty_since > MAX_LOCK_S
    if writer.failing_since is not None and not are_gone:
        waiting_since.append(writer.failing_since)
    if waiting_since:
        quiet_s = now - max(last_progress, min(waiting_since))
        if quiet_s <= stuck_after_s:
            sentences = [f"{path} {text}" for path, text in sorted(missing.items())]
            return "; ".join(sentences) if sentences and not are_gone else None
        errors = "; ".join(f"{path}: {error}" for path, error in sorted(writer.errors.items()))
        reason = errors or reader.remaining or "the reason is not known"
        return f"the primary accepted no message for {quiet_s:.0f} s ({reason})"
    if now - max(last_progress, reader.reported_at) > stuck_after_s + STARTUP_S:
        return "the backlog reader stopped reporting"
    return None
