"""Pairings in a process that is forked: real forks, without connections."""

import asyncio
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

import pairbus
import pairbus.aio
from pairbus import SendAvailabilityOptions
from pairbus.errors import PairingForked, StateError
from pairbus.pairing.forks import notify_after_fork
from pairbus.pairing.namespaces import registry

pytestmark = [
    pytest.mark.rule("S2a"),
    # The tests fork although there are threads; that is their subject.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
DEADLINE_S = 60.0
LATER = datetime(2999, 1, 1, tzinfo=UTC)
FORK = multiprocessing.get_context("fork")


def connection_string(name: str) -> str:
    return (
        f"Endpoint=sb://{name}.servicebus.windows.net/;"
        "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"
    )


def sdk_client(name: str = "one", kind: Any = ServiceBusClient) -> Any:
    return kind.from_connection_string(connection_string(name))


def options(secondary: Any = None) -> SendAvailabilityOptions:
    """Return options with which pairing needs no connection."""
    return SendAvailabilityOptions(
        secondary=connection_string("two") if secondary is None else secondary,
        create_backlog=False,
        check_duplicate_detection=False,
    )


def calls_of(bus: Any, sender: Any) -> dict[str, Callable[[], Any]]:
    message = ServiceBusMessage("x")
    return {
        "send": lambda: sender.send_messages(message),
        "schedule": lambda: sender.schedule_messages(message, LATER),
        "cancel": lambda: sender.cancel_scheduled_messages(1),
        "create batch": sender.create_message_batch,
        "enter": getattr(sender, "__aenter__", None) or sender.__enter__,
        "queue sender": lambda: bus.get_queue_sender("q"),
        "topic sender": lambda: bus.get_topic_sender("t"),
        "queue receiver": lambda: bus.get_queue_receiver("q"),
        "subscription receiver": lambda: bus.get_subscription_receiver("t", "s"),
        "queue sessions": lambda: bus.list_queue_sessions("q"),
        "subscription sessions": lambda: bus.list_subscription_sessions("t", "s"),
        "mark healthy": lambda: bus.mark_path_healthy("q"),
    }


async def errors_of(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """Return the class and text of the error of each call."""
    errors = {}
    for name, call in calls.items():
        try:
            result = call()
            if isinstance(result, Awaitable):
                await result
        except Exception as exc:  # noqa: BLE001  the test checks it
            errors[name] = f"{type(exc).__name__}: {exc}"
        else:
            errors[name] = ""
    return errors


def in_child(work: Callable[[], Any]) -> Any:
    """Fork, and return the result of a function in the child. A child that hangs is killed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            os.write(writer, json.dumps(work()).encode())
        except BaseException as exc:  # noqa: BLE001  reported
            os.write(writer, json.dumps(f"{type(exc).__name__}: {exc}").encode())
        finally:
            os._exit(0)
    os.close(writer)
    timer = threading.Timer(DEADLINE_S, os.kill, (pid, signal.SIGKILL))
    timer.start()
    with os.fdopen(reader) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    timer.cancel()
    assert os.waitstatus_to_exitcode(status) == 0, "the child hung and was killed"
    return json.loads(text)


@contextmanager
def held_by_a_thread(*locks: Any) -> Iterator[None]:
    """Hold locks in another thread within the block."""
    holding, end = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            holding.set()
            end.wait(DEADLINE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(DEADLINE_S)
    try:
        yield
    finally:
        end.set()
        thread.join()


def assert_all_forked(errors: dict[str, str]) -> None:
    assert len(errors) == 12
    for name, error in errors.items():
        assert error.startswith("PairingForked: "), (name, error)
        assert f"made in process {os.getpid()}" in error
        assert "Pair in each worker process" in error


def test_every_call_in_a_child_fails_at_once_while_threads_of_the_parent_held_the_locks() -> None:
    client = sdk_client()
    with pairbus.pair_namespace(client, options()) as bus:
        sender = bus.get_queue_sender("orders")

        def work() -> Any:
            errors = asyncio.run(errors_of(calls_of(bus, sender)))
            status = bus.status()
            sender.close()
            bus.primary.close()
            bus.secondary.fault(RuntimeError("in the child"))
            bus.close()
            # A closed sender says why, too: the pairing is not usable here.
            closed = asyncio.run(errors_of(calls_of(bus, sender)))
            with pairbus.pair_namespace(client, options()) as own:
                own.get_queue_sender("orders").close()
            return [errors, closed, [*status.paths], type(status.fault).__name__, len(registry)]

        locks = (bus._pairing.lock, sender._links.lock, bus._driver._changed, registry._lock)
        with held_by_a_thread(*locks):
            errors, closed, paths, fault, registered = in_child(work)

        assert_all_forked(errors)
        assert_all_forked(closed)
        assert (paths, fault, registered) == (["orders"], "PairingForked", 0)
        # The pairing of the parent is as before.
        assert (bus.status().fault, bus.status().closed, len(registry)) == (None, False, 1)
        bus.get_queue_sender("other").close()
        sender.close()


async def test_every_call_in_a_child_of_an_event_loop_fails_at_once() -> None:
    client = sdk_client(kind=AsyncServiceBusClient)
    other = sdk_client("two", AsyncServiceBusClient)
    async with await pairbus.aio.pair_namespace(client, options(other)) as bus:
        await check_child_of_an_event_loop(client, other, bus)


async def check_child_of_an_event_loop(client: Any, other: Any, bus: Any) -> None:
    sender = bus.get_queue_sender("orders")

    async def work_in_loop() -> Any:
        errors = await errors_of(calls_of(bus, sender))
        await sender.close()
        await bus.primary.close()
        await bus.secondary.fault(RuntimeError("in the child"))
        await bus.close()
        async with await pairbus.aio.pair_namespace(client, options(other)) as own:
            await own.get_queue_sender("orders").close()
        return errors

    # Tasks of the parent hold the locks, and the child has a loop of its own.
    async with sender._links.lock, bus._closing:
        with held_by_a_thread(bus._pairing.lock, registry._lock):
            errors = in_child(lambda: asyncio.run(work_in_loop()))

    assert_all_forked(errors)
    assert (bus.status().fault, bus.status().closed) == (None, False)
    await sender.close()


def test_error_in_a_grandchild_names_the_process_that_paired() -> None:
    with pairbus.pair_namespace(sdk_client(), options()) as bus:
        calls = {"sender": lambda: bus.get_queue_sender("orders")}

        errors = in_child(lambda: in_child(lambda: asyncio.run(errors_of(calls))))

    assert f"made in process {os.getpid()}" in errors["sender"]


def test_child_does_not_close_links_of_the_pairing_with_the_clients_of_the_application() -> None:
    """`close` of an SDK client would end the connections that the child shares with its parent."""
    client, other = sdk_client(), sdk_client("two")
    with pairbus.pair_namespace(client, options(other)) as bus:
        sender = bus.get_queue_sender("orders")
        own = client.get_queue_sender("orders")  # of the application itself

        in_child_handlers = in_child(lambda: [link is own for link in client._handlers])

        assert in_child_handlers == [True]
        assert len(client._handlers) == 2
        sender.close()


def test_pairing_made_in_the_child_works_there() -> None:
    def work() -> Any:
        with pairbus.pair_namespace(sdk_client(), options()) as bus:
            sender = bus.get_queue_sender("orders")
            bus.mark_path_healthy("orders")
            sender.close()
            return bus.status().closed

    with pairbus.pair_namespace(sdk_client(), options()):
        assert in_child(work) is False


def test_program_that_is_executed_with_a_function_before_does_not_disturb_the_pairing() -> None:
    with pairbus.pair_namespace(sdk_client(), options()) as bus:
        command = [sys.executable, "-c", "pass"]
        subprocess.run(command, preexec_fn=lambda: None, check=True, timeout=DEADLINE_S)

        bus.get_queue_sender("orders").close()


senders: list[Any] = []
"""The senders that a worker process inherits."""


def send_in_worker() -> None:
    senders[0].send_messages(ServiceBusMessage("x"))


@pytest.fixture
def inherited_sender() -> Iterator[Any]:
    with pairbus.pair_namespace(sdk_client(), options()) as bus:
        senders.append(bus.get_queue_sender("orders"))
        yield senders[0]
        senders.pop().close()


def test_worker_of_a_process_pool_reports_the_error_to_its_parent(inherited_sender: Any) -> None:
    with ProcessPoolExecutor(1, mp_context=FORK) as pool:
        error = pool.submit(send_in_worker).exception(DEADLINE_S)

    assert isinstance(error, PairingForked)
    assert error.pid == os.getpid()
    assert f"made in process {os.getpid()}" in str(error)


def test_process_of_multiprocessing_that_uses_an_inherited_sender_ends(
    inherited_sender: Any,
) -> None:
    process = FORK.Process(target=send_in_worker)
    process.start()
    process.join(DEADLINE_S)
    if process.is_alive():
        process.kill()

    assert process.exitcode == 1  # the error, with a traceback


def test_error_keeps_its_process_id_when_it_is_pickled() -> None:
    error = pickle.loads(pickle.dumps(PairingForked("made elsewhere", pid=42)))

    assert isinstance(error, StateError)
    assert (error.pid, str(error)) == (42, "made elsewhere")


def test_object_that_no_longer_exists_is_not_notified() -> None:
    notified = []

    class Listener:
        def after_fork_in_child(self) -> None:
            notified.append(self)

    kept, dropped = Listener(), Listener()
    for listener in (kept, dropped):
        notify_after_fork(listener)
    del dropped, listener

    assert in_child(lambda: [listener is kept for listener in notified]) == [True]
    assert notified == []


def test_failure_of_one_object_does_not_keep_others_from_being_notified() -> None:
    notified = []

    class Listener:
        def after_fork_in_child(self) -> None:
            notified.append(self)
            if len(notified) == 1:
                raise RuntimeError("the first of them fails")

    listeners = [Listener(), Listener()]
    for listener in listeners:
        notify_after_fork(listener)

    assert in_child(lambda: len(notified)) == 2
