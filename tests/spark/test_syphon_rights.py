"""The syphon works with exactly the rights that deploy/azure gives it, and a right less is a clear
error."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.emulator.auth import Right
from pairbus.servicebus.backlog_paths import backlog_path
from pairbus.syphon import Syphon, SyphonOptions
from pairbus.transfer import to_backlog
from tests.azure_roles import BACKLOG_QUEUES, PRIMARY_NAME, AzureDeployment, deployed
from tests.messages import numbered
from tests.waiting import DEADLINE_S, wait_until


@pytest.fixture(scope="module")
def running() -> Iterator[AzureDeployment]:
    with deployed() as deployment:
        yield deployment


@pytest.fixture
def deployment(running: AzureDeployment) -> AzureDeployment:
    """The namespaces, with one message in the backlog, which a sender has stored."""
    running.reset()
    text = running.connection_string("sender", "secondary")
    with (
        Client(ClientOptions.from_connection_string(text)) as client,
        Sender(client, backlog_path(PRIMARY_NAME, 0)) as sender,
    ):
        sender.send_batch([to_backlog(payload, "orders") for payload in numbered(1)])
    return running


def syphon_of(
    deployment: AzureDeployment, session: SparkSession, user: str = "syphon", **without: Right
) -> Syphon:
    variables = deployment.variables(user, **without)
    options = SyphonOptions(
        primary=ClientOptions.from_connection_string(variables["PAIRBUS_PRIMARY"]),
        secondary=ClientOptions.from_connection_string(variables["PAIRBUS_SECONDARY"]),
        primary_name=PRIMARY_NAME,
        backlog_queue_count=BACKLOG_QUEUES,
        stuck_after=timedelta(seconds=2),
    )
    return Syphon(options, spark=session)


def delivered(deployment: AzureDeployment) -> int:
    return deployment.primary.call(lambda core: len(core.entities.get("orders").queues[0]))


@pytest.mark.parametrize("user", ["syphon", "operator"])
def test_syphon_drains_the_backlog(
    deployment: AzureDeployment, session: SparkSession, user: str
) -> None:
    syphon = syphon_of(deployment, session, user)
    syphon.start(once=True)
    try:
        assert syphon.wait(DEADLINE_S)
    finally:
        syphon.stop()

    assert syphon.status().drained
    assert delivered(deployment) == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    ("namespace", "right"), [("primary", Right.SEND), ("secondary", Right.LISTEN)]
)
def test_syphon_names_the_right_that_is_missing(
    deployment: AzureDeployment, session: SparkSession, namespace: str, right: Right
) -> None:
    syphon = syphon_of(deployment, session, **{namespace: right})
    syphon.start()
    try:

        def is_named() -> bool:
            status = syphon.status()
            text = f"{status.failure} {status.problem} {status.errors}"
            return re.search(rf"{right.value}'? (right|claim)", text) is not None

        wait_until(is_named, "the right to be named")
        assert not syphon.status().drained
    finally:
        syphon.stop()

    assert delivered(deployment) == 0
