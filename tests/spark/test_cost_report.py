"""The report: real ledgers, real Spark, and everything that can be wrong with a file."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from pairbus.cost.page import page
from pairbus.cost.plots import backlog_depths
from pairbus.cost.prices import Tier, read_prices
from pairbus.cost.report import Report, report
from pairbus.cost.report.result import MOST_LINES
from pairbus.errors import ConfigurationError
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Part
from tests.integration.cli_pair_kit import Terminal, run, wait_until

# Spark starts with the first of them.
pytestmark = pytest.mark.timeout(600)

PRICES = read_prices()
PRIMARY, SECONDARY = "contoso", "contoso-backup"


class Writer:
    """A ledger whose clock is set by hand."""

    def __init__(self, folder: Path, writer: str = "pairing") -> None:
        self._at = 0.0
        self.ledger = Ledger(folder, writer=writer, now=lambda: self._at)

    def at(self, text: str) -> "Writer":
        """What follows happens then, UTC."""
        self._at = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        return self

    def sends(self, entity: str, count: int, namespace: str = PRIMARY) -> "Writer":
        self._add(namespace, entity, OperationKind.SEND, Part.TRAFFIC, count)
        return self

    def stores(self, entity: str, count: int, namespace: str = SECONDARY) -> "Writer":
        self._add(namespace, entity, OperationKind.SEND, Part.BACKLOG, count)
        return self

    def drains(self, entity: str, count: int, *, at: str = SECONDARY, to: str = PRIMARY) -> None:
        self._add(at, entity, OperationKind.RECEIVE, Part.DRAIN, count)
        self._add(to, entity, OperationKind.SEND, Part.DRAIN, count)
        self._add(at, entity, OperationKind.COMPLETE, Part.DRAIN, count, size=0)

    def pings(self, entity: str, *, answered: bool = False) -> "Writer":
        self.ledger.add(
            namespace=PRIMARY,
            entity=entity,
            kind=OperationKind.PING,
            part=Part.PINGS,
            bytes=164,
            answered=answered,
        )
        return self

    def becomes(self, entity: str, *states: str, namespace: str = PRIMARY) -> "Writer":
        for before, after in pairwise(states):
            self.ledger.change(
                namespace=namespace, entity=entity, from_state=before, to_state=after
            )
        return self

    def _add(
        self,
        namespace: str,
        entity: str,
        kind: OperationKind,
        part: Part,
        count: int,
        size: int = 1000,
    ) -> None:
        self.ledger.add(
            namespace=namespace,
            entity=entity,
            kind=kind,
            part=part,
            messages=count,
            bytes=count * size,
        )

    def close(self) -> Path:
        """The file."""
        self.ledger.flush()
        path: Path = self.ledger._file._path
        self.ledger.close()
        return path


@pytest.fixture(scope="module")
def spark(session: SparkSession) -> Iterator[SparkSession]:
    small = session.newSession()
    small.conf.set("spark.sql.shuffle.partitions", "2")
    # For a few rows it takes longer to compile a query than to interpret it.
    small.conf.set("spark.sql.codegen.wholeStage", "false")
    small.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield small
    assert small.conf.get("spark.sql.session.timeZone") != "Asia/Kolkata"


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two senders and a syphon; an outage across midnight UTC; records late and out of order."""
    folder = tmp_path_factory.mktemp("ledgers")
    one, two = Writer(folder), Writer(folder)
    one.at("2026-03-28T12:00:00").sends("orders", 100)
    one.at("2026-03-28T23:30:00.5").becomes("orders", "healthy", "suspect", "failover")
    one.stores("orders", 10).pings("orders")
    one.at("2026-03-29T00:20:00").stores("orders", 20).pings("orders")
    one.at("2026-03-29T00:30:00").pings("orders", answered=True)
    one.becomes("orders", "failover", "healthy")
    # Late: it is written after what came later.
    one.at("2026-03-28T11:00:00").sends("orders", 7)
    one.close()
    two.at("2026-03-28T23:30:30").becomes("orders", "healthy", "failover").stores("orders", 5)
    two.at("2026-03-29T00:31:00").becomes("orders", "failover", "draining")
    two.stores("orders", 1)
    two.at("2026-03-29T00:32:00").becomes("orders", "draining", "healthy").sends("orders", 3)
    two.at("2026-03-29T22:30:00").sends("invoices", 2)
    two.close()
    syphon = Writer(folder, "syphon")
    syphon.at("2026-03-29T00:31:00").drains("orders", 30)
    syphon.at("2026-03-29T01:10:00").drains("orders", 6)
    syphon.ledger.add(
        namespace=SECONDARY, entity="b/0", kind=OperationKind.POLL, part=Part.IDLE, messages=0
    )
    syphon.close()
    return folder


@pytest.fixture(scope="module")
def berlin(spark: SparkSession, ledgers: Path) -> Report:
    return report(spark, [f"file://{ledgers}"], PRICES, timezone="Europe/Berlin")


def operations(found: Report, by: str) -> dict[str, int]:
    return {key: sums.operations for key, sums in getattr(found, by).items()}


@pytest.mark.rule("C4")
def test_sums_by_part_kind_namespace_and_entity(berlin: Report) -> None:
    assert operations(berlin, "by_part") == {
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
def test_what_was_never_answered_is_a_column_of_its_own(berlin: Report) -> None:
    pings = berlin.by_part["pings"]

    assert (pings.operations, pings.unanswered, pings.bytes) == (1, 2, 164)
    assert berlin.total.unanswered == 2


@pytest.mark.rule("C4")
def test_days_are_those_of_the_time_zone(
    spark: SparkSession, ledgers: Path, berlin: Report
) -> None:
    there = operations(berlin, "by_day")
    utc = operations(report(spark, [str(ledgers / "*.jsonl")], PRICES), "by_day")

    # In Berlin midnight is 23:00 UTC, and from that night on 22:00.
    assert there == {"2026-03-28": 107, "2026-03-29": 149, "2026-03-30": 2}
    assert utc == {"2026-03-28": 122, "2026-03-29": 136}


@pytest.mark.rule("C4")
def test_outage_is_from_the_first_failover_to_the_last_message_home(berlin: Report) -> None:
    [one] = berlin.outages

    assert (one.namespace, one.entity, one.open) == (PRIMARY, "orders", False)
    assert one.start == datetime(2026, 3, 28, 23, 30, 0, 500_000, UTC)
    assert one.failback == datetime(2026, 3, 29, 0, 32, tzinfo=UTC)
    assert one.end == datetime(2026, 3, 29, 1, 10, tzinfo=UTC)
    assert (one.stored, one.home, one.left, one.pings) == (36, 36, 0, 3)
    assert (one.sums.operations, one.sums.unanswered) == (36 + 108 + 1, 2)
    assert one.sums.money == pytest.approx((36 * 3 * 1000 + 164) * 0.02 / 1e9)


def test_backlog_grows_and_is_empty_at_the_end(berlin: Report) -> None:
    depths = [depth for _, depth in backlog_depths(berlin.series)]

    assert max(depths) == 15 + 20
    assert depths[-1] == 0


@pytest.mark.rule("C4")
def test_page_needs_nothing_else_and_escapes_what_it_shows(berlin: Report) -> None:
    sums = next(iter(berlin.by_entity.values()))
    text = page(replace(berlin, by_entity={"<script>alert(1)</script>": sums}))

    assert text.count("<svg") == 3
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', text) == []
    assert re.findall(r"@import|url\((?!#)", text) == []
    assert "2026-03-29 00:30:00" in text  # the start, in Berlin


@pytest.mark.rule("C4")
def test_damage_is_named_counted_and_costs_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = Writer(tmp_path).at("2026-01-01T00:00:00").sends("orders", 1).close()
    torn = Writer(tmp_path).at("2026-01-01T00:00:00").sends("orders", 10).close()
    torn.write_bytes(torn.read_bytes() + b'{"time":1767225600,"namespace":"contoso","opera')
    line = good.read_bytes().splitlines()[1]
    bad = Writer(tmp_path).at("2026-01-01T00:00:00").sends("orders", 100).close()
    bad.write_bytes(
        bad.read_bytes()
        + b"\x00\xff\xfe garbage\n"
        + line.replace(b'"operations":1', b'"operations":-1')
        + b"\n"
        + line.replace(b'"kind":"send"', b'"kind":"fly"')
        + b"\n"
        + line.replace(b'"operations":1', b'"operations":"many"')
        + b"\n"
        + line.replace(b"1767225600", b"1e300")
        + b"\n"
        + line  # whole, but for its newline
    )
    names = tmp_path / "odd [1] näme%20.jsonl"
    Writer(tmp_path).at("2026-01-01T00:00:00").sends("orders", 1000).close().rename(names)
    newer = tmp_path / "newer.jsonl"
    newer.write_bytes(good.read_bytes().replace(b'"version":1', b'"version":2'))
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and no end")

    found = report(spark, [str(tmp_path), str(names), str(tmp_path / "gone*")], PRICES)

    problems = {(Path(one.path).name, one.what, one.skipped, one.lines) for one in found.problems}
    assert found.total.operations == 1 + 10 + 100 + 1 + 1000
    assert problems == {
        (torn.name, "half a record at its end", False, 1),
        (bad.name, "lines that are no records", False, 5),
        (newer.name, "its version is 2, and 1 is known here", True, 0),
        (other.name, "it is no ledger", True, 0),
        (empty.name, "it is empty", True, 0),
        (broken.name, "it is damaged: Parquet without a beginning or an end", True, 0),
        ("gone*", "there is no such file", True, 0),
    }
    assert found.problem_count == 7
    text = page(found)
    assert all(what in text for _, what, _, _ in problems)


@pytest.mark.rule("C4")
def test_copies_of_a_file_count_once_also_as_parquet(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "ledgers"
    writer = Writer(folder).at("2026-01-01T00:00:00").sends("orders", 1)
    writer.ledger.flush()
    [path] = folder.iterdir()
    older = tmp_path / "older.jsonl"
    older.write_bytes(path.read_bytes())
    writer.sends("orders", 10)
    writer.ledger.flush()
    before = tmp_path / "before"
    first = report(spark, [str(older), str(path)], PRICES, out=before)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    again = report(spark, [str(before), str(copy), str(older)], PRICES)
    writer.sends("orders", 100)
    writer.close()
    longer = report(spark, [str(before), str(folder), str(older)], PRICES)

    assert first.total.operations == 11
    assert [Path(one).name for one in first.copies] == ["older.jsonl"]
    assert again.total.operations == 11
    assert len(again.copies) == 2
    assert longer.total.operations == 111
    assert len(longer.copies) == 2
    assert not any(found.problems for found in (first, again, longer))


@pytest.mark.rule("C4")
def test_outages_that_overlap_follow_each_other_or_are_open(
    spark: SparkSession, tmp_path: Path
) -> None:
    def hour(text: str) -> str:
        return f"2026-01-01T{text}"

    # Twice, the second while messages of the first are still in the backlog.
    one = Writer(tmp_path).at(hour("01:00:00")).becomes("twice", "healthy", "failover")
    one.stores("twice", 10).at(hour("01:10:00")).becomes("twice", "failover", "healthy")
    one.at(hour("02:00:00")).becomes("twice", "healthy", "failover").stores("twice", 5)
    one.at(hour("02:10:00")).becomes("twice", "failover", "healthy")
    # Never back.
    one.at(hour("03:00:00")).becomes("down", "healthy", "failover").stores("down", 4)
    # Back, but a message is not home.
    one.becomes("slow", "healthy", "failover").stores("slow", 2)
    one.at(hour("04:00:00")).becomes("slow", "failover", "healthy").sends("slow", 1)
    one.close()
    # A sender that was killed in failover is not waited for once another has gone back.
    killed = Writer(tmp_path).at(hour("05:00:00")).becomes("kill", "healthy", "failover")
    killed.at(hour("05:01:00")).pings("kill").close()
    other = Writer(tmp_path).at(hour("05:00:30")).becomes("kill", "healthy", "failover")
    other.at(hour("05:05:00")).becomes("kill", "failover", "healthy").close()
    # Another pair of namespaces, the same name.
    pair = Writer(tmp_path).at(hour("01:00:00"))
    pair.becomes("twice", "healthy", "failover", namespace="fabrikam")
    pair.stores("twice", 100, "fabrikam-backup").at(hour("01:30:00"))
    pair.becomes("twice", "failover", "healthy", namespace="fabrikam").close()
    syphon = Writer(tmp_path, "syphon").at(hour("01:20:00"))
    syphon.drains("twice", 8)
    syphon.drains("twice", 100, at="fabrikam-backup", to="fabrikam")
    syphon.at(hour("02:20:00")).drains("twice", 7)
    syphon.at(hour("04:20:00")).drains("slow", 1)
    syphon.close()

    found = report(spark, [str(tmp_path)], PRICES).outages

    def clock(when: datetime | None) -> str | None:
        return None if when is None else f"{when:%H:%M}"

    assert sorted(
        (o.namespace, o.entity, clock(o.start), clock(o.end), o.open, o.stored, o.home, o.left)
        for o in found
    ) == [
        (PRIMARY, "down", "03:00", None, True, 4, 0, 4),
        (PRIMARY, "kill", "05:00", "05:05", False, 0, 0, 0),
        (PRIMARY, "slow", "03:00", None, True, 2, 1, 1),
        (PRIMARY, "twice", "01:00", "01:20", False, 10, 8, 2),
        (PRIMARY, "twice", "02:00", "02:20", False, 5, 7, 0),
        ("fabrikam", "twice", "01:00", "01:30", False, 100, 100, 0),
    ]
    assert {o.namespace: o.sums.operations for o in found if o.stored == 100} == {"fabrikam": 400}


@pytest.mark.rule("C3", "C4")
def test_money_is_by_month_and_tables_add_up(spark: SparkSession, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "l").at("2026-01-31T23:59:59").sends("orders", 20_000_000)
    writer.at("2026-02-01T00:00:00").sends("orders", 10_000_000).sends("invoices", 4_000_000)
    writer.close()
    out = tmp_path / "out"

    found = report(spark, [str(tmp_path / "l")], PRICES, out=out)

    months = (20_000_000, 14_000_000)
    money = sum(PRICES.operations(Tier.STANDARD, units) for units in months)
    assert found.money == money + PRICES.bandwidth(34_000_000 * 1000)
    assert found.money > Decimal("6.4")
    for by in ("by_day", "by_part", "by_kind", "by_namespace", "by_entity"):
        shares = sum(sums.money for sums in getattr(found, by).values())
        assert shares == pytest.approx(float(found.money))
    rows = spark.read.parquet(str(out / "by_day")).orderBy("day").collect()
    assert [(row["day"], row["units"]) for row in rows] == [
        (date(2026, 1, 31), 20_000_000),
        (date(2026, 2, 1), 14_000_000),
    ]
    assert spark.read.parquet(str(out / "rows")).count() == 3


def test_ledger_without_a_record_makes_an_empty_report(spark: SparkSession, tmp_path: Path) -> None:
    path = Writer(tmp_path).sends("orders", 1).close()
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])

    found = report(spark, [path], PRICES, timezone="Asia/Kolkata")

    assert (found.records, found.files, found.money, found.first) == (0, 1, 0, None)
    assert found.problems == ()
    assert "Nothing was done" in page(found)


def test_what_is_not_shown_is_counted_and_what_the_writer_dropped_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = Writer(tmp_path)
    many = MOST_LINES + 1
    for number in range(many):
        writer.at(f"2026-01-01T00:{number // 60:02}:{number % 60:02}").sends(f"q{number}", 1)
        writer.becomes(f"q{number}", "healthy", "failover")
    writer.ledger._drop(17)
    writer.close()

    found = report(spark, [tmp_path], PRICES)

    assert (len(found.by_entity), found.entities) == (MOST_LINES, many)
    assert (len(found.outages), found.outage_count) == (MOST_LINES, many)
    assert (found.missing.dropped, found.missing.dropped_operations) == (1, 17)
    assert "17 operations were dropped" in page(found)


def test_wrong_settings_are_told(spark: SparkSession, ledgers: Path) -> None:
    for settings in (
        {"timezone": "Europe/Nowhere"},
        {"timezone": "../etc"},
        {"tier": "golden"},
        {"out": ledgers},
        {"out": ledgers / "below"},
        {"out": ledgers.parent},
    ):
        with pytest.raises(ConfigurationError):
            report(spark, [str(ledgers)], PRICES, **settings)  # type: ignore[arg-type]


@pytest.mark.rule("C4")
def test_command_writes_tables_a_page_and_parquet(ledgers: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("hello")
    html, out = tmp_path / "page.html", tmp_path / "out"
    command = [sys.executable, "-m", "pairbus", "cost", "report", str(ledgers), str(notes)]
    options = ["--out", str(out), "--html", str(html), "--timezone", "Europe/Berlin"]

    ended = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1", "SPARK_LOCAL_IP": "127.0.0.1"},
    )

    assert ended.returncode == 0, ended.stderr
    assert "outages: 1" in ended.stdout
    orders = re.findall(r"^orders +255 ", ended.stdout, re.MULTILINE)
    assert len(orders) == 1
    assert "notes.txt: it is no ledger: skipped" in ended.stderr
    assert html.read_text("utf-8").count("<svg") == 3
    assert {path.name for path in out.iterdir()} == {
        *("rows", "by_day", "by_part", "by_kind", "by_namespace", "by_entity"),
        *("outages", "problems"),
    }


def test_command_that_is_stopped_or_fails_says_so_in_a_line(ledgers: Path) -> None:
    with Terminal(100, "cost", "report", str(ledgers)) as terminal:
        wait_until(lambda: "Summing up the ledgers" in terminal.text, "Spark to be at work")
        terminal.interrupt()
        assert terminal.exit_status() == 130
    assert terminal.text.splitlines()[-1].endswith("Stopped.")

    ended = run("cost", "report", str(ledgers), "--master", "nonsense")

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr == (
        "Spark failed: Master must either be yarn or start with spark, k8s, or local\n"
    )


def test_plain_report_is_json(berlin: Report) -> None:
    found = json.loads(json.dumps(berlin.plain()))

    assert Decimal(found["money"]) == berlin.money
    assert found["outages"][0]["left"] == 0
    assert found["timezone"] == "Europe/Berlin"
    assert ZoneInfo(found["timezone"]).utcoffset(datetime(2026, 1, 1)) == timedelta(hours=1)  # noqa: DTZ001
