"""A namespace stops when its disk fails, and confirms nothing that is not on disk.

After the next start it has every message that it confirmed.
"""

import gc
import logging
import re
import resource
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.sections import Message
from pairbus.emulator import EmulatorProcess, LocalNamespace
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.errors import ConnectionLost, StateError
from tests.waiting import wait_until

# The SDK does not close its socket when a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

DEADLINE_S = 30.0
SHORT_TIMEOUTS = {"keep_alive": 0, "socket_timeout": 0.05}


@pytest.fixture(autouse=True)
def _collect_sockets() -> Iterator[None]:
    """Collect sockets of the SDK within the test that ignores their warnings."""
    yield
    gc.collect()


@pytest.fixture
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("small") as namespace:
        namespace.create_queue("q")
        namespace.create_queue("other")
        yield namespace


def fill_the_disk(namespace: LocalNamespace) -> None:
    """Prevent the file from growing."""

    def fill(core: NamespaceRuntime) -> None:
        core.store._database.connection.execute("PRAGMA max_page_count = 1")

    namespace.call(fill)


def break_the_disk(namespace: LocalNamespace, *, time_passes: bool = True) -> None:
    """Make every read and write fail. Without `time_passes`, the next call is the first to fail."""

    def deny_access(core: NamespaceRuntime) -> None:
        core.store._database.connection.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
        if not time_passes:
            core.tick = lambda: None

    namespace.call(deny_access)


@contextmanager
def sender_of(connection_string: str) -> Iterator[ServiceBusSender]:
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender("q", **SHORT_TIMEOUTS) as sender,
    ):
        yield sender


def send_until_it_fails(sender: ServiceBusSender, size: int = 20_000) -> tuple[int, Exception]:
    """Return the number of confirmed messages, and the error of the next one."""
    for number in range(10_000):
        try:
            sender.send_messages(ServiceBusMessage(str(number).ljust(size)))
        except ServiceBusError as exc:
            return number, exc
    raise AssertionError("the disk never filled up")


def numbers(connection_string: str) -> list[int]:
    """Return the numbers of all stored messages."""
    stored: list[int] = []
    options = ClientOptions.from_connection_string(connection_string)
    with Client(options) as client, Receiver(client, "q", settled=True) as receiver:
        for deliveries in receiver.receive_available(100_000):
            bodies = [Message.parse(delivery.payload).read_body()[1][0] for delivery in deliveries]
            stored += [int(body) for body in bodies]
    return stored


def is_served(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S).close()
    except ConnectionRefusedError:
        return False
    return True


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    # Not those of asyncio: a connection that arrives while an accept is cancelled is one of them.
    records = [record for record in caplog.records if record.name.startswith("pairbus")]
    return [record.getMessage() for record in records if record.levelno >= logging.ERROR]


# A namespace in this process.


def test_full_disk_stops_the_namespace_and_loses_no_confirmed_message(
    namespace: LocalNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    with sender_of(namespace.connection_string) as sender:
        sender.send_messages(ServiceBusMessage("0".ljust(20_000)))
        fill_the_disk(namespace)
        confirmed, error = send_until_it_fails(sender)

    assert "disk is full" in str(namespace.failure)  # the fault happened
    assert isinstance(error, ServiceBusConnectionError)
    wait_until(lambda: not is_served(namespace.port), "the port to be closed")
    [line] = errors_in(caplog)
    assert "Namespace small stops" in line
    assert "disk is full" in line
    assert "start it again" in line

    namespace.start()
    assert namespace.failure is None
    assert numbers(namespace.connection_string) == [0, *range(confirmed)]


def create_queues(namespace: LocalNamespace) -> None:
    for number in range(1000):
        namespace.create_queue(f"queue-{number}")


def test_calls_to_a_failed_namespace_raise_the_reason(
    namespace: LocalNamespace,
) -> None:
    fill_the_disk(namespace)
    with pytest.raises(StateError, match="disk is full") as first:
        create_queues(namespace)
    with pytest.raises(StateError, match=r"'small' has stopped.*disk is full") as later:
        namespace.meter()

    assert isinstance(first.value.__cause__, sqlite3.Error)
    assert later.value.__cause__ is first.value.__cause__


def test_failed_namespace_can_be_stopped_and_closed(
    namespace: LocalNamespace,
) -> None:
    break_the_disk(namespace)
    with pytest.raises(StateError):
        namespace.create_queue("more")
    assert namespace.failure is not None  # the fault happened
    namespace.stop()
    namespace.stop()
    namespace.start()
    namespace.create_queue("more")
    namespace.close()
    assert not namespace.folder.exists()


def test_disk_failure_aborts_all_clients_and_confirms_nothing_uncommitted(
    namespace: LocalNamespace,
) -> None:
    options = ClientOptions.from_connection_string(namespace.connection_string)
    with Client(options) as client, Client(options) as other_client:
        idle = Receiver(other_client, "other")
        idle.open()
        sender = Sender(client, "q")
        sender.open()
        break_the_disk(namespace, time_passes=False)
        posted = sender.post(Message.build(data=b"9").encode())
        sender.wait([posted])
        assert namespace.failure is not None  # the fault happened
        assert isinstance(posted.error, ConnectionLost)
        other_client.run_until(
            lambda: idle.error is not None, other_client.deadline(None), "a lost connection"
        )
        assert isinstance(idle.error, ConnectionLost)
    namespace.start()
    assert numbers(namespace.connection_string) == []


def receive_some(namespace: LocalNamespace) -> None:
    options = ClientOptions.from_connection_string(namespace.connection_string)
    with Client(options) as client, Receiver(client, "q") as receiver:
        receiver.receive(timeout_s=DEADLINE_S)


def create_by_http(namespace: LocalNamespace) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=namespace.ca_file, retry_total=0
    ) as admin:
        admin.create_queue("more")


def schedule(namespace: LocalNamespace) -> None:
    with sender_of(namespace.connection_string) as sender:
        sender.schedule_messages(ServiceBusMessage("1"), datetime.now(UTC) + timedelta(hours=1))


@pytest.mark.parametrize("use", [receive_some, create_by_http, schedule])
def test_first_operation_that_hits_the_broken_disk_stops_the_namespace(
    namespace: LocalNamespace, caplog: pytest.LogCaptureFixture, use: Callable[..., None]
) -> None:
    with sender_of(namespace.connection_string) as sender:
        sender.send_messages(ServiceBusMessage("0"))
    namespace.stop()
    namespace.start()  # with an empty cache, so that a receive reads from disk
    break_the_disk(namespace, time_passes=False)
    with pytest.raises(Exception):  # noqa: B017, PT011  the type differs by operation
        use(namespace)

    assert namespace.failure is not None  # the fault happened
    wait_until(lambda: not is_served(namespace.port), "the port to be closed")
    assert len(errors_in(caplog)) == 1
    namespace.start()
    assert numbers(namespace.connection_string) == [0]


def test_periodic_work_that_hits_the_broken_disk_stops_the_namespace(
    namespace: LocalNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    break_the_disk(namespace)
    wait_until(lambda: namespace.failure is not None, "the fault")
    wait_until(lambda: not is_served(namespace.port), "the port to be closed")
    assert len(errors_in(caplog)) == 1


def test_call_during_the_stop_of_a_failed_namespace_is_refused_at_once(
    namespace: LocalNamespace,
) -> None:
    break_the_disk(namespace)
    thread = namespace._thread
    assert thread is not None
    while thread.is_alive():
        with suppress(StateError):
            namespace.clear_faults()
    assert namespace.failure is not None  # the fault happened
    with pytest.raises(StateError):
        namespace.clear_faults()


def test_namespace_with_an_unreadable_file_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "namespace.db").write_bytes(b"this is no database" * 1000)
    namespace = LocalNamespace(folder=tmp_path)
    with pytest.raises(StateError, match=r"namespace\.db") as caught:
        namespace.start()
    assert isinstance(caught.value.__cause__, sqlite3.Error)
    namespace.close()


# `pairbus emulator`.


@pytest.fixture
def command(tmp_path: Path) -> Iterator[EmulatorProcess]:
    with EmulatorProcess("first", "second", queues=["q"], folder=tmp_path) as process:
        yield process


def limit_file_size(process: EmulatorProcess, headroom: int) -> None:
    """Let no file of the process grow beyond the size of the second namespace's log plus
    `headroom` bytes."""
    log = Path(process.namespaces["second"].ca_file).with_name("namespace.db-wal")
    limit = log.stat().st_size + headroom
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def test_command_ends_with_an_error_when_the_disk_fails_for_one_namespace(
    command: EmulatorProcess,
) -> None:
    second = command.namespaces["second"].connection_string
    with sender_of(second) as sender:
        sender.send_messages(ServiceBusMessage("0".ljust(20_000)))
        limit_file_size(command, 200_000)
        confirmed, error = send_until_it_fails(sender)
    status = command.wait()
    output = command.errors()

    assert re.search(
        r"second failed: .*(disk I/O error|is full)", output.replace("\n", "")
    )  # fault
    assert confirmed > 0
    assert isinstance(error, ServiceBusConnectionError)
    assert status == 1
    assert "first failed" not in output
    assert "Traceback" not in output

    command.start()
    stored = numbers(second)
    assert command.terminate() == 0
    assert stored[: confirmed + 1] == [0, *range(confirmed)]
    # At most one unconfirmed message is stored: the one that was in transit.
    assert stored[confirmed + 1 :] in ([], [confirmed])
