"""`pairbus broker` as its users run it: in a process of its own."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

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
    """A running `pairbus broker`, and the connection strings that it printed."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "pairbus", "broker", *arguments],
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


def receive(connection_string: str, queue: str) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        messages = receiver.receive_messages(1, max_wait_time=10)
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

    ended = run("broker", "--config", str(config))

    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_file_that_is_not_there_is_one_clear_sentence(tmp_path: Path) -> None:
    ended = run("broker", "--config", str(tmp_path / "nothing.json"))

    assert ended.returncode == 2
    assert "nothing.json" in ended.stderr.replace("\n", "")
    assert "Traceback" not in ended.stderr


def test_help_shows_an_example() -> None:
    ended = run("broker", "--help")

    assert ended.returncode == 0
    assert "Example: pairbus broker" in ended.stdout


def test_the_demo_gets_everything_back() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples/broker/demo.py")],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Everything came back." in ended.stdout


def test_the_example_of_the_page_runs() -> None:
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/broker.md").read_text(), re.DOTALL)
    told = "\n        [found] = client.get_queue_receiver('orders').receive_messages(1)\n"

    assert _ran(example.rstrip() + told + "        print(found)\n") == "hello"


def _ran(program: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
