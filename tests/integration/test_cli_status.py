"""`pairbus status` against real namespaces: available, stopped, frozen, and with wrong keys."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityOptions, pair_namespace
from pairbus.backlog.discovery import PROBE_GAP
from pairbus.emulator.namespace import LocalNamespace
from tests.integration.cli_pair_kit import (
    KEY,
    LOCAL,
    ONE,
    PATIENCE_S,
    RULES,
    TIMED_OUT,
    TWO,
    Pairing,
    Terminal,
    environment,
    message,
    paused_emulator,
    run,
    run_here,
    wait_until,
)


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with (
        LocalNamespace("primary", rules=RULES) as primary,
        LocalNamespace("secondary", rules=RULES) as secondary,
    ):
        yield primary, secondary


@pytest.fixture
def pairing(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Pairing:
    return Pairing(*namespaces, name=f"p{uuid4().hex[:8]}")


def status(pairing: Pairing, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run("status", *pairing.options, *arguments, **(pairing.variables | variables))


def status_json(pairing: Pairing, *arguments: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the JSON output."""
    result = run_here(
        "status", *pairing.options, "--json", *arguments, **(pairing.variables | variables)
    )
    output = json.loads(result.stdout)
    assert output["exit_status"] == result.exit_code
    assert result.stderr == ""
    return result.exit_code, output


def stopped_namespace() -> str:
    """Return the connection string of a namespace that has stopped."""
    with LocalNamespace("stopped") as stopped:
        return stopped.connection_string


def test_both_namespaces_are_available_and_the_backlog_is_empty(pairing: Pairing) -> None:
    result = status(pairing)

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"primary    localhost:{pairing.primary.port} is available",
        f"secondary  localhost:{pairing.secondary.port} is available",
        "backlog    2 backlog queues: 0 messages, 0 dead-lettered",
        "syphon     unknown; add --status-file with the path of a syphon's status file",
        "Both namespaces are available. The backlog is empty.",
    ]
    assert pairing.peeks() == 0


def test_active_and_dead_lettered_messages_are_counted(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(7)])
    pairing.put("bills", [message(f"b-{n}") for n in range(5)], queue=1)
    pairing.dead_letter(2, "Gone", "there is no such queue")

    code, output = status_json(pairing)
    backlog = output["backlog"]

    assert code == 3
    assert (backlog["expected"], backlog["found"]) == (2, 2)
    assert (backlog["messages"], backlog["dead_lettered"]) == (10, 2)
    assert (backlog["more_messages"], backlog["counting_error"]) == (False, None)
    assert backlog["oldest_age_seconds"] >= 0
    assert [queue["messages"] for queue in backlog["queues"]] == [5, 5]
    assert output["summary"] == (
        "10 messages wait in the backlog. 2 messages are dead-lettered. "
        "See: pairbus backlog peek --dead-letters"
    )
    assert output["syphon"] is None
    assert pairing.message_count() == 12


def test_missing_backlog_queues_are_reported(pairing: Pairing) -> None:
    code, output = status_json(pairing, "--backlog-queues", "5")
    backlog = output["backlog"]

    assert code == 0
    assert (backlog["expected"], backlog["found"]) == (5, 2)
    assert [queue["exists"] for queue in backlog["queues"]] == [True] * 2 + [False] * 3
    assert (backlog["missing"], backlog["unexpected"]) == ([2, 3, 4], [])
    assert backlog["queue_mismatch"] == (
        "--backlog-queues is 5, but backlog queues 2 to 4 do not exist."
    )


def test_message_in_a_queue_beyond_the_expected_count_is_reported(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(4)], queue=pairing.add_queue(8))

    result = status(pairing, "--backlog-queues", "2")

    assert result.returncode == 3
    lines = result.stdout.splitlines()
    assert lines[2].startswith("backlog    3 backlog queues: 4 messages, 0 dead-lettered")
    assert lines[3].strip() == (
        "--backlog-queues is 2, but backlog queue 8 exists too; "
        "a syphon with --backlog-queues 2 does not drain it."
    )
    assert lines[-1] == (
        "4 messages wait in the backlog. 4 of them are in backlog queue 8, "
        "beyond --backlog-queues 2."
    )
    assert "empty" not in result.stdout


def test_json_contains_queues_beyond_the_expected_count(pairing: Pairing) -> None:
    for index in (5, 6, 7):
        pairing.add_queue(index)
    position = pairing.add_queue(8)
    pairing.put("orders", [message(f"m-{n}") for n in range(2)], queue=position)
    pairing.dead_letter(1, "Gone", "no such queue", queue=position)

    code, output = status_json(pairing, "--backlog-queues", "3")
    backlog = output["backlog"]

    assert code == 3
    assert (backlog["expected"], backlog["found"]) == (3, 6)
    assert (backlog["listing_error"], backlog["searched_to"]) == (None, None)
    assert (backlog["missing"], backlog["unexpected"]) == ([2], [5, 6, 7, 8])
    assert [queue["index"] for queue in backlog["queues"]] == [0, 1, 2, 5, 6, 7, 8]
    last = backlog["queues"][-1]
    assert (last["queue"], last["messages"], last["dead_lettered"]) == (pairing.queues[-1], 1, 1)
    assert backlog["queue_mismatch"] == (
        "--backlog-queues is 3, but backlog queues 5 to 8 exist too; "
        "a syphon with --backlog-queues 3 does not drain them. Backlog queue 2 does not exist."
    )


def test_without_the_manage_right_queues_beyond_the_expected_count_are_probed(
    pairing: Pairing,
) -> None:
    pairing.put("orders", [message("m")], queue=pairing.add_queue(8))
    listen = pairing.secondary.connection_string_of("Listen", KEY)

    code, output = status_json(pairing, "--backlog-queues", "3", PAIRBUS_SECONDARY=listen)
    backlog = output["backlog"]

    assert code == 3
    assert backlog["listing_error"] == "listing queues needs the Manage right"
    assert (backlog["unexpected"], backlog["searched_to"]) == ([8], 8 + PROBE_GAP)
    assert backlog["messages"] == 1
    assert output["summary"] == (
        "At least 1 message waits in the backlog. At least 1 of them is in backlog queue 8, "
        "beyond --backlog-queues 3."
    )


def test_without_the_manage_right_the_backlog_is_not_reported_as_empty(
    pairing: Pairing,
) -> None:
    far = 3 + PROBE_GAP
    pairing.put("orders", [message("m")], queue=pairing.add_queue(far))
    listen = pairing.secondary.connection_string_of("Listen", KEY)

    result = status(pairing, "--backlog-queues", "3", PAIRBUS_SECONDARY=listen)
    code, output = status_json(pairing, "--backlog-queues", "3", PAIRBUS_SECONDARY=listen)

    assert (result.returncode, result.stderr, code) == (4, "", 4)
    lines = result.stdout.splitlines()
    assert lines[2] == (
        f"backlog    2 backlog queues found up to index {far - 1}: 0 messages, 0 dead-lettered"
    )
    assert (
        "The queues could not be listed: listing queues needs the Manage right. Indexes above "
        f"{far - 1} were not searched."
    ) in result.stdout
    assert lines[-1] == output["summary"]
    assert output["summary"] == (
        f"Both namespaces are available. Backlog queues 0 to {far - 1} are empty. Others may "
        "exist, because the queues could not be listed."
    )
    assert output["backlog"]["searched_to"] == far - 1
    assert output["backlog"]["more_messages"] is True


def test_backlog_queues_are_found_among_several_pages_of_queues(
    namespaces: tuple[LocalNamespace, LocalNamespace],
) -> None:
    primary, _ = namespaces
    with LocalNamespace("crowded") as crowded:
        for number in range(230):
            crowded.create_queue(f"a-{number:03}")
        pairing = Pairing(primary, crowded, name="shop")
        pairing.put("orders", [message("m")], queue=pairing.add_queue(8))
        code, output = status_json(pairing)

    assert code == 3
    assert output["backlog"]["unexpected"] == [8]


def test_wrong_primary_name_finds_no_backlog_queue(pairing: Pairing) -> None:
    result = status(pairing, "--primary-name", "another")

    assert result.returncode == 1
    assert "backlog    0 backlog queues\n" in result.stdout
    assert "No backlog queue was found" in result.stdout


def test_backlog_is_shown_while_the_primary_is_down(
    pairing: Pairing,
) -> None:
    pairing.put("orders", [message("m")])

    code, output = status_json(pairing, PAIRBUS_PRIMARY=stopped_namespace())

    assert code == 1
    assert output["primary"]["available"] is False
    assert "refused" in output["primary"]["problem"]
    assert output["secondary"]["available"] is True
    assert output["summary"] == "The primary is not available. 1 message waits in the backlog."


def test_backlog_is_unknown_while_the_secondary_is_down(pairing: Pairing) -> None:
    result = status(pairing, PAIRBUS_SECONDARY=stopped_namespace())

    assert result.returncode == 1
    assert re.search(r"secondary  localhost:\d+ is not available: ", result.stdout)
    assert "backlog    unknown, because the secondary is not available\n" in result.stdout
    assert "The secondary is not available. The backlog could not be read.\n" in result.stdout


@pytest.mark.parametrize("which", ["PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY"])
def test_frozen_namespace_is_reported_after_the_timeout(
    pairing: Pairing, tmp_path: Path, which: str
) -> None:
    with paused_emulator(tmp_path) as emulator:
        code, output = status_json(pairing, "--timeout", "1", **{which: emulator.connection_string})
        assert emulator.is_paused

    assert code == 1
    frozen = output["primary" if which == "PAIRBUS_PRIMARY" else "secondary"]
    assert frozen["available"] is False
    assert TIMED_OUT.search(frozen["problem"])


def test_namespace_that_ignores_tokens_is_not_available(pairing: Pairing) -> None:
    fault = pairing.primary.add_fault("ignore-tokens")
    try:
        code, output = status_json(pairing, "--timeout", "3")
        assert fault.fired > 0
    finally:
        pairing.primary.clear_faults()

    assert (code, output["primary"]["available"]) == (1, False)
    assert TIMED_OUT.search(output["primary"]["problem"])


@pytest.mark.parametrize("which", ["PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY"])
def test_namespace_that_rejects_the_key_is_reported(pairing: Pairing, which: str) -> None:
    namespace = pairing.primary if which == "PAIRBUS_PRIMARY" else pairing.secondary
    wrong = namespace.connection_string_of("RootManageSharedAccessKey", KEY)

    result = status(pairing, **{which: wrong})

    assert result.returncode == 1
    assert re.search(r"localhost:\d+ rejects the token: ", result.stdout)
    name = "primary" if which == "PAIRBUS_PRIMARY" else "secondary"
    assert f"The {name} rejects the token." in result.stdout


def test_with_the_listen_right_messages_are_peeked_instead_of_counted(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(3)])
    listen = pairing.secondary.connection_string_of("Listen", KEY)

    code, output = status_json(pairing, PAIRBUS_SECONDARY=listen)

    assert code == 3
    assert "needs the" in output["backlog"]["counting_error"]
    assert (output["backlog"]["messages"], output["backlog"]["more_messages"]) == (1, True)
    assert output["summary"] == "At least 1 message waits in the backlog."
    assert output["backlog"]["oldest_age_seconds"] >= 0


def test_with_the_send_right_alone_the_backlog_cannot_be_read(pairing: Pairing) -> None:
    pairing.put("orders", [message("m")])
    send = pairing.secondary.connection_string_of("Send", KEY)

    result = status(pairing, PAIRBUS_SECONDARY=send)

    assert result.returncode == 1
    assert "The backlog could not be read.\n" in result.stdout
    assert "'Listen' claim(s) are required" in result.stdout
    assert "messages wait" not in result.stdout


def test_status_file_shows_if_a_syphon_is_running(pairing: Pairing, tmp_path: Path) -> None:
    pairing.put("orders", [message("m")])
    file = tmp_path / "status.json"
    values: dict[str, Any] = {
        "running": True,
        "healthy": True,
        "problem": None,
        "moved": {"orders": 1200},
        "remaining": 1,
        "rate": 40.0,
        "time": time.time() + 3600,  # in the future, so that it is not stale in a slow test
    }

    missing = status(pairing, "--status-file", str(file))
    file.write_text(json.dumps(values))
    running = status(pairing, "--status-file", str(file))
    file.write_text(json.dumps(values | {"time": time.time() - 3600}))
    stale = status_json(pairing, "--status-file", str(file))

    assert "syphon     not running: the file does not exist" in missing.stdout
    assert "syphon     running: 1,200 moved, 1 remaining, 40/s\n" in running.stdout
    assert "1 message waits in the backlog, and a syphon is running.\n" in running.stdout
    assert stale[0] == 3
    assert stale[1]["syphon"]["running"] is False
    assert "hangs" in stale[1]["syphon"]["problem"]


@pytest.mark.parametrize("text", ["{", "[]", '{"running": "yes"}', "\x00\xff"])
def test_file_that_is_not_a_status_file_is_rejected(
    pairing: Pairing, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "status.json"
    file.write_text(text)

    result = run_here("status", *pairing.options, "--status-file", str(file), **pairing.variables)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "--status-file: " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--primary", "nonsense", "--secondary", TWO], "primary: part 1 of the connection string"),
        (["--primary", ONE, "--secondary", "Endpoint=x"], "Connection string of the secondary: "),
        (["--primary", ONE, "--secondary", ONE], "the same namespace"),
        (["--primary", LOCAL, "--secondary", TWO], "--primary-name"),
        (["--primary", ONE, "--secondary", f"{TWO};EntityPath=q"], "EntityPath"),
        (
            ["--primary", ONE, "--secondary", TWO, "--primary-name", "a b"],
            "cannot name the primary",
        ),
        (["--primary", ONE, "--secondary", TWO, "--timeout", "0"], "--timeout"),
        (["--primary", ONE, "--secondary", TWO, "--watch", "0"], "--watch"),
        (["--primary", ONE], "--secondary"),
        ([], "--primary"),
    ],
)
def test_invalid_option_is_an_error_with_exit_status_2(arguments: list[str], error: str) -> None:
    result = run_here("status", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert error in result.stderr


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the SDK's sockets
def test_outage_of_a_paired_sender_is_shown() -> None:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        primary.create_queue("orders", requires_session=True)
        options = SendAvailabilityOptions(
            secondary=secondary.connection_string,
            primary_name="shop",
            backlog_queue_count=2,
            failover_interval=timedelta(),
            ping_primary_interval=timedelta(minutes=30),
        )
        sdk = ServiceBusClient.from_connection_string(
            primary.connection_string, retry_total=0, retry_backoff_factor=0.02
        )
        arguments = ("--primary-name", "shop", "--backlog-queues", "2", "--json")
        variables = {
            "PAIRBUS_PRIMARY": primary.connection_string,
            "PAIRBUS_SECONDARY": secondary.connection_string,
        }
        with sdk, pair_namespace(sdk, options) as bus, bus.get_queue_sender("orders") as sender:
            healthy = run_here("status", *arguments, **variables)
            primary.stop()
            sent = ServiceBusMessage(
                "é", message_id="m", session_id="s", time_to_live=timedelta(hours=2)
            )
            sender.send_messages(sent)
            outage = run_here("status", *arguments, **variables)
            (peeked,) = json.loads(run_here("backlog", "peek", *arguments, **variables).stdout)

    assert healthy.exit_code == 0
    assert outage.exit_code == 1
    assert json.loads(outage.stdout)["summary"] == (
        "The primary is not available. 1 message waits in the backlog."
    )
    shown = ("destination", "message_id", "session_id", "time_to_live_ms", "body", "problem")
    assert [peeked[name] for name in shown] == ["orders", "m", "s", 7_200_000, "é", None]


def test_watch_repeats_until_interrupted(pairing: Pairing) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "pairbus", "status", *pairing.options, "--watch", "1"],
        env=environment(pairing.variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            pairing.put("orders", [message("m")])
            later = process.stdout.readline()
            while "waits" not in later:
                assert later, "the command result"
                later = process.stdout.readline()
            os.killpg(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_S)
        finally:
            if process.poll() is None:
                process.kill()

    assert re.fullmatch(
        r"[\d-]+ [\d:]+  Both namespaces are available. The backlog is empty.\n", first
    )
    assert later.endswith("1 message waits in the backlog.\n")
    assert process.returncode == 3
    assert "Traceback" not in err


@pytest.mark.parametrize("columns", [80, 120])
def test_output_on_a_terminal_is_coloured_and_fits_the_width(
    pairing: Pairing, columns: int
) -> None:
    pairing.put("orders", [message("m")])
    with Terminal(columns, "status", *pairing.options, **pairing.variables) as terminal:
        assert terminal.exit_status() == 3

    assert "\x1b[1;33m1 message waits in the backlog." in terminal.raw
    assert max(map(len, terminal.text.splitlines())) <= columns


def test_watch_on_a_terminal_replaces_its_output(pairing: Pairing) -> None:
    with Terminal(80, "status", *pairing.options, "--watch", "1", **pairing.variables) as terminal:
        wait_until(lambda: terminal.text.count("backlog is empty") >= 2, "a second output")
        terminal.interrupt()
        assert terminal.exit_status() == 0

    assert re.search(r"\x1b\[\dA", terminal.raw)


def test_status_and_backlog_need_neither_spark_nor_java(pairing: Pairing, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'pandas', 'py4j'): sys.modules[name] = None\n"
        "from pairbus.cli import main\n"
        "main()\n"
    )
    for arguments in (["status"], ["backlog", "list"], ["backlog", "destinations"]):
        result = subprocess.run(
            [sys.executable, "-c", program, *arguments, *pairing.options],
            env={**environment(pairing.variables), "PATH": str(tmp_path), "JAVA_HOME": ""},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")
