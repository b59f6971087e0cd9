"""`pairbus status` against real namespaces: available, stopped, frozen, and with wrong keys."""

import json
import re
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityOptions, pair_namespace
from pairbus.backlog.discovery import PROBE_GAP
from pairbus.emulator import EmulatorProcess, LocalNamespace
from tests.backlog import Backlog
from tests.commands import (
    KEY,
    LOCAL,
    ONE,
    TIMED_OUT,
    TWO,
    Terminal,
    environment,
    run,
    run_here,
    started,
)
from tests.messages import message, numbered
from tests.waiting import DEADLINE_S, wait_until


def status(backlog: Backlog, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run("status", *backlog.arguments, *arguments, **(backlog.variables | variables))


def status_json(backlog: Backlog, *arguments: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the JSON output."""
    result = run_here(
        "status", *backlog.arguments, "--json", *arguments, **(backlog.variables | variables)
    )
    output = json.loads(result.stdout)
    assert output["exit_status"] == result.exit_code
    assert result.stderr == ""
    return result.exit_code, output


def test_both_namespaces_are_available_and_the_backlog_is_empty(backlog: Backlog) -> None:
    result = status(backlog)

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"primary    localhost:{backlog.primary.port} is available",
        f"secondary  localhost:{backlog.secondary.port} is available",
        "backlog    2 backlog queues: 0 messages, 0 dead-lettered",
        "syphon     unknown; add --status-file with the path of a syphon's status file",
        "Both namespaces are available. The backlog is empty.",
    ]
    assert backlog.peeks() == 0


def test_active_and_dead_lettered_messages_are_counted(backlog: Backlog) -> None:
    backlog.put("orders", numbered(7))
    backlog.put("bills", numbered(5, "b"), queue=1)
    backlog.dead_letter(2, "Gone", "there is no such queue")

    code, output = status_json(backlog)
    contents = output["backlog"]

    assert code == 3
    assert (contents["expected"], contents["found"]) == (2, 2)
    assert (contents["messages"], contents["dead_lettered"]) == (10, 2)
    assert (contents["more_messages"], contents["counting_error"]) == (False, None)
    assert contents["oldest_age_seconds"] >= 0
    assert [queue["messages"] for queue in contents["queues"]] == [5, 5]
    assert output["summary"] == (
        "10 messages wait in the backlog. 2 messages are dead-lettered. "
        "See: pairbus dead-letters list"
    )
    assert output["syphon"] is None
    assert backlog.message_count() == 12


def test_missing_backlog_queues_are_reported(backlog: Backlog) -> None:
    code, output = status_json(backlog, "--backlog-queues", "5")
    contents = output["backlog"]

    assert code == 0
    assert (contents["expected"], contents["found"]) == (5, 2)
    assert [queue["exists"] for queue in contents["queues"]] == [True] * 2 + [False] * 3
    assert (contents["missing"], contents["unexpected"]) == ([2, 3, 4], [])
    assert contents["queue_mismatch"] == (
        "--backlog-queues is 5, but backlog queues 2 to 4 do not exist."
    )


def test_message_in_a_queue_beyond_the_expected_count_is_reported(backlog: Backlog) -> None:
    backlog.put("orders", numbered(4), queue=backlog.add_queue(8))

    result = status(backlog, "--backlog-queues", "2")

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


def test_json_contains_queues_beyond_the_expected_count(backlog: Backlog) -> None:
    for index in (5, 6, 7):
        backlog.add_queue(index)
    position = backlog.add_queue(8)
    backlog.put("orders", numbered(2), queue=position)
    backlog.dead_letter(1, "Gone", "no such queue", queue=position)

    code, output = status_json(backlog, "--backlog-queues", "3")
    contents = output["backlog"]

    assert code == 3
    assert (contents["expected"], contents["found"]) == (3, 6)
    assert (contents["listing_error"], contents["searched_to"]) == (None, None)
    assert (contents["missing"], contents["unexpected"]) == ([2], [5, 6, 7, 8])
    assert [queue["index"] for queue in contents["queues"]] == [0, 1, 2, 5, 6, 7, 8]
    last = contents["queues"][-1]
    assert (last["queue"], last["messages"], last["dead_lettered"]) == (backlog.queues[-1], 1, 1)
    assert contents["queue_mismatch"] == (
        "--backlog-queues is 3, but backlog queues 5 to 8 exist too; "
        "a syphon with --backlog-queues 3 does not drain them. Backlog queue 2 does not exist."
    )


def test_without_the_manage_right_queues_beyond_the_expected_count_are_probed(
    backlog: Backlog, listen_key: str
) -> None:
    backlog.put("orders", [message("m")], queue=backlog.add_queue(8))

    code, output = status_json(backlog, "--backlog-queues", "3", PAIRBUS_SECONDARY=listen_key)
    contents = output["backlog"]

    assert code == 3
    assert contents["listing_error"] == "listing queues needs the Manage right"
    assert (contents["unexpected"], contents["searched_to"]) == ([8], 8 + PROBE_GAP)
    assert contents["messages"] == 1
    assert output["summary"] == (
        "At least 1 message waits in the backlog. At least 1 of them is in backlog queue 8, "
        "beyond --backlog-queues 3."
    )


def test_without_the_manage_right_the_backlog_is_not_reported_as_empty(
    backlog: Backlog, listen_key: str
) -> None:
    far = 3 + PROBE_GAP
    backlog.put("orders", [message("m")], queue=backlog.add_queue(far))

    result = status(backlog, "--backlog-queues", "3", PAIRBUS_SECONDARY=listen_key)
    code, output = status_json(backlog, "--backlog-queues", "3", PAIRBUS_SECONDARY=listen_key)

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
        backlog = Backlog(primary, crowded)
        backlog.put("orders", [message("m")], queue=backlog.add_queue(8))
        code, output = status_json(backlog)

    assert code == 3
    assert output["backlog"]["unexpected"] == [8]


def test_wrong_primary_name_finds_no_backlog_queue(backlog: Backlog) -> None:
    result = status(backlog, "--primary-name", "another")

    assert result.returncode == 1
    assert "backlog    0 backlog queues\n" in result.stdout
    assert "No backlog queue was found" in result.stdout


def test_backlog_is_shown_while_the_primary_is_down(
    backlog: Backlog, stopped_namespace: str
) -> None:
    backlog.put("orders", [message("m")])

    code, output = status_json(backlog, PAIRBUS_PRIMARY=stopped_namespace)

    assert code == 1
    assert output["primary"]["available"] is False
    assert "refused" in output["primary"]["problem"]
    assert output["secondary"]["available"] is True
    assert output["summary"] == "The primary is not available. 1 message waits in the backlog."


def test_backlog_is_unknown_while_the_secondary_is_down(
    backlog: Backlog, stopped_namespace: str
) -> None:
    result = status(backlog, PAIRBUS_SECONDARY=stopped_namespace)

    assert result.returncode == 1
    assert re.search(r"secondary  localhost:\d+ is not available: ", result.stdout)
    assert "backlog    unknown, because the secondary is not available\n" in result.stdout
    assert "The secondary is not available. The backlog could not be read.\n" in result.stdout


@pytest.mark.parametrize("which", ["PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY"])
def test_frozen_namespace_is_reported_after_the_timeout(
    backlog: Backlog, paused_emulator: EmulatorProcess, which: str
) -> None:
    variables = {which: paused_emulator.connection_string}

    code, output = status_json(backlog, "--timeout", "1", **variables)

    assert code == 1
    frozen = output["primary" if which == "PAIRBUS_PRIMARY" else "secondary"]
    assert frozen["available"] is False
    assert TIMED_OUT.search(frozen["problem"])


def test_namespace_that_ignores_tokens_is_not_available(backlog: Backlog) -> None:
    fault = backlog.primary.add_fault("ignore-tokens")
    try:
        code, output = status_json(backlog, "--timeout", "3")
        assert fault.fired > 0
    finally:
        backlog.primary.clear_faults()

    assert (code, output["primary"]["available"]) == (1, False)
    assert TIMED_OUT.search(output["primary"]["problem"])


@pytest.mark.parametrize("which", ["PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY"])
def test_namespace_that_rejects_the_key_is_reported(backlog: Backlog, which: str) -> None:
    namespace = backlog.primary if which == "PAIRBUS_PRIMARY" else backlog.secondary
    wrong = namespace.connection_string_of("RootManageSharedAccessKey", KEY)

    result = status(backlog, **{which: wrong})

    assert result.returncode == 1
    assert re.search(r"localhost:\d+ rejects the token: ", result.stdout)
    name = "primary" if which == "PAIRBUS_PRIMARY" else "secondary"
    assert f"The {name} rejects the token." in result.stdout


def test_with_the_listen_right_messages_are_peeked_instead_of_counted(
    backlog: Backlog, listen_key: str
) -> None:
    backlog.put("orders", numbered(3))

    code, output = status_json(backlog, PAIRBUS_SECONDARY=listen_key)

    assert code == 3
    assert "needs the" in output["backlog"]["counting_error"]
    assert (output["backlog"]["messages"], output["backlog"]["more_messages"]) == (1, True)
    assert output["summary"] == "At least 1 message waits in the backlog."
    assert output["backlog"]["oldest_age_seconds"] >= 0


def test_with_the_send_right_alone_the_backlog_cannot_be_read(
    backlog: Backlog, send_key: str
) -> None:
    backlog.put("orders", [message("m")])

    result = status(backlog, PAIRBUS_SECONDARY=send_key)

    assert result.returncode == 1
    assert "The backlog could not be read.\n" in result.stdout
    assert "'Listen' claim(s) are required" in result.stdout
    assert "messages wait" not in result.stdout


def test_status_file_shows_if_a_syphon_is_running(backlog: Backlog, tmp_path: Path) -> None:
    backlog.put("orders", [message("m")])
    file = tmp_path / "status.json"
    values: dict[str, Any] = {
        "running": True,
        "healthy": True,
        "problem": None,
        "moved": {"orders": 1200},
        "dead_lettered": {"bills": 5, "": 1},
        "dead_letter_reasons": {"bills": {"EntityNotFound": 5}, "": {"MissingPath": 1}},
        "remaining": 1,
        "rate": 40.0,
        "time": time.time() + 3600,  # in the future, so that it is not stale in a slow test
    }

    missing = status(backlog, "--status-file", str(file))
    file.write_text(json.dumps(values))
    running = status(backlog, "--status-file", str(file))
    problem = "bills does not exist; its messages wait until it is created"
    file.write_text(json.dumps(values | {"healthy": False, "problem": problem}))
    unhealthy = status(backlog, "--status-file", str(file))
    file.write_text(json.dumps(values | {"time": time.time() - 3600}))
    stale = status_json(backlog, "--status-file", str(file))

    assert "syphon     not running: the file does not exist" in missing.stdout
    assert "syphon     running: 1,200 moved, 1 remaining, 40/s\n" in running.stdout
    assert "1 message waits in the backlog, and a syphon is running.\n" in running.stdout
    assert "\n           bills: 5 dead-lettered (EntityNotFound)\n" in running.stdout
    assert "\n           no destination: 1 dead-lettered (MissingPath)\n" in running.stdout
    assert f"syphon     running with a problem: {problem}\n" in unhealthy.stdout
    assert stale[0] == 3
    assert stale[1]["syphon"]["dead_letter_reasons"] == values["dead_letter_reasons"]
    assert stale[1]["syphon"]["running"] is False
    assert "hangs" in stale[1]["syphon"]["problem"]


@pytest.mark.parametrize("text", ["{", "[]", '{"running": "yes"}', "\x00\xff"])
def test_file_that_is_not_a_status_file_is_rejected(
    backlog: Backlog, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "status.json"
    file.write_text(text)

    result = run_here("status", *backlog.arguments, "--status-file", str(file), **backlog.variables)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "--status-file: " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["--primary", "nonsense", "--secondary", TWO],
            "primary: it is neither a connection string",
        ),
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


def test_watch_repeats_until_interrupted(backlog: Backlog) -> None:
    arguments = ("status", *backlog.arguments, "--watch", "1")
    with started(*arguments, **backlog.variables) as process:
        first = process.read_until("")
        backlog.put("orders", [message("m")])
        later = process.read_until("waits")
        process.interrupt()
        exit_status, _, _ = process.wait()

    assert re.fullmatch(
        r"[\d-]+ [\d:]+  Both namespaces are available. The backlog is empty.\n", first
    )
    assert later.endswith("1 message waits in the backlog.\n")
    assert exit_status == 3


@pytest.mark.parametrize("columns", [80, 120])
def test_output_on_a_terminal_is_coloured_and_fits_the_width(
    backlog: Backlog, columns: int
) -> None:
    backlog.put("orders", [message("m")])
    with Terminal(columns, "status", *backlog.arguments, **backlog.variables) as terminal:
        assert terminal.exit_status() == 3

    assert "\x1b[1;33m1 message waits in the backlog." in terminal.raw
    assert max(map(len, terminal.text.splitlines())) <= columns


def test_watch_on_a_terminal_replaces_its_output(backlog: Backlog) -> None:
    with Terminal(
        80, "status", *backlog.arguments, "--watch", "1", **backlog.variables
    ) as terminal:
        wait_until(lambda: terminal.text.count("backlog is empty") >= 2, "a second output")
        terminal.interrupt()
        assert terminal.exit_status() == 0

    assert re.search(r"\x1b\[\dA", terminal.raw)


def test_status_and_backlog_need_neither_spark_nor_java(backlog: Backlog, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'pandas', 'py4j'): sys.modules[name] = None\n"
        "from pairbus.cli import main\n"
        "main()\n"
    )
    variables = {**backlog.variables, "PATH": str(tmp_path), "JAVA_HOME": ""}
    for arguments in (["status"], ["backlog", "list"], ["backlog", "destinations"]):
        result = subprocess.run(
            [sys.executable, "-c", program, *arguments, *backlog.arguments],
            env=environment(variables),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")
