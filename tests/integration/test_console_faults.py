"""Consoles that misbehave: a report is dropped, the next one may succeed, and nothing grows."""

import asyncio
import tracemalloc
from typing import Any

import pytest

from pairbus.pairing import console_reporter
from tests.integration.console_server import FAULTS, ConsoleServer, answer, hang, response, send
from tests.integration.pairs import until
from tests.integration.raw_peer import DEADLINE_S
from tests.integration.reporting_pairs import Reporting, StartConsole, report_threads, states
from tests.interop.tls import TlsFiles

pytestmark = [pytest.mark.rule("O4"), pytest.mark.usefixtures("quick_reports")]

TOKEN = "c2VjcmV0LXRva2Vu"
ATTEMPTS = 3
"""The number of failed reports to wait for."""


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_reporter, "REPORT_TIMEOUT_S", 0.3)


def failures(pair: Any) -> bool:
    """Return whether a warning was logged, which takes two failed reports in a row."""
    warned: bool = pair.reporter._warned
    return warned


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_report_to_a_faulty_console_is_dropped_and_a_later_one_succeeds(
    reporting_pair: Reporting,
    start_console: StartConsole,
    fault: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    console = start_console(**fault)
    pair = await reporting_pair(console=console.url, console_token=TOKEN)
    pair.fail("before")
    await until(lambda: failures(pair), "failed reports")
    attempts = console.connections + len(console.requests)
    await until(
        lambda: console.connections + len(console.requests) > attempts + ATTEMPTS, "more attempts"
    )
    assert failures(pair)  # none of them succeeded
    pair.fail("meanwhile")

    console.greeting, console.behaviour = None, answer()
    await until(lambda: not failures(pair), "a report that succeeds")

    # That report may have been built before the last change.
    paths = [("before", "failover"), ("meanwhile", "failover")]
    await until(lambda: states(console) == paths, "a report with all paths")
    assert len(report_threads()) == 1
    assert TOKEN not in caplog.text


async def test_console_that_is_not_running_gets_reports_when_it_starts(
    reporting_pair: Reporting, start_console: StartConsole
) -> None:
    stopped = start_console()
    stopped.close()
    pair = await reporting_pair(console=stopped.url)
    pair.fail()
    await until(lambda: failures(pair), "refused connections")
    assert stopped.requests == []

    console = start_console(port=stopped.port)
    await until(lambda: console.requests, "a report")

    assert states(console) == [("orders", "failover")]


async def test_console_that_restarts_gets_reports_over_a_new_connection(
    reporting_pair: Reporting, start_console: StartConsole
) -> None:
    first = start_console()
    await reporting_pair(console=first.url)
    await until(lambda: first.requests, "a report")
    first.close()

    second = start_console(port=first.port)
    await until(lambda: len(second.requests) > 1, "reports")

    ids = {report["sender"]["id"] for report in first.reports + second.reports}
    assert len(ids) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirection_is_not_followed(
    reporting_pair: Reporting, start_console: StartConsole, status: int
) -> None:
    """The report and its token would go to another server."""
    other = start_console()
    location = f"Location: {other.url}/api/reports"
    console = start_console(send(response(f"{status} Elsewhere", b"", location)))

    pair = await reporting_pair(console=console.url, console_token=TOKEN)
    await until(lambda: len(console.requests) > ATTEMPTS, "redirected reports")

    assert failures(pair)
    assert other.connections == 0


async def test_tls_handshake_that_hangs_ends_at_the_deadline(
    reporting_pair: Reporting, start_console: StartConsole, tls_files: TlsFiles
) -> None:
    console = start_console(tls=tls_files.server_context(), greeting=hang)
    await reporting_pair(console=console.url, console_ca_file=tls_files.ca)
    await until(lambda: console.connections > ATTEMPTS, "connections without a handshake")

    console.greeting = None
    await until(lambda: console.requests, "a report")


@pytest.mark.parametrize(
    "name", ["announces a huge body", "answers an endless body", "answers endless chunks"]
)
async def test_endless_answer_is_not_kept_in_memory(
    reporting_pair: Reporting, start_console: StartConsole, name: str
) -> None:
    console = start_console(**FAULTS[name])
    tracemalloc.start()
    try:
        pair = await reporting_pair(console=console.url)
        await until(lambda: len(console.requests) > ATTEMPTS, "endless answers")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert console.abandoned.is_set()
    assert failures(pair)
    assert peak < 4 * 1024 * 1024


@pytest.mark.parametrize("name", FAULTS)
async def test_closing_ends_although_the_console_is_faulty(
    reporting_pair: Reporting, start_console: StartConsole, name: str
) -> None:
    console: ConsoleServer = start_console(**FAULTS[name])
    pair = await reporting_pair(console=console.url)
    await until(lambda: console.connections, "a connection")

    await asyncio.wait_for(pair.close(), DEADLINE_S)

    await until(lambda: not report_threads(), "the thread to end")
