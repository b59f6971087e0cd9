"""Reports of a pairing to a console, and the commands of a console, over real HTTP."""

import asyncio
import os
import socket
import threading
import time
from uuid import UUID

import pytest

from pairbus.events import Event, PathStatus
from pairbus.pairing import console_schedule
from pairbus.pairing.console_report import MAX_EVENTS
from tests.integration.console_server import ConsoleServer, answer, response, send
from tests.integration.pairs import until
from tests.integration.raw_peer import DEADLINE_S
from tests.integration.reporting_pairs import (
    Reporting,
    ReportingPair,
    StartConsole,
    states,
    texts,
)

pytestmark = pytest.mark.rule("O4")

TOKEN = "c2VjcmV0LXRva2Vu"
HEALTHY, FAILOVER = PathStatus.HEALTHY, PathStatus.FAILOVER
MARK = {"action": "mark-healthy", "path": "orders"}
NEVER_S = 600.0


# Reports.


async def test_pairing_reports_at_once_who_and_how_it_is(
    reporting_pair: Reporting, start_console: StartConsole
) -> None:
    console = start_console()

    made = await reporting_pair(
        console=f"{console.url}/bus/", console_token=TOKEN, backlog_queue_count=3
    )
    await until(lambda: console.requests, "a report")

    request = console.requests[0]
    assert request.line == "POST /bus/api/reports HTTP/1.1"
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == f"localhost:{console.port}"
    report = request.report
    sender = report["sender"]
    assert str(UUID(sender["id"])) == sender["id"]
    assert (sender["host"], sender["process"]) == (socket.gethostname(), os.getpid())
    assert sender["application"]
    assert (report["primary"], report["secondary"]) == (
        "one.servicebus.windows.net",
        "two.servicebus.windows.net",
    )
    assert (report["primary_name"], report["backlog_queues"]) == ("one", 3)
    assert report["secondary_available"] is True
    assert report["paths"] == report["events"] == []
    assert TOKEN not in repr(vars(made.reporter._http)) + repr(made.reporter)


async def test_reports_are_repeated_over_one_connection(
    reporting_pair: Reporting, start_console: StartConsole, quick_reports: None
) -> None:
    console = start_console()

    await reporting_pair(console=console.url, console_application="web shop")
    await until(lambda: len(console.requests) > 5, "reports")

    assert console.connections == 1
    assert len({report["sender"]["id"] for report in console.reports}) == 1
    assert {report["sender"]["application"] for report in console.reports} == {"web shop"}
    assert "authorization" not in console.requests[0].headers


async def test_change_is_reported_without_waiting_for_the_interval(
    reporting_pair: Reporting, start_console: StartConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_schedule, "INTERVAL_S", NEVER_S)
    console = start_console()
    made = await reporting_pair(console=console.url)
    await until(lambda: console.requests, "the first report")

    made.fail()
    await until(lambda: len(console.requests) > 1, "a report of the change")

    assert states(console) == [("orders", "failover")]
    assert texts(console) == ["orders: healthy → failover (ServiceBusConnectionError: down)"]
    path = console.reports[-1]["paths"][0]
    assert path["cause"] == "ServiceBusConnectionError: down"
    assert path["since"] == console.reports[-1]["events"][0]["time"]


async def test_many_changes_are_in_few_reports(
    reporting_pair: Reporting, start_console: StartConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    gap_s = 0.2
    monkeypatch.setattr(console_schedule, "INTERVAL_S", NEVER_S)
    monkeypatch.setattr(console_schedule, "CHANGE_GAP_S", gap_s)
    console = start_console()
    made = await reporting_pair(console=console.url)
    await until(lambda: console.requests, "the first report")

    started_at = time.monotonic()
    for number in range(40):
        made.fail(f"path-{number}")
    await until(lambda: len(states(console)) == 40, "all paths in a report")
    elapsed_s = time.monotonic() - started_at

    assert len(console.requests) <= 3 + elapsed_s / gap_s
    assert len(texts(console)) == len(set(texts(console))) == 40  # each event in one report


async def test_event_handler_that_blocks_does_not_delay_a_report(
    start_console: StartConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With threads, the handler runs in the thread of a send."""
    monkeypatch.setattr(console_schedule, "INTERVAL_S", NEVER_S)
    console = start_console()
    blocked, end = threading.Event(), threading.Event()

    def block(event: Event) -> None:
        blocked.set()
        end.wait(DEADLINE_S)

    made = await ReportingPair("sync").start(console=console.url, on_event=block)
    await until(lambda: console.requests, "the first report")
    sending = asyncio.create_task(asyncio.to_thread(made.fail))

    await until(lambda: len(console.requests) > 1, "a report of the change")

    assert blocked.is_set()
    assert not sending.done()
    assert states(console) == [("orders", "failover")]
    end.set()
    await sending
    await made.close()
    await made.close_clients()


async def test_blocked_event_loop_still_reports(
    start_console: StartConsole, quick_reports: None
) -> None:
    console = start_console()
    made = await ReportingPair("aio").start(console=console.url)
    await until(lambda: console.requests, "the first report")

    seen = len(console.requests)
    deadline = time.monotonic() + DEADLINE_S
    while len(console.requests) < seen + 3:  # the event loop does not run here
        assert time.monotonic() < deadline
        time.sleep(0.01)  # noqa: ASYNC251

    await made.close()
    await made.close_clients()


async def test_events_of_a_time_without_console_are_reported_later(
    reporting_pair: Reporting, start_console: StartConsole, quick_reports: None
) -> None:
    console = start_console(send(response("500 Internal Server Error", b"")))
    made = await reporting_pair(console=console.url)
    await until(lambda: len(console.requests) > 2, "failed reports")
    for number in range(3 * MAX_EVENTS):
        made.fail(f"path-{number}")
    failed = len(console.requests)
    await until(lambda: len(console.requests) > failed + 1, "a failed report of the changes")

    before = len(console.requests) - 1  # a report that failed has the same events
    console.behaviour = answer()
    await until(lambda: len(console.requests) > before + 4, "reports")

    events = [report["events"] for report in console.reports[before:]]
    reported = [event["path"] for event in next(items for items in events if items)]
    newest = [f"path-{number}" for number in range(2 * MAX_EVENTS, 3 * MAX_EVENTS)]
    assert reported == newest
    assert events[-1] == []
    assert len(made.reporter._observed) + len(made.reporter._events) == 0


# Commands.


async def test_command_marks_a_path_healthy_once_and_is_reported_as_done(
    reporting_pair: Reporting, start_console: StartConsole, quick_reports: None
) -> None:
    console = start_console()
    made = await reporting_pair(console=console.url)
    made.fail("Orders")
    made.fail("bills")

    console.behaviour = answer(MARK | {"id": "command-1"}, {"id": "2", "action": "unknown"})
    await until(lambda: made.state() is HEALTHY, "the path to be healthy")
    await until(
        lambda: any("command-1" in report.get("done", []) for report in console.reports),
        "the command to be reported as done",
    )
    made.fail()  # it is not carried out again, although the console repeats it
    before = len(console.requests)
    await until(lambda: len(console.requests) > before + 5, "repeated commands")

    assert (made.state(), made.state("bills")) == (FAILOVER, FAILOVER)
    assert console.reports[-1]["done"] == ["command-1"]  # the console repeats, so the sender does
    console.behaviour = answer()
    before = len(console.requests)
    await until(lambda: len(console.requests) > before + 2, "reports")
    assert "done" not in console.reports[-1]


async def test_command_for_a_path_without_a_sender_does_nothing(
    reporting_pair: Reporting, start_console: StartConsole, quick_reports: None
) -> None:
    console = start_console(answer(MARK | {"id": "1", "path": "other"}))
    made = await reporting_pair(console=console.url)

    await until(lambda: any("done" in report for report in console.reports), "the command")

    assert made.bus.status().paths == {}
    assert made.events == []


async def test_command_in_an_event_loop_is_carried_out_in_the_loop(
    start_console: StartConsole, quick_reports: None
) -> None:
    threads: list[int] = []
    console = start_console()
    made = await ReportingPair("aio").start(
        console=console.url, on_event=lambda event: threads.append(threading.get_ident())
    )
    made.fail()
    console.behaviour = answer(MARK | {"id": "1"})

    await until(lambda: made.state() is HEALTHY, "the path to be healthy")

    assert set(threads) == {threading.get_ident()}
    await made.close()
    await made.close_clients()


async def test_thousands_of_commands_need_little_memory(
    reporting_pair: Reporting, start_console: StartConsole, quick_reports: None
) -> None:
    console = start_console()

    def flood(server: ConsoleServer, sock: socket.socket) -> None:
        ids = range(100 * len(server.requests), 100 * len(server.requests) + 300)
        answer(*[MARK | {"id": str(id)} for id in ids])(server, sock)

    made = await reporting_pair(console=console.url)
    made.fail()
    console.behaviour = flood
    before = len(console.requests)
    await until(lambda: len(console.requests) > before + 30, "commands")

    assert made.state() is HEALTHY
    assert all(len(report.get("done", [])) <= 100 for report in console.reports)
    assert len(made.reporter._commands._known) <= 1001
