"""Rows of Parquet files, condensed with Arrow."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairbus.cost.report import condensed

START = datetime(2026, 3, 28, 21, 59, 59, tzinfo=UTC)
"""Two hours before the end of the day on which Berlin changes to summer time."""
NUMBERS = ("operations", "messages", "units", "bytes")
Key = tuple[Any, ...]


def make_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "time": START + timedelta(minutes=17 * number),
            "record": "operations",
            "namespace": f"namespace-{number % 2}",
            "entity": f"queue-{number % 3}",
            "kind": "send",
            "purpose": "backlog" if number % 5 else "drain",
            "answered": number % 7 > 0,
            "operations": number,
            "messages": number % 4,
            "units": 1,
            "bytes": 1000 * number,
        }
        for number in range(count)
    ]


def write_rows(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    schema = pa.schema(
        [
            ("time", pa.timestamp("us", "UTC")),
            *[(n, pa.string()) for n in ("record", "namespace", "entity", "kind", "purpose")],
            ("answered", pa.bool_()),
            *[(name, pa.int64()) for name in NUMBERS],
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), path, **options)
    return path


def sums_of(rows: list[dict[str, Any]], zone: str) -> dict[Key, list[int]]:
    sums: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in rows:
        day = row["day"] if "day" in row else row["time"].astimezone(ZoneInfo(zone)).date()
        keys = ("record", "namespace", "entity", "kind", "purpose", "answered")
        total = sums[day, *(row[key] for key in keys)]
        for position, name in enumerate(NUMBERS):
            total[position] += row[name] or 0
    return dict(sums)


def condense(*paths: Path, zone: str = "UTC") -> list[dict[str, Any]]:
    groups = [group[:2] for path in paths for group in condensed._row_groups(str(path))]
    batches = condensed._condense_row_groups(groups, zone)
    return pa.Table.from_batches(batches, condensed._SCHEMA).to_pylist()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condensed, "ROWS_PER_BATCH", 8)
    monkeypatch.setattr(condensed, "MAX_PARTIAL_SUMS", 3)
    monkeypatch.setattr(condensed, "MAX_BATCHES", 7)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns"])
@pytest.mark.parametrize("int96", [False, True])
def test_condensed_rows_have_the_same_sums(tmp_path: Path, zone: str, int96: bool) -> None:
    rows = make_rows(500)
    path = write_rows(
        tmp_path / "rows.parquet",
        rows,
        row_group_size=90,
        use_deprecated_int96_timestamps=int96,
    )
    result = condense(path, zone=zone)
    assert len(result) < len(rows)
    assert sums_of(result, zone) == sums_of(rows, zone)


@pytest.mark.usefixtures("small_batches")
def test_files_with_different_texts_are_condensed_together(tmp_path: Path) -> None:
    first, second = make_rows(40), make_rows(60)[20:]
    for row in second[::3]:
        row["entity"] = "größe-東京"
    paths = [
        write_rows(tmp_path / "a.parquet", first),
        write_rows(tmp_path / "b.parquet", second, use_dictionary=False),
    ]
    assert sums_of(condense(*paths), "UTC") == sums_of([*first, *second], "UTC")


def test_missing_values_stay_missing(tmp_path: Path) -> None:
    change = dict.fromkeys(make_rows(1)[0]) | {"time": START, "record": "state_change"}
    change["entity"] = "orders"
    path = write_rows(tmp_path / "rows.parquet", [change, *make_rows(1)])
    found = [row for row in condense(path) if row["record"] == "state_change"]
    expected = {name: change.get(name) for name in condensed._SCHEMA.names}
    assert found == [expected | {"day": START.date()}]


@pytest.mark.usefixtures("small_batches")
def test_large_numbers_are_left_to_spark(tmp_path: Path) -> None:
    rows = make_rows(40)
    for row in rows[8:16]:  # one batch
        row["bytes"] = 2**62
    result = condense(write_rows(tmp_path / "rows.parquet", rows))
    assert [row["bytes"] for row in result].count(2**62) == 8
    assert sums_of(result, "UTC") == sums_of(rows, "UTC")


def test_largest_sum_does_not_overflow() -> None:
    rows = condensed.MAX_ADDEND * condensed.ROWS_PER_BATCH * condensed.MAX_BATCHES
    assert rows < 2**63


def test_tasks_have_about_as_many_rows_each() -> None:
    groups = [("a", 0, 100), ("a", 1, 10), ("b", 0, 60), ("b", 1, 50)]
    assert condensed._divide(groups, 2) == [[("a", 0), ("a", 1)], [("b", 0), ("b", 1)]]
    assert condensed._divide(groups[:1], 4) == [[("a", 0)]]


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("/data/rows", "/data/rows"),
        ("file:/data/50%20 {a}", "/data/50%20 {a}"),
        ("file:///data/rows", "/data/rows"),
        ("hdfs://node/data/rows", None),
        ("abfss://container@account/rows", None),
    ],
)
def test_only_files_of_this_machine_have_a_local_path(file: str, path: str | None) -> None:
    assert condensed._local_path(file) == path


def test_unknown_time_zone_is_left_to_spark() -> None:
    assert condensed._knows_time_zone("Europe/Berlin")
    assert condensed._knows_time_zone("+01:00")
    assert not condensed._knows_time_zone("Nowhere/Else")
