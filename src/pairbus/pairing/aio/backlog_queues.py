"""Creates the backlog queues with the asynchronous SDK, as `pairing.backlog_queues` decides."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from pairbus.pairing.backlog_queues import (
    DEFAULT_BOUNDS,
    QUEUE_SETTINGS,
    Bounds,
    Create,
    Look,
    Wait,
    request_options,
    steps,
)


class Administration(Protocol):
    """What is used of the SDK's asynchronous administration client."""

    fully_qualified_namespace: str

    async def get_queue(self, queue_name: str, **kwargs: Any) -> Any: ...

    async def create_queue(self, queue_name: str, **kwargs: Any) -> Any: ...


async def ensure_queues(
    administration: Administration,
    paths: Iterable[str],
    *,
    bounds: Bounds = DEFAULT_BOUNDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> list[str]:
    """The same as `pairbus.pairing.backlog_queues.ensure_queues`. No request takes longer than its
    timeout, a credential's own requests included."""
    todo = steps(paths, administration.fully_qualified_namespace, bounds, clock)
    error: Exception | None = None
    while True:
        try:
            step = todo.send(error)
        except StopIteration as done:
            return list(done.value)
        error = None
        try:
            match step:
                case Look(path, timeout_s):
                    async with asyncio.timeout(timeout_s):
                        await administration.get_queue(path, **request_options(timeout_s))
                case Create(path, timeout_s):
                    async with asyncio.timeout(timeout_s):
                        await administration.create_queue(
                            path, **QUEUE_SETTINGS, **request_options(timeout_s)
                        )
                case Wait(seconds):
                    await sleep(seconds)
        except Exception as exc:  # noqa: BLE001  whatever the SDK makes of an answer: `steps` decides
            error = exc
