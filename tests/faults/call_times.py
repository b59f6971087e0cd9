"""The matrix of bounded calls: each way in which a host can fail, in the primary, the secondary or
both, for each flavour and each kind of send. As a command it prints the seconds of each call:

    python -m tests.faults.call_times --fault dead
"""

import argparse
import asyncio
import contextlib
import logging
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, product
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from pairbus.errors import SendUnavailable
from tests.faults.bounded_calls import bounded
from tests.faults.dead_ports import UnservedPort, black_hole, dead_port
from tests.faults.namespace_process import DEADLINE_S, Namespace, wait_until
from tests.faults.paired_clients import FLAVOURS, close_all, connect, options_of, pair
from tests.faults.silent_relays import Point, Relay, Relays

QUEUE = "orders"
FAULTS = ("dead", "frozen", "black hole", "refusing", "slow DNS", "TLS", "CBS")
PLACES = ("primary", "secondary", "both")
KINDS = ("single", "batch", "schedule")
TIMEOUT = timedelta(seconds=3)
CONCURRENT = 18
"""The number of cells that run at a time."""
SLOW_HOST = "slow.localhost"
"""A host name that is resolved when the test allows it."""
names = (f"cell{number}" for number in count(1))


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix."""

    fault: str
    place: str
    flavour: str
    kind: str
    string: bool = False
    """The secondary is a connection string, so that its SDK client has the default retries."""

    def __str__(self) -> str:
        form = ", connection string" if self.string else ""
        return f"{self.fault}, {self.place}, {self.flavour}, {self.kind}{form}"


@dataclass(frozen=True)
class CallResult:
    """The seconds and the error of a call."""

    seconds: float
    error: BaseException | None


def all_cells() -> list[Cell]:
    """Return all cells, and those of a dead host also with a connection string."""
    cells = [Cell(*names) for names in product(FAULTS, PLACES, FLAVOURS, KINDS)]
    return cells + [
        Cell("dead", place, flavour, kind, string=True)
        for place, flavour, kind in product(PLACES, FLAVOURS, KINDS)
    ]


class SlowNames:
    """Blocks the resolution of one host name."""

    def __init__(self) -> None:
        self.waiting = 0
        self.queries = 0
        self._allowed = threading.Event()
        self._resolve = socket.getaddrinfo

    def __call__(self, host: Any, *args: Any, **options: Any) -> Any:
        if host not in (SLOW_HOST, SLOW_HOST.encode()):
            return self._resolve(host, *args, **options)
        self.queries += 1
        self.waiting += 1
        try:
            assert self._allowed.wait(DEADLINE_S)
        finally:
            self.waiting -= 1
        return self._resolve("127.0.0.1", *args, **options)

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        with mock.patch("socket.getaddrinfo", self):
            yield

    def release(self) -> None:
        """End the queries in progress. Their threads would delay the end of the event loop."""
        self._allowed.set()
        wait_until(lambda: self.waiting == 0, "name resolution to end")
        self._allowed.clear()


@dataclass(frozen=True)
class NamedHost:
    """A host name that is resolved slowly."""

    relay: Relay
    names: SlowNames

    @property
    def connection_string(self) -> str:
        return self.relay.connection_string.replace("localhost", SLOW_HOST)


class Faults:
    """Hosts that fail, with a port for each cell: a secondary can serve one primary only."""

    def __init__(self, relays: Relays, primary: Namespace) -> None:
        self.relays = relays
        self.names = SlowNames()
        self._ports = contextlib.ExitStack()
        self.dead_primary = self.host("dead", primary)
        """The primary of all frozen secondaries, which are one process."""

    def host(self, fault: str, namespace: Namespace) -> Any:
        """Return a host that fails, or that fails after `begin`."""
        match fault:
            case "dead":
                return UnservedPort(namespace, self._ports.enter_context(dead_port()))
            case "black hole":
                return UnservedPort(namespace, self._ports.enter_context(black_hole()))
            case "slow DNS":
                return NamedHost(self.relays.to(namespace), self.names)
            case "TLS":
                return self.relays.to(namespace, tls=True, raw=True)
            case "refusing" | "CBS":
                return self.relays.to(namespace)
            case _:
                return namespace

    def close(self) -> None:
        self._ports.close()


def begin(fault: str, host: Any) -> None:
    """Let a relay begin to fail. Other hosts fail from the beginning."""
    match fault:
        case "refusing":
            host.refuse()
        case "TLS":
            host.become_silent(Point("TLS", raw=900))
        case "CBS":
            host.become_silent(Point("transfer", attached=2))


def has_happened(fault: str, host: Any) -> bool:
    """Return whether a fault was met."""
    match fault:
        case "refusing":
            return bool(host.accepted)
        case "TLS" | "CBS":
            return bool(host.silences)
        case "slow DNS":
            return bool(host.names.queries)
        case _:
            return True


class CellRun:
    """Runs one cell: one call if the primary fails; otherwise two at a time, and a third one
    afterwards if both namespaces fail."""

    def __init__(
        self,
        cell: Cell,
        faults: Faults,
        primary: Namespace,
        secondary: Namespace,
        timeout: timedelta = TIMEOUT,
    ) -> None:
        self.cell = cell
        self._timeout = timeout
        self.name = next(names)
        self.calls: list[CallResult] = []
        self.hosts: list[Any] = []
        """The hosts that fail."""
        self.bus: Any = None
        self._clients: list[Any] = []
        tls = cell.fault == "TLS"
        if cell.place == "secondary":
            # The calls have to use the backlog.
            is_frozen = cell.fault == "frozen"
            self._primary = faults.dead_primary if is_frozen else faults.host("dead", primary)
            self._primary_tls = False
        else:
            self._primary, self._primary_tls = faults.host(cell.fault, primary), tls
            self.hosts.append(self._primary)
        if cell.place == "primary":
            self.secondary, self._secondary_tls = faults.relays.to(secondary), False
        else:
            self.secondary, self._secondary_tls = faults.host(cell.fault, secondary), tls
            self.hosts.append(self.secondary)

    async def open(self) -> None:
        """Pair the namespaces, and let the hosts begin to fail."""
        flavour = self.cell.flavour
        self._clients.append(connect(flavour, self._primary, tls=self._primary_tls))
        secondary = self.secondary.connection_string
        if not self.cell.string:
            secondary = connect(flavour, self.secondary, tls=self._secondary_tls)
            self._clients.append(secondary)
        options = options_of(
            secondary,
            self.name,
            backlog_queue_count=4,
            operation_timeout=self._timeout,
            create_backlog=self.cell.place == "primary",
        )
        self.bus = await pair(flavour, self._clients[0], options)
        for host in self.hosts:
            begin(self.cell.fault, host)

    async def call(self) -> None:
        """Make the calls."""
        number = 1 if self.cell.place == "primary" else 2
        senders = [self.bus.get_queue_sender(QUEUE) for _ in range(number)]
        await gather(self._timed_call(sender) for sender in senders)
        if self.cell.place == "both":
            await self._timed_call(senders[0])

    async def _timed_call(self, sender: Any) -> None:
        start = time.monotonic()
        error = await self._error_of_call(sender)
        self.calls.append(CallResult(time.monotonic() - start, error))

    async def _error_of_call(self, sender: Any) -> BaseException | None:
        messages = [ServiceBusMessage("x", message_id=str(uuid4())) for _ in range(2)]
        try:
            match self.cell.kind:
                case "single":
                    await bounded(sender.send_messages, messages[0])
                case "batch":
                    batch = ServiceBusMessageBatch()
                    for message in messages:
                        batch.add_message(message)
                    await bounded(sender.send_messages, batch)
                case _:
                    tomorrow = datetime.now(UTC) + timedelta(days=1)
                    await bounded(sender.schedule_messages, messages, tomorrow)
        except SendUnavailable as exc:
            return exc
        return None

    def faults_happened(self) -> bool:
        """Return whether each fault was met."""
        return all(has_happened(self.cell.fault, host) for host in self.hosts)

    async def close(self) -> None:
        if self.bus is not None:
            await bounded(self.bus.close)
        await close_all(*self._clients)


async def run_cells(
    cells: list[Cell],
    faults: Faults,
    primary: Namespace,
    secondary: Namespace,
    call_timeout: timedelta = TIMEOUT,
    backlog_timeout: timedelta = TIMEOUT,
) -> AsyncIterator[CellRun]:
    """Run cells, and yield each before it is closed. Frozen processes fail for all cells, so these
    cells run last, those of one place at a time. `backlog_timeout` is the timeout of calls that the
    backlog is to accept, `call_timeout` that of the others."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4 * CONCURRENT))
    others = [cell for cell in cells if cell.fault != "frozen"]
    frozen = [
        [cell for cell in cells if (cell.fault, cell.place) == ("frozen", place)]
        for place in PLACES
    ]
    for group in (others, *frozen):
        for first in range(0, len(group), CONCURRENT):
            some = group[first : first + CONCURRENT]
            runs = [
                CellRun(
                    cell,
                    faults,
                    primary,
                    secondary,
                    backlog_timeout if cell.place == "primary" else call_timeout,
                )
                for cell in some
            ]
            try:
                await gather(run.open() for run in runs)
                with contextlib.ExitStack() as pauses:
                    if some[0].fault == "frozen":
                        if some[0].place != "secondary":
                            pauses.enter_context(primary.frozen())
                        if some[0].place != "primary":
                            pauses.enter_context(secondary.frozen())
                    await gather(run.call() for run in runs)
                    for run in runs:
                        yield run
            finally:
                await gather(run.close() for run in runs)
                faults.names.release()


async def gather(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await all, and raise the errors after all have ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise BaseExceptionGroup("some cells failed", errors)


@contextlib.contextmanager
def environment(folder: Path) -> Iterator[tuple[Faults, Namespace, Namespace]]:
    """Yield the faults, a primary and a secondary."""
    for name in ("primary", "secondary"):
        (folder / name).mkdir()
    with contextlib.ExitStack() as stack:
        primary = Namespace("primary", folder / "primary", QUEUE)
        stack.callback(primary.close)
        secondary = Namespace("secondary", folder / "secondary")
        stack.callback(secondary.close)
        relays = Relays(folder)
        stack.callback(relays.close)
        faults = Faults(relays, primary)
        stack.callback(faults.close)
        stack.enter_context(faults.names.patched())
        yield faults, primary, secondary


def is_wrong(cell: Cell, calls: list[CallResult]) -> bool:
    """Return whether a call failed although the secondary works, or did not fail."""
    return any((call.error is None) is not (cell.place == "primary") for call in calls)


async def print_table(cells: list[Cell]) -> None:
    """Run cells, and print the seconds of their calls."""
    with tempfile.TemporaryDirectory() as folder, environment(Path(folder)) as hosts:
        times = {run.cell: run.calls async for run in run_cells(cells, *hosts)}
    print(f"| fault | fails | {' | '.join(f'{f} {k}' for f, k in product(FLAVOURS, KINDS))} |")
    print("| --- | --- |" + " --- |" * 6)
    for (fault, place), string in product(product(FAULTS, PLACES), (False, True)):
        row = [
            Cell(fault, place, flavour, kind, string) for flavour, kind in product(FLAVOURS, KINDS)
        ]
        if any(cell in times for cell in row):
            seconds = [
                " / ".join(f"{call.seconds:.2f}" for call in times.get(cell, []))
                + ("!" if is_wrong(cell, times.get(cell, [])) else "")
                for cell in row
            ]
            form = " (string)" if string else ""
            print(f"| {fault}{form} | {place} | {' | '.join(seconds)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the seconds of calls to hosts that fail.")
    parser.add_argument("--fault", choices=FAULTS, help="Run the cells of one fault only.")
    parser.add_argument("--place", choices=PLACES, help="Run the cells of one place only.")
    parser.add_argument("--kind", choices=KINDS, help="Run the cells of one kind of send only.")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    asyncio.run(
        print_table(
            [
                cell
                for cell in all_cells()
                if arguments.fault in (None, cell.fault)
                and arguments.place in (None, cell.place)
                and arguments.kind in (None, cell.kind)
            ]
        )
    )


if __name__ == "__main__":
    main()
