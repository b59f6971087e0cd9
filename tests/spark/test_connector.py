"""`format("servicebus")`: looking, streaming and sending with Spark."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pairbus.amqp.sections import Message
from tests.spark.kit import Backlog, message

pytestmark = pytest.mark.timeout(120)
FORMAT = "servicebus"


def read(session: SparkSession, text: str, queue: str, **options: str):
    reader = session.read.format(FORMAT).option("connectionString", text).option("queue", queue)
    return reader.options(**options).load()


def test_reading_looks_at_messages_and_takes_none(session: SparkSession, backlog: Backlog) -> None:
    path = backlog.path("orders")
    backlog.put(path, [message(f"m-{n}", session="s", ttl_ms=60_000) for n in range(5)])
    backlog.put(path, [message("other")], queue=1)

    rows = read(session, backlog.secondary.connection_string, ",".join(backlog.queues))
    found = rows.orderBy("queue", "sequence_number").collect()

    assert [row.message_id for row in found] == [*(f"m-{n}" for n in range(5)), "other"]
    assert {row.destination for row in found} == {path}
    assert [row.queue for row in found] == [backlog.queues[0]] * 5 + [backlog.queues[1]]
    assert found[0].sequence_number == 1
    assert found[0].enqueued_time is not None
    assert (found[0].subject, found[0].delivery_count) == ("s", 0)
    assert found[0].application_properties["n"] == "1"
    assert found[0].application_properties["text"] == "é"
    assert Message.parse(bytes(found[0].payload)).read_body()[1] == [b"body"]
    assert backlog.left() == 6


def test_rows_can_be_asked_with_sql_and_columns_chosen(
    session: SparkSession, backlog: Backlog
) -> None:
    path = backlog.path("orders")
    backlog.put(path, [message(f"m-{n}") for n in range(20)])
    rows = (
        session.read.format(FORMAT)
        .schema("destination string, message_id string")
        .option("connectionString", backlog.secondary.connection_string)
        .option("queue", backlog.queues[0])
        .option("maxMessages", "10")
        .load()
    )
    rows.createOrReplaceTempView("backlog")

    [answer] = session.sql(
        "select destination, count(*) as n from backlog group by destination"
    ).collect()

    assert (answer.destination, answer.n) == (path, 10)


def test_a_stream_takes_sends_on_and_completes(
    session: SparkSession, backlog: Backlog, tmp_path: Path
) -> None:
    source, target = backlog.path("source"), backlog.path("target")
    text = backlog.primary.connection_string
    frame = session.createDataFrame(
        [(f"body {n}", f"m-{n}", "s") for n in range(30)],
        "body string, message_id string, session_id string",
    )
    frame.write.format(FORMAT).options(connectionString=text, path=source).mode("append").save()
    assert sorted(backlog.ids(source)) == sorted(f"m-{n}" for n in range(30))

    stream = (
        session.readStream.format(FORMAT)
        .options(connectionString=text, queue=source, maxMessagesPerTrigger="12")
        .load()
        .drop("destination")
        .writeStream.format(FORMAT)
        .options(connectionString=text, path=target, settleConnectionString=text)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination(60)

    assert not stream.isActive
    assert sorted(backlog.ids(target)) == sorted(f"m-{n}" for n in range(30))
    assert backlog.ids(source) == []


def test_secrets_are_not_in_plans(session: SparkSession, backlog: Backlog) -> None:
    text = backlog.secondary.connection_string
    key = text.split("SharedAccessKey=")[1].split(";")[0]
    rows = read(session, text, backlog.queues[0])

    plan = rows._jdf.queryExecution().toString()

    assert FORMAT in plan
    assert key not in plan


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "q"}, "connectionString"),
        ({"connectionString": "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=k"}, "queue"),
        ({"connectionString": "nonsense", "queue": "q"}, "connection string"),
        ({"connectionStringEnv": "NO_SUCH_VARIABLE", "queue": "q"}, "NO_SUCH_VARIABLE"),
        ({"queue": "q", "kewe": "q"}, "kewe"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_a_wrong_option_is_a_clear_error_before_anything_is_received(
    session: SparkSession, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        session.read.format(FORMAT).options(**options).load().collect()
