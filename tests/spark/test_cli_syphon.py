"""`pairbus syphon` as a process, with and without a terminal."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.integration.cli_pair_kit import KEY, ONE, TWO, Terminal
from tests.spark.kit import Backlog, message, wait_until

pytestmark = pytest.mark.timeout(600)
PATIENCE_S = 200


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "pairbus", "syphon", *options]


def environment(backlog: Backlog) -> dict[str, str]:
    return {
        **os.environ,
        "PAIRBUS_PRIMARY": backlog.primary.connection_string,
        "PAIRBUS_SECONDARY": backlog.secondary.connection_string,
        "COLUMNS": "120",
    }


@contextmanager
def syphon(backlog: Backlog, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a syphon in its own process group, as a shell does: Ctrl-C reaches the whole group."""
    process = subprocess.Popen(
        command("--primary-name", backlog.name, "--backlog-queues", "3", *options),
        env=environment(backlog),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for_end(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Return exit status, output and errors. There is no stack trace."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err, err
    assert "\tat " not in err, err
    assert "log level" not in err, err
    assert "\x1b[" not in out
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--primary", "nonsense", "--secondary", TWO], "connection string"),
        (["--primary", ONE, "--secondary", ONE], "same namespace"),
        (["--primary", ONE, "--secondary", TWO, "--ttl", "halve"], "ttl must be one of"),
        (["--primary", ONE, "--secondary", TWO, "--max-rate", "0"], "--max-rate"),
        (["--primary", ONE], "--secondary"),
        (
            ["--primary", ONE, "--secondary", TWO, "--status-file", "no/such/s.json"],
            "does not exist",
        ),
    ],
    ids=["connection string", "one namespace", "ttl", "rate", "no secondary", "status file"],
)
def test_invalid_option_is_an_error_with_exit_status_2(options: list[str], error: str) -> None:
    run = subprocess.run(
        command(*options), capture_output=True, text=True, timeout=200, check=False
    )

    assert run.returncode == 2
    assert error in run.stderr
    assert "Traceback" not in run.stderr
    assert KEY not in run.stderr


def test_missing_java_is_an_error(tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    run = subprocess.run(
        command("--primary", ONE, "--secondary", TWO),
        env={**variables, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert (run.returncode, run.stderr) == (
        1,
        "Spark needs Java 17, which was not found. Install it, or set JAVA_HOME.\n",
    )


def test_help_has_the_exit_statuses_and_the_fields_of_the_status_file() -> None:
    run = subprocess.run(command("--help"), capture_output=True, text=True, timeout=200, check=True)
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", run.stdout).split())

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
    backlog.put(orders, [message(f"o-{n}") for n in range(300)])
    backlog.put(bills, [message(f"b-{n}") for n in range(200)], queue=1)
    status_file = tmp_path / "status.json"

    def read_status() -> dict[str, object]:
        return json.loads(status_file.read_text()) if status_file.exists() else {}

    with Terminal(
        120,
        *("syphon", "--primary-name", backlog.name, "--backlog-queues", "2", "--max-rate", "50"),
        *("--status-file", str(status_file)),
        PAIRBUS_PRIMARY=backlog.primary.connection_string,
        PAIRBUS_SECONDARY=backlog.secondary.connection_string,
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
    backlog: Backlog, tmp_path: Path
) -> None:
    path, other = backlog.path("down"), backlog.path("other")
    fault = backlog.primary.add_fault("disable", path)
    backlog.put(path, [message("m", session="s")])
    backlog.put(other, [message("o")])
    status_file = tmp_path / "status.json"
    with syphon(
        backlog, "--once", "--stuck-after", "3", "--status-file", str(status_file)
    ) as process:
        status, out, err = wait_for_end(process)
    backlog.primary.clear_faults()

    assert fault.fired > 0
    assert status == 3
    assert "1 message moved, 0 dead-lettered." in out
    assert "Stuck: the primary accepted no message for" in err
    assert f"{path} does not accept messages" in err
    reported = json.loads(status_file.read_text())
    assert (reported["running"], reported["healthy"]) == (False, False)
    assert backlog.left() == 1


@pytest.fixture
def short_locks(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    """A backlog whose locks last five seconds."""
    return Backlog(*namespaces, name=f"p{uuid4().hex[:8]}", lock_duration=timedelta(seconds=5))


@pytest.mark.rule("Y1", "Y8")
def test_once_waits_for_messages_that_another_receiver_has_locked(
    short_locks: Backlog,
) -> None:
    backlog = short_locks
    path = backlog.path("orders")
    ids = [f"m-{n}" for n in range(8)]
    backlog.put(path, [message(id) for id in ids])
    with backlog.locked(5) as locked, syphon(backlog, "--once") as process:
        wait_until(lambda: backlog.peeks() > 0 or process.poll() is not None, "a peek")
        assert process.poll() is None, "the syphon ended while messages were locked"
        assert len(backlog.ids(path)) == 3  # those that were not locked
        locked.stop_renewing()
        status, out, err = wait_for_end(process)

    assert (status, "Stuck" in err) == (0, False)
    assert "8 messages moved, 0 dead-lettered." in out
    assert sorted(backlog.ids(path)) == ids
    assert backlog.left() == 0


@pytest.mark.rule("Y8")
def test_once_ends_as_stuck_while_another_receiver_renews_its_locks(
    short_locks: Backlog, tmp_path: Path
) -> None:
    backlog = short_locks
    path = backlog.path("orders")
    backlog.put(path, [message(f"m-{n}") for n in range(7)])
    status_file = tmp_path / "status.json"
    with (
        backlog.locked(5),
        syphon(
            backlog, "--once", "--stuck-after", "6", "--status-file", str(status_file)
        ) as process,
    ):
        status, out, err = wait_for_end(process)

    assert status == 3, out + err
    assert "2 messages moved, 0 dead-lettered." in out
    assert re.search(
        r"Stuck: the primary accepted no message for \d+ s \(5 messages are left in the backlog: "
        r"5 locked by another receiver\)\. Nothing is lost; run the syphon again later\.$",
        " ".join(err.split()),
    ), err
    reported = json.loads(status_file.read_text())
    assert (reported["running"], reported["healthy"]) == (False, False)
    assert backlog.left() == 5


@pytest.mark.soak
def test_once_that_is_stopped_early_has_exit_status_4(
    backlog: Backlog,
) -> None:
    path = backlog.path("one")
    backlog.put(path, [message(f"m-{n}") for n in range(50)])
    with syphon(backlog, "--once", "--max-rate", "2") as process:
        wait_until(lambda: 0 < backlog.left() < 50, "moved messages")
        os.killpg(process.pid, signal.SIGINT)
        status, out, err = wait_for_end(process)

    assert status == 4
    assert "Stopped before the backlog was drained." in err
    assert "messages moved, 0 dead-lettered." in out
    assert 0 < backlog.left() < 50


@pytest.mark.soak
def test_second_ctrl_c_stops_at_once(backlog: Backlog) -> None:
    path = backlog.path("silent")
    fault = backlog.primary.add_fault("stop-reading", path)
    backlog.put(path, [message("m")])
    with syphon(backlog) as process:
        wait_until(lambda: fault.fired > 0, "a micro-batch that hangs")
        assert process.stdout is not None
        os.killpg(process.pid, signal.SIGINT)
        while "Stopping" not in (line := process.stdout.readline()):
            assert line, "the syphon ended without a second signal"
        os.killpg(process.pid, signal.SIGINT)
        status = process.wait(PATIENCE_S)
    backlog.primary.clear_faults()

    assert status == 130
    assert backlog.left() == 1


@pytest.mark.soak
def test_unreachable_backlog_is_an_error(backlog: Backlog) -> None:
    with LocalNamespace("gone") as gone:
        text = gone.connection_string
    with syphon(backlog, "--once", "--secondary", text) as process:
        status, _, err = wait_for_end(process)

    assert status == 1
    assert "The backlog cannot be read: " in err


def test_dry_run_shows_messages_by_destination_and_moves_nothing(backlog: Backlog) -> None:
    orders = backlog.path("orders")
    backlog.put(orders, [message(f"m-{n}") for n in range(12)])
    backlog.put("no/such/path", [message("x")], queue=1)
    backlog.put_raw([message("poison")], queue=1)
    with syphon(backlog, "--dry-run") as process:  # the third queue does not exist
        status, out, err = wait_for_end(process)

    assert status == 0
    assert "not drained" not in err
    assert re.search(rf"{orders} +12 ", out)
    assert re.search(r"no/such/path +1 ", out)
    assert re.search(r"\(none\) +1 .*would be dead-lettered: MissingPath", out)
    assert "14 messages. Nothing was moved." in out
    assert backlog.left() == 14
    assert backlog.ids(orders) == []


def test_queues_beyond_the_configured_count_are_reported_and_not_drained(backlog: Backlog) -> None:
    orders = backlog.path("orders")
    backlog.put(orders, [message("near")])
    backlog.put(orders, [message("far")], queue=1)
    with syphon(backlog, "--once", "--backlog-queues", "1") as process:
        status, out, err = wait_for_end(process)

    assert status == 0
    assert "1 message moved, 0 dead-lettered." in out
    assert (
        "Backlog queue 1 exists, but is not drained, because --backlog-queues is 1. Stop the "
        "syphon and start it with --backlog-queues 2."
    ) in err
    assert backlog.ids(orders) == ["near"]
    assert backlog.left() == 1
