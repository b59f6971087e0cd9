"""`pairbus syphon`, with and without a terminal: as a process, and with the Spark of the tests."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import Result

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.commands import ONE, TWO, RunningCommand, Terminal, run, run_here, started
from tests.messages import message, numbered
from tests.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.timeout(600)
StartSyphon = Callable[..., AbstractContextManager[RunningCommand]]
RunSyphon = Callable[..., Result]
QUEUES = ("--backlog-queues", "3")
"""One of them does not exist."""
SHORT_LOCKS = pytest.mark.parametrize("lock_duration", [timedelta(seconds=5)], ids=["short locks"])


@pytest.fixture
def start_syphon(backlog: Backlog) -> StartSyphon:
    """Start `pairbus syphon` for the backlog as a process."""
    arguments = ("syphon", *backlog.arguments, *QUEUES)
    return lambda *options: started(*arguments, *options, **backlog.variables, COLUMNS="120")


@pytest.fixture
def run_syphon(session: SparkSession, backlog: Backlog) -> RunSyphon:
    """Run `pairbus syphon` for the backlog in this process, with the Spark of the tests."""
    arguments = ("syphon", *backlog.arguments, *QUEUES)
    return lambda *options: run_here(*arguments, *options, **backlog.variables)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--primary", "nonsense", "--secondary", TWO], "connection string"),
        (["--primary", ONE, "--secondary", ONE], "same namespace"),
        (["--primary", ONE, "--secondary", TWO, "--ttl", "halve"], "ttl must be one of"),
        (["--primary", ONE, "--secondary", TWO, "--max-rate", "0"], "--max-rate"),
        (
            ["--primary", ONE, "--secondary", TWO, "--archive", "a", "--archive-format", "delta"],
            "--archive-format must be one of parquet, orc, json, csv, not 'delta'",
        ),
        (
            ["--primary", ONE, "--secondary", TWO, "--archive-format", "orc"],
            "--archive-format needs --archive",
        ),
        (
            ["--primary", ONE, "--secondary", TWO, "--missing-destination-grace", "soon"],
            "--missing-destination-grace must be a duration",
        ),
        (["--primary", ONE], "--secondary"),
        (
            ["--primary", ONE, "--secondary", TWO, "--status-file", "no/such/s.json"],
            "does not exist",
        ),
    ],
    ids=[
        "connection string",
        "one namespace",
        "ttl",
        "rate",
        "archive format",
        "no archive",
        "grace",
        "no secondary",
        "status file",
    ],
)
def test_invalid_option_is_an_error_with_exit_status_2(options: list[str], error: str) -> None:
    result = run_here("syphon", *options)

    assert result.exit_code == 2
    assert error in result.stderr


def test_missing_java_is_an_error(tmp_path: Path) -> None:
    result = run("syphon", "--primary", ONE, "--secondary", TWO, PATH=str(tmp_path), JAVA_HOME="")

    assert (result.returncode, result.stderr) == (
        1,
        (
            "Spark needs Java 17 or 21, which was not found on the PATH. Install it, or set "
            "JAVA_HOME.\n"
        ),
    )


def test_help_has_the_exit_statuses_and_the_fields_of_the_status_file() -> None:
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", run_here("syphon", "--help").stdout).split())

    assert "3 stuck" in text
    assert "4 stopped before --once was complete" in text
    for field in ("running", "healthy", "moved", "remaining", "errors", "rate", "time"):
        assert field in text.partition("--status-file")[2]


@pytest.mark.rule("Y8")
def test_terminal_shows_the_progress_and_ctrl_c_stops_the_syphon(
    backlog: Backlog, tmp_path: Path
) -> None:
    orders, bills, down = backlog.path("orders"), backlog.path("bills"), backlog.path("down")
    fault = backlog.primary.add_fault("disable", down)
    backlog.put(down, [message("d", session="s")])
    backlog.put(orders, numbered(300, "o"))
    backlog.put(bills, numbered(200, "b"), queue=1)
    status_file = tmp_path / "status.json"

    def read_status() -> dict[str, object]:
        return json.loads(status_file.read_text()) if status_file.exists() else {}

    with Terminal(
        120,
        *("syphon", *backlog.arguments, "--max-rate", "50", "--status-file", str(status_file)),
        **backlog.variables,
    ) as terminal:
        wait_until(
            lambda: read_status().get("moved") == {orders: 300, bills: 200},
            "all messages that can be delivered",
        )
        wait_until(lambda: read_status().get("remaining") == 1, "the number of remaining messages")
        reported = read_status()
        assert (reported["running"], reported["healthy"]) == (True, True)
        assert list(reported["errors"]) == [down]
        assert isinstance(reported["time"], float)
        terminal.interrupt()
        assert terminal.exit_status() == 0
        text = terminal.text
    backlog.primary.clear_faults()

    assert fault.fired > 0
    assert "━━━" in text
    assert re.search(r"moved, [\d,]+ remaining, [\d,]+/s, 0:00:\d\d to go", text), text
    assert re.search(rf"{down} +0 moved +0/s +.*disabled", text)
    assert re.search(rf"{orders} +300 moved", text)
    assert "500 messages moved, 0 dead-lettered." in text
    assert read_status()["running"] is False


@pytest.mark.rule("Y8")
def test_once_with_an_unavailable_destination_ends_as_stuck(
    backlog: Backlog, run_syphon: RunSyphon, tmp_path: Path
) -> None:
    path, other = backlog.path("down"), backlog.path("other")
    fault = backlog.primary.add_fault("disable", path)
    backlog.put(path, [message("m", session="s")])
    backlog.put(other, [message("o")])
    status_file = tmp_path / "status.json"

    result = run_syphon("--once", "--stuck-after", "3", "--status-file", str(status_file))
    backlog.primary.clear_faults()

    assert fault.fired > 0
    assert result.exit_code == 3
    assert "1 message moved, 0 dead-lettered." in result.stdout
    assert "Stuck: the primary accepted no message for" in " ".join(result.stderr.split())
    assert f"  {path}: " in result.stderr
    reported = json.loads(status_file.read_text())
    assert (reported["running"], reported["healthy"]) == (False, False)
    assert backlog.left() == 1


@pytest.mark.rule("Y5", "Y8")
def test_once_with_messages_for_a_missing_destination_ends_as_stuck_and_names_it(
    backlog: Backlog, run_syphon: RunSyphon
) -> None:
    path = backlog.path("orders")
    backlog.put(path, [message("good")])
    backlog.put("no-such-queue", numbered(3))

    result = run_syphon("--once", "--stuck-after", "3")

    assert result.exit_code == 3
    assert "1 message moved, 0 dead-lettered." in result.stdout
    stderr = " ".join(result.stderr.split())
    assert (
        "no-such-queue: does not exist; its messages stay in the backlog until it is created"
        in stderr
    )
    assert (backlog.left(), backlog.dead_letters()) == (3, [])


@pytest.mark.rule("Y5")
def test_dead_letters_are_shown_with_destination_reason_and_next_step(
    backlog: Backlog, run_syphon: RunSyphon, tmp_path: Path
) -> None:
    path, status_file = backlog.path("orders"), tmp_path / "status.json"
    backlog.put(path, [message("good")])
    backlog.put("no-such-queue", numbered(5))
    backlog.put_raw([message("no path")])

    result = run_syphon(
        *("--once", "--missing-destination-grace", "0", "--status-file", str(status_file))
    )

    assert result.exit_code == 5
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert "no-such-queue: 5 dead-lettered (EntityNotFound)" in lines
    assert "no destination: 1 dead-lettered (MissingPath)" in lines
    assert "1 message moved. 6 DEAD-LETTERED. See: pairbus dead-letters list" in lines
    status = json.loads(status_file.read_text())
    assert status["ended"] == "drained"
    assert status["dead_lettered"] == {"no-such-queue": 5, "": 1}
    assert status["dead_letter_reasons"] == {
        "no-such-queue": {"EntityNotFound": 5},
        "": {"MissingPath": 1},
    }


@SHORT_LOCKS
@pytest.mark.rule("Y1", "Y8")
def test_once_waits_for_messages_that_another_receiver_has_locked(
    backlog: Backlog, run_syphon: RunSyphon
) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(8))
    with ThreadPoolExecutor() as threads, backlog.locked(5) as locked:

        def expire_locks_after_a_peek() -> int:
            wait_until(lambda: backlog.peeks() > 0, "a peek")
            moved = len(backlog.ids(path))
            locked.stop_renewing()
            return moved

        moved_before = threads.submit(expire_locks_after_a_peek)
        result = run_syphon("--once")

    assert moved_before.result() == 3  # the messages that were not locked
    assert (result.exit_code, "Stuck" in result.stderr) == (0, False)
    assert "8 messages moved, 0 dead-lettered." in result.stdout
    assert sorted(backlog.ids(path)) == [f"m-{n}" for n in range(8)]
    assert backlog.left() == 0


@SHORT_LOCKS
@pytest.mark.rule("Y8")
def test_once_ends_as_stuck_while_another_receiver_renews_its_locks(
    backlog: Backlog, run_syphon: RunSyphon, tmp_path: Path
) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(7))
    status_file = tmp_path / "status.json"
    with backlog.locked(5):
        result = run_syphon("--once", "--stuck-after", "6", "--status-file", str(status_file))

    assert result.exit_code == 3, result.output
    assert "2 messages moved, 0 dead-lettered." in result.stdout
    assert re.search(
        r"Stuck: the primary accepted no message for \d+ s \(5 messages are left in the backlog: "
        r"5 locked by another receiver\)\. Nothing is lost; run the syphon again later\.$",
        " ".join(result.stderr.split()),
    ), result.stderr
    reported = json.loads(status_file.read_text())
    assert (reported["running"], reported["healthy"]) == (False, False)
    assert backlog.left() == 5


@pytest.mark.soak
def test_once_that_is_stopped_early_has_exit_status_4(
    backlog: Backlog, start_syphon: StartSyphon
) -> None:
    path = backlog.path("one")
    backlog.put(path, numbered(50))
    with start_syphon("--once", "--max-rate", "2") as process:
        wait_until(lambda: 0 < backlog.left() < 50, "moved messages")
        process.interrupt()
        status, out, err = process.wait()

    assert status == 4
    assert "Stopped before the backlog was drained." in err
    assert "messages moved, 0 dead-lettered." in out
    assert 0 < backlog.left() < 50


@pytest.mark.soak
def test_second_ctrl_c_stops_at_once(backlog: Backlog, start_syphon: StartSyphon) -> None:
    path = backlog.path("silent")
    fault = backlog.primary.add_fault("stop-reading", path)
    backlog.put(path, [message("m")])
    with start_syphon() as process:
        wait_until(lambda: fault.fired > 0, "a micro-batch that hangs")
        process.interrupt()
        process.read_until("Stopping")
        process.interrupt()
        status = process.process.wait(DEADLINE_S)
    backlog.primary.clear_faults()

    assert status == 130
    assert backlog.left() == 1


@pytest.mark.soak
def test_unreachable_backlog_is_an_error(start_syphon: StartSyphon) -> None:
    with LocalNamespace("stopped") as stopped:
        text = stopped.connection_string
    with start_syphon("--once", "--secondary", text) as process:
        status, _, err = process.wait()

    assert status == 1
    assert "The backlog cannot be read: " in err


def test_dry_run_shows_messages_by_destination_and_moves_nothing(
    backlog: Backlog, start_syphon: StartSyphon
) -> None:
    orders = backlog.path("orders")
    backlog.put(orders, numbered(12))
    backlog.put("no/such/path", [message("x")], queue=1)
    backlog.put_raw([message("poison")], queue=1)
    with start_syphon("--dry-run") as process:
        status, out, err = process.wait()

    assert status == 0
    assert "not drained" not in err
    assert re.search(rf"{orders} +12 ", out)
    assert re.search(r"no/such/path +1 ", out)
    assert re.search(r"\(none\) +1 .*would be dead-lettered: MissingPath", out)
    assert "14 messages. Nothing was moved." in out
    assert backlog.left() == 14
    assert backlog.ids(orders) == []


def test_queues_beyond_the_configured_count_are_reported_and_not_drained(
    backlog: Backlog, run_syphon: RunSyphon
) -> None:
    orders = backlog.path("orders")
    backlog.put(orders, [message("near")])
    backlog.put(orders, [message("far")], queue=1)

    result = run_syphon("--once", "--backlog-queues", "1")

    assert result.exit_code == 3
    assert "1 message moved, 0 dead-lettered." in result.stdout
    assert (
        "Backlog queue 1 exists, but is not drained, because --backlog-queues is 1. Stop the "
        "syphon and start it with --backlog-queues 2."
    ) in result.stderr
    assert backlog.ids(orders) == ["near"]
    assert backlog.left() == 1


def test_warning_says_that_no_backlog_queue_exists(backlog: Backlog, run_syphon: RunSyphon) -> None:
    backlog.put(backlog.path("orders"), numbered(1))

    result = run_syphon("--dry-run", "--primary-name", "other")

    assert result.exit_code == 0
    assert result.stderr == (
        "No backlog queue other/x-servicebus-transfer/* was found in the secondary. Either no "
        "sender has paired yet, or the name of the primary is wrong.\n"
    )


@pytest.mark.rule("Y11")
def test_invalid_condition_is_one_sentence_with_exit_status_2(
    backlog: Backlog, run_syphon: RunSyphon
) -> None:
    backlog.put(backlog.path("one"), numbered(1))

    result = run_syphon("--once", "--no-ledger", "--where", "destinatoin = 'orders'")

    assert result.exit_code == 2
    assert result.stderr.startswith("--where is not a valid condition: ")
    assert "destinatoin" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert backlog.left() == 1


@pytest.mark.rule("Y11")
def test_dry_run_with_a_condition_counts_the_messages_that_match(
    backlog: Backlog, run_syphon: RunSyphon
) -> None:
    orders, bills = backlog.path("orders"), backlog.path("bills")
    backlog.put(orders, [*numbered(12, "new"), *numbered(5, "old")])
    backlog.put(bills, numbered(4, "new"), queue=1)
    backlog.put_raw([message("poison")], queue=1)

    result = run_syphon("--dry-run", "--where", "message_id LIKE 'new-%'", "--only", orders)
    invalid = run_syphon("--dry-run", "--where", "no_such_column = 1")

    assert (result.exit_code, result.stderr) == (0, "Starting Spark for --where…\n")
    assert re.search(rf"{orders} +12 ", result.stdout)
    assert bills not in result.stdout
    assert "would be dead-lettered: MissingPath" in result.stdout
    assert "13 of 22 messages would be moved or dead-lettered. Nothing was moved." in result.stdout
    assert backlog.left() == 22
    assert invalid.exit_code == 2
    assert "--where is not a valid condition: " in invalid.stderr
