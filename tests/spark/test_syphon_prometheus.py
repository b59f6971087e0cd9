"""A real Prometheus scrapes `pairbus syphon` and `pairbus console` during a drain."""

import contextlib
import http.client
import json
import socket
from pathlib import Path

import pytest

from tests.backlog import Backlog
from tests.commands import run, started
from tests.messages import message, numbered
from tests.prometheus import (
    HOST,
    PrometheusProcess,
    check_metrics,
    port_of,
    scrape_configuration,
)
from tests.waiting import DEADLINE_S, wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.rule("O1")]

TOKEN = "token-of-the-syphon"


def scrape(port: int, token: str) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=DEADLINE_S)) as client:
        client.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        response = client.getresponse()
        return response.status, response.read()


def test_prometheus_scrapes_a_syphon_and_a_console(backlog: Backlog, tmp_path: Path) -> None:
    orders, down = backlog.path("orders"), backlog.path("down")
    fault = backlog.primary.add_fault("disable", down)
    backlog.put(orders, numbered(30))
    backlog.put(down, [message("d")])
    status_file = str(tmp_path / "status.json")
    folder = ("--folder", str(tmp_path / "console"))
    token_file = tmp_path / "pairbus-syphon.token"
    token_file.write_text(TOKEN)
    viewer = run("console", "token", "--role", "viewer", *folder).stdout
    (tmp_path / "pairbus-console.token").write_text(viewer)

    syphon_options = (
        *("--metrics-port", "0", "--metrics-token-file", str(token_file)),
        *("--stuck-after", "3600"),  # the test may take long
    )
    with (
        started(
            *("syphon", *backlog.arguments, "--no-ledger", "--status-file", status_file),
            *syphon_options,
            **backlog.variables,
        ) as syphon,
        started(
            *("console", "--json", "--port", "0", *folder, *backlog.arguments, "--no-ledger"),
            *("--status-file", status_file),
            **backlog.variables,
        ) as console,
    ):
        port = port_of(syphon.read_until("Metrics for Prometheus: ").split()[-1])
        healthy = f'pairbus_syphon_healthy{{pairing="{backlog.name}"}} 1.0'.encode()
        wait_until(lambda: healthy in scrape(port, TOKEN)[1], "the first metrics")
        assert scrape(port, "wrong")[0] == 401
        console_port = port_of(json.loads(console.read_until("{"))["url"])
        configuration = scrape_configuration(console_port=console_port, syphon_port=port)

        with PrometheusProcess(tmp_path, configuration) as prometheus:
            for expression, value in (
                (f'pairbus_drained_messages_total{{destination="{orders}"}}', 30),
                ('pairbus_backlog_all_messages{job="pairbus-syphon"}', 1),
                ('pairbus_backlog_all_messages{job="pairbus-console"}', 1),
                ('pairbus_syphon_healthy{job="pairbus-syphon"}', 1),
                ('pairbus_syphon_healthy{job="pairbus-console"}', 1),
            ):
                wait_until(
                    lambda expression=expression, value=value: (
                        prometheus.value(expression) == value
                    ),
                    f"{expression} to be {value}",
                )
        check_metrics(scrape(port, TOKEN)[1])
        syphon.interrupt()
        status, _, _ = syphon.wait()

    assert fault.fired > 0
    assert status == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), 10)
    backlog.primary.clear_faults()
