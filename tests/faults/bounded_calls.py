"""Calls of both flavours with a deadline, because the namespace may be silent."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from tests.faults.namespace_process import DEADLINE_S


async def bounded(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the result of a call of either flavour. Raises TimeoutError at the deadline."""
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


async def run_concurrently(cases: dict[str, Coroutine[Any, Any, None]]) -> None:
    """Run all cases concurrently. Errors name their case."""
    results = await asyncio.gather(*cases.values(), return_exceptions=True)
    errors = [(name, exc) for name, exc in zip(cases, results, strict=True) if exc is not None]
    for name, error in errors:
        error.add_note(f"in the case: {name}")
    if errors:
        raise BaseExceptionGroup("some cases failed", [error for _, error in errors])


async def all_tasks_end() -> None:
    """Check that all tasks end."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        _, late = await asyncio.wait(others, timeout=DEADLINE_S)
        assert not late


def pairbus_threads() -> list[str]:
    """Return the names of the running threads of pairbus."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pairbus")]
