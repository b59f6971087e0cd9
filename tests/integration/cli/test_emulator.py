"""`pairbus emulator` as users run it: as a process."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.cli.emulator import port_for
from pairbus.emulator import EmulatorProcess, LocalNamespace
from pairbus.emulator.token_issuer import TokenIssuer
from pairbus.errors import NotAuthorized, StateError, Unavailable
from pairbus.servicebus.administration import AdministrationClient, AdministrationOptions
from tests.commands import run, run_here, started
from tests.waiting import DEADLINE_S

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the SDK's sockets


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


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


def test_several_namespaces_keep_accepted_messages(tmp_path: Path) -> None:
    with EmulatorProcess("a", "b", queues=["q"], folder=tmp_path, tier="premium") as emulator:
        assert max_message_kb(emulator, "q") == 1024
        for name, namespace in emulator.namespaces.items():
            send(namespace.connection_string, "q", f"to {name}")
        assert emulator.terminate() == 0
        emulator.start()
        received = {
            name: receive(namespace.connection_string, "q")
            for name, namespace in emulator.namespaces.items()
        }
    assert received == {"a": ["to a"], "b": ["to b"]}


def test_text_output_names_each_namespace_and_where_data_is_kept(tmp_path: Path) -> None:
    arguments = ("--namespace", "a", "--namespace", "b", "--folder", str(tmp_path))
    arguments += ("--tier", "standard")
    with started("emulator", *arguments) as process:
        lines = [process.read_until("") for _ in range(8)]
        process.interrupt()
        status, rest, _ = process.wait()

    assert status == 0
    for name, (port, connection_string, ca_file) in zip("ab", (lines[:3], lines[3:6]), strict=True):
        number = re.fullmatch(rf"{name}  port (\d+)  tier standard\n", port)
        assert number is not None
        assert connection_string.startswith(f"  Endpoint=sb://localhost:{number[1]}/;")
        assert ca_file == f"  CA file for TLS and administration: {tmp_path / name / 'ca.pem'}\n"
    assert lines[6:] == [f"Data is kept in {tmp_path}.\n", "Stop with Ctrl-C.\n"]
    assert rest == "Stopped.\n"


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([0], [0, 0, 0]),
        ([5000], [5000, 5001, 5002]),
        ([5000, 6000], [5000, 6000, 6001]),
        ([5000, 6000, 0], [5000, 6000, 0]),
    ],
)
def test_further_namespaces_get_the_following_ports(ports: list[int], expected: list[int]) -> None:
    assert [port_for(ports, index) for index in range(3)] == expected


def test_folder_that_another_process_serves_is_refused_and_nothing_accepted_is_lost(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "primary"
    with EmulatorProcess("primary", queues=["q"], folder=tmp_path) as first:
        for number in range(5):
            send(first.connection_string, "q", f"before {number}")
        files = {
            file: file.read_bytes()
            for file in folder.glob("*.*")
            if file.suffix in (".json", ".pem")
        }

        second = run(
            "emulator", "--namespace", "primary", "--queue", "q", "--folder", str(tmp_path)
        )

        assert second.returncode == 1
        assert second.stdout == ""
        assert re.fullmatch(
            rf"Data folder {re.escape(str(folder))} is already in use by process {first.pid} since"
            r" [-0-9]{10} [:0-9]{8} UTC: stop that process, or choose another folder\.\n",
            second.stderr,
        )
        with pytest.raises(StateError, match=f"in use by process {first.pid} since"):
            LocalNamespace("primary", folder=folder)
        assert {file: file.read_bytes() for file in files} == files  # keys and certificates
        for number in range(5):
            send(first.connection_string, "q", f"after {number}")
        first.kill()
        first.start()
        assert receive(first.connection_string, "q", 11) == [
            *(f"before {number}" for number in range(5)),
            *(f"after {number}" for number in range(5)),
        ]


def test_start_right_after_a_kill_waits_for_the_killed_process_to_end(tmp_path: Path) -> None:
    with EmulatorProcess("primary", queues=["q"], folder=tmp_path) as killed:
        send(killed.connection_string, "q", "kept")
        os.kill(killed.pid, signal.SIGKILL)  # without waiting for its end
        with EmulatorProcess("primary", queues=["q"], folder=tmp_path) as second:
            assert receive(second.connection_string, "q") == ["kept"]
        assert killed.exit_status == -signal.SIGKILL


def test_two_processes_serve_two_namespaces_in_one_folder(tmp_path: Path) -> None:
    with (
        EmulatorProcess("a", queues=["q"], folder=tmp_path) as first,
        EmulatorProcess("b", queues=["q"], folder=tmp_path) as second,
    ):
        send(first.connection_string, "q", "to a")
        send(second.connection_string, "q", "to b")
        assert receive(first.connection_string, "q") == ["to a"]
        assert receive(second.connection_string, "q") == ["to b"]


def test_namespace_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    result = run_here("emulator", *2 * ("--namespace", "a"), "--folder", str(folder))

    assert result.exit_code == 2
    assert result.stderr == "The namespace 'a' is named twice. Use a different name for each.\n"
    assert not folder.exists()


def test_more_ports_than_namespaces_are_refused() -> None:
    result = run_here("emulator", "--namespace", "a", "--port", "5001", "--port", "5002")

    assert result.exit_code == 2
    assert result.stderr == (
        "There are 2 ports for 1 namespace. Use --port once for each namespace, or only for the "
        "first.\n"
    )


def test_folder_that_cannot_be_created_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run_here("emulator", "--folder", str(tmp_path / "file" / "data"))

    assert result.exit_code == 2
    assert result.stderr.startswith(f"{tmp_path / 'file' / 'data'} cannot be used: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["bad name!!", "", "../up", "-x", "x" * 51])
def test_namespace_with_an_invalid_name_is_refused_in_one_sentence(
    tmp_path: Path, name: str
) -> None:
    result = run_here("emulator", "--namespace", name, "--folder", str(tmp_path / "data"))

    assert result.exit_code == 2
    assert result.stderr == (
        f"{name!r} cannot be the name of a namespace: use at most 50 letters and digits, with '.',"
        " '-', '_' and '~' between them.\n"
    )
    assert not (tmp_path / "data").exists()


def test_port_in_use_is_one_sentence_with_status_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run_here("emulator", "--port", str(port), "--folder", str(tmp_path))

    assert result.exit_code == 1
    assert result.stderr == (
        f"127.0.0.1:{port} is in use by another program: stop it, or choose another port.\n"
    )
    assert "1 failed, or the folder or a port is in use" in " ".join(
        run_here("emulator", "--help").stdout.replace("│", " ").split()
    )


@pytest.mark.rule("N6")
def test_restart_without_a_port_uses_the_port_of_the_folder(tmp_path: Path) -> None:
    with EmulatorProcess("a", "b", queues=["q"], folder=tmp_path) as first:
        send(first.connection_string, "q", "before the restart")
        namespaces = first.namespaces
    arguments = ("--namespace", "b", "--namespace", "a", "--folder", str(tmp_path))
    with started("emulator", *arguments, "--json") as process:
        addresses = json.loads(process.read_until("namespaces"))["namespaces"]
        assert {address["name"]: address["port"] for address in addresses} == {
            name: namespace.port for name, namespace in namespaces.items()
        }
        assert receive(namespaces["a"].connection_string, "q") == ["before the restart"]


def test_single_namespace_is_stopped_killed_and_started_by_commands(tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path))
    with EmulatorProcess("a", "b", queues=["q"], folder=tmp_path) as emulator:
        a, b = emulator.namespaces.values()
        for action, done in (("stop", "Stopped"), ("kill", "Killed")):
            send(a.connection_string, "q", action)
            result = run_here("emulator", action, "a", *folder)
            assert (result.exit_code, result.stdout) == (0, f"{done} a.\n")
            assert not accepts_connections(a.port)
            send(b.connection_string, "q", f"during {action}")
            result = run_here("emulator", *folder, "start", "a")
            assert (result.exit_code, result.stdout) == (0, "Started a.\n")
        for end in (emulator.stop_namespace, emulator.kill_namespace):
            end("a")
            assert not accepts_connections(a.port)
            emulator.start_namespace("a")
        with pytest.raises(StateError, match="process of a, b does not serve 'c'"):
            emulator.stop_namespace("c")
        assert receive(a.connection_string, "q", 2) == ["stop", "kill"]
        assert receive(b.connection_string, "q", 2) == ["during stop", "during kill"]

    result = run_here("emulator", "stop", "a", *folder)
    assert (result.exit_code, result.stderr) == (
        1,
        f"No running emulator serves data folder {tmp_path / 'a'} (No such file or directory).\n",
    )
    result = run_here("emulator", "stop", "a")
    assert (result.exit_code, result.stderr) == (
        2,
        "Add --folder FOLDER, the same as for the running emulator.\n",
    )


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_config_of_the_azure_emulator_is_served(tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    config.write_text(
        """{ // comments are allowed, as in the official file
          "UserConfig": { "Namespaces": [ { "Name": "sbemulatorns", "Tier": "Premium",
            "Queues": [ { "Name": "first", "Properties": { "ForwardTo": "second" } },
                        { "Name": "second" } ],
            "Topics": [ { "Name": "t", "Subscriptions": [ { "Name": "s" } ] } ] } ],
            "Logging": { "Type": "File" } } }"""
    )
    with EmulatorProcess(config=config) as emulator:
        send(emulator.connection_string, "first", "forwarded")
        assert receive(emulator.connection_string, "second") == ["forwarded"]
        assert max_message_kb(emulator, "second") == 1024


def max_message_kb(emulator: EmulatorProcess, queue: str) -> int | None:
    with ServiceBusAdministrationClient.from_connection_string(
        emulator.connection_string, connection_verify=emulator.ca_file
    ) as administration:
        return administration.get_queue(queue).max_message_size_in_kilobytes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Config.json"),
        (json.dumps({"UserConfig": {}}), "Namespaces"),
        (
            json.dumps(
                {"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "a b"}]}]}}
            ),
            "a b",
        ),
        (
            json.dumps({"UserConfig": {"Namespaces": [{"Name": "n", "Tier": "basic"}]}}),
            "'basic' is not a tier",
        ),
        (None, "Config.json cannot be read: No such file or directory."),
    ],
    ids=["no JSON", "no namespaces", "invalid name", "unknown tier", "missing file"],
)
def test_invalid_or_missing_config_is_reported_in_one_sentence(
    tmp_path: Path, content: str | None, message: str
) -> None:
    config = tmp_path / "Config.json"
    if content is not None:
        config.write_text(content)

    result = run_here("emulator", "--config", str(config))

    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tier", "basic"), "'basic' is not a tier. The tiers are standard, premium, unlimited."),
        (("--messaging-units", "2"), "not 2 for unlimited"),
    ],
)
def test_unknown_tier_is_reported_in_one_sentence(options: tuple[str, ...], message: str) -> None:
    result = run_here("emulator", *options)

    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", "")


def test_demo_receives_every_message() -> None:
    ended = run_python(str(ROOT / "examples/emulator/demo.py"))

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Every message was received." in ended.stdout


def test_message_of_the_first_example_is_received() -> None:
    page = (ROOT / "docs/reference/emulator.md").read_text()
    example, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    receiving = """
        [message] = client.get_queue_receiver('orders').receive_messages(1)
        print(message)
"""

    ended = run_python("-c", example.rstrip() + receiving)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "hello"


@pytest.mark.rule("N3")
def test_namespaces_without_local_authentication_accept_tokens_of_the_key_file(
    tmp_path: Path,
) -> None:
    with EmulatorProcess("a", "b", folder=tmp_path, local_authentication=False) as emulator:
        credential = TokenIssuer(tmp_path / "token-key.pem").credential()
        for name, namespace in emulator.namespaces.items():
            for tokens in (credential, emulator.credential()):
                options = AdministrationOptions.from_host(
                    f"localhost:{namespace.port}", tokens, ca_file=namespace.ca_file
                )
                with AdministrationClient(options) as administration:
                    assert administration.list_queues() == [], name
            options = AdministrationOptions.from_connection_string(namespace.connection_string)
            with (
                AdministrationClient(options) as administration,
                pytest.raises(NotAuthorized) as refused,
            ):
                administration.list_queues()
            assert "LocalAuthDisabled" in str(refused.value.info)


@pytest.mark.rule("A4")
def test_emulator_on_another_address_serves_it_with_a_valid_certificate(tmp_path: Path) -> None:
    arguments = ("--host", "127.0.0.2", "--host-name", "bus.example", "--folder", str(tmp_path))
    with started("emulator", *arguments, "--json") as process:
        [address] = json.loads(process.read_until("\n"))["namespaces"]
        options = AdministrationOptions.from_connection_string(
            address["connection_string"].replace("UseDevelopmentEmulator=true;", ""),
            ca_file=address["ca_file"],
        )
        assert options.address == ("127.0.0.2", address["port"])
        with AdministrationClient(options) as administration:
            assert administration.list_queues() == []
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", address["port"]), 5)
        process.interrupt()
        assert process.wait()[0] == 0


@pytest.mark.parametrize(
    ("options", "tls", "risk"),
    [
        ((), True, "Every machine that reaches 0.0.0.0 can connect to these namespaces;"),
        (("--allow-plaintext",), False, "0.0.0.0 can read all messages without TLS, and can"),
    ],
)
def test_emulator_beyond_loopback_serves_tls_and_names_the_risk(
    options: tuple[str, ...], tls: bool, risk: str, tmp_path: Path
) -> None:
    arguments = ("--host", "0.0.0.0", "--host-name", "localhost", "--folder", str(tmp_path))
    with started("emulator", *arguments, *options, "--json") as process:
        [address] = json.loads(process.read_until("\n"))["namespaces"]
        given = AdministrationOptions.from_connection_string(
            address["connection_string"], ca_file=address["ca_file"]
        )
        assert given.tls is tls
        with AdministrationClient(given) as administration:
            assert administration.list_queues() == []
        with AdministrationClient(replace(given, tls=False)) as administration:
            if tls:
                with pytest.raises(Unavailable):
                    administration.list_queues()
            else:
                assert administration.list_queues() == []
        process.interrupt()
        status, _, errors = process.wait()

    assert status == 0
    assert risk in " ".join(errors.split())
