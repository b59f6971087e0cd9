"""`pairbus status` as its users run it: against real namespaces, up, down, frozen and locked."""

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


def status(pairing: Pairing, *words: str, **given: str) -> subprocess.CompletedProcess[str]:
    return run("status", *pairing.options, *words, **(pairing.given | given))


def told(pairing: Pairing, *words: str, **given: str) -> tuple[int, dict[str, Any]]:
    """Exit status, and what a program is told."""
    ended = run_here("status", *pairing.options, "--json", *words, **(pairing.given | given))
    found = json.loads(ended.stdout)
    assert found["exit_status"] == ended.exit_code
    assert ended.stderr == ""
    return ended.exit_code, found


def nowhere() -> str:
    """The connection string of a namespace that is not there any more."""
    with LocalNamespace("gone") as gone:
        return gone.connection_string


def test_both_answer_and_nothing_waits(pairing: Pairing) -> None:
    ended = status(pairing)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        f"primary    localhost:{pairing.primary.port} answers",
        f"secondary  localhost:{pairing.secondary.port} answers",
        "backlog    2 backlog queues: 0 messages wait, 0 dead-lettered",
        "syphon     not known: give the --status-file of a syphon",
        "Both namespaces answer, and nothing waits.",
    ]
    assert pairing.peeks() == 0


def test_what_waits_and_what_is_dead_lettered_is_counted(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(7)])
    pairing.put("bills", [message(f"b-{n}") for n in range(5)], queue=1)
    pairing.bury(2, "Gone", "there is no such queue")

    code, found = told(pairing)
    backlog = found["backlog"]

    assert code == 3
    assert (backlog["asked_for"], backlog["there"]) == (2, 2)
    assert (backlog["messages"], backlog["dead_lettered"]) == (10, 2)
    assert (backlog["more_messages"], backlog["not_counted"]) == (False, None)
    assert backlog["oldest_age_seconds"] >= 0
    assert [queue["messages"] for queue in backlog["queues"]] == [5, 5]
    assert found["verdict"] == (
        "10 messages wait in the backlog. 2 messages are dead-lettered: "
        "see pairbus backlog peek --dead-letters."
    )
    assert found["syphon"] is None
    assert pairing.held() == 12


def test_missing_backlog_queues_are_reported(pairing: Pairing) -> None:
    code, found = told(pairing, "--backlog-queues", "5")
    backlog = found["backlog"]

    assert code == 0
    assert (backlog["asked_for"], backlog["there"]) == (5, 2)
    assert [queue["there"] for queue in backlog["queues"]] == [True] * 2 + [False] * 3
    assert (backlog["missing"], backlog["unexpected"]) == ([2, 3, 4], [])
    assert backlog["queue_mismatch"] == (
        "--backlog-queues is 5, but backlog queues 2 to 4 do not exist."
    )


def test_message_in_a_queue_beyond_the_given_number_is_reported(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(4)], queue=pairing.add_queue(8))

    ended = status(pairing, "--backlog-queues", "2")

    assert ended.returncode == 3
    lines = ended.stdout.splitlines()
    assert lines[2].startswith("backlog    3 backlog queues: 4 messages wait, 0 dead-lettered")
    assert lines[3].strip() == (
        "--backlog-queues is 2, but backlog queue 8 exists too; "
        "a syphon with --backlog-queues 2 does not drain it."
    )
    assert lines[-1] == (
        "4 messages wait in the backlog. 4 of them are in backlog queue 8, "
        "beyond --backlog-queues 2."
    )
    assert "othing waits" not in ended.stdout


def test_json_reports_queues_beyond_the_given_number(pairing: Pairing) -> None:
    for index in (5, 6, 7):
        pairing.add_queue(index)
    position = pairing.add_queue(8)
    pairing.put("orders", [message(f"m-{n}") for n in range(2)], queue=position)
    pairing.bury(1, "Gone", "no such queue", queue=position)

    code, found = told(pairing, "--backlog-queues", "3")
    backlog = found["backlog"]

    assert code == 3
    assert (backlog["asked_for"], backlog["there"]) == (3, 6)
    assert (backlog["not_listed"], backlog["searched_to"]) == (None, None)
    assert (backlog["missing"], backlog["unexpected"]) == ([2], [5, 6, 7, 8])
    assert [queue["index"] for queue in backlog["queues"]] == [0, 1, 2, 5, 6, 7, 8]
    last = backlog["queues"][-1]
    assert (last["queue"], last["messages"], last["dead_lettered"]) == (pairing.queues[-1], 1, 1)
    assert backlog["queue_mismatch"] == (
        "--backlog-queues is 3, but backlog queues 5 to 8 exist too; "
        "a syphon with --backlog-queues 3 does not drain them. Backlog queue 2 does not exist."
    )


def test_without_the_right_to_list_queues_beyond_the_number_are_probed(pairing: Pairing) -> None:
    pairing.put("orders", [message("m")], queue=pairing.add_queue(8))
    listen = pairing.secondary.connection_string_of("Listen", KEY)

    code, found = told(pairing, "--backlog-queues", "3", PAIRBUS_SECONDARY=listen)
    backlog = found["backlog"]

    assert code == 3
    assert backlog["not_listed"] == "listing queues needs the Manage right"
    assert (backlog["unexpected"], backlog["searched_to"]) == ([8], 8 + PROBE_GAP)
    assert backlog["messages"] == 1
    assert found["verdict"] == (
        "At least 1 message waits in the backlog. At least 1 of them is in backlog queue 8, "
        "beyond --backlog-queues 3."
    )


def test_without_the_right_to_list_it_does_not_claim_that_nothing_waits(
    pairing: Pairing,
) -> None:
    far = 3 + PROBE_GAP
    pairing.put("orders", [message("m")], queue=pairing.add_queue(far))
    listen = pairing.secondary.connection_string_of("Listen", KEY)

    ended = status(pairing, "--backlog-queues", "3", PAIRBUS_SECONDARY=listen)
    code, found = told(pairing, "--backlog-queues", "3", PAIRBUS_SECONDARY=listen)

    assert (ended.returncode, ended.stderr, code) == (4, "", 4)
    lines = ended.stdout.splitlines()
    assert lines[2] == (
        f"backlog    2 backlog queues found up to index {far - 1}: 0 messages wait, 0 dead-lettered"
    )
    assert (
        f"not listed: listing queues needs the Manage right; backlog queues with an index above "
        f"{far - 1} were not looked for"
    ) in ended.stdout
    assert lines[-1] == found["verdict"]
    assert found["verdict"] == (
        f"Both namespaces answer. Nothing waits in backlog queues 0 to {far - 1}; whether there "
        "are others is not known."
    )
    assert found["backlog"]["searched_to"] == far - 1
    assert found["backlog"]["more_messages"] is True


def test_queues_of_a_namespace_with_more_than_a_page_of_queues_are_found(
    namespaces: tuple[LocalNamespace, LocalNamespace],
) -> None:
    primary, _ = namespaces
    with LocalNamespace("crowded") as crowded:
        for number in range(230):
            crowded.create_queue(f"a-{number:03}")
        pairing = Pairing(primary, crowded, name="shop")
        pairing.put("orders", [message("m")], queue=pairing.add_queue(8))
        code, found = told(pairing)

    assert code == 3
    assert found["backlog"]["unexpected"] == [8]


def test_without_any_backlog_queue_there_is_no_pairing(pairing: Pairing) -> None:
    ended = status(pairing, "--primary-name", "another")

    assert ended.returncode == 1
    assert "backlog    0 backlog queues\n" in ended.stdout
    assert "No backlog queue was found" in ended.stdout


def test_a_primary_that_is_down_is_a_sentence_and_the_backlog_is_still_seen(
    pairing: Pairing,
) -> None:
    pairing.put("orders", [message("m")])

    code, found = told(pairing, PAIRBUS_PRIMARY=nowhere())

    assert code == 1
    assert found["primary"]["answers"] is False
    assert "refused" in found["primary"]["problem"]
    assert found["secondary"]["answers"] is True
    assert found["verdict"] == "The primary does not answer. 1 message waits in the backlog."


def test_a_secondary_that_is_down_is_a_sentence(pairing: Pairing) -> None:
    ended = status(pairing, PAIRBUS_SECONDARY=nowhere())

    assert ended.returncode == 1
    assert re.search(r"secondary  localhost:\d+ does not answer: cannot connect", ended.stdout)
    assert "backlog    not known: it is in the secondary\n" in ended.stdout
    assert "The secondary does not answer. The backlog cannot be seen.\n" in ended.stdout


@pytest.mark.parametrize("which", ["PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY"])
def test_a_frozen_namespace_is_waited_for_no_longer_than_it_was_told(
    pairing: Pairing, tmp_path: Path, which: str
) -> None:
    with paused_emulator(tmp_path) as emulator:
        code, found = told(pairing, "--timeout", "1", **{which: emulator.connection_string})
        assert emulator.is_paused

    assert code == 1
    frozen = found["primary" if which == "PAIRBUS_PRIMARY" else "secondary"]
    assert frozen["answers"] is False
    assert re.search("in vain|in time", frozen["problem"])


def test_a_namespace_that_ignores_tokens_does_not_answer(pairing: Pairing) -> None:
    fault = pairing.primary.add_fault("ignore-tokens")
    try:
        code, found = told(pairing, "--timeout", "3")
        assert fault.fired > 0
    finally:
        pairing.primary.clear_faults()

    assert (code, found["primary"]["answers"]) == (1, False)
    assert re.search("in vain|in time", found["primary"]["problem"])


@pytest.mark.parametrize("which", ["PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY"])
def test_a_wrong_key_is_a_sentence(pairing: Pairing, which: str) -> None:
    namespace = pairing.primary if which == "PAIRBUS_PRIMARY" else pairing.secondary
    wrong = namespace.connection_string_of("RootManageSharedAccessKey", KEY)

    ended = status(pairing, **{which: wrong})

    assert ended.returncode == 1
    assert re.search(r"does not let us in: the token for \S+ was refused", ended.stdout)
    name = "primary" if which == "PAIRBUS_PRIMARY" else "secondary"
    assert f"The {name} refuses the token." in ended.stdout


def test_with_the_right_to_listen_it_peeks_and_says_so(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(3)])
    listen = pairing.secondary.connection_string_of("Listen", KEY)

    code, found = told(pairing, PAIRBUS_SECONDARY=listen)

    assert code == 3
    assert found["backlog"]["not_counted"].endswith("needs the Manage right")
    assert (found["backlog"]["messages"], found["backlog"]["more_messages"]) == (1, True)
    assert found["verdict"] == "At least 1 message waits in the backlog."
    assert found["backlog"]["oldest_age_seconds"] >= 0


def test_with_the_right_to_send_alone_the_backlog_cannot_be_seen(pairing: Pairing) -> None:
    pairing.put("orders", [message("m")])
    send = pairing.secondary.connection_string_of("Send", KEY)

    ended = status(pairing, PAIRBUS_SECONDARY=send)

    assert ended.returncode == 1
    assert "The backlog cannot be seen.\n" in ended.stdout
    assert "'Listen' claim(s) are required" in ended.stdout
    assert "messages wait" not in ended.stdout


def test_a_status_file_says_whether_a_syphon_is_at_work(pairing: Pairing, tmp_path: Path) -> None:
    pairing.put("orders", [message("m")])
    file = tmp_path / "status.json"
    values: dict[str, Any] = {
        "running": True,
        "healthy": True,
        "problem": None,
        "moved": {"orders": 1200},
        "left": 1,
        "rate": 40.0,
        "when": time.time() + 3600,  # however long this test takes
    }

    absent = status(pairing, "--status-file", str(file))
    file.write_text(json.dumps(values))
    working = status(pairing, "--status-file", str(file))
    file.write_text(json.dumps(values | {"when": time.time() - 3600}))
    silent = told(pairing, "--status-file", str(file))

    assert "syphon     not at work: there is no such file" in absent.stdout
    assert "syphon     at work: 1,200 moved, 1 left, 40/s\n" in working.stdout
    assert "1 message waits in the backlog, and a syphon is at work.\n" in working.stdout
    assert silent[0] == 3
    assert silent[1]["syphon"]["at_work"] is False
    assert "hangs" in silent[1]["syphon"]["problem"]


@pytest.mark.parametrize("text", ["{", "[]", '{"running": "yes"}', "\x00\xff"])
def test_another_file_for_the_syphons_is_a_mistake(
    pairing: Pairing, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "status.json"
    file.write_text(text)

    ended = run_here("status", *pairing.options, "--status-file", str(file), **pairing.given)

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "--status-file: " in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--primary", "nonsense", "--secondary", TWO], "primary: part 1 of the connection string"),
        (["--primary", ONE, "--secondary", "Endpoint=x"], "secondary: the connection string"),
        (["--primary", ONE, "--secondary", ONE], "one namespace"),
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
def test_a_mistake_is_a_sentence_and_status_2(words: list[str], said: str) -> None:
    ended = run_here("status", *words)

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said in ended.stderr


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the SDK's sockets
def test_an_outage_is_seen_as_the_paired_sender_of_the_sdk_lives_it() -> None:
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
        words = ("--primary-name", "shop", "--backlog-queues", "2", "--json")
        given = {
            "PAIRBUS_PRIMARY": primary.connection_string,
            "PAIRBUS_SECONDARY": secondary.connection_string,
        }
        with sdk, pair_namespace(sdk, options) as bus, bus.get_queue_sender("orders") as sender:
            healthy = run_here("status", *words, **given)
            primary.stop()
            sent = ServiceBusMessage(
                "é", message_id="m", session_id="s", time_to_live=timedelta(hours=2)
            )
            sender.send_messages(sent)
            outage = run_here("status", *words, **given)
            (peeked,) = json.loads(run_here("backlog", "peek", *words, **given).stdout)

    assert healthy.exit_code == 0
    assert outage.exit_code == 1
    assert json.loads(outage.stdout)["verdict"] == (
        "The primary does not answer. 1 message waits in the backlog."
    )
    shown = ("destination", "message_id", "session_id", "time_to_live_ms", "body", "problem")
    assert [peeked[name] for name in shown] == ["orders", "m", "s", 7_200_000, "é", None]


def test_watching_looks_again_until_it_is_stopped(pairing: Pairing) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "pairbus", "status", *pairing.options, "--watch", "1"],
        env=environment(pairing.given),
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
                assert later, "it ended by itself"
                later = process.stdout.readline()
            os.killpg(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_S)
        finally:
            if process.poll() is None:
                process.kill()

    assert re.fullmatch(r"[\d-]+ [\d:]+  Both namespaces answer, and nothing waits.\n", first)
    assert later.endswith("1 message waits in the backlog.\n")
    assert process.returncode == 3
    assert "Traceback" not in err


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_it_is_coloured_and_keeps_to_the_width(
    pairing: Pairing, columns: int
) -> None:
    pairing.put("orders", [message("m")])
    with Terminal(columns, "status", *pairing.options, **pairing.given) as terminal:
        assert terminal.ended() == 3

    assert "\x1b[1;33m1 message waits in the backlog." in terminal.raw
    assert max(map(len, terminal.text.splitlines())) <= columns


def test_watching_on_a_terminal_draws_over_what_it_drew(pairing: Pairing) -> None:
    with Terminal(80, "status", *pairing.options, "--watch", "1", **pairing.given) as terminal:
        wait_until(lambda: terminal.text.count("nothing waits") >= 2, "a second look")
        terminal.interrupt()
        assert terminal.ended() == 0

    assert re.search(r"\x1b\[\dA", terminal.raw)


def test_it_needs_neither_spark_nor_arrow_nor_java(pairing: Pairing, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'pandas', 'py4j'): sys.modules[name] = None\n"
        "from pairbus.cli import main\n"
        "main()\n"
    )
    for words in (["status"], ["backlog", "list"], ["backlog", "destinations"]):
        ended = subprocess.run(
            [sys.executable, "-c", program, *words, *pairing.options],
            env={**environment(pairing.given), "PATH": str(tmp_path), "JAVA_HOME": ""},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
