"""The console as a process, in three situations: nothing happens; 1,000 senders report every 10
seconds, each over its own connection; and 100 pages are open as well, which get a snapshot each
second. The senders and pages are simulated by one process over real HTTP. CPU time is that of the
console alone. The latency of a report is measured by the sender.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from benchmarks.harness import MEGABYTES, MILLISECONDS_99, OURS, Figure, Unit
from pairbus.emulator import EmulatorProcess
from tests.console_client import report

CPU = Unit("% of one core")
SENDERS, PAGES = 1_000, 100
REPORT_S = 10.0
IDLE_S = 30.0
LOADED_S = 30.0
NAME = "orders"
QUEUES = "4"


@dataclass(frozen=True, slots=True)
class ConsoleProcess:
    """A running console."""

    pid: int
    port: int
    sender_token: str
    viewer_token: str

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("the console has ended")


def figures() -> list[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="pairbus-bench-") as folder,
        _console(folder) as console,
    ):
        time.sleep(5)  # the first inspection
        result = _situation("idle", console, IDLE_S)
        latencies: list[float] = []
        load = asyncio.run(_load(console, 0, latencies))
        result += _loaded(f"{SENDERS:,} senders report", console, load, latencies)
        latencies = []
        load = asyncio.run(_load(console, PAGES, latencies))
        result += _loaded(
            f"{SENDERS:,} senders report, {PAGES} pages are open", console, load, latencies
        )
    return result


def _situation(name: str, console: ConsoleProcess, seconds: float) -> list[Figure]:
    before = console.cpu_s()
    time.sleep(seconds)
    load = 100 * (console.cpu_s() - before) / seconds
    return [
        Figure(f"{name}: CPU", {OURS: load}, CPU),
        Figure(f"{name}: memory", {OURS: console.memory_mb()}, MEGABYTES),
    ]


def _loaded(
    name: str, console: ConsoleProcess, load: float, latencies: list[float]
) -> list[Figure]:
    slowest = 1000 * quantiles(latencies, n=100)[-1]
    return [
        Figure(f"{name}: CPU", {OURS: load}, CPU),
        Figure(f"{name}: memory", {OURS: console.memory_mb()}, MEGABYTES),
        Figure(f"{name}: latency of a report", {OURS: slowest}, MILLISECONDS_99),
    ]


async def _load(console: ConsoleProcess, pages: int, latencies: list[float]) -> float:
    """Run the senders and pages, and return the CPU time of the console in percent."""
    snapshots = [0] * pages
    watchers = [asyncio.create_task(_watch(console, snapshots, n)) for n in range(pages)]
    warm = asyncio.get_running_loop().time() + REPORT_S
    senders = [
        asyncio.create_task(_send(console, number, warm, latencies)) for number in range(SENDERS)
    ]
    await asyncio.sleep(REPORT_S)  # all have reported once
    before, start = console.cpu_s(), time.perf_counter()
    await asyncio.gather(*senders)
    seconds = time.perf_counter() - start
    load = 100 * (console.cpu_s() - before) / seconds
    for watcher in watchers:
        watcher.cancel()
    await asyncio.gather(*watchers, return_exceptions=True)
    if min(snapshots, default=LOADED_S) < LOADED_S / 4:
        raise AssertionError(f"a page got {min(snapshots)} snapshots only")
    return load


async def _send(console: ConsoleProcess, number: int, warm: float, latencies: list[float]) -> None:
    """Report as one sender, until the end of the measurement."""
    loop = asyncio.get_running_loop()
    due = warm - REPORT_S + REPORT_S * number / SENDERS
    await asyncio.sleep(due - loop.time())
    reader, writer = await asyncio.open_connection("127.0.0.1", console.port)
    while due < warm + LOADED_S:
        await asyncio.sleep(max(0.0, due - loop.time()))
        start = time.perf_counter()
        writer.write(_request(console, number, int(due)))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise AssertionError(head)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        if due >= warm:
            latencies.append(time.perf_counter() - start)
        due += REPORT_S
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _request(console: ConsoleProcess, number: int, count: int) -> bytes:
    values = report(sender=f"sender-{number}", primary_name=NAME, state="healthy")
    values["sender"]["host"] = f"web-{number}"
    values["paths"] = [{**values["paths"][0], "path": f"path-{n}"} for n in range(5)]
    values["counts"]["sent"] = count
    body = json.dumps(values).encode()
    head = (
        "POST /api/reports HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {console.sender_token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _watch(console: ConsoleProcess, snapshots: list[int], number: int) -> None:
    """Read the live stream as one page, and count its snapshots."""
    reader, writer = await asyncio.open_connection("127.0.0.1", console.port)
    writer.write(
        "GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {console.viewer_token}\r\n\r\n".encode()
    )
    try:
        while data := await reader.read(1 << 20):
            snapshots[number] += data.count(b"event: state")
    finally:
        writer.close()


@contextlib.contextmanager
def _console(folder: str) -> Iterator[ConsoleProcess]:
    command = [sys.executable, "-m", "pairbus", "console"]
    tokens = [
        subprocess.run(
            [*command, "token", "--role", role, "--folder", folder],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.strip()
        for role in ("sender", "viewer")
    ]
    with EmulatorProcess("secondary", folder=Path(folder, "data")) as emulator:
        process = subprocess.Popen(
            [*command, "--json", "--port", "0", "--folder", folder, "--primary-name", NAME,
             "--ledger", str(Path(folder, "ledger")), "--backlog-queues", QUEUES],
            env=os.environ | {"PAIRBUS_SECONDARY": emulator.connection_string},
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            port = int(url.rsplit(":", 1)[1].strip("/"))
            yield ConsoleProcess(process.pid, port, *tokens)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()
