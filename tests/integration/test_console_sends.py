"""Sends of a pairing that reports to a console that misbehaves: they neither wait nor fail."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pairbus
from pairbus.events import PathStatus
from pairbus.pairing import console_reporter
from tests.integration.console_server import FAULTS, ConsoleServer, answer, hang
from tests.integration.pairs import Make, gather_all, message, until
from tests.integration.reporting_pairs import StartConsole, states

pytestmark = [pytest.mark.rule("O4"), pytest.mark.asyncio(loop_scope="module")]

NEVER_S = 600.0
MESSAGES = 20
PAIRBUS = str(Path(pairbus.__file__).parent)


async def send_all(pair: Any, healthy: Any, failing: Any) -> None:
    """Send messages to a path that is healthy and to one that fails over, and check that each was
    stored once."""
    fault = pair.fault("disable", failing.entity_name)
    for _ in range(MESSAGES):
        await gather_all(sender.send_messages(message()) for sender in (healthy, failing))
    assert fault.fired
    assert len(pair.arrived(healthy.entity_name)) == MESSAGES
    assert len(pair.backlog(failing.entity_name)) == MESSAGES
    assert pair.state(failing.entity_name) is PathStatus.FAILOVER


async def test_sends_do_not_wait_for_a_report_that_is_not_answered(
    make: Make, start_console: StartConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_reporter, "REPORT_TIMEOUT_S", NEVER_S)
    console = start_console(hang)
    pair = await make(console=console.url)
    await until(lambda: console.in_flight, "a report that is not answered")

    await send_all(pair, *await pair.entered(*pair.queues(2)))

    # All of them were sent during this one report.
    assert (console.in_flight, len(console.requests)) == (1, 1)


@pytest.mark.usefixtures("quick_reports")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_sends_succeed_while_the_console_is_faulty(
    make: Make,
    start_console: StartConsole,
    fault: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console_reporter, "REPORT_TIMEOUT_S", 0.3)
    console = start_console(**fault)
    pair = await make(console=console.url)
    reporter = pair.bus._plan.console
    await until(lambda: reporter._warned, "failed reports")

    await send_all(pair, *await pair.entered(*pair.queues(2)))

    assert reporter._warned  # no report has succeeded
    console.greeting, console.behaviour = None, answer()
    await until(lambda: not reporter._warned, "a report that succeeds")
    # That report may have been built before the last send.
    counts = {"sent": MESSAGES, "stored": MESSAGES, "failed": 0, "throttled": 0}
    await until(lambda: console.reports[-1]["counts"] == counts, "a report with all messages")
    assert [state for _, state in states(console)] == ["failover", "healthy"]


@pytest.mark.usefixtures("quick_reports")
async def test_sends_succeed_while_the_console_is_not_running(
    make: Make, start_console: StartConsole
) -> None:
    console = start_console()
    console.close()
    pair = await make(console=console.url)
    reporter = pair.bus._plan.console
    await until(lambda: reporter._warned, "refused connections")

    await send_all(pair, *await pair.entered(*pair.queues(2)))

    assert reporter._warned


@pytest.mark.usefixtures("quick_reports")
async def test_command_of_the_console_ends_the_failover_of_real_sends(
    make: Make, start_console: StartConsole
) -> None:
    console = start_console()
    pair = await make(console=console.url)
    (sender,) = await pair.entered(pair.queue())
    await pair.fail_over(sender)

    command = {"id": "1", "action": "mark-healthy", "path": sender.entity_name}
    console.behaviour = answer(command)
    await pair.until_state(sender.entity_name, PathStatus.HEALTHY)
    await sender.send_messages(message())

    assert len(pair.arrived(sender.entity_name)) == 1


async def test_healthy_send_makes_the_same_calls_with_and_without_reports(
    make: Make, start_console: StartConsole
) -> None:
    console: ConsoleServer = start_console()
    counts = []
    for options in ({}, {"console": console.url}):
        pair = await make(**options)
        (sender,) = await pair.entered(pair.queue())
        await sender.send_messages(message())
        counts.append(await calls_of_send(pair, pair.inner(sender)))

    assert console.requests
    assert counts[0] == counts[1]
    assert len(counts[0]) > 3


async def calls_of_send(pair: Any, sender: Any) -> list[str]:
    """Return the functions of pairbus that a send calls, each once, in the order of their first
    calls. A coroutine is called again each time it goes on."""
    calls: dict[str, None] = {}

    def record(frame: Any, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PAIRBUS):
            calls.setdefault(frame.f_code.co_qualname)

    def profiled(work: Callable[[], Any]) -> Any:
        before = sys.getprofile()
        sys.setprofile(record)
        try:
            return work()
        finally:
            sys.setprofile(before)

    if pair.sync:
        await asyncio.to_thread(profiled, lambda: sender.send_messages(message()))
        return list(calls)

    task = asyncio.current_task()

    def record_in_task(frame: Any, event: str, arg: object) -> None:
        if asyncio.current_task() is task:  # not timers and other tasks of the event loop
            record(frame, event, arg)

    sending = sender.send_messages(message())
    before = sys.getprofile()
    sys.setprofile(record_in_task)
    try:
        await sending
    finally:
        sys.setprofile(before)
    return list(calls)
