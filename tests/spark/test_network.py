"""The syphon and the connector over WebSockets and through a proxy."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from pairbus.amqp.client import ClientOptions
from pairbus.syphon import Syphon
from tests.backlog import Backlog
from tests.messages import numbered
from tests.proxies import PASSWORD, USERNAME, ProxyProcess
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.timeout(600)
StartProxy = Callable[..., ProxyProcess]


@pytest.mark.rule("A2", "A3")
def test_syphon_drains_over_websockets_through_a_proxy(
    session: SparkSession, backlog: Backlog, start_proxy: StartProxy
) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(300))
    process = start_proxy(protected=True)
    proxy = process.options(username=USERNAME, password=PASSWORD)

    def over_proxy(options: ClientOptions, ca_file: str) -> ClientOptions:
        return replace(options, transport="websocket", tls=True, ca_file=ca_file, proxy=proxy)

    options = backlog.options()
    options = replace(
        options,
        primary=over_proxy(options.primary, backlog.primary.ca_file),
        secondary=over_proxy(options.secondary, backlog.secondary.ca_file),
    )
    syphon = Syphon(options, spark=session)
    syphon.start(once=True)
    try:
        assert syphon.wait(DEADLINE_S)
    finally:
        syphon.stop()
    status = syphon.status()

    assert status.failure is None
    assert status.moved == {path: 300}
    assert backlog.left() == 0
    assert set(process.targets) == {
        f"localhost:{backlog.primary.port}",
        f"localhost:{backlog.secondary.port}",
    }


def test_connector_reads_over_a_websocket_through_a_proxy(
    session: SparkSession, backlog: Backlog, start_proxy: StartProxy
) -> None:
    backlog.put("orders", numbered(5))
    process = start_proxy(protected=True)
    url = f"http://{USERNAME}:{PASSWORD}@127.0.0.1:{process.port}"
    text = backlog.secondary.connection_string.replace("UseDevelopmentEmulator=true;", "")
    rows = (
        session.read.format("servicebus")
        .option("connectionString", text)
        .option("queue", backlog.queues[0])
        .option("transport", "websocket")
        .option("proxy", url)
        .option("caFile", backlog.secondary.ca_file)
        .load()
    )

    assert rows.count() == 5
    assert set(process.targets) == {f"localhost:{backlog.secondary.port}"}
    assert PASSWORD not in rows._jdf.queryExecution().toString()
