"""The cost report over ledgers of 1, 10 and 50 million rows, beside DuckDB; what a ledger costs.

The rows are made by Spark, always the same ones, and written as Parquet. Both sides make the same
sums of the same files, by day, namespace, entity, kind and part, in the same run, and must agree to
the last unit. Ours is Spark with all cores of this machine, in a process of its own; DuckDB has as
many threads, in a process of its own, too. Memory is the most that all processes of a side held at
one moment. BENCH_COST_ROWS=1 tries it with a million rows only.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import MEGABYTES, OURS, Figure, Timed, Unit
from benchmarks.syphon_tree import Watch
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Part

DUCKDB = "DuckDB"
MILLIONS = tuple(int(n) for n in os.environ.get("BENCH_COST_ROWS", "1,10,50").split(","))
MILLION = 1_000_000
LINES = 1_000_000
ADDS = 200_000
ROUNDS = 2
SHORT = 10
"""Million rows that are gone through more than once."""
ROWS_A_SECOND = Unit("rows a second", more_is_better=True, digits=0)
ADD = Unit("µs a call")
BYTES_A_ROW = Unit("bytes a row more", digits=0)
START = 1767225600
"""2026-01-01, UTC."""
SECONDS = 90 * 86400

_ROWS = f"""
SELECT
  timestamp_seconds({START} + pmod(xxhash64(id, 1), {SECONDS})) AS time,
  'done' AS record,
  IF(kind IN ('ping', 'send') AND part <> 'backlog', 'contoso', 'contoso-backup') AS namespace,
  concat('queue-', pmod(xxhash64(id, 2), 200)) AS entity,
  kind,
  part,
  messages AS operations,
  messages,
  messages * 900 AS bytes,
  messages AS units,
  kind <> 'ping' OR id % 3 = 0 AS answered,
  CAST(NULL AS STRING) AS from_state,
  CAST(NULL AS STRING) AS to_state,
  CAST(NULL AS STRING) AS cause,
  CAST(NULL AS BIGINT) AS dropped,
  CAST(NULL AS BIGINT) AS dropped_operations,
  CAST(NULL AS BIGINT) AS failed_writes,
  concat('file-', id DIV 1000000) AS file,
  CAST(1 AS BIGINT) AS file_bytes,
  concat('ledger-', id DIV 1000000) AS ledger,
  'pairing' AS writer
FROM (
  SELECT
    id,
    1 + pmod(xxhash64(id, 3), 50) AS messages,
    element_at(array('send', 'send', 'receive', 'send', 'complete', 'ping'), which) AS kind,
    element_at(
      array('normal traffic', 'backlog', 'drain', 'drain', 'drain', 'pings'), which
    ) AS part
  FROM (SELECT id, CAST(1 + pmod(xxhash64(id, 4), 6) AS INT) AS which FROM range({{count}}))
)
"""
_SUMS = """
SELECT
  CAST(time AT TIME ZONE 'UTC' AS DATE) AS day, namespace, entity, kind, part,
  CAST(sum(CASE WHEN answered THEN operations ELSE 0 END) AS BIGINT) AS operations,
  CAST(sum(CASE WHEN answered THEN messages ELSE 0 END) AS BIGINT) AS messages,
  CAST(sum(CASE WHEN answered THEN units ELSE 0 END) AS BIGINT) AS units,
  CAST(sum(CASE WHEN answered THEN bytes ELSE 0 END) AS BIGINT) AS bytes,
  CAST(sum(CASE WHEN answered THEN 0 ELSE operations END) AS BIGINT) AS unanswered
FROM read_parquet($path) WHERE record = 'done'
GROUP BY ALL
"""
_CHECK = """
SELECT count(*), sum(operations), sum(messages), sum(units), sum(bytes), sum(unanswered) FROM (
  (SELECT * FROM read_parquet($ours) EXCEPT ALL SELECT * FROM read_parquet($theirs))
  UNION ALL
  (SELECT * FROM read_parquet($theirs) EXCEPT ALL SELECT * FROM read_parquet($ours))
)
"""


class Side:
    """A process that does what it is told in lines of JSON, watched while it does."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cost", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.start_up = self.tell()

    def tell(self, **order: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if order:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"it ended: {self._process.wait()}")
        return json.loads(answer)

    def watched(self, **order: Any) -> tuple[Any, float]:
        """The answer, and the most memory in MB."""
        with Watch(self._process.pid, "all") as watch:
            answer = self.tell(**order)
        return answer, watch.usage().peak_mb["all"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def say(what: str) -> None:
    print(f"cost: {what} …", file=sys.stderr, flush=True)


@contextmanager
def side(name: str) -> Iterator[Side]:
    found = Side(name)
    try:
        yield found
    finally:
        found.close()


def figures(rounds: int) -> list[Figure]:
    rounds = min(rounds, ROUNDS)
    result = [adding(rounds)]
    with tempfile.TemporaryDirectory("-pairbus") as name:
        folder = Path(name)
        with side("spark") as ours:
            for millions in MILLIONS:
                say(f"making {millions} M rows")
                ours.tell(do="make", path=f"{folder}/{millions}", count=millions * MILLION)
            write_lines(folder / "lines")
            result.append(parsing(ours, folder, rounds))
            speeds, memory = summing(ours, folder, rounds)
        result += speeds
        result += memory
        with side("spark") as ours:
            result += whole(ours, folder, rounds)
    return result


def summing(ours: Side, folder: Path, rounds: int) -> tuple[list[Figure], list[Figure]]:
    """The one aggregation over all rows, on both sides."""
    speeds, memory = [], []
    peaks: dict[str, dict[int, float]] = {OURS: {}, DUCKDB: {}}
    for millions in MILLIONS:
        best: dict[str, float] = {}
        rows = f"{folder}/{millions}"
        with side("duckdb") as theirs:
            for _ in range(rounds if millions <= SHORT else 1):
                for name, one in ((OURS, ours), (DUCKDB, theirs)):
                    out = f"{folder}/{name}-{millions}"
                    say(f"sums of {millions} M rows, {name}")
                    answer, peak = one.watched(do="sum", path=rows, out=out)
                    rate = ROWS_A_SECOND.of(Timed(answer["seconds"], millions * MILLION))
                    best[name] = max(rate, best.get(name, 0.0))
                    peaks[name][millions] = max(peak, peaks[name].get(millions, 0.0))
            different = theirs.tell(
                do="compare",
                ours=f"{folder}/{OURS}-{millions}",
                theirs=f"{folder}/{DUCKDB}-{millions}",
            )
        assert different["rows"] == 0, different
        assert different["all"] > 0
        what = f"{different['all']:,} sums, the same on both sides"
        speeds.append(Figure(f"sums of {millions} M rows", best, ROWS_A_SECOND, remark=what))
        sizes = {name: peaks[name][millions] for name in best}
        memory.append(Figure(f"sums of {millions} M rows, memory", sizes, MEGABYTES))
    if len(MILLIONS) > 1:
        first, last = MILLIONS[0], MILLIONS[-1]
        grown = {
            name: max(0.0, (found[last] - found[first]) * 1e6 / ((last - first) * MILLION))
            for name, found in peaks.items()
        }
        # None at all is the aim; a ratio of nothing would say nothing.
        memory.append(
            Figure(f"memory, {first} M to {last} M rows", {OURS: grown[OURS]}, BYTES_A_ROW)
        )
    return speeds, memory


def whole(ours: Side, folder: Path, rounds: int) -> list[Figure]:
    """A whole report: sums, plots' points, outages, the entities with most charges."""
    result = []
    for millions in MILLIONS:
        best, most = 0.0, 0.0
        for _ in range(rounds if millions <= SHORT else 1):
            say(f"whole report of {millions} M rows")
            answer, peak = ours.watched(do="report", path=f"{folder}/{millions}")
            assert answer["records"] == millions * MILLION
            rate = ROWS_A_SECOND.of(Timed(answer["seconds"], millions * MILLION))
            best, most = max(rate, best), max(peak, most)
        result.append(Figure(f"whole report of {millions} M rows", {OURS: best}, ROWS_A_SECOND))
        result.append(Figure(f"whole report of {millions} M, memory", {OURS: most}, MEGABYTES))
    return result


def parsing(ours: Side, folder: Path, rounds: int) -> Figure:
    """Ledger files to rows in Parquet."""
    best = 0.0
    for _ in range(rounds):
        say(f"ledger files of {LINES:,} records to rows")
        answer = ours.tell(do="parse", path=f"{folder}/lines", out=f"{folder}/parsed")
        assert answer["rows"] == LINES
        best = max(best, ROWS_A_SECOND.of(Timed(answer["seconds"], LINES)))
    return Figure(f"ledger files to rows, {LINES:,}", {OURS: best}, ROWS_A_SECOND)


def adding(rounds: int) -> Figure:
    """What a call costs that notes a send, in CPU time of its thread."""
    best = float("inf")
    with tempfile.TemporaryDirectory("-pairbus") as folder:
        for _ in range(max(rounds, 3)):
            with Ledger(folder, writer="pairing") as ledger:
                start = time.thread_time()
                for _ in range(ADDS):
                    ledger.add(
                        namespace="contoso",
                        entity="orders",
                        kind=OperationKind.SEND,
                        part=Part.TRAFFIC,
                        bytes=900,
                    )
                best = min(best, (time.thread_time() - start) / ADDS * 1e6)
    return Figure("Ledger.add", {OURS: best}, ADD)


def write_lines(folder: Path) -> None:
    """Ledger files as a paired client writes them."""
    clock = [float(START)]
    ledger = Ledger(folder, writer="pairing", now=lambda: clock[0])
    for number in range(LINES):
        clock[0] = START + number / 8
        ledger.add(
            namespace="contoso",
            entity=f"queue-{number % 200}",
            kind=OperationKind.SEND,
            part=Part.TRAFFIC,
            messages=1 + number % 50,
            bytes=900,
        )
        if number % 5000 == 4999:
            ledger.flush()
    ledger.close()


def spark_side() -> Callable[[dict[str, Any]], Any]:
    from pyspark.sql import Observation

    from pairbus.cost.prices import read_prices
    from pairbus.cost.report import report
    from pairbus.cost.report.files import Disk, find
    from pairbus.cost.report.rows import clean, read_lines
    from pairbus.cost.report.tables import cube
    from pairbus.spark.sessions import create_session

    spark = create_session(None, "pairbus-bench", fast_start=False)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))

    def do(order: dict[str, Any]) -> Any:
        start = time.perf_counter()
        match order["do"]:
            case "make":
                rows = spark.sql(_ROWS.format(count=order["count"]))
                rows.write.parquet(order["path"])
                return {}
            case "sum":
                summed = cube(spark.read.parquet(order["path"]))
                summed.write.mode("overwrite").parquet(order["out"])
                return {"seconds": time.perf_counter() - start}
            case "report":
                found = report(spark, [order["path"]], read_prices())
                return {"seconds": time.perf_counter() - start, "records": found.records}
            case "parse":
                files = find(Disk(spark), [order["path"]]).ledgers
                rows = clean(read_lines(spark, files), Observation())
                rows.write.mode("overwrite").parquet(order["out"])
                took = time.perf_counter() - start
                return {"seconds": took, "rows": spark.read.parquet(order["out"]).count()}
        raise AssertionError(order)

    return do


def duckdb_side() -> Callable[[dict[str, Any]], Any]:
    import duckdb

    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")

    def do(order: dict[str, Any]) -> Any:
        start = time.perf_counter()
        match order["do"]:
            case "sum":
                found = _SUMS.replace("$path", f"'{order['path']}/*.parquet'")
                Path(order["out"]).mkdir(exist_ok=True)
                db.execute(f"COPY ({found}) TO '{order['out']}/all.parquet' (FORMAT parquet)")
                return {"seconds": time.perf_counter() - start}
            case "compare":
                ours, theirs = (f"'{order[name]}/*.parquet'" for name in ("ours", "theirs"))
                check = _CHECK.replace("$ours", ours).replace("$theirs", theirs)
                different = db.execute(check).fetchone()
                count = db.execute(f"SELECT count(*) FROM read_parquet({ours})").fetchone()
                assert different is not None
                assert count is not None
                return {"rows": different[0], "all": count[0]}
        raise AssertionError(order)

    return do


def serve(name: str) -> None:
    do = {"spark": spark_side, "duckdb": duckdb_side}[name]()
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(do(json.loads(line))), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
