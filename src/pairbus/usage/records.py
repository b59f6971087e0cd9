"""What stands in a ledger file: a header, then one JSON object on each line.

- the header: format, version, file, ledger, writer, host, pid, started, package
- what was done: time, namespace, entity, kind, part, operations, messages, bytes, units, answered
- a path changed: time, namespace, entity, from_state, to_state, cause
- what is missing: time, dropped, dropped_operations, failed_writes

Times are seconds since 1970, UTC. `namespace` is where something was done, `entity` the path in the
primary that it was done for; where it was for none, such as an idle poll, the backlog queue.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

FORMAT = "pairbus-ledger"
VERSION = 1
HEADER_LIMIT = 4096
"""A header is shorter, and so is every record."""
CAUSE_LIMIT = 200


class Unreadable(Exception):
    """A file, or a part of it, that is no ledger of ours. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHeader:
    """Who wrote a file."""

    file: str
    """Of this file alone: copies are known by it."""
    ledger: str
    """Of all files of one writer, from its start to its end."""
    writer: str
    host: str
    pid: int
    started: float
    package: str

    def line(self) -> bytes:
        return line({"format": FORMAT, "version": VERSION, **asdict(self)})


def line(record: dict[str, Any]) -> bytes:
    # ASCII only, so that no byte of a torn line can be taken for part of another character.
    return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


def read_header(start: bytes) -> LedgerHeader:
    """The header of a file that begins so. Raises Unreadable."""
    first, newline, _ = start[:HEADER_LIMIT].partition(b"\n")
    if FORMAT.encode() not in first:
        raise Unreadable("it is empty" if not start else "it is no ledger")
    try:
        fields = json.loads(first)
        if fields["format"] != FORMAT:
            raise Unreadable("it is no ledger")
    except (ValueError, KeyError, TypeError) as exc:
        raise Unreadable("its header is damaged" if newline else "its header is torn") from exc
    if fields.get("version") != VERSION:
        raise Unreadable(f"its version is {fields.get('version')!r}, and {VERSION} is known here")
    try:
        return LedgerHeader(
            file=_text(fields["file"]),
            ledger=_text(fields["ledger"]),
            writer=_text(fields["writer"]),
            host=_text(fields["host"]),
            pid=int(fields["pid"]),
            started=float(fields["started"]),
            package=_text(fields["package"]),
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise Unreadable("its header is damaged") from exc


def is_torn(end: bytes) -> bool:
    """Whether a file that ends so has half a record at its end."""
    last = end[-HEADER_LIMIT:].rpartition(b"\n")[2]
    if not last:
        return False
    try:
        json.loads(last)
    except ValueError:
        return True
    return False  # all of it but the newline


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(value)
    return value
