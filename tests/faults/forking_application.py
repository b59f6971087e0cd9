"""An application that pairs two namespaces, sends in several threads or tasks, and forks meanwhile.

    python -m tests.faults.forking_application '{"flavour": "sync", …}'

Each child calls every method of the inherited pairing, closes it, and pairs again by itself. At the
end the parent prints a JSON object: the ids that were acknowledged to it, its errors, and the
results of each child.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NoReturn

from azure.servicebus import ServiceBusMessage

import pairbus
import pairbus.aio
from tests.faults.paired_clients import connect, options_of

CHILDREN = 3
SENDERS = 3
CHILD_DEADLINE_S = 60.0
MESSAGES_BETWEEN = 10
"""The messages of each sender between two forks."""
LATER = datetime(2999, 1, 1, tzinfo=UTC)

Call = Callable[[], Any]


@dataclass
class Application:
    """The settings of a run, and what happened in the parent."""

    flavour: str
    tls: bool
    healthy: str
    """A queue of the primary that accepts messages."""
    failing: str
    """A queue of the primary that does not, so that it is in failover."""
    primary: dict[str, Any]
    secondary: dict[str, Any]
    name: str
    ledger: str
    acknowledged: dict[str, list[str]] = field(default_factory=dict)
    """Message ids by queue and sender."""
    errors: list[str] = field(default_factory=list)
    children: list[Any] = field(default_factory=list)

    def connect(self, host: dict[str, Any]) -> Any:
        return connect(self.flavour, SimpleNamespace(**host), tls=self.tls)

    def options(self, secondary: Any, **options: Any) -> pairbus.SendAvailabilityOptions:
        # Long enough for a machine that stalls: no send may fail.
        patient = {"operation_timeout": timedelta(minutes=1)}
        return options_of(secondary, self.name, **(patient | options))

    def paths(self) -> list[str]:
        return [self.healthy, self.failing] * SENDERS

    def progress(self) -> int:
        """Return the number of messages that every sender has sent."""
        sent = [len(ids) for ids in self.acknowledged.values()]
        return min(sent) if len(sent) == len(self.paths()) else 0

    def report(self) -> None:
        report = {
            "pid": os.getpid(),
            "acknowledged": self.acknowledged,
            "errors": self.errors,
            "children": self.children,
        }
        print(json.dumps(report), flush=True)


def calls_of(bus: Any, sender: Any, failing: Any) -> dict[str, Call]:
    """Return calls of every public method that uses the pairing."""
    message = ServiceBusMessage("from a child", message_id="from a child")
    return {
        "send": lambda: sender.send_messages(message),
        "send several": lambda: sender.send_messages([message, message]),
        "send in failover": lambda: failing.send_messages(message),
        "schedule": lambda: sender.schedule_messages(message, LATER),
        "cancel": lambda: sender.cancel_scheduled_messages(1),
        "create batch": sender.create_message_batch,
        "enter sender": getattr(sender, "__aenter__", None) or sender.__enter__,
        "queue sender": lambda: bus.get_queue_sender("q"),
        "topic sender": lambda: bus.get_topic_sender("t"),
        "queue receiver": lambda: bus.get_queue_receiver("q"),
        "subscription receiver": lambda: bus.get_subscription_receiver("t", "s"),
        "queue sessions": lambda: bus.list_queue_sessions("q"),
        "subscription sessions": lambda: bus.list_subscription_sessions("t", "s"),
        "mark path healthy": lambda: bus.mark_path_healthy("q"),
    }


def ends_of(bus: Any, senders: list[Any], client: Any, other: Any) -> list[Call]:
    """Return the calls of either flavour that end a pairing and its clients."""
    return [
        *(sender.close for sender in senders),
        bus.primary.close,
        bus.secondary.close,
        lambda: bus.fault(RuntimeError("a fault in the child")),
        bus.close,
        client.close,
        other.close,
    ]


def describe(error: BaseException | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"


def read_from(reader: int, pid: int) -> Any:
    """Return what a child wrote to its pipe; kill the child at the deadline."""
    timer = threading.Timer(CHILD_DEADLINE_S, os.kill, (pid, signal.SIGKILL))
    timer.start()
    with os.fdopen(reader) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    timer.cancel()
    return {
        "pid": pid,
        "exit": os.waitstatus_to_exitcode(status),
        "results": json.loads(text) if text else None,
    }


def write_to(writer: int, results: Any) -> None:
    with os.fdopen(writer, "w") as file:
        json.dump(results, file)


# Threads.


def run_threads(application: Application) -> None:
    stop = threading.Event()
    with ExitStack() as stack:
        client = stack.enter_context(application.connect(application.primary))
        other = stack.enter_context(application.connect(application.secondary))
        options = application.options(other, ledger=application.ledger)
        bus = stack.enter_context(pairbus.pair_namespace(client, options))
        senders = [stack.enter_context(bus.get_queue_sender(path)) for path in application.paths()]

        def keep_sending(number: int, sender: Any) -> None:
            ids = application.acknowledged.setdefault(f"{sender.entity_name} {number}", [])
            while not stop.is_set():
                message_id = f"{number}-{len(ids)}"
                try:
                    sender.send_messages(ServiceBusMessage("x", message_id=message_id))
                except Exception as exc:  # noqa: BLE001  reported
                    application.errors.append(f"{message_id}: {describe(exc)}")
                    return
                ids.append(message_id)

        threads = [
            threading.Thread(target=keep_sending, args=(number, sender), daemon=True)
            for number, sender in enumerate(senders)
        ]
        for thread in threads:
            thread.start()
        stack.callback(stop.set)
        for number in range(CHILDREN):
            wait_for_progress(application)
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                results = child_of_threads(application, client, other, bus, senders)
                write_to(writer, results)
                if number % 2:
                    os._exit(0)
                sys.exit(0)  # leaves the `with` blocks of the parent
            os.close(writer)
            application.children.append(read_from(reader, pid))
        wait_for_progress(application)
        stop.set()
        for thread in threads:
            thread.join(CHILD_DEADLINE_S)
    application.report()


def wait_for_progress(application: Application) -> None:
    goal = application.progress() + MESSAGES_BETWEEN
    while application.progress() < goal and not application.errors:
        time.sleep(0.01)


def child_of_threads(
    application: Application, client: Any, other: Any, bus: Any, senders: list[Any]
) -> Any:
    def error_of(call: Call) -> str:
        try:
            call()
        except Exception as exc:  # noqa: BLE001  reported
            return describe(exc)
        return ""

    calls = calls_of(bus, *senders[:2])
    errors = {name: error_of(call) for name, call in calls.items()}
    paths = sorted(bus.status().paths)
    ends = ends_of(bus, senders, client, other)
    closing = [error for end in ends if (error := error_of(end))]

    def pair_again() -> None:
        with (
            pairbus.pair_namespace(client, application.options(other)) as own,
            own.get_queue_sender(application.healthy) as sender,
        ):
            sender.send_messages(ServiceBusMessage("x", message_id=f"child-{os.getpid()}"))

    return {
        "errors": errors,
        "paths": paths,
        "closing": closing,
        "own pairing": error_of(pair_again),
    }


# Tasks.


async def run_tasks(application: Application) -> None:
    client = application.connect(application.primary)
    other = application.connect(application.secondary)
    options = application.options(other, ledger=application.ledger)
    bus = await pairbus.aio.pair_namespace(client, options)
    senders = [bus.get_queue_sender(path) for path in application.paths()]
    stopping = False

    async def keep_sending(number: int, sender: Any) -> None:
        ids = application.acknowledged.setdefault(f"{sender.entity_name} {number}", [])
        while not stopping:
            message_id = f"{number}-{len(ids)}"
            try:
                await sender.send_messages(ServiceBusMessage("x", message_id=message_id))
            except Exception as exc:  # noqa: BLE001  reported
                application.errors.append(f"{message_id}: {describe(exc)}")
                return
            ids.append(message_id)

    async def progress() -> None:
        goal = application.progress() + MESSAGES_BETWEEN
        while application.progress() < goal and not application.errors:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    tasks = [
        asyncio.create_task(keep_sending(number, sender)) for number, sender in enumerate(senders)
    ]
    for _ in range(CHILDREN):
        await progress()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            child_of_tasks(application, client, other, bus, senders, writer)
        os.close(writer)
        application.children.append(await asyncio.to_thread(read_from, reader, pid))
    await progress()
    stopping = True
    await asyncio.wait(tasks, timeout=CHILD_DEADLINE_S)
    for closing in (*senders, bus, client, other):
        await closing.close()
    application.report()


def child_of_tasks(
    application: Application,
    client: Any,
    other: Any,
    bus: Any,
    senders: list[Any],
    writer: int,
) -> NoReturn:
    async def error_of(call: Call) -> str:
        try:
            result = call()
            if isinstance(result, Awaitable):
                await result
        except Exception as exc:  # noqa: BLE001  reported
            return describe(exc)
        return ""

    async def pair_again() -> None:
        async with (
            await pairbus.aio.pair_namespace(client, application.options(other)) as own,
            own.get_queue_sender(application.healthy) as sender,
        ):
            await sender.send_messages(ServiceBusMessage("x", message_id=f"child-{os.getpid()}"))

    async def work() -> Any:
        calls = calls_of(bus, *senders[:2])
        ends = ends_of(bus, senders, client, other)
        return {
            "errors": {name: await error_of(call) for name, call in calls.items()},
            "paths": sorted(bus.status().paths),
            "closing": [error for end in ends if (error := await error_of(end))],
            "own pairing": await error_of(pair_again),
        }

    try:
        # The event loop of the parent belongs to the parent; the child has its own.
        write_to(writer, asyncio.run(work()))
    finally:
        os._exit(0)


if __name__ == "__main__":
    settings = Application(**json.loads(sys.argv[1]))
    if settings.flavour == "sync":
        run_threads(settings)
    else:
        asyncio.run(run_tasks(settings))
