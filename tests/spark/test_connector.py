"""The connector `format("servicebus")`: peek, stream and send with Spark."""

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from examples.connector import demo
from pairbus.amqp.client import Client, ClientOptions, Management, Receiver, Sender
from pairbus.amqp.sections import Message
from pairbus.servicebus.management import DEAD_LETTERED
from pairbus.spark.connector_options import ConnectorOptions
from tests.backlog import Backlog
from tests.messages import message, numbered
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
FORMAT = "servicebus"
ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "connector" / "demo.py"
PAGE = (ROOT / "docs" / "reference" / "connector.md").read_text()
HOST = "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=k"


def read(session: SparkSession, text: str, queue: str, **options: str):
    reader = session.read.format(FORMAT).option("connectionString", text).option("queue", queue)
    return reader.options(**options).load()


def move(
    session: SparkSession,
    checkpoint: Path,
    source: dict[str, str],
    target: dict[str, str],
    *columns: str,
) -> None:
    """Stream the available messages to a target, and complete them in their source."""
    rows = session.readStream.format(FORMAT).options(**source).load()
    rows = rows.selectExpr(*columns) if columns else rows.drop("destination")
    stream = (
        rows.writeStream.format(FORMAT)
        .options(settleConnectionString=source["connectionString"], **target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(250)
    assert stream.exception() is None


def receive(session: SparkSession, checkpoint: Path, **options: str) -> None:
    """Stream the available messages, and discard them."""
    rows = session.readStream.format(FORMAT).options(**options).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    assert query.trigger(availableNow=True).start().awaitTermination(250)


def test_batch_read_peeks_and_does_not_receive(session: SparkSession, backlog: Backlog) -> None:
    path = backlog.path("orders")
    backlog.put(path, [message(f"m-{n}", session="s", ttl_ms=60_000) for n in range(5)])
    backlog.put(path, [message("other")], queue=1)

    rows = read(session, backlog.secondary.connection_string, ",".join(backlog.queues))
    peeked = rows.orderBy("queue", "sequence_number").collect()

    assert [row.message_id for row in peeked] == [*(f"m-{n}" for n in range(5)), "other"]
    assert {row.destination for row in peeked} == {path}
    assert [row.queue for row in peeked] == [backlog.queues[0]] * 5 + [backlog.queues[1]]
    assert peeked[0].sequence_number == 1
    assert peeked[0].enqueued_time is not None
    assert (peeked[0].subject, peeked[0].delivery_count) == ("s", 0)
    assert peeked[0].application_properties["n"] == "1"
    assert peeked[0].application_properties["text"] == "é"
    assert Message.parse(bytes(peeked[0].payload)).read_body()[1] == [b"body"]
    assert backlog.left() == 6


def test_rows_can_be_queried_with_sql_and_some_columns(
    session: SparkSession, backlog: Backlog
) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(20))
    rows = (
        session.read.format(FORMAT)
        .schema("destination string, message_id string")
        .option("connectionString", backlog.secondary.connection_string)
        .option("queue", backlog.queues[0])
        .option("maxMessages", "10")
        .load()
    )
    rows.createOrReplaceTempView("backlog")

    [row] = session.sql(
        "select destination, count(*) as n from backlog group by destination"
    ).collect()

    assert (row.destination, row.n) == (path, 10)


def test_stream_receives_sends_and_completes(
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

    move(
        session,
        tmp_path,
        {"connectionString": text, "queue": source, "maxMessagesPerTrigger": "12"},
        {"connectionString": text, "path": target},
    )

    assert sorted(backlog.ids(target)) == sorted(f"m-{n}" for n in range(30))
    assert backlog.ids(source) == []


@pytest.mark.rule("Y8")
def test_available_now_stream_waits_for_messages_that_another_receiver_has_locked(
    session: SparkSession, backlog: Backlog, tmp_path: Path
) -> None:
    target, text = backlog.path("target"), backlog.secondary.connection_string
    backlog.put_raw(numbered(3))
    ended = threading.Event()
    with backlog.locked(1) as locked, ThreadPoolExecutor(1) as executor:

        def complete_later() -> None:
            wait_until(lambda: ended.is_set() or backlog.peeks() >= 2, "the check to be repeated")
            assert not ended.is_set()
            assert backlog.ids(target) == ["m-1", "m-2"]
            locked.complete()

        completed = executor.submit(complete_later)
        try:
            move(
                session,
                tmp_path,
                {"connectionString": text, "queue": backlog.queues[0]},
                {"connectionString": backlog.primary.connection_string, "path": target},
            )
        finally:
            ended.set()
        assert backlog.left() == 0
        completed.result()

    assert backlog.ids(target) == ["m-1", "m-2"]


def test_secrets_are_not_in_plans(session: SparkSession, backlog: Backlog) -> None:
    text = backlog.secondary.connection_string
    key = text.split("SharedAccessKey=")[1].split(";")[0]
    rows = read(session, text, backlog.queues[0])

    plan = rows._jdf.queryExecution().toString()

    assert FORMAT in plan
    assert key not in plan


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"queue": "q"}, "connectionString"),
        ({"connectionString": HOST}, "queue"),
        ({"connectionString": "nonsense", "queue": "q"}, "connection string"),
        ({"connectionStringEnv": "NO_SUCH_VARIABLE", "queue": "q"}, "NO_SUCH_VARIABLE"),
        ({"queue": "q", "kewe": "q"}, "kewe"),
        ({"connectionString": HOST, "queue": "q", "maxMessages": "many"}, "maxMessages"),
        ({"connectionString": HOST, "queue": "q", "transport": "udp"}, "transport must be"),
        ({"connectionString": HOST, "queue": "q", "proxy": "ftp://x"}, "URL of the proxy"),
        ({"connectionString": HOST, "queue": "q", "proxyEnv": "NO_SUCH_PROXY"}, "NO_SUCH_PROXY"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_invalid_option_of_a_read_is_an_error(
    session: SparkSession, options: dict[str, str], error: str
) -> None:
    with pytest.raises(PySparkException, match=error):
        session.read.format(FORMAT).options(**options).load().collect()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"connectionString": HOST}, "queue"),
        ({"connectionString": HOST, "queue": "q", "pollSeconds": "0"}, "pollSeconds"),
        ({"connectionString": HOST, "queue": "q", "maxMessagesPerTrigger": "-1"}, "maxMess"),
    ],
    ids=["no queue", "poll", "size"],
)
def test_invalid_option_of_a_stream_is_an_error(
    session: SparkSession, options: dict[str, str], error: str, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match=error):
        receive(session, tmp_path, **options)


def test_stream_from_a_missing_queue_or_namespace_is_an_error(
    session: SparkSession, backlog: Backlog, tmp_path: Path
) -> None:
    text = backlog.secondary.connection_string
    unreachable = re.sub(r":\d+/", ":9/", text)
    for host, queue, error in ((text, "misspelt", "misspelt"), (unreachable, "q", "refused")):
        with pytest.raises(PySparkException, match=error):
            receive(session, tmp_path / error, connectionString=host, queue=queue)


@pytest.mark.parametrize(
    ("columns", "options", "error"),
    [
        ("body string", {}, "destination"),
        ("destination string", {}, "payload"),
        ("body string", {"path": "q", "queeu": "x"}, "queeu"),
    ],
    ids=["no destination", "no body", "unknown"],
)
def test_invalid_option_or_column_of_a_write_is_an_error(
    session: SparkSession, columns: str, options: dict[str, str], error: str
) -> None:
    rows = session.createDataFrame([("x",)], columns)

    with pytest.raises(PySparkException, match=error):
        rows.write.format(FORMAT).options(connectionString=HOST, **options).mode("append").save()


def test_subscriptions_and_dead_letter_queues_can_be_read_and_streamed(
    session: SparkSession, backlog: Backlog, tmp_path: Path
) -> None:
    topic, target = f"{backlog.name}-topic", backlog.path("target")
    backlog.primary.create_topic(topic)
    backlog.primary.create_subscription(topic, "all")
    subscription, text = f"{topic}/Subscriptions/all", backlog.primary.connection_string
    options = ClientOptions.from_connection_string(text)
    with Client(options) as client:
        Sender(client, topic).send_batch(numbered(6))
        with Receiver(client, subscription, confirm=False) as receiver:
            tokens = [delivery.tag for batch in receiver.receive_available(2) for delivery in batch]
        Management(client, subscription).settle(
            tokens, DEAD_LETTERED, reason="Reason", description="because"
        )
    dead = f"{subscription}/$deadletterqueue"

    rows = read(session, text, f"{subscription},{dead}").collect()
    assert sorted((row.queue, row.message_id) for row in rows) == sorted(
        [(dead, f"m-{n}") for n in range(2)] + [(subscription, f"m-{n}") for n in range(2, 6)]
    )
    properties = next(row for row in rows if row.queue == dead).application_properties
    assert properties["DeadLetterReason"] == "Reason"

    move(
        session,
        tmp_path,
        {"connectionString": text, "queue": f"{subscription},{dead}"},
        {"connectionString": text, "path": target},
    )
    assert sorted(backlog.ids(target)) == [f"m-{n}" for n in range(6)]
    assert read(session, text, f"{subscription},{dead}").count() == 0


def test_rows_of_a_partition_arrive_in_order_within_their_sessions(
    session: SparkSession, backlog: Backlog
) -> None:
    path = backlog.path("ordered", requires_session=True)
    names = ("a", "b", "c")
    rows = [(f"{name}-{n:04}", name, path) for n in range(700) for name in names]
    frame = session.createDataFrame(
        rows, "message_id string, session_id string, destination string"
    )
    frame = frame.selectExpr("*", "message_id as body")
    partitioned = frame.repartition(2, "session_id").sortWithinPartitions("message_id")
    fault = backlog.primary.add_fault("answer-late", path, seconds=0.2, count=3)

    partitioned.write.format(FORMAT).option(
        "connectionString", backlog.primary.connection_string
    ).mode("append").save()

    assert fault.fired == 3
    arrived = backlog.ids(path)
    for name in names:
        assert [id for id in arrived if id[0] == name] == [f"{name}-{n:04}" for n in range(700)]


@pytest.mark.parametrize(
    "destination", ["no-such-queue", None], ids=["missing queue", "no destination"]
)
def test_write_to_a_missing_destination_fails_with_the_reason(
    session: SparkSession, backlog: Backlog, destination: str | None
) -> None:
    rows = session.createDataFrame([("x", destination)], "body string, destination string")
    text = backlog.primary.connection_string

    with pytest.raises(PySparkException, match=r"no-such-queue|no destination"):
        rows.write.format(FORMAT).option("connectionString", text).mode("append").save()


def test_row_that_is_refused_is_dead_lettered_in_its_source_queue(
    session: SparkSession, backlog: Backlog, tmp_path: Path
) -> None:
    path, text = backlog.path("source"), backlog.primary.connection_string
    with Client(ClientOptions.from_connection_string(text)) as client:
        Sender(client, path).send(message("m"))
    move(
        session,
        tmp_path,
        {"connectionString": text, "queue": path},
        {"connectionString": text},
        *("queue", "lock_token", "locked_until", "payload", "'no-such-queue' as destination"),
    )

    (row,) = read(session, text, f"{path}/$deadletterqueue").collect()
    assert row.message_id == "m"
    assert row.application_properties["DeadLetterReason"] == "EntityNotFound"


def test_secrets_are_not_in_the_status_store_of_spark(
    session: SparkSession, backlog: Backlog
) -> None:
    text = backlog.primary.connection_string
    key = text.split("SharedAccessKey=")[1].split(";")[0]
    path = backlog.path("secret")
    rows = session.createDataFrame([("x", path)], "body string, destination string")
    rows.write.format(FORMAT).option("connectionString", text).mode("append").save()
    read(session, text, path).collect()

    executions = session._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(n).physicalPlanDescription() for n in range(executions.size())]
    plans += [executions.apply(n).toString() for n in range(executions.size())]

    assert any(FORMAT in plan.lower() or "python" in plan.lower() for plan in plans)
    assert not any(key in plan for plan in plans)


def test_documentation_lists_exactly_the_options_of_the_connector() -> None:
    table = PAGE.partition("## Options")[2].partition("##")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]

    documented = [name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)]

    assert sorted(documented) == sorted(ConnectorOptions.KNOWN)


def test_examples_of_the_documentation_are_part_of_the_demo() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

    assert len(examples) >= 5
    assert [example for example in examples if example not in DEMO.read_text()] == []


def test_steps_of_the_demo_leave_every_message_where_it_belongs(
    session: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.run(session) == 0

    output = capsys.readouterr().out
    assert "Moved to two: id-0, id-3, id-6, id-9" in output
    assert output.endswith("All messages are where they belong.\n")


@pytest.mark.soak
def test_demo_runs() -> None:
    run = subprocess.run(
        [sys.executable, DEMO], capture_output=True, text=True, timeout=500, check=False
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith("All messages are where they belong.\n")
