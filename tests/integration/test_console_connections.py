"""The thread and the connection of reports to a console: closing, forks, TLS and the log."""

import asyncio
import gc
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pairbus.errors import ConfigurationError
from pairbus.events import PathStatus
from pairbus.pairing import console_reporter
from pairbus.pairing.namespaces import registry
from tests.integration.console_server import answer, hang, send
from tests.integration.pairs import until
from tests.integration.raw_peer import DEADLINE_S
from tests.integration.reporting_pairs import (
    Reporting,
    ReportingPair,
    StartConsole,
    report_threads,
)
from tests.interop.tls import TlsFiles, make_tls_files

pytestmark = pytest.mark.rule("O4")

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "c2VjcmV0LXRva2Vu"
HEALTHY = PathStatus.HEALTHY
MARK = {"action": "mark-healthy", "path": "orders"}
NEVER_S = 600.0


# The end.


async def test_closing_sends_a_last_report_and_ends_the_thread(
    reporting_pair: Reporting, start_console: StartConsole
) -> None:
    console = start_console()
    made = await reporting_pair(console=console.url)
    await until(lambda: console.requests, "a report")
    assert len(report_threads()) == 1

    await made.close()
    await made.close()

    closed = [report.get("closed") for report in console.reports]
    assert closed == [None] * (len(closed) - 1) + [True]
    await until(lambda: not report_threads(), "the thread to end")
    await until(lambda: not console.open_connections, "the connection to be closed")


async def test_closing_does_not_wait_for_a_console_that_hangs(
    reporting_pair: Reporting, start_console: StartConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_reporter, "REPORT_TIMEOUT_S", NEVER_S)
    console = start_console(hang)
    made = await reporting_pair(console=console.url)
    await until(lambda: console.in_flight, "a report that is not answered")

    await asyncio.wait_for(made.close(), DEADLINE_S)

    assert console.in_flight == 1  # it is the thread that still waits
    assert made.bus.status().closed
    console.close()
    await until(lambda: not report_threads(), "the thread to end")


async def test_closing_in_an_event_handler_that_a_command_called(
    start_console: StartConsole, quick_reports: None
) -> None:
    console = start_console()
    made = ReportingPair("sync")
    closed = threading.Event()

    def close(event: Any) -> None:
        if event.to_state is HEALTHY:
            made.bus.close()
            closed.set()

    await made.start(console=console.url, on_event=close)
    await asyncio.to_thread(made.fail)
    console.behaviour = answer(MARK | {"id": "1"})

    await until(closed.is_set, "the pairing to be closed")

    await until(lambda: not report_threads(), "the thread to end")
    await made.close_clients()


async def test_pairing_that_is_not_closed_but_forgotten_ends_its_reports(
    start_console: StartConsole, quick_reports: None
) -> None:
    console = start_console()
    made = await ReportingPair("sync").start(console=console.url)
    await until(lambda: console.requests, "a report")

    made.bus = None
    gc.collect()

    await until(lambda: not report_threads(), "the thread to end")
    registry.leave(made.client)
    await made.close_clients()


async def test_loop_that_is_closed_with_an_open_pairing_raises_nothing_in_the_thread(
    start_console: StartConsole, quick_reports: None
) -> None:
    console = start_console()
    pairs: list[ReportingPair] = []

    async def leave_open() -> None:
        pairs.append(await ReportingPair("aio").start(console=console.url))
        pairs[0].fail()
        await until(lambda: console.requests, "a report")

    await asyncio.to_thread(lambda: asyncio.run(leave_open()))
    console.behaviour = answer(MARK | {"id": "1"})
    await until(lambda: any("done" in report for report in console.reports), "the command")
    pairs[0].reporter.stop()

    await until(lambda: not report_threads(), "the thread to end")
    registry.leave(pairs[0].client)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_child_process_neither_reports_nor_keeps_the_connection_open(
    reporting_pair: Reporting, start_console: StartConsole, quick_reports: None
) -> None:
    console = start_console()
    made = await reporting_pair(console=console.url)
    await until(lambda: len(console.requests) > 1, "reports")
    assert console.open_connections == 1
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(writer)
            made.reporter.stop()
            os.read(reader, 1)  # until the parent has finished
            os._exit(0 if made.reporter.has_ended() and not report_threads() else 1)
        finally:
            os._exit(2)
    os.close(reader)

    before = len(console.requests)
    await until(lambda: len(console.requests) > before + 2, "reports of the parent")
    assert {report["sender"]["process"] for report in console.reports} == {os.getpid()}
    await made.close()
    await until(lambda: not console.open_connections, "the connection to be closed")

    os.close(writer)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_nothing_is_imported_and_no_thread_is_started_without_the_option() -> None:
    program = """
import sys, threading
import azure.servicebus, pairbus
client, other = (
    azure.servicebus.ServiceBusClient.from_connection_string(
        f"Endpoint=sb://{name}.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
    )
    for name in ("one", "two")
)
options = pairbus.SendAvailabilityOptions(
    secondary=other, create_backlog=False, check_duplicate_detection=False
)
with pairbus.pair_namespace(client, options):
    print([name for name in sys.modules if "pairbus" in name and "console" in name])
    print(threading.active_count())
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert result.stdout.splitlines() == ["[]", "1"]


def test_example_of_the_docs_has_valid_options(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "how-to" / "console.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(# Senders that report.+?)```", page, re.DOTALL)
    monkeypatch.setenv("ORDERS_SECONDARY", "Endpoint=sb://two/")
    monkeypatch.setenv("PAIRBUS_CONSOLE_TOKEN", TOKEN)
    names: dict[str, Any] = {}

    exec(example, names)

    assert names["options"].console_token == TOKEN


# The token.


async def test_token_that_expires_is_renewed_by_a_function(
    reporting_pair: Reporting, start_console: StartConsole, quick_reports: None
) -> None:
    tokens = iter(f"token-{number}" for number in range(10_000))
    console = start_console()

    await reporting_pair(console=console.url, console_token=lambda: next(tokens))
    await until(lambda: len(console.requests) > 2, "reports")

    sent = [request.headers["authorization"] for request in console.requests[:3]]
    assert sent == [f"Bearer token-{number}" for number in range(3)]


@pytest.mark.parametrize("returned", ["", None, f"{TOKEN}\r\nX-Header: 1", 5, OSError("no file")])
async def test_function_that_returns_no_token_fails_the_report_only(
    reporting_pair: Reporting,
    start_console: StartConsole,
    quick_reports: None,
    caplog: pytest.LogCaptureFixture,
    returned: Any,
) -> None:
    calls: list[int] = []

    def token() -> Any:
        calls.append(threading.get_ident())
        if len(calls) > 5:
            return TOKEN
        if isinstance(returned, Exception):
            raise returned
        return returned

    console = start_console()
    await reporting_pair(console=console.url, console_token=token)
    await until(lambda: console.requests, "a report with a valid token")

    assert console.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert threading.get_ident() not in calls
    expected = "no file" if isinstance(returned, Exception) else "returned no valid token"
    assert expected in caplog.text
    assert TOKEN not in caplog.text


# TLS.


async def test_console_is_verified_with_the_ca_file(
    reporting_pair: Reporting, start_console: StartConsole, tls_files: TlsFiles
) -> None:
    console = start_console(tls=tls_files.server_context())

    await reporting_pair(console=console.url, console_token=TOKEN, console_ca_file=tls_files.ca)
    await until(lambda: console.requests, "a report")

    assert console.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("trusted", ["system", "other authority", "other name"])
async def test_nothing_is_sent_to_a_console_that_cannot_be_verified(
    reporting_pair: Reporting,
    start_console: StartConsole,
    quick_reports: None,
    tls_files: TlsFiles,
    trusted: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = "127.0.0.2" if trusted == "other name" else "127.0.0.1"
    console = start_console(tls=tls_files.server_context(), host=host)
    (tmp_path / "other").mkdir()
    ca_file = {
        "system": None,
        "other authority": make_tls_files(tmp_path / "other").ca,
        "other name": tls_files.ca,
    }[trusted]

    await reporting_pair(
        console=f"https://{host}:{console.port}", console_token=TOKEN, console_ca_file=ca_file
    )
    await until(lambda: console.connections > 2, "connections")
    await until(lambda: "certificate verify failed" in caplog.text, "a warning")

    assert console.requests == []
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("content", [None, "", "no certificate"])
async def test_ca_file_that_cannot_be_used_is_refused_before_anything_is_paired(
    flavour: str, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    made = ReportingPair(flavour)

    with pytest.raises(ConfigurationError, match="console_ca_file cannot be read"):
        await made.start(console="https://localhost:1", console_ca_file=path)

    assert len(registry) == 0
    assert report_threads() == []
    await made.close_clients()


# The log.


async def test_log_has_one_warning_for_an_outage_of_the_console_and_never_the_token(
    reporting_pair: Reporting,
    start_console: StartConsole,
    quick_reports: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "pairbus")
    console = start_console(send(f"Bearer {TOKEN}\x1b[31m\r\n\r\n".encode()))

    await reporting_pair(console=console.url, console_token=TOKEN)
    await until(lambda: len(console.requests) > 5, "failed reports")
    console.behaviour = answer()
    await until(lambda: "takes reports again" in caplog.text, "a report")

    records = [record for record in caplog.records if "console" in record.getMessage()]
    assert [record.levelno for record in records] == [logging.WARNING, logging.INFO]
    assert "Bearer …?[31m" in records[0].getMessage()
    assert TOKEN not in caplog.text
    assert "\x1b" not in caplog.text
