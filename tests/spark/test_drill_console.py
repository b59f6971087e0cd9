"""`pairbus drill --console`: the outage on the web page, while the drill runs."""

import re
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pairbus.console.server import ConsoleServer
from pairbus.listeners import open_listener
from pairbus.usage.records import read_operations
from tests.commands import Terminal, run_here, started
from tests.console_client import ConsoleClient
from tests.processes import all_processes, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.rule("O2")]
LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)\s")


def process_ids(folder: Path) -> list[int]:
    """Return the processes that have a folder among their arguments."""
    return [
        process.pid for process in all_processes() if str(folder) in " ".join(process.arguments)
    ]


def log_in(text: str) -> ConsoleClient:
    """Log in with the link in the output of a drill."""
    match = LINK.search(text)
    assert match is not None, text
    client = ConsoleClient(int(match[1]))
    assert client.login(match[2]).status == 200
    return client


def is_refused(port: int) -> bool:
    """Return True if nothing listens on a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.soak  # test_drill.py has a drill with the console, without a terminal
@pytest.mark.timeout(900)
@pytest.mark.rule("O4")
def test_outage_can_be_watched_and_the_console_stays_open_on_a_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    options = ("--rate", "40", "--outage", "10", "--folder", str(folder))
    with Terminal(80, "drill", "--console", *options) as terminal:
        # The link is on one line, although it is longer than the terminal is wide.
        wait_until(lambda: LINK.search(terminal.text), "the link")
        browser = log_in(terminal.text)

        def state(**values: Any) -> Any:
            """Return the snapshot if it has these values."""
            snapshot = browser.get("/api/state").json
            return snapshot if values.items() <= snapshot.items() else None

        def in_failover() -> Any:
            snapshot = state()
            return snapshot if "failover" in {path["state"] for path in snapshot["paths"]} else None

        outage = wait_until(in_failover, "failover on the page")
        assert "kill -9" in terminal.text
        assert outage["level"] == "bad"
        assert {path["path"] for path in outage["paths"]} <= {"orders", "payments", "news"}
        assert [(sender["application"], sender["process"]) for sender in outage["senders"]] == [
            ("pairbus drill", terminal.process.pid)
        ]

        assert browser.post("/api/syphon", {"action": "pause", "confirm": True}).status == 200
        wait_until(lambda: state()["syphon"]["running"], "the syphon on the page")
        assert browser.post("/api/syphon", {"action": "resume", "confirm": True}).status == 200

        def has_ended() -> bool:
            return "stays open" in terminal.text or terminal.process.poll() is not None

        wait_until(has_ended, "the verdict")
        assert "PASSED" in terminal.text, terminal.text
        end = wait_until(lambda: state(level="good"), "a page without problems")
        assert end["sentence"].endswith("The backlog is empty.")
        states = {event["text"].rpartition(" → ")[2].split()[0] for event in end["events"]}
        assert {"failover", "draining", "healthy"} <= states
        assert (end["syphon"]["running"], end["syphon"]["moved"] > 200) == (False, True)
        assert end["cost"]["so_far"] > 0
        pids = process_ids(folder)
        assert len(pids) >= 3  # the command and two namespaces
        terminal.interrupt()
        assert terminal.exit_status() == 0
        assert not running(pids)

    assert is_refused(browser.port)
    # The operations of the console are not in the ledger of the drill.
    own = list(read_operations(folder / "console" / "ledger"))
    shown = re.search(r"The console needed ([\d,]+) more operations", terminal.text)
    assert shown is not None
    assert 0 < int(shown[1].replace(",", "")) <= sum(record["operations"] for record in own)
    assert {record["kind"] for record in own} == {"management", "peek"}


def test_ctrl_c_stops_the_console_of_a_drill(tmp_path: Path) -> None:
    with started("drill", "--console", "--folder", str(tmp_path / "kept")) as drill:
        browser = log_in(drill.read_until("#token="))
        drill.read_until("senders send")
        with browser.events() as events:
            assert next(iter(events))["level"]
            pids = process_ids(tmp_path)
            assert len(pids) == 3
            drill.interrupt()
            status, _, errors = drill.wait()

    assert status == 4, errors
    assert "Stopped" in errors
    assert is_refused(browser.port)
    wait_until(lambda: not running(pids), "the namespaces to end")


def test_console_that_does_not_start_ends_the_drill_before_the_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[ConsoleServer] = []

    def fail(server: ConsoleServer) -> NoReturn:
        failures.append(server)
        raise RuntimeError("the server has a fault")

    monkeypatch.setattr(ConsoleServer, "run", fail)

    result = run_here("drill", "--console", "--folder", str(tmp_path / "kept"))

    assert len(failures) == 1
    assert result.exit_code == 1
    assert "The console did not start: the server has a fault" in result.stderr
    assert "OUTAGE" not in result.output
    assert process_ids(tmp_path) == []


def test_port_that_is_taken_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with open_listener("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        result = run_here(
            "drill", "--console", "--console-port", str(port), "--folder", str(folder)
        )

    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in result.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("options", [("--console-port", "8710"), ("--close-console",)])
def test_options_of_the_console_need_the_console(options: tuple[str, ...]) -> None:
    result = run_here("drill", *options)

    assert result.exit_code == 2
    assert "Add --console" in result.stderr
