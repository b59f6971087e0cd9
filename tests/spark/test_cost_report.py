"""The cost report: real ledgers, real Spark, and damaged files."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession

from pairbus.cost.page import render_page
from pairbus.cost.plots import backlog_depths
from pairbus.cost.prices import Tier, read_prices
from pairbus.cost.report import Report, aggregates, condensed, report
from pairbus.cost.report import run as run_of_report
from pairbus.cost.report.result import MAX_ROWS
from pairbus.cost.report.run import report_session
from pairbus.errors import ConfigurationError
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Purpose
from tests.commands import Terminal, run
from tests.waiting import wait_until

# The first test starts Spark.
pytestmark = pytest.mark.timeout(600)

FEW_ROWS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of Spark. For a few rows, compiling a query and planning it again after each stage take
longer than running it."""
PRICES = read_prices()
PRIMARY, SECONDARY = "contoso", "contoso-backup"


class LedgerWriter:
    """Writes a ledger with a clock that the test sets."""

    def __init__(self, folder: Path, writer: str = "pairing") -> None:
        self._now = 0.0
        self.ledger = Ledger(folder, writer=writer, now=lambda: self._now)

    def at(self, text: str) -> "LedgerWriter":
        """Set the clock, in UTC."""
        self._now = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        return self

    def send(self, entity: str, count: int, namespace: str = PRIMARY) -> "LedgerWriter":
        self._add(namespace, entity, OperationKind.SEND, Purpose.TRAFFIC, count)
        return self

    def store(self, entity: str, count: int, namespace: str = SECONDARY) -> "LedgerWriter":
        self._add(namespace, entity, OperationKind.SEND, Purpose.BACKLOG, count)
        return self

    def drain(
        self, entity: str, count: int, *, source: str = SECONDARY, target: str = PRIMARY
    ) -> None:
        self._add(source, entity, OperationKind.RECEIVE, Purpose.DRAIN, count)
        self._add(target, entity, OperationKind.SEND, Purpose.DRAIN, count)
        self._add(source, entity, OperationKind.COMPLETE, Purpose.DRAIN, count, size=0)

    def ping(self, entity: str, *, answered: bool = False) -> "LedgerWriter":
        self.ledger.add(
            namespace=PRIMARY,
            entity=entity,
            kind=OperationKind.PING,
            purpose=Purpose.PINGS,
            bytes=164,
            answered=answered,
        )
        return self

    def change_state(self, entity: str, *states: str, namespace: str = PRIMARY) -> "LedgerWriter":
        for before, after in pairwise(states):
            self.ledger.add_state_change(
                namespace=namespace, entity=entity, from_state=before, to_state=after
            )
        return self

    def _add(
        self,
        namespace: str,
        entity: str,
        kind: OperationKind,
        purpose: Purpose,
        count: int,
        size: int = 1000,
    ) -> None:
        self.ledger.add(
            namespace=namespace,
            entity=entity,
            kind=kind,
            purpose=purpose,
            messages=count,
            bytes=count * size,
        )

    def close(self) -> Path:
        """Close the ledger and return its file."""
        self.ledger.flush()
        path: Path = self.ledger._file._path
        self.ledger.close()
        return path


@pytest.fixture(scope="module")
def spark(session: SparkSession) -> Iterator[SparkSession]:
    small_session = session.newSession()
    for name, value in FEW_ROWS.items():
        small_session.conf.set(name, value)
    yield small_session
    assert small_session.conf.get("spark.sql.session.timeZone") != "Asia/Kolkata"


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the ledgers of two senders and a syphon, with an outage across midnight UTC."""
    folder = tmp_path_factory.mktemp("ledgers")
    first, second = LedgerWriter(folder), LedgerWriter(folder)
    first.at("2026-03-28T12:00:00").send("orders", 100)
    first.at("2026-03-28T23:30:00.5").change_state("orders", "healthy", "suspect", "failover")
    first.store("orders", 10).ping("orders")
    first.at("2026-03-29T00:20:00").store("orders", 20).ping("orders")
    first.at("2026-03-29T00:30:00").ping("orders", answered=True)
    first.change_state("orders", "failover", "healthy")
    # A late record: it is written after records with later times.
    first.at("2026-03-28T11:00:00").send("orders", 7)
    first.close()
    second.at("2026-03-28T23:30:30").change_state("orders", "healthy", "failover")
    second.store("orders", 5)
    second.at("2026-03-29T00:31:00").change_state("orders", "failover", "draining")
    second.store("orders", 1)
    second.at("2026-03-29T00:32:00").change_state("orders", "draining", "healthy")
    second.send("orders", 3)
    second.at("2026-03-29T22:30:00").send("invoices", 2)
    second.close()
    syphon = LedgerWriter(folder, "syphon")
    syphon.at("2026-03-29T00:31:00").drain("orders", 30)
    syphon.at("2026-03-29T01:10:00").drain("orders", 6)
    syphon.ledger.add(
        namespace=SECONDARY,
        entity="b/0",
        kind=OperationKind.POLL,
        purpose=Purpose.IDLE,
        messages=0,
    )
    syphon.close()
    return folder


@pytest.fixture(scope="module")
def berlin(spark: SparkSession, ledgers: Path) -> Report:
    return report(spark, [f"file://{ledgers}"], PRICES, timezone="Europe/Berlin")


def operations(result: Report, table: str) -> dict[str, int]:
    return {key: totals.operations for key, totals in getattr(result, table).items()}


@pytest.mark.rule("C4")
def test_operations_by_purpose_kind_namespace_and_entity(berlin: Report) -> None:
    assert operations(berlin, "by_purpose") == {
        "backlog": 36,
        "drain": 108,
        "idle polls": 1,
        "normal traffic": 112,
        "pings": 1,
    }
    assert operations(berlin, "by_kind") == {
        "complete": 36,
        "ping": 1,
        "poll": 1,
        "receive": 36,
        "send": 184,
    }
    assert operations(berlin, "by_namespace") == {PRIMARY: 149, SECONDARY: 109}
    assert operations(berlin, "by_entity") == {"orders": 255, "invoices": 2, "b/0": 1}
    assert berlin.total.operations == 258
    assert (berlin.records, berlin.files, berlin.problems, berlin.copies) == (18, 3, (), ())


@pytest.mark.rule("C5")
def test_unanswered_operations_are_counted_separately(berlin: Report) -> None:
    pings = berlin.by_purpose["pings"]

    assert (pings.operations, pings.unanswered, pings.bytes) == (1, 2, 164)
    assert berlin.total.unanswered == 2


@pytest.mark.rule("C4")
def test_days_are_those_of_the_time_zone(
    spark: SparkSession, ledgers: Path, berlin: Report
) -> None:
    utc = report(spark, [str(ledgers / "*.jsonl")], PRICES)

    # In Berlin, midnight is 23:00 UTC, and from that night on 22:00 UTC.
    assert operations(berlin, "by_day") == {"2026-03-28": 107, "2026-03-29": 149, "2026-03-30": 2}
    assert operations(utc, "by_day") == {"2026-03-28": 122, "2026-03-29": 136}


@pytest.mark.rule("C4")
def test_outage_lasts_from_the_first_failover_to_the_last_drained_message(berlin: Report) -> None:
    [outage] = berlin.outages

    assert (outage.namespace, outage.entity, outage.open) == (PRIMARY, "orders", False)
    assert outage.start == datetime(2026, 3, 28, 23, 30, 0, 500_000, UTC)
    assert outage.failback == datetime(2026, 3, 29, 0, 32, tzinfo=UTC)
    assert outage.end == datetime(2026, 3, 29, 1, 10, tzinfo=UTC)
    assert (outage.stored, outage.drained, outage.remaining, outage.pings) == (36, 36, 0, 3)
    assert (outage.totals.operations, outage.totals.unanswered) == (36 + 108 + 1, 2)
    assert outage.totals.cost == pytest.approx((36 * 3 * 1000 + 164) * 0.02 / 1e9)


def test_backlog_depth_grows_and_is_zero_at_the_end(berlin: Report) -> None:
    depths = [depth for _, depth in backlog_depths(berlin.series)]

    assert max(depths) == 15 + 20
    assert depths[-1] == 0


@pytest.mark.rule("C4")
def test_page_is_self_contained_and_escapes_text(berlin: Report) -> None:
    totals = next(iter(berlin.by_entity.values()))
    html = render_page(replace(berlin, by_entity={"<script>alert(1)</script>": totals}))

    assert html.count("<svg") == 3
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', html) == []
    assert re.findall(r"@import|url\((?!#)", html) == []
    assert "2026-03-29 00:30:00" in html  # The start of the outage in Berlin.


@pytest.mark.rule("C4")
def test_damaged_files_and_lines_are_listed_and_skipped(
    spark: SparkSession, tmp_path: Path
) -> None:
    def write_sends(count: int) -> Path:
        return LedgerWriter(tmp_path).at("2026-01-01T00:00:00").send("orders", count).close()

    valid = write_sends(1)
    truncated = write_sends(10)
    truncated.write_bytes(
        truncated.read_bytes() + b'{"time":1767225600,"namespace":"contoso","opera'
    )
    line = valid.read_bytes().splitlines()[1]
    damaged = write_sends(100)
    damaged.write_bytes(
        damaged.read_bytes()
        + b"\x00\xff\xfe garbage\n"
        + line.replace(b'"operations":1', b'"operations":-1')
        + b"\n"
        + line.replace(b'"kind":"send"', b'"kind":"fly"')
        + b"\n"
        + line.replace(b'"operations":1', b'"operations":"many"')
        + b"\n"
        + line.replace(b"1767225600", b"1e300")
        + b"\n"
        + line  # A valid record without its newline.
    )
    unusual_name = tmp_path / "odd [1] näme%20.jsonl"
    write_sends(1000).rename(unusual_name)
    newer = tmp_path / "newer.jsonl"
    newer.write_bytes(valid.read_bytes().replace(b'"version":1', b'"version":2'))
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    parquet = tmp_path / "broken.parquet"
    parquet.write_bytes(b"PAR1 and no end")

    result = report(spark, [str(tmp_path), str(unusual_name), str(tmp_path / "gone*")], PRICES)

    problems = {
        (Path(problem.path).name, problem.description, problem.skipped, problem.skipped_lines)
        for problem in result.problems
    }
    assert result.total.operations == 1 + 10 + 100 + 1 + 1000
    assert problems == {
        (truncated.name, "the last record is truncated", False, 1),
        (damaged.name, "invalid records", False, 5),
        (newer.name, "unsupported ledger version 2; this program reads 1", True, 0),
        (text.name, "not a ledger", True, 0),
        (empty.name, "the file is empty", True, 0),
        (parquet.name, "damaged: the header or footer of Parquet is missing", True, 0),
        ("gone*", "no such file", True, 0),
    }
    assert result.problem_count == 7
    html = render_page(result)
    assert all(description in html for _, description, _, _ in problems)


@pytest.mark.rule("C4")
def test_copies_of_a_file_are_counted_once_also_as_parquet(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "ledgers"
    writer = LedgerWriter(folder).at("2026-01-01T00:00:00").send("orders", 1)
    writer.ledger.flush()
    [path] = folder.iterdir()
    older = tmp_path / "older.jsonl"
    older.write_bytes(path.read_bytes())
    writer.send("orders", 10)
    writer.ledger.flush()
    earlier_report = tmp_path / "earlier"
    first = report(spark, [str(older), str(path)], PRICES, out=earlier_report)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    with_copies = report(spark, [str(earlier_report), str(copy), str(older)], PRICES)
    writer.send("orders", 100)
    writer.close()
    with_longer = report(spark, [str(earlier_report), str(folder), str(older)], PRICES)

    assert first.total.operations == 11
    assert [Path(path).name for path in first.copies] == ["older.jsonl"]
    assert with_copies.total.operations == 11
    assert len(with_copies.copies) == 2
    assert with_longer.total.operations == 111
    assert len(with_longer.copies) == 2
    assert not any(result.problems for result in (first, with_copies, with_longer))


@pytest.mark.rule("C4")
@pytest.mark.parametrize("is_small", [True, False])
def test_code_is_generated_for_large_ledgers_only(
    session: SparkSession,
    berlin: Report,
    ledgers: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_small: bool,
) -> None:
    report_sessions: list[SparkSession] = []

    def make_and_keep(*arguments: Any) -> SparkSession:
        report_sessions.append(report_session(*arguments))
        return report_sessions[-1]

    monkeypatch.setattr(run_of_report, "report_session", make_and_keep)
    monkeypatch.setattr(run_of_report, "MAX_SMALL_BYTES", 10**6 if is_small else 1)
    result = report(session, [ledgers], PRICES, timezone="Europe/Berlin")

    setting = "spark.sql.codegen.wholeStage"
    assert [each.conf.get(setting) for each in report_sessions] == [str(not is_small).lower()]
    assert session.conf.get(setting) == "true"
    # Not the costs, which are rounded differently if rows are added up in another order.
    assert operations(result, "by_entity") == operations(berlin, "by_entity")
    assert operations(result, "by_day") == operations(berlin, "by_day")
    assert result.cost == berlin.cost


@pytest.mark.rule("C4")
def test_report_of_condensed_rows_is_the_same(
    spark: SparkSession, ledgers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = "Asia/Kolkata"  # not of whole hours; tests/unit/cost/test_condensed.py has others
    report(spark, [ledgers], PRICES, out=tmp_path / "ür 50%20")
    rows = [tmp_path / "ür 50%20" / "rows"]
    expected = report(spark, rows, PRICES, timezone=zone)
    condensed_frames = []

    def condense_and_keep(*arguments: Any) -> DataFrame | None:
        condensed_frames.append(condensed.condense(*arguments))
        return condensed_frames[-1]

    monkeypatch.setattr(condensed, "MIN_ROWS", 0)
    monkeypatch.setattr(aggregates, "condense", condense_and_keep)
    result = report(spark, rows, PRICES, timezone=zone)
    assert condensed_frames[0] is not None
    assert result == expected
    assert result.total.operations > 0


def test_outages_are_merged_separated_or_open(spark: SparkSession, tmp_path: Path) -> None:
    def hour(text: str) -> str:
        return f"2026-01-01T{text}"

    # Two outages; the second begins while messages of the first are in the backlog.
    sender = LedgerWriter(tmp_path).at(hour("01:00:00"))
    sender.change_state("twice", "healthy", "failover").store("twice", 10)
    sender.at(hour("01:10:00")).change_state("twice", "failover", "healthy")
    sender.at(hour("02:00:00")).change_state("twice", "healthy", "failover").store("twice", 5)
    sender.at(hour("02:10:00")).change_state("twice", "failover", "healthy")
    # No failback.
    sender.at(hour("03:00:00")).change_state("down", "healthy", "failover").store("down", 4)
    # Failback, but a message remains in the backlog.
    sender.change_state("slow", "healthy", "failover").store("slow", 2)
    sender.at(hour("04:00:00")).change_state("slow", "failover", "healthy").send("slow", 1)
    sender.close()
    # A sender that was killed in failover does not keep the outage open after others' failback.
    killed = LedgerWriter(tmp_path).at(hour("05:00:00"))
    killed.change_state("kill", "healthy", "failover").at(hour("05:01:00")).ping("kill").close()
    survivor = LedgerWriter(tmp_path).at(hour("05:00:30"))
    survivor.change_state("kill", "healthy", "failover").at(hour("05:05:00"))
    survivor.change_state("kill", "failover", "healthy").close()
    # Another pairing with an entity of the same name.
    other = LedgerWriter(tmp_path).at(hour("01:00:00"))
    other.change_state("twice", "healthy", "failover", namespace="fabrikam")
    other.store("twice", 100, "fabrikam-backup").at(hour("01:30:00"))
    other.change_state("twice", "failover", "healthy", namespace="fabrikam").close()
    syphon = LedgerWriter(tmp_path, "syphon").at(hour("01:20:00"))
    syphon.drain("twice", 8)
    syphon.drain("twice", 100, source="fabrikam-backup", target="fabrikam")
    syphon.at(hour("02:20:00")).drain("twice", 7)
    syphon.at(hour("04:20:00")).drain("slow", 1)
    syphon.close()

    outages = report(spark, [str(tmp_path)], PRICES).outages

    def clock(time: datetime | None) -> str | None:
        return None if time is None else f"{time:%H:%M}"

    assert sorted(
        (
            outage.namespace,
            outage.entity,
            clock(outage.start),
            clock(outage.end),
            outage.open,
            outage.stored,
            outage.drained,
            outage.remaining,
        )
        for outage in outages
    ) == [
        (PRIMARY, "down", "03:00", None, True, 4, 0, 4),
        (PRIMARY, "kill", "05:00", "05:05", False, 0, 0, 0),
        (PRIMARY, "slow", "03:00", None, True, 2, 1, 1),
        (PRIMARY, "twice", "01:00", "01:20", False, 10, 8, 2),
        (PRIMARY, "twice", "02:00", "02:20", False, 5, 7, 0),
        ("fabrikam", "twice", "01:00", "01:30", False, 100, 100, 0),
    ]
    assert {o.namespace: o.totals.operations for o in outages if o.stored == 100} == {
        "fabrikam": 400
    }


@pytest.mark.rule("C3", "C4")
def test_bands_apply_per_month_and_all_tables_have_the_same_cost(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, out = tmp_path / "ledgers", tmp_path / "out"
    writer = LedgerWriter(folder).at("2026-01-31T23:59:59").send("orders", 20_000_000)
    writer.at("2026-02-01T00:00:00").send("orders", 10_000_000).send("invoices", 4_000_000)
    writer.close()

    result = report(spark, [str(folder)], PRICES, out=out)

    monthly_units = (20_000_000, 14_000_000)
    operations_cost = sum(PRICES.operations_cost(Tier.STANDARD, units) for units in monthly_units)
    assert result.cost == operations_cost + PRICES.bandwidth_cost(34_000_000 * 1000)
    assert result.cost > Decimal("6.4")
    for table in ("by_day", "by_purpose", "by_kind", "by_namespace", "by_entity"):
        table_cost = sum(totals.cost for totals in getattr(result, table).values())
        assert table_cost == pytest.approx(float(result.cost))
    rows = spark.read.parquet(str(out / "by_day")).orderBy("day").collect()
    assert [(row["day"], row["units"]) for row in rows] == [
        (date(2026, 1, 31), 20_000_000),
        (date(2026, 2, 1), 14_000_000),
    ]
    assert spark.read.parquet(str(out / "rows")).count() == 3


def test_ledger_without_records_makes_an_empty_report(spark: SparkSession, tmp_path: Path) -> None:
    path = LedgerWriter(tmp_path).send("orders", 1).close()
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])

    result = report(spark, [path], PRICES, timezone="Asia/Kolkata")

    assert (result.records, result.files, result.cost, result.first) == (0, 1, 0, None)
    assert result.problems == ()
    assert "No operations" in render_page(result)


def test_hidden_rows_and_dropped_records_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path)
    entities = MAX_ROWS + 1
    for number in range(entities):
        writer.at(f"2026-01-01T00:{number // 60:02}:{number % 60:02}").send(f"q{number}", 1)
        writer.change_state(f"q{number}", "healthy", "failover")
    writer.ledger._drop(17)
    writer.close()

    result = report(spark, [tmp_path], PRICES)

    assert (len(result.by_entity), result.entity_count) == (MAX_ROWS, entities)
    assert (len(result.outages), result.outage_count) == (MAX_ROWS, entities)
    assert (result.gaps.dropped, result.gaps.dropped_operations) == (1, 17)
    assert "Dropped records: 1 (operations: 17)" in render_page(result)


def test_invalid_options_are_rejected(spark: SparkSession, ledgers: Path) -> None:
    for options, error in (
        ({"timezone": "Europe/Nowhere"}, "Unknown time zone"),
        ({"timezone": "../etc"}, "Unknown time zone"),
        ({"tier": "golden"}, "Unknown tier"),
        ({"out": ledgers}, "overlaps with the input"),
        ({"out": ledgers / "below"}, "overlaps with the input"),
        ({"out": ledgers.parent}, "overlaps with the input"),
    ):
        with pytest.raises(ConfigurationError, match=error):
            report(spark, [str(ledgers)], PRICES, **options)  # type: ignore[arg-type]


@pytest.mark.rule("C4")
def test_command_writes_tables_page_and_parquet(ledgers: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("hello")
    html, out = tmp_path / "page.html", tmp_path / "out"
    options = ("--out", str(out), "--html", str(html), "--timezone", "Europe/Berlin")
    settings = [f"-D{name}={value}" for name, value in FEW_ROWS.items()]
    variables = {"SPARK_SUBMIT_OPTS": " ".join([os.environ["SPARK_SUBMIT_OPTS"], *settings])}

    process = run(
        *("cost", "report", str(ledgers), str(notes), *options),
        **(variables | {"SPARK_LOCAL_IP": "127.0.0.1"}),
    )

    assert process.returncode == 0, process.stderr
    assert "outages: 1" in process.stdout
    assert len(re.findall(r"^orders +255 ", process.stdout, re.MULTILINE)) == 1
    assert "notes.txt: not a ledger (file skipped)" in process.stderr
    assert html.read_text("utf-8").count("<svg") == 3
    assert {path.name for path in out.iterdir()} == {
        *("rows", "by_day", "by_purpose", "by_kind", "by_namespace", "by_entity"),
        *("outages", "problems"),
    }


def test_interrupted_or_failed_command_prints_one_line(ledgers: Path) -> None:
    with Terminal(100, "cost", "report", str(ledgers)) as terminal:
        wait_until(lambda: "Summing up the ledgers" in terminal.text, "Spark to be running")
        terminal.interrupt()
        assert terminal.exit_status() == 130
    assert terminal.text.splitlines()[-1].endswith("Stopped.")

    process = run("cost", "report", str(ledgers), "--master", "nonsense")

    assert process.returncode == 1
    assert process.stdout == ""
    assert process.stderr == (
        "Spark failed: Master must either be yarn or start with spark, k8s, or local\n"
    )


def test_report_can_be_written_as_json(berlin: Report) -> None:
    data = json.loads(json.dumps(berlin.to_json()))

    assert Decimal(data["cost"]) == berlin.cost
    assert data["outages"][0]["remaining"] == 0
    assert data["timezone"] == "Europe/Berlin"
    assert ZoneInfo(data["timezone"]).utcoffset(datetime(2026, 1, 1)) == timedelta(hours=1)  # noqa: DTZ001
