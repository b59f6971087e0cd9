"""The cost report over 1, 10 and 50 million ledger rows compared with DuckDB, and `Ledger.add`.

Spark generates the same rows in each run and writes them as Parquet. Both sides compute the same
sums of the same files (by day, namespace, entity, kind and purpose) in the same run, and the
results must be equal. The report runs on Spark with all cores of this machine, in a separate
process. DuckDB has as many threads, also in a separate process. Memory is the peak of the total of
all processes of a side. BENCH_COST_ROWS=1 runs the benchmark with one million rows only.
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
from pairbus.usage.operations import OperationKind, Purpose

DUCKDB = "DuckDB"
MILLIONS = tuple(int(n) for n in os.environ.get("BENCH_COST_ROWS", "1,10,50").split(","))
MILLION = 1_000_000
LINES = 1_000_000
ADDS = 200_000
SUMS_AIM = 0.6
"""Of DuckDB's rows per second."""
MIN_AIM_MILLIONS = 10
"""With fewer rows, the start of a query takes most of the time."""
LINES_AIM = 300_000
"""Rows per second."""
ROUNDS = 2
LINES_ROUNDS = 4
"""Java compiles the code of Spark while the first ones run."""
MAX_REPEATED_MILLIONS = 10
"""Larger inputs are measured once, not in several rounds."""
ROWS_PER_SECOND = Unit("rows per second", more_is_better=True, digits=0)
CALL_TIME = Unit("µs per call")
BYTES_PER_ROW = Unit("additional bytes per row", digits=0)
START = 1767225600
"""2026-01-01, UTC."""
SECONDS = 90 * 86400

_ROWS = f"""
SELECT
  timestamp_seconds({START} + pmod(xxhash64(id, 1), {SECONDS})) AS time,
  'operations' AS record,
  IF(kind IN ('ping', 'send') AND purpose <> 'backlog', 'contoso', 'contoso-backup') AS namespace,
  concat('queue-', pmod(xxhash64(id, 2), 200)) AS entity,
  kind,
  purpose,
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
    ) AS purpose
  FROM (SELECT id, CAST(1 + pmod(xxhash64(id, 4), 6) AS INT) AS which FROM range({{count}}))
)
"""
_SUMS = """
SELECT
  CAST(time AT TIME ZONE 'UTC' AS DATE) AS day, namespace, entity, kind, purpose,
  CAST(sum(CASE WHEN answered THEN operations ELSE 0 END) AS BIGINT) AS operations,
  CAST(sum(CASE WHEN answered THEN messages ELSE 0 END) AS BIGINT) AS messages,
  CAST(sum(CASE WHEN answered THEN units ELSE 0 END) AS BIGINT) AS units,
  CAST(sum(CASE WHEN answered THEN bytes ELSE 0 END) AS BIGINT) AS bytes,
  CAST(sum(CASE WHEN answered THEN 0 ELSE operations END) AS BIGINT) AS unanswered
FROM read_parquet($path) WHERE record = 'operations'
GROUP BY ALL
"""
_DIFFERENCES = """
SELECT count(*), sum(operations), sum(messages), sum(units), sum(bytes), sum(unanswered) FROM (
  (SELECT * FROM read_parquet($ours) EXCEPT ALL SELECT * FROM read_parquet($theirs))
  UNION ALL
  (SELECT * FROM read_parquet($theirs) EXCEPT ALL SELECT * FROM read_parquet($ours))
)
"""


class Worker:
    """A process that executes commands, given as lines of JSON."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cost", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read_response()  # the worker is ready

    def run(self, **command: Any) -> Any:
        """Execute a command and return the response."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._read_response()

    def _read_response(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended with status {self._process.wait()}")
        return json.loads(line)

    def run_measured(self, **command: Any) -> tuple[Any, float]:
        """Execute a command and return the response and the peak memory in MB."""
        with Watch(self._process.pid, "all") as watch:
            response = self.run(**command)
        return response, watch.usage().peak_mb["all"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def print_progress(text: str) -> None:
    print(f"cost: {text} …", file=sys.stderr, flush=True)


@contextmanager
def started_worker(name: str) -> Iterator[Worker]:
    worker = Worker(name)
    try:
        yield worker
    finally:
        worker.close()


def figures(rounds: int) -> list[Figure]:
    lines_rounds, rounds = min(rounds, LINES_ROUNDS), min(rounds, ROUNDS)
    result = [measure_add(rounds)]
    with tempfile.TemporaryDirectory("-pairbus") as name:
        folder = Path(name)
        with started_worker("spark") as spark:
            for millions in MILLIONS:
                print_progress(f"generating {millions} M rows")
                count = millions * MILLION
                spark.run(action="generate", path=f"{folder}/{millions}", count=count)
            write_ledger(folder / "lines")
            result.append(measure_parsing(spark, folder, lines_rounds))
            speeds, memory = measure_sums(spark, folder, rounds)
        result += speeds
        result += memory
        with started_worker("spark") as spark:
            result += measure_reports(spark, folder, rounds)
    return result


def measure_sums(spark: Worker, folder: Path, rounds: int) -> tuple[list[Figure], list[Figure]]:
    """Measure the aggregation over all rows on both sides."""
    speeds, memory = [], []
    peaks: dict[str, dict[int, float]] = {OURS: {}, DUCKDB: {}}
    for millions in MILLIONS:
        best: dict[str, float] = {}
        rows = f"{folder}/{millions}"
        with started_worker("duckdb") as duckdb:
            for _ in range(rounds if millions <= MAX_REPEATED_MILLIONS else 1):
                for name, worker in ((OURS, spark), (DUCKDB, duckdb)):
                    out = f"{folder}/{name}-{millions}"
                    print_progress(f"sums of {millions} M rows, {name}")
                    response, peak = worker.run_measured(action="sum", path=rows, out=out)
                    rate = ROWS_PER_SECOND.convert(Timed(response["seconds"], millions * MILLION))
                    best[name] = max(rate, best.get(name, 0.0))
                    peaks[name][millions] = max(peak, peaks[name].get(millions, 0.0))
            comparison = duckdb.run(
                action="compare",
                ours=f"{folder}/{OURS}-{millions}",
                theirs=f"{folder}/{DUCKDB}-{millions}",
            )
        assert comparison["different"] == 0, comparison
        assert comparison["total"] > 0
        remark = f"{comparison['total']:,} sums, equal on both sides"
        aim = SUMS_AIM if millions >= MIN_AIM_MILLIONS else None
        name = f"sums of {millions} M rows"
        speeds.append(Figure(name, best, ROWS_PER_SECOND, aim, remark=remark))
        sizes = {name: peaks[name][millions] for name in best}
        memory.append(Figure(f"sums of {millions} M rows, memory", sizes, MEGABYTES))
    if len(MILLIONS) > 1:
        first, last = MILLIONS[0], MILLIONS[-1]
        growth = max(0.0, (peaks[OURS][last] - peaks[OURS][first]) * 1e6)
        per_row = growth / ((last - first) * MILLION)
        # The aim is 0, and a ratio to 0 has no meaning: there is no contender.
        title = f"memory growth, {first} M to {last} M rows"
        memory.append(Figure(title, {OURS: per_row}, BYTES_PER_ROW))
    return speeds, memory


def measure_reports(spark: Worker, folder: Path, rounds: int) -> list[Figure]:
    """Measure whole reports: sums, time series, outages and the largest entities."""
    result = []
    for millions in MILLIONS:
        best, most = 0.0, 0.0
        for _ in range(rounds if millions <= MAX_REPEATED_MILLIONS else 1):
            print_progress(f"whole report of {millions} M rows")
            response, peak = spark.run_measured(action="report", path=f"{folder}/{millions}")
            assert response["records"] == millions * MILLION
            rate = ROWS_PER_SECOND.convert(Timed(response["seconds"], millions * MILLION))
            best, most = max(rate, best), max(peak, most)
        result.append(Figure(f"whole report of {millions} M rows", {OURS: best}, ROWS_PER_SECOND))
        result.append(Figure(f"whole report of {millions} M, memory", {OURS: most}, MEGABYTES))
    return result


def measure_parsing(spark: Worker, folder: Path, rounds: int) -> Figure:
    """Measure the conversion of ledger files to Parquet rows."""
    best = 0.0
    for _ in range(rounds):
        print_progress(f"ledger files of {LINES:,} records to rows")
        response = spark.run(action="parse", path=f"{folder}/lines", out=f"{folder}/parsed")
        assert response["rows"] == LINES
        best = max(best, ROWS_PER_SECOND.convert(Timed(response["seconds"], LINES)))
    name = f"ledger files to rows, {LINES:,}"
    return Figure(name, {OURS: best}, ROWS_PER_SECOND, LINES_AIM, aim_is_value=True)


def measure_add(rounds: int) -> Figure:
    """Measure the CPU time of a call that records a send."""
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
                        purpose=Purpose.TRAFFIC,
                        bytes=900,
                    )
                best = min(best, (time.thread_time() - start) / ADDS * 1e6)
    return Figure("Ledger.add", {OURS: best}, CALL_TIME)


def write_ledger(folder: Path) -> None:
    """Write ledger files as a paired client does."""
    clock = [float(START)]
    ledger = Ledger(folder, writer="pairing", now=lambda: clock[0])
    for number in range(LINES):
        clock[0] = START + number / 8
        ledger.add(
            namespace="contoso",
            entity=f"queue-{number % 200}",
            kind=OperationKind.SEND,
            purpose=Purpose.TRAFFIC,
            messages=1 + number % 50,
            bytes=900,
        )
        if number % 5000 == 4999:
            ledger.flush()
    ledger.close()


def spark_actions() -> Callable[[dict[str, Any]], Any]:
    from pyspark.sql import Observation

    from pairbus.cost.prices import read_prices
    from pairbus.cost.report import report
    from pairbus.cost.report.aggregates import sum_by_day
    from pairbus.cost.report.files import HadoopFiles, find_input
    from pairbus.cost.report.rows import LedgerRows, read_lines, valid_rows
    from pairbus.cost.report.run import report_session
    from pairbus.spark.sessions import Workload, create_session

    spark = create_session(None, "pairbus-bench", workload=Workload.QUERIES)
    spark = report_session(spark, "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))

    def execute(command: dict[str, Any]) -> Any:
        start = time.perf_counter()
        match command["action"]:
            case "generate":
                rows = spark.sql(_ROWS.format(count=command["count"]))
                rows.write.parquet(command["path"])
                return {}
            case "sum":
                files = find_input(HadoopFiles(spark), [command["path"]]).parquet
                rows = LedgerRows(spark.read.parquet(command["path"]), tuple(files))
                sum_by_day(rows).write.mode("overwrite").parquet(command["out"])
                return {"seconds": time.perf_counter() - start}
            case "report":
                result = report(spark, [command["path"]], read_prices())
                return {"seconds": time.perf_counter() - start, "records": result.records}
            case "parse":
                ledgers = find_input(HadoopFiles(spark), [command["path"]]).ledgers
                lines = read_lines(spark, ledgers)
                valid_rows(lines, Observation()).write.mode("overwrite").parquet(command["out"])
                seconds = time.perf_counter() - start
                return {"seconds": seconds, "rows": spark.read.parquet(command["out"]).count()}
        raise AssertionError(command)

    return execute


def duckdb_actions() -> Callable[[dict[str, Any]], Any]:
    import duckdb

    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")

    def execute(command: dict[str, Any]) -> Any:
        start = time.perf_counter()
        match command["action"]:
            case "sum":
                query = _SUMS.replace("$path", f"'{command['path']}/*.parquet'")
                Path(command["out"]).mkdir(exist_ok=True)
                out = f"{command['out']}/all.parquet"
                database.execute(f"COPY ({query}) TO '{out}' (FORMAT parquet)")
                return {"seconds": time.perf_counter() - start}
            case "compare":
                ours, theirs = (f"'{command[name]}/*.parquet'" for name in ("ours", "theirs"))
                query = _DIFFERENCES.replace("$ours", ours).replace("$theirs", theirs)
                different = database.execute(query).fetchone()
                total = database.execute(f"SELECT count(*) FROM read_parquet({ours})").fetchone()
                assert different is not None
                assert total is not None
                return {"different": different[0], "total": total[0]}
        raise AssertionError(command)

    return execute


def serve(name: str) -> None:
    execute = {"spark": spark_actions, "duckdb": duckdb_actions}[name]()
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(execute(json.loads(line))), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
