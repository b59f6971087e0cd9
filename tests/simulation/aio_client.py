"""A paired client of `pairbus.aio` for the callers of an application, which are threads."""

from datetime import datetime
from typing import Any

from pairbus.pairing.aio.client import PairedClient
from pairbus.pairing.aio.driver import LoopDriver
from pairbus.pairing.plan import PairingPlan
from tests.simulation.event_loop import SimulatedLoop


class BlockingClient:
    """Opens a paired client in an event loop. The results of its senders are waited for."""

    def __init__(self, loop: SimulatedLoop, plan: PairingPlan, queues: tuple[str, ...]) -> None:
        async def create() -> PairedClient:
            return PairedClient(plan, queues, LoopDriver())

        self._loop = loop
        self._client = loop.call(create)
        self._pairing = self._client._pairing
        self._open_links = self._client._open_links

    def get_queue_sender(self, path: str) -> "BlockingSender":
        return BlockingSender(self._loop, self._client.get_queue_sender(path))

    def mark_path_healthy(self, path: str) -> None:
        async def mark() -> None:
            self._client.mark_path_healthy(path)

        self._loop.call(mark)

    def close(self) -> None:
        self._loop.call(self._client.close)


class BlockingSender:
    """A sender of a BlockingClient."""

    def __init__(self, loop: SimulatedLoop, sender: Any) -> None:
        self._loop = loop
        self._sender = sender

    def send_messages(
        self, message: Any, *, timeout: float | None, cancel_after_s: float | None = None
    ) -> None:
        self._loop.call(
            lambda: self._sender.send_messages(message, timeout=timeout), cancel_after_s
        )

    def schedule_messages(
        self,
        messages: Any,
        schedule_time_utc: datetime,
        *,
        timeout: float | None,
        cancel_after_s: float | None = None,
    ) -> Any:
        return self._loop.call(
            lambda: self._sender.schedule_messages(messages, schedule_time_utc, timeout=timeout),
            cancel_after_s,
        )

    def cancel_scheduled_messages(self, numbers: Any, *, timeout: float | None) -> None:
        self._loop.call(lambda: self._sender.cancel_scheduled_messages(numbers, timeout=timeout))
