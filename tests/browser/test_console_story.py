"""An outage, as an operator sees it in a browser: real namespaces, senders, syphon and console."""

import contextlib
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from playwright.sync_api import expect

import pairbus
from pairbus import SendAvailabilityOptions
from tests.browser.browser_page import BrowserPage
from tests.browser.console_process import ConsoleProcess
from tests.browser.test_page_connection import REFUSED
from tests.faults.namespace_process import Namespace
from tests.faults.syphon_process import SyphonProcess
from tests.waiting import wait_until

NAME = "orders"
QUEUES = ["--primary-name", NAME, "--backlog-queues", "2"]
SOON_MS = 5_000
"""The time in which the page shows a failover, on a computer that is not busy."""
SPARK_MS = 280_000
"""Long, because several Spark sessions may start at once."""
FILLED = 300


class SteadySender:
    """Sends messages through a pairing from a thread, until it is closed."""

    def __init__(self, primary: Namespace, secondary: Namespace, **options: Any) -> None:
        sdk: dict[str, Any] = {"retry_total": 0, "retry_backoff_factor": 0.02}
        self._clients = [
            ServiceBusClient.from_connection_string(namespace.connection_string, **sdk)
            for namespace in (primary, secondary)
        ]
        self._bus = pairbus.pair_namespace(
            self._clients[0],
            SendAvailabilityOptions(
                secondary=self._clients[1],
                primary_name=NAME,
                backlog_queue_count=2,
                failover_interval=timedelta(),
                ping_primary_interval=timedelta(seconds=1),
                operation_timeout=timedelta(seconds=6),
                **options,
            ),
        )
        self.sent: list[str] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        with self._bus.get_queue_sender(NAME) as sender:
            for number in itertools.count():
                if self._closing.wait(0.02):
                    return
                with contextlib.suppress(Exception):
                    sender.send_messages(ServiceBusMessage("x", message_id=str(number)))
                    self.sent.append(str(number))

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._bus.close()
        for client in self._clients:
            client.close()


@pytest.fixture
def namespaces(tmp_path: Path) -> Iterator[tuple[Namespace, Namespace]]:
    with (
        Namespace("primary", tmp_path / "primary", NAME) as primary,
        Namespace("secondary", tmp_path / "secondary") as secondary,
    ):
        yield primary, secondary


@pytest.fixture
def variables(namespaces: tuple[Namespace, Namespace]) -> dict[str, str]:
    primary, secondary = namespaces
    return {
        "PAIRBUS_PRIMARY": primary.connection_string,
        "PAIRBUS_SECONDARY": secondary.connection_string,
    }


@pytest.fixture
def real_console(tmp_path: Path, variables: dict[str, str]) -> Iterator[ConsoleProcess]:
    status = tmp_path / "status.json"
    control = tmp_path / "control.json"
    files = ["--status-file", str(status), "--control-file", str(control), "--no-ledger"]
    with ConsoleProcess(tmp_path / "console", *QUEUES, *files, **variables) as console:
        yield console


@pytest.fixture
def steady_sender(
    namespaces: tuple[Namespace, Namespace], real_console: ConsoleProcess
) -> Iterator[SteadySender]:
    token = real_console.token("sender")
    sender = SteadySender(*namespaces, console=real_console.url, console_token=token)
    yield sender
    sender.close()


def busyness() -> float:
    """Return the processes that want to run for each processor, at least 1."""
    return max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))


def waiting_messages(page: BrowserPage) -> int:
    """Return the number of waiting messages that the page shows."""
    text = page.get("#figures dd").first.inner_text()
    return int(re.sub(r"\D", "", text) or 0)


@pytest.mark.rule("O2", "O4")
@pytest.mark.timeout(900)
def test_page_shows_an_outage_from_its_start_to_its_end(
    namespaces: tuple[Namespace, Namespace],
    variables: dict[str, str],
    real_console: ConsoleProcess,
    steady_sender: SteadySender,
    open_url: Callable[..., BrowserPage],
    tmp_path: Path,
):
    primary, _ = namespaces
    page = open_url(real_console.login_url, expected_errors=REFUSED)
    level, sentence = page.get("#summary-level"), page.get("#summary-sentence")
    expect(sentence).to_contain_text("Sending works.")
    expect(level).to_have_text("Good.")
    expect(page.section("Senders").get_by_role("row")).to_have_count(2)

    primary.kill()
    assert primary.kills == 1
    expect(level).to_have_text("Problem.", timeout=SOON_MS * busyness())
    expect(page.section("Paths")).to_contain_text("failover")
    expect(page.section("Paths").locator(".second").first).to_contain_text("Error")
    expect(sentence).to_contain_text("orders")
    wait_until(lambda: waiting_messages(page) > FILLED, "a backlog on the page")

    # The console ends and returns within the outage. The session is still valid.
    real_console.stop()
    expect(page.get("#connection")).to_have_text("Not connected")
    real_console.start()
    expect(page.get("#connection")).to_have_text("Live")
    expect(page.section("Paths")).to_contain_text("failover")

    primary.start()
    options = ["--status-file", str(tmp_path / "status.json")]
    options += ["--control-file", str(tmp_path / "control.json"), "--max-rate", "100"]
    with SyphonProcess(tmp_path / "syphon", *QUEUES, *options, **variables) as syphon:
        expect(sentence).to_contain_text("the drain needs about", timeout=SPARK_MS)
        first = waiting_messages(page)
        wait_until(lambda: waiting_messages(page) < first, "a smaller backlog on the page")
        expect(level).to_have_text("Good.", timeout=SPARK_MS)
        expect(sentence).to_contain_text("Sending works. The backlog is empty.")
        expect(page.section("Paths")).to_contain_text("1 healthy.")
        syphon.stop()

    steady_sender.close()
    assert set(steady_sender.sent) <= set(primary.ids(NAME))
