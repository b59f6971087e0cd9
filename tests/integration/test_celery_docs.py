"""Celery with the transport of docs/how-to/celery.md, its worker, and an outage."""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient

from pairbus.emulator import EmulatorProcess
from tests.documentation import ROOT, read_blocks
from tests.waiting import wait_until

PAGE = ROOT / "docs" / "how-to" / "celery.md"
BLOCKS = read_blocks(PAGE)
WORKER, SEND = (block.code.strip() for block in BLOCKS if block.language == "bash")
QUEUE = "tasks"
TIMEOUT_S = 120.0


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[EmulatorProcess]:
    folder = tmp_path / "data"
    with EmulatorProcess("primary", "secondary", queues=[QUEUE], folder=folder) as emulator:
        yield emulator


@pytest.fixture
def environment(emulator: EmulatorProcess, tmp_path: Path) -> dict[str, str]:
    """The environment of the application, whose files are in `tmp_path`."""
    for block in BLOCKS:
        if block.language == "python":
            name = block.code.partition("\n")[0].removeprefix("# ")
            (tmp_path / name).write_text(block.code, encoding="utf-8")
    primary, secondary = emulator.namespaces.values()
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PAIRBUS_PRIMARY": primary.connection_string,
        "PAIRBUS_SECONDARY": secondary.connection_string,
        "PAIRBUS_PRIMARY_NAME": "primary",
    }


@pytest.fixture
def worker_log(environment: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """Run a worker, which must not end. Its output goes to this file."""
    path = tmp_path / "worker.log"
    with path.open("w") as log:
        worker = subprocess.Popen(
            shlex.split(WORKER), cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
        yield path
        assert worker.poll() is None, path.read_text()
        worker.kill()
        worker.wait()


def send(order: int, environment: dict[str, str], folder: Path) -> None:
    command = shlex.split(SEND.replace("delay(1)", f"delay({order})"))
    result = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def backlog(connection_string: str) -> list[bytes]:
    """Return the destinations of all messages in the backlog."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        destinations = []
        for index in range(10):
            queue = f"primary/x-servicebus-transfer/{index}"
            with client.get_queue_receiver(queue) as receiver:
                messages = receiver.peek_messages(max_message_count=10)
            destinations += [message.application_properties[b"x-ms-path"] for message in messages]
    return destinations


def test_tasks_run_before_and_after_an_outage_and_are_stored_in_between(
    emulator: EmulatorProcess, environment: dict[str, str], worker_log: Path, tmp_path: Path
) -> None:
    primary, secondary = emulator.namespaces.values()
    send(1, environment, tmp_path)
    wait_until(lambda: "shipped 1" in worker_log.read_text(), "the first task", deadline_s=60)

    emulator.kill_namespace("primary")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("localhost", primary.port), 5)
    send(2, environment, tmp_path)
    assert backlog(secondary.connection_string) == [QUEUE.encode()]

    emulator.start_namespace("primary")
    send(3, environment, tmp_path)
    wait_until(lambda: "shipped 3" in worker_log.read_text(), "the third task", deadline_s=60)
    assert "shipped 2" not in worker_log.read_text()
