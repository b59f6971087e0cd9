"""Builds the report of a pairing to a console, within the limits of its format. No I/O, no clock.

A report shows the state of the moment. If not everything fits, the states of paths matter most:
first the texts of their causes become shorter, then paths are left out, healthy ones first.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pairbus.events import (
    BacklogQueueMismatch,
    BacklogQueuePulled,
    BacklogQueueRestored,
    DrainStalled,
    Event,
    PathStatus,
    Pinged,
    SecondaryRestored,
    SecondaryUnavailable,
    StateChanged,
    SyphonStarted,
    SyphonStopped,
)
from pairbus.pairing.snapshots import PairingStatus, PathSnapshot

VERSION = 1
MAX_BYTES = 64 * 1024
MAX_PATHS = 500
MAX_EVENTS = 50
MAX_EVENT_BYTES = 16 * 1024
"""The most bytes of all events of a report, so that they leave room for the paths."""
MAX_TEXT = 300
"""The most characters of a name or of the text of an error."""
CAUSE_LENGTHS = (MAX_TEXT, 60, 0)
"""The lengths that are tried for the causes of paths, until all paths fit."""

JsonObject = dict[str, Any]

_URGENCY = {
    PathStatus.FAILOVER: 0,
    PathStatus.DRAINING: 1,
    PathStatus.SUSPECT: 2,
    PathStatus.HEALTHY: 3,
}
_SECRET = re.compile(
    r"\b(?P<name>SharedAccessKey=|SharedAccessSignature[= ]|sig=|Bearer )[^\s;&,'\"]+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderIdentity:
    """The part of a report that stays the same for as long as a pairing exists."""

    id: str
    host: str
    process: int
    application: str
    started_at: datetime
    version: str
    """The version of pairbus."""
    primary_name: str
    backlog_queues: int


# Events.


def is_reported(event: Event) -> bool:
    """Return False for the result of a ping that changes nothing, and for events of other kinds
    than those of this module."""
    return type(event) in _DESCRIPTIONS and (not isinstance(event, Pinged) or event.refused)


def describe_event(event: Event) -> JsonObject:
    """Return an event for a report."""
    return {
        "time": format_time(event.when),
        "kind": type(event).__name__,
        "path": shorten(getattr(event, "path", None)),
        "text": shorten(_DESCRIPTIONS[type(event)](event), 2 * MAX_TEXT),
    }


def _state_changed(event: StateChanged) -> str:
    change = f"{event.path}: {event.from_state.value} → {event.to_state.value}"
    return change + _in_parentheses(event.cause)


def _mismatch(event: BacklogQueueMismatch) -> str:
    expected = event.expected or "empty"
    return (
        f"{event.setting} of {event.queue} is {event.value} instead of {expected}: "
        f"{event.consequence}"
    )


def _syphon_stopped(event: SyphonStopped) -> str:
    if event.error is None:
        return "The syphon of this process stopped"
    return f"The syphon of this process stopped and is restarted{_in_parentheses(event.error)}"


_DESCRIPTIONS: Mapping[type[Event], Callable[[Any], str]] = {
    StateChanged: _state_changed,
    Pinged: lambda event: (
        f"{event.path}: the primary refused the ping{_in_parentheses(event.error)}"
    ),
    BacklogQueueMismatch: _mismatch,
    BacklogQueuePulled: lambda event: (
        f"Backlog queue {event.queue} failed and is not used for a while"
        f"{_in_parentheses(event.cause)}"
    ),
    BacklogQueueRestored: lambda event: f"Backlog queue {event.queue} is used again",
    SecondaryUnavailable: lambda event: (
        f"The secondary cannot be reached{_in_parentheses(event.cause)}"
    ),
    SecondaryRestored: lambda event: "The secondary can be reached again",
    DrainStalled: lambda event: (
        f"{event.path}: the primary is back, but the backlog does not shrink"
        f"{_in_parentheses(event.error)}"
    ),
    SyphonStarted: lambda event: "The syphon of this process started",
    SyphonStopped: _syphon_stopped,
}


# Reports.


def build_report(
    status: PairingStatus,
    identity: SenderIdentity,
    events: Sequence[JsonObject],
    *,
    time: datetime,
    done: Sequence[str] = (),
    closed: bool = False,
) -> bytes:
    """Return a report in JSON, of at most `MAX_BYTES`. `events` are the results of
    `describe_event`, oldest first; `done` are the ids of commands that were carried out. `closed`
    marks the last report of a pairing."""
    counters = status.counters
    report: JsonObject = {
        "version": VERSION,
        "time": format_time(time),
        "sender": {
            "id": identity.id,
            "host": shorten(identity.host),
            "process": identity.process,
            "application": shorten(identity.application),
            "started_at": format_time(identity.started_at),
            "pairbus": shorten(identity.version),
        },
        "primary": shorten(status.primary),
        "secondary": shorten(status.secondary),
        "primary_name": shorten(identity.primary_name),
        "backlog_queues": identity.backlog_queues,
        "secondary_available": status.secondary_host.reachable,
        "counts": {
            "sent": counters.sent,
            "stored": counters.stored,
            "failed": sum(counters.failed.values()),
            "throttled": counters.throttled,
        },
        "events": _newest(events, MAX_EVENT_BYTES),
        "done": list(done),
        "omitted_paths": len(status.paths),  # the number is replaced by one that is not longer
        "paths": [],
    }
    if closed:
        report["closed"] = True
    paths = _paths(status.paths, MAX_BYTES - len(encode(report)))
    report["paths"] = paths
    report["omitted_paths"] = len(status.paths) - len(paths)
    if not report["omitted_paths"]:
        del report["omitted_paths"]
    if not report["done"]:
        del report["done"]
    return encode(report)


def _newest(events: Sequence[JsonObject], size: int) -> list[JsonObject]:
    """Return the newest events that fit, oldest first."""
    return _fitting(list(events)[: -MAX_EVENTS - 1 : -1], size)[::-1]


def _paths(paths: Mapping[str, PathSnapshot], size: int) -> list[JsonObject]:
    """Return the most important paths that fit."""
    urgent = sorted(paths.items(), key=lambda item: (_URGENCY[item[1].status], item[0]))
    urgent = urgent[:MAX_PATHS]
    fitting: list[JsonObject] = []
    for length in CAUSE_LENGTHS:
        fitting = _fitting([_path(name, path, length) for name, path in urgent], size)
        if len(fitting) == len(urgent):
            break
    return fitting


def _path(name: str, path: PathSnapshot, cause_length: int) -> JsonObject:
    return {
        # A shorter name would be that of another path.
        "path": _encodable(name),
        "state": path.status.value,
        "since": format_time(path.since),
        "cause": shorten(describe_error(path.cause), cause_length) or None,
    }


def _fitting(items: Iterable[JsonObject], size: int) -> list[JsonObject]:
    """Return the items that fit, in their order. An item that does not fit is left out."""
    fitting = []
    for item in items:
        length = len(encode(item)) + 1  # with the comma
        if length <= size:
            size -= length
            fitting.append(item)
    return fitting


def encode(value: JsonObject) -> bytes:
    """Return a value in JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# Texts.


def format_time(time: datetime) -> str:
    """Return a time in UTC with milliseconds, such as `2030-01-02T12:00:00.000Z`."""
    text = time.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def describe_error(error: BaseException | None) -> str | None:
    """Return the class and the text of an error, without keys and tokens."""
    if error is None:
        return None
    try:
        text = str(error)[: 10 * MAX_TEXT]
    except Exception:  # noqa: BLE001  an error of the application may not even have a text
        text = ""
    text = _SECRET.sub(r"\g<name>…", text)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _in_parentheses(error: BaseException | None) -> str:
    return "" if error is None else f" ({shorten(describe_error(error))})"


def shorten(text: str | None, length: int = MAX_TEXT) -> str | None:
    """Return a text on one line, of at most so many characters."""
    if text is None:
        return None
    text = _encodable(" ".join(text[: 10 * MAX_TEXT].split()))
    return text if len(text) <= length else text[: max(0, length - 1)] + "…" * (length > 0)


def _encodable(text: str) -> str:
    """Return a text without surrogates, which have no encoding in UTF-8."""
    return text.encode(errors="replace").decode()
