"""`pairbus emulator` as its users run it: in a process of its own."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage

from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import StateError

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the SDK's sockets


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pairbus", *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A running `pairbus emulator`, and the connection strings that it printed."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "pairbus", "emulator", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            printed = []
            for line in process.stdout:
                printed.append(line)
                if "Ctrl-C" in line:
                    break
            yield process, re.findall(r"Endpoint=\S+", "".join(printed))
        finally:
            process.kill()


def send(connection_string: str, queue: str, body: str) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage(body))


def receive(connection_string: str, queue: str, count: int = 1) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < count:
            received = receiver.receive_messages(count - len(messages), max_wait_time=10)
            if not received:
                break
            messages += received
        for message in messages:
            receiver.complete_message(message)
        return [str(message) for message in messages]


def test_it_serves_several_namespaces_and_keeps_what_it_accepted(tmp_path: Path) -> None:
    arguments = ("--namespace", "a", "--namespace", "b", "--queue", "q", "--folder", str(tmp_path))
    with serving(*arguments) as (process, strings):
        first, second = strings
        send(first, "q", "to a")
        send(second, "q", "to b")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0

    with serving(*arguments) as (_, strings):
        assert [receive(one, "q") for one in strings] == [["to a"], ["to b"]]


def test_folder_that_another_process_serves_is_refused_and_nothing_accepted_is_lost(
    tmp_path: Path,
) -> None:
    arguments = ("--namespace", "primary", "--queue", "q", "--folder", str(tmp_path))
    folder = tmp_path / "primary"
    with serving(*arguments) as (first, [connection_string]):
        for number in range(5):
            send(connection_string, "q", f"before {number}")
        files = {file: file.read_bytes() for file in folder.glob("*.*") if "db" not in file.name}

        second = run("emulator", *arguments)

        assert second.returncode == 1
        assert second.stdout == ""
        assert second.stderr == (
            f"Data folder {folder} is already in use by process {first.pid}:"
            " stop that process, or choose another folder.\n"
        )
        with pytest.raises(StateError, match=f"in use by process {first.pid}:"):
            LocalNamespace("primary", folder=folder)
        assert {file: file.read_bytes() for file in files} == files  # keys and certificates
        for number in range(5):
            send(connection_string, "q", f"after {number}")
        first.kill()
        assert first.wait(timeout=20) == -signal.SIGKILL

    with serving(*arguments) as (_, [connection_string]):
        assert receive(connection_string, "q", 11) == [
            *(f"before {number}" for number in range(5)),
            *(f"after {number}" for number in range(5)),
        ]


def test_start_right_after_a_kill_waits_for_the_killed_process_to_end(tmp_path: Path) -> None:
    arguments = ("--namespace", "primary", "--queue", "q", "--folder", str(tmp_path))
    with serving(*arguments) as (killed, [connection_string]):
        send(connection_string, "q", "kept")
        killed.kill()  # and nothing waits until it has ended
        with serving(*arguments) as (_, [connection_string]):
            assert receive(connection_string, "q") == ["kept"]
        assert killed.wait(timeout=20) == -signal.SIGKILL


def test_two_processes_serve_two_namespaces_in_one_folder(tmp_path: Path) -> None:
    options = ("--queue", "q", "--folder", str(tmp_path))
    with (
        serving("--namespace", "a", *options) as (_, [first]),
        serving("--namespace", "b", *options) as (_, [second]),
    ):
        send(first, "q", "to a")
        send(second, "q", "to b")
        assert [receive(one, "q") for one in (first, second)] == [["to a"], ["to b"]]


def test_namespace_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    ended = run("emulator", "--namespace", "a", "--namespace", "a", "--folder", str(tmp_path))

    assert ended.returncode == 1
    assert ended.stderr == (
        f"Data folder {tmp_path / 'a'} is already in use by another namespace of this process:"
        " stop that namespace, or choose another folder.\n"
    )


def test_it_takes_the_emulators_config(tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    config.write_text(
        """{ // as the official file has it
          "UserConfig": { "Namespaces": [ { "Name": "sbemulatorns",
            "Queues": [ { "Name": "first", "Properties": { "ForwardTo": "second" } },
                        { "Name": "second" } ],
            "Topics": [ { "Name": "t", "Subscriptions": [ { "Name": "s" } ] } ] } ],
            "Logging": { "Type": "File" } } }"""
    )
    with serving("--config", str(config)) as (_, [connection_string]):
        send(connection_string, "first", "passed on")
        assert receive(connection_string, "second") == ["passed on"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Config.json"),
        (json.dumps({"UserConfig": {}}), "Namespaces"),
        (
            json.dumps(
                {"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "a b"}]}]}}
            ),
            "a b",
        ),
    ],
)
def test_a_config_that_is_wrong_is_one_clear_sentence(
    tmp_path: Path, content: str, said: str
) -> None:
    config = tmp_path / "Config.json"
    config.write_text(content)

    ended = run("emulator", "--config", str(config))

    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_file_that_is_not_there_is_one_clear_sentence(tmp_path: Path) -> None:
    ended = run("emulator", "--config", str(tmp_path / "nothing.json"))

    assert ended.returncode == 2
    assert "nothing.json" in ended.stderr.replace("\n", "")
    assert "Traceback" not in ended.stderr


def test_help_shows_an_example() -> None:
    ended = run("emulator", "--help")

    assert ended.returncode == 0
    assert "Example: pairbus emulator" in ended.stdout


def test_the_demo_gets_everything_back() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples/emulator/demo.py")],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Everything came back." in ended.stdout


def test_the_example_of_the_page_runs() -> None:
    [example] = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/emulator.md").read_text(), re.DOTALL
    )
    told = "\n        [found] = client.get_queue_receiver('orders').receive_messages(1)\n"

    assert _ran(example.rstrip() + told + "        print(found)\n") == "hello"


def _ran(program: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
