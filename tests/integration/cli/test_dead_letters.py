"""`pairbus dead-letters`: list, peek, export, redrive and purge."""

import base64
import json
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import Result

from pairbus.emulator import LocalNamespace
from tests.backlog import Backlog
from tests.commands import Terminal, run_here, started
from tests.dead_letters import DeadLetters
from tests.messages import content_of, id_of, message, numbered
from tests.waiting import wait_until

DONE, FAILED, INVALID, INCOMPLETE, STOPPED = range(5)


@pytest.fixture
def letters(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Iterator[DeadLetters]:
    """The dead letters of a new queue of the primary."""
    primary, _ = namespaces
    path = f"q{uuid4().hex[:8]}"
    primary.create_queue(path)
    letters = DeadLetters(primary, path)
    yield letters
    letters.close()


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    """The variables of commands: a folder of their own for plans and ledgers."""
    return {"XDG_STATE_HOME": str(tmp_path)}


def run(command: str, letters: DeadLetters, state: dict[str, str], *arguments: str) -> Result:
    return run_here(
        *("dead-letters", command, "--entity", letters.entity, *arguments),
        **state,
        PAIRBUS_PRIMARY=letters.namespace.connection_string,
    )


@pytest.mark.rule("R1")
def test_list_groups_by_reason_and_destination(letters: DeadLetters, state: dict[str, str]):
    letters.put(numbered(3), "TooLarge", "more than 256 KB")
    letters.put(numbered(2), "Broken")

    result = run("list", letters, state)
    table = [line.split() for line in result.output.splitlines()]
    groups = json.loads(run("list", letters, state, "--json", "--no-ledger").stdout)

    assert result.exit_code == DONE
    assert table[1][:3] == ["TooLarge", letters.entity, "3"]
    assert table[2][:3] == ["Broken", letters.entity, "2"]
    assert "5 dead letters" in result.output
    assert [(group["reason"], group["messages"]) for group in groups] == [
        ("TooLarge", 3),
        ("Broken", 2),
    ]
    assert (Path(state["XDG_STATE_HOME"]) / "pairbus" / "ledger").exists()
    assert len(letters.ids()) == 5


@pytest.mark.rule("R1")
def test_list_of_the_backlog_names_the_destinations(backlog: Backlog, state: dict[str, str]):
    orders = backlog.path("orders")
    backlog.put(orders, numbered(2))
    backlog.dead_letter(2, "EntityNotFound", "gone")

    result = run_here("dead-letters", "list", *backlog.arguments, **state, **backlog.variables)

    assert result.exit_code == DONE
    assert result.output.splitlines()[1].split()[:3] == ["EntityNotFound", orders, "2"]


@pytest.mark.rule("R1")
def test_peek_hides_bodies_unless_json_is_requested(letters: DeadLetters, state: dict[str, str]):
    letters.put([message("m-1", session="s-1", body=b"secret")])

    table = run("peek", letters, state)
    (values,) = json.loads(run("peek", letters, state, "--json").stdout)

    assert "m-1" in table.output
    assert "Broken" in table.output
    assert "secret" not in table.output
    assert (values["body"], values["session_id"]) == ("secret", "s-1")


@pytest.mark.rule("R1")
def test_export_has_the_exact_bytes(letters: DeadLetters, state: dict[str, str], tmp_path: Path):
    payloads = numbered(5, session="s")
    letters.put(payloads)
    file = tmp_path / "out.jsonl"

    result = run("export", letters, state, "-o", str(file), "--count", "3")

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    exported = [content_of(base64.b64decode(line["payload"])) for line in lines]
    assert result.exit_code == DONE
    assert "3 dead letters exported" in result.output
    assert [content[0] for content in exported] == ["m-0", "m-1", "m-2"]
    assert [content[5] for content in exported] == [content_of(p)[5] for p in payloads[:3]]
    assert lines[0]["dead_letter_reason"] == "Broken"
    assert len(letters.ids()) == 5


@pytest.mark.rule("R2", "R3")
def test_dry_run_moves_nothing_and_redrive_moves_the_chosen_ones(
    letters: DeadLetters, state: dict[str, str]
):
    payloads = numbered(6)
    letters.put(payloads[:4], "Broken")
    letters.put(payloads[4:], "Other")

    dry_run = run("redrive", letters, state, "--reason", "Broken", "--dry-run")
    assert dry_run.exit_code == DONE
    assert "4 dead letters would be moved. 2 others would stay." in dry_run.output
    assert len(letters.ids()) == 6

    result = run("redrive", letters, state, "--reason", "Broken")

    assert result.exit_code == DONE
    assert "4 dead letters moved" in result.output
    assert letters.stored(letters.entity) == payloads[:4]
    assert letters.ids() == ["m-4", "m-5"]
    assert list(Path(state["XDG_STATE_HOME"]).rglob("redrive/*")) == []


@pytest.mark.rule("R2", "R3")
def test_redrive_of_the_backlog_restores_and_reports_what_stays(
    backlog: Backlog, state: dict[str, str]
):
    orders = backlog.path("orders")
    sent = [message(f"m-{n}", session="s", ttl_ms=60_000) for n in range(3)]
    backlog.put(orders, sent)
    backlog.put("gone", numbered(1, "gone"))
    backlog.put_raw(numbered(1, "lost"))
    backlog.dead_letter(5, "EntityNotFound", "it was gone")
    command = ("dead-letters", "redrive", *backlog.arguments)

    result = run_here(*command, **state, **backlog.variables)

    assert result.exit_code == INCOMPLETE
    assert "3 dead letters moved, 2 REFUSED" in result.output
    assert "gone: 1 refused: EntityNotFound" in result.output
    assert "MissingPath" in result.output
    assert [content_of(payload)[5] for payload in backlog.arrived(orders)] == [
        content_of(payload)[5] for payload in sent
    ]
    assert backlog.ids(orders) == ["m-0", "m-1", "m-2"]
    other = run_here(*command, "--to", orders, **state, **backlog.variables)
    assert other.exit_code == DONE, other.output
    assert backlog.ids(orders)[3:] == ["gone-0", "lost-0"]
    assert backlog.dead_letters() == []


@pytest.mark.rule("R3")
def test_killed_redrive_continues_with_the_same_dead_letters(
    letters: DeadLetters, state: dict[str, str]
):
    payloads = numbered(300)
    (late,) = letters.send([message("late")])
    letters.put(payloads)
    variables = {**state, "PAIRBUS_PRIMARY": letters.namespace.connection_string}
    command = ("dead-letters", "redrive", "--entity", letters.entity)
    with started(*command, "--max-rate", "40", **variables) as running:
        wait_until(lambda: len(letters.stored(letters.entity)) >= 80, "some are moved")
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()
    moved = len(letters.stored(letters.entity))
    assert moved < 300
    letters.dead_letter([late])
    letters.namespace.advance(timedelta(minutes=2))  # the locks of the killed process expire

    result = run_here(*command, **variables)

    assert result.exit_code == DONE, result.output
    assert "Continuing the redrive of " in result.output
    ids = [id_of(payload) for payload in letters.stored(letters.entity)]
    assert set(ids) == {f"m-{n}" for n in range(300)}
    assert len(ids) - 300 <= 40  # at most those that were in flight when it was killed
    assert letters.ids() == ["late"]
    assert "1 dead letter moved" in run("redrive", letters, state).output


@pytest.mark.rule("R3")
def test_interrupted_redrive_says_that_nothing_is_lost(letters: DeadLetters, state: dict[str, str]):
    letters.put(numbered(200))
    variables = {**state, "PAIRBUS_PRIMARY": letters.namespace.connection_string}
    command = ("dead-letters", "redrive", "--entity", letters.entity, "--max-rate", "20")
    with started(*command, **variables) as running:
        wait_until(lambda: len(letters.stored(letters.entity)) >= 20, "some are moved")
        running.interrupt()
        status, out, err = running.wait()

    moved = len(letters.stored(letters.entity))
    assert status == STOPPED
    assert f"{moved} dead letters moved" in out
    assert "Nothing is lost" in err
    assert moved + len(letters.ids()) == 200
    result = run("redrive", letters, state, "--restart")
    assert f"{200 - moved} dead letters moved" in result.output


@pytest.mark.rule("R2", "R3")
def test_dry_run_says_what_duplicate_detection_would_keep_back(
    namespaces: tuple[LocalNamespace, LocalNamespace], state: dict[str, str], listen_key: str
):
    primary, _ = namespaces
    path = f"q{uuid4().hex[:8]}"
    window = timedelta(minutes=10)
    for namespace in namespaces:
        namespace.create_queue(
            path,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=window,
        )
    letters = DeadLetters(primary, path)
    letters.put(numbered(3))

    recent = run("redrive", letters, state, "--dry-run")
    elsewhere = run("redrive", letters, state, "--dry-run", "--to", "other")
    moved = run("redrive", letters, state)
    letters.close()
    unknown = run_here(
        *("dead-letters", "redrive", "--dry-run", "--entity", path, "--namespace", "secondary"),
        **state,
        PAIRBUS_SECONDARY=listen_key,
    )

    sentence = (
        f"{path} has duplicate detection and drops messages whose ids it has seen within the last "
        "0:10:00: 3 of 3 dead letters would stay. Redrive them later, or with --to another queue."
    )
    assert sentence in " ".join(recent.output.split())
    assert "0 dead letters would be moved." in recent.output
    assert "3 dead letters would be moved." in elsewhere.output
    assert "duplicate detection" not in elsewhere.output
    assert (moved.exit_code, "3 REFUSED" in moved.output) == (INCOMPLETE, True)
    assert unknown.exit_code == DONE
    assert "It is not known if" in unknown.output
    assert "Manage right" in unknown.output


@pytest.mark.rule("R3")
def test_purge_asks_first_and_says_how_many(letters: DeadLetters, state: dict[str, str]):
    letters.put(numbered(3), "Old")
    letters.put(numbered(1, "k"), "Keep")

    refused = run("purge", letters, state, "--reason", "Old")

    assert refused.exit_code == STOPPED
    assert f"3 dead letters of {letters.entity} will be deleted" in refused.output
    assert len(letters.ids()) == 4
    result = run("purge", letters, state, "--reason", "Old", "--yes")
    assert (result.exit_code, letters.ids()) == (DONE, ["k-0"])
    assert "3 dead letters deleted" in result.output


def test_missing_rights_are_named(backlog: Backlog, send_key: str, state: dict[str, str]):
    queue = backlog.queues[0]
    variables = {**state, "PAIRBUS_SECONDARY": send_key}

    result = run_here(
        *("dead-letters", "list", "--entity", queue, "--namespace", "secondary"), **variables
    )

    assert result.exit_code == FAILED
    assert "Listen right" in result.output


def test_missing_right_to_send_is_named_and_the_message_stays(
    backlog: Backlog, listen_key: str, state: dict[str, str]
):
    backlog.put("x", numbered(1))
    backlog.dead_letter(1, "Broken", "because")
    command = ("dead-letters", "redrive", "--entity", backlog.queues[0], "--namespace", "secondary")
    variables = {**state, "PAIRBUS_SECONDARY": listen_key}

    unknown = run_here(*command, **variables)
    result = run_here(*command, "--ignore-duplicate-detection", **variables)

    assert unknown.exit_code == INVALID
    assert "needs the Manage right" in unknown.output
    assert result.exit_code == INCOMPLETE, result.output
    assert "the Send right is needed" in result.output
    assert len(backlog.dead_letters()) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("list", "--entity", "nothing"), FAILED, "has no queue or subscription 'nothing'"),
        (("list", "--entity", "q", "--since", "soon"), INVALID, "--since: 'soon' is not a time"),
        (("list", "--entity", "q", "--since", "1h", "--until", "2h"), INVALID, "not before"),
        (("list", "--entity", "q", "--namespace", "x"), INVALID, "Use primary or secondary"),
        (("list", "--entity", "q", "--queue", "1"), INVALID, "--entity or --queue"),
        (("list", "--entity", " "), INVALID, "is empty"),
        (("redrive", "--entity", "t/Subscriptions/s"), INVALID, "--to t,"),
        (("redrive", "--entity", "q", "--to", "t/Subscriptions/s"), INVALID, "subscription"),
        (("list",), INVALID, "The secondary is missing"),
    ],
)
def test_wrong_input_is_named(
    namespaces: tuple[LocalNamespace, LocalNamespace],
    state: dict[str, str],
    arguments: tuple[str, ...],
    status: int,
    text: str,
):
    result = run_here(
        "dead-letters", *arguments, **state, PAIRBUS_PRIMARY=namespaces[0].connection_string
    )

    assert (result.exit_code, text in result.output) == (status, True), result.output


def test_dry_run_for_a_missing_entity_says_only_that(
    namespaces: tuple[LocalNamespace, LocalNamespace], state: dict[str, str]
):
    variables = {**state, "PAIRBUS_PRIMARY": namespaces[0].connection_string}

    result = run_here("dead-letters", "redrive", "--entity", "nothing", "--dry-run", **variables)

    assert result.exit_code == FAILED
    assert "has no queue or subscription 'nothing'" in result.output
    assert "duplicate detection" not in result.output


def test_time_range_chooses_by_the_enqueued_time(letters: DeadLetters, state: dict[str, str]):
    letters.put(numbered(2))

    assert "2 dead letters" in run("list", letters, state, "--since", "1h").output
    assert "No dead letters" in run("list", letters, state, "--until", "1h").output


def test_list_fits_a_narrow_terminal(letters: DeadLetters, state: dict[str, str]):
    columns = 60
    letters.put(numbered(1), "MaxDeliveryCountExceeded", "it could not be consumed " * 6)
    variables = {**state, "PAIRBUS_PRIMARY": letters.namespace.connection_string}

    with Terminal(columns, "dead-letters", "list", "--entity", letters.entity, **variables) as end:
        assert end.exit_status() == DONE
        lines = end.text.splitlines()

    table = next(n for n, line in enumerate(lines) if "reason" in line)
    assert all(len(line.rstrip()) <= columns for line in lines[table:-2])
    assert any("MaxDeliveryCountExceeded" in line for line in lines)
