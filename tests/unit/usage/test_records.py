"""The format of ledger files, and the billable units of operations."""

import json
from pathlib import Path

import pytest

from pairbus.servicebus.limits import BILLING_UNIT
from pairbus.usage.operations import billable_units
from pairbus.usage.records import (
    LedgerHeader,
    UnreadableLedgerError,
    encode_record,
    is_truncated,
    read_header,
    read_operations,
)

HEADER = LedgerHeader(
    file="f.0", ledger="f", writer="pairing", host="h", pid=7, started=1.5, package="1.0"
)


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    ("size", "units"),
    [
        (0, 1),
        (1, 1),
        (BILLING_UNIT, 1),
        (BILLING_UNIT + 1, 2),
        (2 * BILLING_UNIT, 2),
        (2 * BILLING_UNIT + 1, 3),
        (4 * BILLING_UNIT, 4),
    ],
)
def test_billable_units_are_64_kb_and_at_least_one(size: int, units: int) -> None:
    assert BILLING_UNIT == 64 * 1024
    assert billable_units(size) == units


def test_header_is_read_as_it_was_written() -> None:
    assert read_header(HEADER.encode() + b'{"time":1}\n') == HEADER


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b"", "the file is empty"),
        (b"hello\n", "not a ledger"),
        (b'{"note":"pairbus-ledger"}\n', "the header is damaged"),
        (b'{"format":"pairbus-ledger","vers', "the header is truncated"),
        (
            b'{"format":"pairbus-ledger","version":2}\n',
            "unsupported ledger version 2; this program reads 1",
        ),
        (b'{"format":"pairbus-ledger","version":1,"file":7}\n', "the header is damaged"),
        (b'["pairbus-ledger"]\n', "the header is damaged"),
    ],
)
def test_invalid_header_is_rejected_with_the_reason(start: bytes, reason: str) -> None:
    with pytest.raises(UnreadableLedgerError) as caught:
        read_header(start)

    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("end", "truncated"),
    [
        (b"", False),
        (b'{"time":1}\n', False),
        (b'{"time":1}\n{"time":2}', False),
        (b'{"time":1}\n{"ti', True),
    ],
)
def test_truncated_record_at_the_end_is_detected(end: bytes, truncated: bool) -> None:
    assert is_truncated(end) is truncated


def test_only_operation_records_are_read_from_a_folder(tmp_path: Path) -> None:
    operations = {"time": 1, "kind": "send", "operations": 3}
    state_change = {"time": 1, "from_state": "healthy", "to_state": "suspect"}
    lines = [HEADER.encode(), encode_record(state_change), encode_record(operations)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines) + b'{"time":2,"ki')
    (tmp_path / "b.jsonl").write_bytes(HEADER.encode() + json.dumps(operations).encode())

    assert list(read_operations(tmp_path)) == [operations, operations]
