"""`EmulatorProcess` starts, kills, pauses and restarts `pairbus emulator` as a child process."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.emulator import EmulatorProcess
from pairbus.errors import ConfigurationError, StateError

DEADLINE_S = 60.0
HOUR = timedelta(hours=1)
SCHEDULED_ENQUEUE_TIME = Symbol("x-opt-scheduled-enqueue-time")


def client_for(connection_string: str) -> Client:
    return Client(ClientOptions.from_connection_string(connection_string))


def send(connection_string: str, body: str, at: datetime | None = None) -> None:
    annotations = {} if at is None else {SCHEDULED_ENQUEUE_TIME: Timestamp.from_datetime(at)}
    with client_for(connection_string) as client:
        message = Message.build(message_annotations=annotations, value=body)
        Sender(client, "orders").send(message.encode())


def receive(connection_string: str) -> list[str]:
    with client_for(connection_string) as client:
        deliveries = Receiver(client, "orders", settled=True).receive(10)
        return [Message.parse(delivery.payload).read_value() for delivery in deliveries]


def wait_until(condition: Callable[[], bool], description: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {description}"
        time.sleep(0.02)


def test_killed_process_starts_again_with_its_port_and_messages(tmp_path: Path) -> None:
    with EmulatorProcess("primary", folder=tmp_path, queues=["orders"]) as emulator:
        connection_string = emulator.connection_string
        send(connection_string, "stored")
        emulator.kill()
        assert emulator.exit_status == -signal.SIGKILL
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", emulator.port))
        emulator.start()
        assert emulator.connection_string == connection_string
        assert receive(connection_string) == ["stored"]


@pytest.mark.rule("N4")
def test_clocks_of_a_process_are_moved_forward_and_survive_a_kill() -> None:
    names = ("a", "b")
    with EmulatorProcess(*names, queues=["orders"]) as emulator:
        before = {name: emulator.now(name) for name in names}
        send(emulator.connection_string, "late", at=before["a"] + 2 * HOUR)
        emulator.advance(HOUR)
        emulator.advance(HOUR, "a")
        assert receive(emulator.connection_string) == ["late"]
        with pytest.raises(ConfigurationError, match="cannot go back"):
            emulator.advance(-HOUR)
        with pytest.raises(StateError, match="does not serve 'c'"):
            emulator.advance(HOUR, "c")
        emulator.kill()
        with pytest.raises(StateError, match="has already ended"):
            emulator.now()
        emulator.start()
        assert emulator.now() - before["a"] >= 2 * HOUR
        assert HOUR <= emulator.now("b") - before["b"] < 2 * HOUR


def test_data_without_a_folder_survives_a_kill() -> None:
    with EmulatorProcess(queues=["orders"]) as emulator:
        send(emulator.connection_string, "stored")
        emulator.kill()
        emulator.start()
        assert receive(emulator.connection_string) == ["stored"]
        folder = Path(emulator.ca_file).parent
    assert not folder.exists()


def test_each_namespace_keeps_its_port(tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    config.write_text(
        '{"UserConfig": {"Namespaces": [{"Name": "b", "Queues": [{"Name": "orders"}]}]}}'
    )
    with EmulatorProcess("a", config=config, folder=tmp_path / "data") as emulator:
        assert emulator.names == ("b", "a")
        assert emulator.connection_string == emulator.namespaces["b"].connection_string
        send(emulator.connection_string, "to ")
        namespaces = emulator.namespaces
        assert emulator.terminate() == 0
        emulator.start()
        assert emulator.namespaces == namespaces


def test_paused_process_answers_after_it_is_resumed() -> None:
    with EmulatorProcess(queues=["orders"]) as emulator:
        connection_string = emulator.connection_string
        sending = threading.Thread(target=send, args=(connection_string, "sent while paused"))
        with emulator.paused():
            sending.start()
            assert emulator.is_paused
        sending.join(DEADLINE_S)
        assert not emulator.is_paused
        assert receive(connection_string) == ["sent while paused"]


def test_paused_process_can_be_killed_and_closed() -> None:
    with EmulatorProcess() as emulator:
        emulator.pause()
        emulator.kill()
        assert emulator.exit_status == -signal.SIGKILL
        emulator.start()
        emulator.pause()
        assert emulator.is_paused
    assert emulator.exit_status == 0


def test_process_that_ended_cannot_be_killed_or_paused() -> None:
    with EmulatorProcess("a") as emulator:
        os.kill(emulator.pid, signal.SIGTERM)
        assert emulator.wait() == 0
        for call in (emulator.kill, emulator.pause, emulator.terminate):
            with pytest.raises(StateError, match="process of a has already ended with status 0"):
                call()


def test_process_that_was_not_started_has_no_address() -> None:
    emulator = EmulatorProcess("a")
    with pytest.raises(StateError, match="was not started"):
        _ = emulator.connection_string
    with pytest.raises(StateError, match="was not started"):
        emulator.kill()
    emulator.close()


def test_failed_start_carries_the_message_of_the_process(tmp_path: Path) -> None:
    with (
        EmulatorProcess("a", folder=tmp_path) as first,
        pytest.raises(StateError, match=r"status 1 .* already in use by process") as caught,
    ):
        EmulatorProcess("a", folder=tmp_path).__enter__()
    assert str(first.pid) in str(caught.value)


def test_invalid_config_is_reported_before_a_process_is_started(tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    config.write_text("{")
    with pytest.raises(ConfigurationError, match=r"Config\.json: line 1"):
        EmulatorProcess(config=config)


def test_start_has_a_deadline() -> None:
    with (
        pytest.raises(StateError, match=r"process of a was not ready after 0\.01 s"),
        EmulatorProcess("a", start_timeout_s=0.01),
    ):
        pass


@pytest.mark.parametrize("ending", ["os._exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_process_ends_with_its_parent(ending: str) -> None:
    program = f"""
import os, signal
from pairbus.emulator import EmulatorProcess
emulator = EmulatorProcess("a")
emulator.start()
print(emulator.pid, flush=True)
{ending}
"""
    parent = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert parent.returncode != 0  # the parent ended before it closed the emulator
    child = Path(f"/proc/{int(parent.stdout)}")
    wait_until(lambda: not child.exists(), "the emulator to end")
