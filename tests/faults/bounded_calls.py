"""Calls of both flavours, which must return while a namespace is silent."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from tests.faults.namespace_process import DEADLINE_S


async def come_back(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the result of a call of either flavour, which must return during the silence."""
    async with asyncio.timeout(DEADLINE_S):
        if inspect.iscoroutinefunction(call):
            return await call(*args, **options)
        return await asyncio.wrap_future(in_thread(call, *args, **options))


def in_thread(call: Callable[..., Any], *args: Any, **options: Any) -> "Future[Any]":
    """Run a call in a new daemon thread: a call that never ends must not block others."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(call(*args, **options))
        except BaseException as exc:  # noqa: BLE001  raised to the waiting task
            future.set_exception(exc)

    threading.Thread(target=work, daemon=True).start()
    return future


async def side_by_side(cases: dict[str, Coroutine[Any, Any, None]]) -> None:
    """Run all cases concurrently. Errors name their case."""
    ends = await asyncio.gather(*cases.values(), return_exceptions=True)
    errors = [(name, end) for name, end in zip(cases, ends, strict=True) if end is not None]
    for name, error in errors:
        error.add_note(f"in the case: {name}")
    if errors:
        raise BaseExceptionGroup("some cases failed", [error for _, error in errors])


async def all_tasks_end() -> None:
    """Check that all tasks end."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        _, late = await asyncio.wait(others, timeout=DEADLINE_S)
        assert not late


def threads_of_ours() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("pairbus")]
