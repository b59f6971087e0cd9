"""Filters, transformations and the archive of a syphon."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pairbus.errors import ConfigurationError
from pairbus.syphon import Syphon
from tests.backlog import Backlog
from tests.messages import message, numbered
from tests.spark.conftest import Drain, MakeSyphon
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.rule("Y11")]


def test_messages_that_a_condition_drops_stay_and_the_rest_is_archived(
    backlog: Backlog, drain: Drain, session: SparkSession, tmp_path: Path
) -> None:
    path = backlog.path("one")
    backlog.put(path, [*numbered(30, "a"), *numbered(30, "b", session="s")])
    backlog.put_raw([message("no destination")], queue=1)

    status = drain(
        where="message_id LIKE 'b-%' AND session_id = 's' AND application_properties['n'] = '1' "
        "AND enqueued_time > '2020-01-01' AND sequence_number > 0 AND subject = 's'",
        archive=str(tmp_path),
    )

    assert backlog.ids(path) == [f"b-{n}" for n in range(30)]
    assert (status.drained, status.problem) == (True, None)
    assert status.dead_lettered.total() == 1
    assert backlog.left() == 30
    archived = session.read.parquet(str(tmp_path)).select("message_id", "destination").collect()
    assert set(archived) == {(id, path) for id in backlog.ids(path)}


def test_transformation_changes_destination_and_payload_and_drops_rows(
    backlog: Backlog, session: SparkSession
) -> None:
    one, two = backlog.path("one"), backlog.path("two")
    backlog.put(one, numbered(20))
    other = message("rewritten")

    def transform(rows: DataFrame) -> DataFrame:
        number = F.substring_index("message_id", "-", -1).cast("int")
        return (
            rows.where(number < 10)
            .withColumn("destination", F.when(number < 5, F.lit(two)).otherwise(F.lit(one)))
            .withColumn("payload", F.when(number == 0, F.lit(other)).otherwise(F.col("payload")))
        )

    with Syphon(backlog.options(), spark=session, transform=transform) as syphon:
        wait_until(lambda: syphon.status().moved.total() == 10, "ten messages")

    assert backlog.ids(two) == ["rewritten", "m-1", "m-2", "m-3", "m-4"]
    assert backlog.ids(one) == [f"m-{n}" for n in range(5, 10)]
    assert backlog.left() == 10


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("destinatoin = 'orders'", "where is not a valid condition: .*destinatoin"),
        ("destination = ", "where is not a valid condition: .*[Ss]yntax"),
        ("payload", "where is not a valid condition: "),
        ("count(*) > 1", "where is not a valid condition: "),
    ],
)
def test_invalid_condition_is_an_error_before_anything_moves(
    backlog: Backlog, make_syphon: MakeSyphon, where: str, error: str
) -> None:
    path = backlog.path("one")
    backlog.put(path, numbered(1))

    with pytest.raises(ConfigurationError, match=error) as caught:
        make_syphon(where=where).start()

    assert len(str(caught.value).splitlines()) == 1
    assert backlog.ids(path) == []


@pytest.mark.parametrize(
    ("transform", "error"),
    [
        (lambda rows: None, "must return a DataFrame"),
        (lambda rows: rows.drop("lock_token"), "must keep the column lock_token"),
        (lambda rows: rows.withColumn("payload", F.lit("x")), "type of the column payload"),
        (lambda rows: rows.union(rows), "operator Union"),
        (lambda rows: rows.withColumn("x", F.explode(F.array(F.lit(1), F.lit(2)))), "Generate"),
        (lambda rows: rows.repartition(3), "operator Repartition"),
        (lambda rows: rows.dropDuplicates(["message_id"]), "operator Deduplicate"),
        (lambda rows: rows.select("no_such_column"), "transform is not valid: .*no_such_column"),
    ],
    ids=["result", "column", "type", "union", "explode", "repartition", "duplicates", "analysis"],
)
def test_transformation_that_could_lose_or_add_rows_is_refused(
    backlog: Backlog,
    session: SparkSession,
    transform: Callable[[DataFrame], DataFrame],
    error: str,
) -> None:
    with pytest.raises(ConfigurationError, match=error):
        Syphon(backlog.options(), spark=session, transform=transform).start()


def test_dropped_messages_are_not_received_again_when_their_locks_end(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    backlog.put(backlog.path("one"), numbered(40))

    with make_syphon(where="message_id = 'other'") as syphon:
        wait_until(lambda: syphon.status().batches == 1, "a micro-batch without a message")
        received = backlog.receives()
        backlog.secondary.advance(timedelta(seconds=90))
        reports = syphon._reports
        ended_at = time.time()
        wait_until(lambda: reports.read()[0].reported_at > ended_at + 1, "another report")
        status = syphon.status()

    assert received == 40
    assert backlog.receives() <= 42, "at most the poll of each queue ended"
    assert (status.running, status.healthy, status.moved.total()) == (True, True, 0)
