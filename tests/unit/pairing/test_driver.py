"""The drivers: closing side by side, discarding, locks, and calls that fail at once."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from pairbus.errors import SenderInUse
from pairbus.pairing import driver as driver_module
from pairbus.pairing.aio.driver import LoopDriver
from pairbus.pairing.driver import MAX_CLOSING, MAX_DISCARDING, ThreadDriver
from pairbus.pairing.effects import (
    AcquireLock,
    CloseAll,
    Discard,
    Effect,
    Operation,
    StopBackground,
    WaitForChange,
)
from tests.waiting import wait_until


class Target:
    """An object of the SDK whose `close` waits for others, or until it is released."""

    def __init__(self, close: Callable[[], object] = lambda: None) -> None:
        self._config = SimpleNamespace(ssl_context=None)
        self._handler: Any = None
        self._close = close
        self.closed = False

    def close(self) -> None:
        self._close()
        self.closed = True

    @property
    def is_interrupted(self) -> bool:
        return hasattr(self, "_open")


class AsyncTarget:
    """An object of the asynchronous SDK."""

    closed = False

    async def close(self) -> None:
        await asyncio.sleep(0.01)
        self.closed = True


@pytest.fixture
def driver() -> Iterator[ThreadDriver]:
    driver = ThreadDriver()
    yield driver
    driver.deadlines.stop()


def effect_of(effect: Effect) -> Operation[Any]:
    return (yield effect)


def discard_after(changed: Callable[[], bool], target: object) -> Operation[None]:
    yield WaitForChange(changed, 30.0)
    yield Discard(target)


@pytest.mark.rule("S14")
def test_objects_are_closed_side_by_side(driver: ThreadDriver) -> None:
    together = threading.Barrier(50, timeout=30)
    targets = tuple(Target(together.wait) for _ in range(50))

    driver.run(effect_of(CloseAll(targets)))

    assert all(target.closed for target in targets)


@pytest.mark.rule("S14")
@pytest.mark.parametrize("number", [0, 1, 2, 2 * MAX_CLOSING])
def test_any_number_of_objects_is_closed(driver: ThreadDriver, number: int) -> None:
    targets = tuple(Target() for _ in range(number))

    driver.run(effect_of(CloseAll(targets)))

    assert all(target.closed for target in targets)


@pytest.mark.rule("S14")
def test_object_that_cannot_be_closed_does_not_affect_others(driver: ThreadDriver) -> None:
    def fail() -> None:
        raise OSError("broken")

    targets = (Target(fail), Target(), Target(fail))

    driver.run(effect_of(CloseAll(targets)))

    assert [target.closed for target in targets] == [False, True, False]


@pytest.mark.rule("S14")
def test_objects_that_do_not_close_are_left(
    driver: ThreadDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "CLOSE_TIMEOUT_S", 0.2)
    released = threading.Event()
    targets = tuple(Target(lambda: released.wait(30)) for _ in range(3))

    driver.run(effect_of(CloseAll(targets)))

    assert not any(target.closed for target in targets)
    wait_until(lambda: all(target.is_interrupted for target in targets), "interruptions")
    released.set()


@pytest.mark.rule("S14")
def test_stop_waits_for_links_that_background_operations_discard(
    driver: ThreadDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, stopping = Target(), threading.Event()
    join = driver_module._join

    def join_and_note(threads: Iterable[threading.Thread], deadline: float) -> None:
        stopping.set()
        driver.wake()
        join(threads, deadline)

    monkeypatch.setattr(driver_module, "_join", join_and_note)

    driver.start(discard_after(stopping.is_set, target), "ping")
    driver.run(effect_of(StopBackground()))

    assert stopping.is_set()
    assert target.closed


@pytest.mark.rule("S14")
async def test_stop_of_an_event_loop_waits_for_links_that_background_operations_discard() -> None:
    driver, target, stopping = LoopDriver(), AsyncTarget(), asyncio.Event()
    driver.start(discard_after(stopping.is_set, target), "ping")

    stop = asyncio.create_task(driver.run(effect_of(StopBackground())))
    await asyncio.sleep(0.01)
    assert not stop.done()
    stopping.set()
    driver.wake()
    await stop

    assert target.closed


@pytest.mark.rule("S2a")
def test_discarding_does_not_delay_the_operation(driver: ThreadDriver) -> None:
    released = threading.Event()
    target = Target(lambda: released.wait(30))

    driver.run(effect_of(Discard(target)))

    assert not target.closed
    released.set()
    wait_until(lambda: target.closed, "the link to be closed")


@pytest.mark.rule("S2a")
def test_number_of_threads_that_discard_is_bounded(driver: ThreadDriver) -> None:
    released = threading.Event()
    targets = [Target(lambda: released.wait(30)) for _ in range(MAX_DISCARDING + 5)]

    for target in targets:
        driver.run(effect_of(Discard(target)))

    threads = [t for t in threading.enumerate() if t.name == "pairbus discard"]
    assert len(threads) == MAX_DISCARDING
    assert [target.is_interrupted for target in targets] == [False] * MAX_DISCARDING + [True] * 5
    released.set()
    wait_until(lambda: all(target.closed for target in targets[:MAX_DISCARDING]), "the links")
    another = Target()
    driver.run(effect_of(Discard(another)))
    wait_until(lambda: another.closed, "another link to be closed")


@pytest.mark.rule("S2a")
def test_link_is_shut_down_if_no_thread_can_be_started(
    driver: ThreadDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    targets = [Target() for _ in range(MAX_DISCARDING + 1)]

    for target in targets:
        driver.run(effect_of(Discard(target)))

    assert all(target.is_interrupted for target in targets)


@pytest.mark.rule("S2a")
def test_waiting_for_a_lock_too_long_is_an_error_of_its_own(driver: ThreadDriver) -> None:
    lock = threading.Lock()
    with lock, pytest.raises(SenderInUse, match="other calls used this sender"):
        driver.run(effect_of(AcquireLock(lock, 0.01)))


@pytest.mark.rule("S2a")
async def test_wait_for_a_lock_reduces_the_time_that_is_left() -> None:
    driver = LoopDriver()
    lock = asyncio.Lock()
    with await driver.run(effect_of(AcquireLock(lock))) as left_s:
        assert left_s == inf
        waiting = asyncio.create_task(driver.run(effect_of(AcquireLock(lock, 60.0))))
        await asyncio.sleep(0.01)
    with await waiting as left_s:
        assert 0 < left_s < 60


@pytest.mark.rule("S2a")
async def test_calls_that_fail_at_once_let_other_tasks_run() -> None:
    driver = LoopDriver()
    ran = asyncio.Event()

    def fail() -> Operation[None]:
        yield from ()
        raise OSError("down")

    async def another() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        ran.set()

    task = asyncio.ensure_future(another())
    for _ in range(100):
        with pytest.raises(OSError, match="down"):
            await driver.run(fail())
    assert ran.is_set()
    await task
