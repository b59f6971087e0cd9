"""The format of a ledger file: a header, then one JSON object per line.

- header: format, version, file, ledger, writer, host, pid, started, package
- operations: time, namespace, entity, kind, purpose, operations, messages, bytes, units, answered
- state change of a path: time, namespace, entity, from_state, to_state, cause
- gap in the ledger: time, dropped, dropped_operations, failed_writes

Times are seconds since 1970, UTC. `namespace` is the namespace that performed the operation.
`entity` is the path in the primary that the operation was for, or the backlog queue if it was for
no path, as with an idle poll.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORMAT = "pairbus-ledger"
VERSION = 1
MAX_LINE_BYTES = 4096
"""The header and every record are shorter than this."""
MAX_CAUSE_CHARACTERS = 200


class UnreadableLedgerError(Exception):
    """Raised when a file is not a ledger that this version can read. The text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHeader:
    """The first line of a ledger file."""

    file: str
    """The id of this file. Copies of the file have the same id."""
    ledger: str
    """The id of the `Ledger` object, which is the same in all files that it wrote."""
    writer: str
    host: str
    pid: int
    started: float
    package: str

    def encode(self) -> bytes:
        return encode_record({"format": FORMAT, "version": VERSION, **asdict(self)})


def encode_record(record: dict[str, Any]) -> bytes:
    """Return a record as a line of the file."""
    # ASCII only, so that a truncated line cannot end within a character.
    return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


def read_header(start: bytes) -> LedgerHeader:
    """Return the header of a file, given its first bytes. Raises UnreadableLedgerError."""
    first, newline, _ = start[:MAX_LINE_BYTES].partition(b"\n")
    if FORMAT.encode() not in first:
        raise UnreadableLedgerError("not a ledger" if start else "the file is empty")
    try:
        fields = json.loads(first)
        if fields["format"] != FORMAT:
            raise UnreadableLedgerError("not a ledger")
    except (ValueError, KeyError, TypeError) as exc:
        damage = "damaged" if newline else "truncated"
        raise UnreadableLedgerError(f"the header is {damage}") from exc
    if fields.get("version") != VERSION:
        raise UnreadableLedgerError(
            f"unsupported ledger version {fields.get('version')!r}; this program reads {VERSION}"
        )
    try:
        return LedgerHeader(
            file=_non_empty_text(fields["file"]),
            ledger=_non_empty_text(fields["ledger"]),
            writer=_non_empty_text(fields["writer"]),
            host=_non_empty_text(fields["host"]),
            pid=int(fields["pid"]),
            started=float(fields["started"]),
            package=_non_empty_text(fields["package"]),
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise UnreadableLedgerError("the header is damaged") from exc


def is_truncated(end: bytes) -> bool:
    """Return True if a file with these last bytes ends within a record."""
    last = end[-MAX_LINE_BYTES:].rpartition(b"\n")[2]
    if not last:
        return False
    try:
        json.loads(last)
    except ValueError:
        return True
    return False  # Only the newline is missing.


def read_operations(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the operation records of all ledgers in a folder. Truncated records are left out."""
    for path in sorted(folder.iterdir()):
        for line in path.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if "kind" in record:
                yield record


def _non_empty_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(value)
    return value
