"""Pairings that report to a console, of namespaces that do not exist: the tests change the state of
the pairing themselves."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import azure.servicebus
import azure.servicebus.aio
from azure.servicebus.exceptions import ServiceBusConnectionError

import pairbus
import pairbus.aio
from pairbus.events import Event, PathStatus
from pairbus.options import SendAvailabilityOptions
from tests.integration.console_server import ConsoleServer

DOWN = ServiceBusConnectionError(message="down")
FAILOVER = PathStatus.FAILOVER


class ReportingPair:
    """A pairing of namespaces that do not exist. Nothing is sent to them."""

    def __init__(self, flavour: str) -> None:
        self.sync = flavour == "sync"
        self.events: list[Event] = []
        module: Any = azure.servicebus if self.sync else azure.servicebus.aio
        self.client, self.other = (
            module.ServiceBusClient.from_connection_string(
                f"Endpoint=sb://{name}.servicebus.windows.net/;"
                "SharedAccessKeyName=root;SharedAccessKey=a2V5"
            )
            for name in ("one", "two")
        )
        self.bus: Any = None

    async def start(self, **options: Any) -> "ReportingPair":
        defaults = {
            "secondary": self.other,
            "create_backlog": False,
            "check_duplicate_detection": False,
            "failover_interval": timedelta(),
            "on_event": self.events.append,
        }
        pair = pairbus.pair_namespace if self.sync else pairbus.aio.pair_namespace
        options = defaults | options
        self.bus = await self.finish(pair(self.client, SendAvailabilityOptions(**options)))
        return self

    async def finish(self, result: Any) -> Any:
        return await result if isinstance(result, Awaitable) else result

    async def close(self) -> None:
        if self.bus is not None:
            # In a thread, because the test of a blocked event loop is about the library.
            close = self.bus.close
            await (asyncio.to_thread(close) if self.sync else close())

    async def close_clients(self) -> None:
        await self.finish(self.client.close())
        await self.finish(self.other.close())

    @property
    def pairing(self) -> Any:
        return self.bus._pairing

    @property
    def reporter(self) -> Any:
        return self.bus._plan.console

    def fail(self, path: str = "orders") -> None:
        """Let a path fail over."""
        with self.pairing.send_failed(self.pairing.path(path), DOWN):
            pass
        assert self.state(path) is FAILOVER

    def state(self, path: str = "orders") -> PathStatus:
        status: PathStatus = self.pairing.path(path).health.status
        return status


Reporting = Callable[..., Awaitable[ReportingPair]]
"""Returns a new pairing with these options."""
StartConsole = Callable[..., ConsoleServer]


def report_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "console reports" in thread.name]


def states(console: ConsoleServer) -> list[Any]:
    """Return the state of each path in the last report."""
    return [(path["path"], path["state"]) for path in console.reports[-1]["paths"]]


def texts(console: ConsoleServer) -> list[str]:
    return [event["text"] for report in console.reports for event in report["events"]]
