"""A redrive on Spark: several dead-letter queues at once, in rounds."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pairbus.amqp.client import ClientOptions
from pairbus.backlog import DeadLetterSource, plan_redrive
from pairbus.backlog.redrive_on_spark import redrive_on_spark
from pairbus.spark.usage import UsageRecorder
from pairbus.transfer import to_backlog
from pairbus.usage.operations import OperationKind
from pairbus.usage.records import read_operations
from tests.backlog import Backlog
from tests.dead_letters import DeadLetters
from tests.messages import id_of, message


@pytest.mark.rule("R4", "R2", "R3")
def test_redrive_on_spark_moves_all_queues_in_rounds(
    session: SparkSession, backlog: Backlog, tmp_path: Path
) -> None:
    path = backlog.path("orders")
    sent = {}
    for queue in backlog.queues:
        letters = DeadLetters(backlog.secondary, queue)
        payloads = [message(f"{queue}-{n}", session=queue) for n in range(120)]
        letters.put([to_backlog(payload, path) for payload in payloads])
        letters.close()
        sent[queue] = payloads
    primary, secondary = (
        ClientOptions.from_connection_string(namespace.connection_string)
        for namespace in (backlog.primary, backlog.secondary)
    )
    source = DeadLetterSource(
        namespace=secondary, entities=tuple(backlog.queues), in_backlog=True, target=primary
    )
    usage = UsageRecorder.create(str(tmp_path), primary, secondary)
    plan = plan_redrive(source)
    late = DeadLetters(backlog.secondary, backlog.queues[0])
    late.put([to_backlog(message("late"), path)])
    late.close()
    progress: list[int] = []

    outcome = redrive_on_spark(
        session,
        source,
        plan,
        usage=usage,
        on_progress=lambda so_far: progress.append(so_far.handled),
        round_size=80,
    )

    assert outcome.moved == {path: 240}
    assert outcome.finished
    assert progress == [160, 240]
    arrived = backlog.arrived(path)
    for queue, payloads in sent.items():
        assert [payload for payload in arrived if id_of(payload).startswith(queue)] == payloads
    assert len(backlog.dead_letters()) == 1
    completed = sum(
        record["operations"]
        for record in read_operations(tmp_path)
        if record["kind"] == OperationKind.COMPLETE
    )
    assert completed == 240
