"""The report of a sender process, as it arrives at the console. No I/O.

Everything in a report is untrusted. Text is cleaned and cut off; a report with missing keys or
values of the wrong type is refused as a whole.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pairbus.console.text import clean, label
from pairbus.errors import PairbusError
from pairbus.events import PathStatus

VERSION: Final = 1
MAX_PATHS: Final = 500
MAX_EVENTS: Final = 50
MAX_DONE: Final = 500
MAX_COUNT: Final = 2**63
_STATES: Final = {status.value for status in PathStatus}


class InvalidReport(PairbusError):
    """Raised when a report does not have the format that the console reads."""


@dataclass(frozen=True, slots=True)
class ReportedPath:
    """The state of a path in one sender."""

    path: str
    state: PathStatus
    since_ms: int
    cause: str | None


@dataclass(frozen=True, slots=True)
class ReportedEvent:
    """An event of a sender, as text."""

    time_ms: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderReport:
    """A valid report."""

    sender_id: str
    host: str
    process: int
    application: str
    started_ms: int
    version: str
    """The version of pairbus in the sender."""
    primary_name: str
    secondary_available: bool
    paths: tuple[ReportedPath, ...]
    omitted_paths: int
    sent: int
    stored: int
    failed: int
    throttled: int
    events: tuple[ReportedEvent, ...]
    done: frozenset[str]
    """The ids of commands that the sender has carried out."""
    closed: bool = False
    """The pairing was closed; this is its last report."""

    @property
    def source(self) -> str:
        """The name of the process on the page."""
        return f"{self.host} · {self.process}"


def parse_report(values: Any) -> SenderReport:
    """Return the report in a JSON value. Raises InvalidReport."""
    match values:
        case {
            "version": int(version),
            "sender": {
                "id": str(sender_id),
                "host": str(host),
                "process": int(process),
                "application": str(application),
                "started_at": str(started_at),
                "pairbus": str(package),
            },
            "primary_name": str(primary_name),
            "secondary_available": bool(secondary_available),
            "paths": list(paths),
            "counts": dict(counts),
            "events": list(events),
        }:
            pass
        case _:
            raise InvalidReport("A key of the report is missing, or a value has the wrong type.")
    if version != VERSION:
        raise InvalidReport(
            f"The report has the version {version}, and this console reads version {VERSION}."
        )
    done = values.get("done", [])
    if len(paths) > MAX_PATHS or len(events) > MAX_EVENTS:
        raise InvalidReport(
            f"A report has at most {MAX_PATHS} paths and {MAX_EVENTS} events, and this one has "
            f"{len(paths)} and {len(events)}."
        )
    if not isinstance(done, list) or len(done) > MAX_DONE:
        raise InvalidReport(f"done must be a list of at most {MAX_DONE} ids.")
    return SenderReport(
        sender_id=_id(sender_id),
        host=label(host),
        process=process,
        application=label(application),
        started_ms=_time_ms(started_at),
        version=clean(package, 50),
        primary_name=label(primary_name),
        secondary_available=secondary_available,
        paths=tuple(map(_path, paths)),
        omitted_paths=_count(values.get("omitted_paths", 0)),
        sent=_count(counts.get("sent")),
        stored=_count(counts.get("stored")),
        failed=_count(counts.get("failed")),
        throttled=_count(counts.get("throttled")),
        events=tuple(map(_event, events)),
        done=frozenset(id for id in done if isinstance(id, str)),
        closed=values.get("closed") is True,
    )


def _path(values: Any) -> ReportedPath:
    match values:
        case {
            "path": str(path),
            "state": str(state),
            "since": str(since),
            "cause": str() | None as cause,
        } if state in _STATES:
            text = None if cause is None else clean(cause)
            return ReportedPath(label(path), PathStatus(state), _time_ms(since), text)
    raise InvalidReport("A path of the report is not valid.")


def _event(values: Any) -> ReportedEvent:
    match values:
        case {"time": str(time), "kind": str(kind), "text": str(text)}:
            return ReportedEvent(_time_ms(time), clean(kind, 50), clean(text, 500))
    raise InvalidReport("An event of the report is not valid.")


def _id(text: str) -> str:
    if not (0 < len(text) <= 64 and text.isascii() and text.isprintable()):
        raise InvalidReport("The id of the sender must have 1 to 64 printable ASCII characters.")
    return text


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_COUNT:
        raise InvalidReport("A count of the report is not an integer of at least 0.")
    return value


def _time_ms(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return int(time.timestamp() * 1000)
    except (ValueError, OverflowError) as exc:
        raise InvalidReport("A time of the report is not in ISO 8601.") from exc
