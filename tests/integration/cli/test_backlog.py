"""`pairbus backlog` against real namespaces. It shows the backlog and receives nothing."""

import base64
import json
import re
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import Result

from pairbus.amqp.client import ClientOptions, SharedAccessKey
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Int32
from pairbus.backlog.discovery import PROBE_GAP, list_backlog_queues
from pairbus.backlog.inspection import inspect_backlog
from pairbus.backlog.target import InspectionTarget
from pairbus.cli.backlog_screen import PeekProgress
from pairbus.emulator import EmulatorProcess
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.servicebus.backlog_paths import backlog_path
from pairbus.transfer import to_backlog
from tests.backlog import Backlog
from tests.commands import KEY, LOCAL, ONE, TIMED_OUT, TWO, Terminal, run, run_here
from tests.messages import message, numbered
from tests.waiting import wait_until

NONSENSE = b"\x00\x53\xff nonsense"
COMMANDS = pytest.mark.parametrize("command", ["list", "peek", "destinations"])


def arguments_of(backlog: Backlog, arguments: tuple[str, ...]) -> list[str]:
    """Return the command, the options of the backlog, and the other arguments."""
    head = arguments[:1] if arguments and not arguments[0].startswith("-") else ()
    return ["backlog", *head, *backlog.arguments, *arguments[len(head) :]]


def as_process(backlog: Backlog, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(*arguments_of(backlog, arguments), **backlog.variables)


def invoke(backlog: Backlog, *arguments: str, **variables: str) -> Result:
    return run_here(*arguments_of(backlog, arguments), **(backlog.variables | variables))


def invoke_json(backlog: Backlog, *arguments: str, **variables: str) -> Any:
    """Return the JSON output of a command that succeeds."""
    result = invoke(backlog, *arguments, "--json", **variables)
    assert (result.exit_code, "Traceback" in result.stderr) == (0, False), result.stderr
    return json.loads(result.stdout)


def target_in(secondary: ClientOptions, primary_name: str, count: int) -> InspectionTarget:
    return InspectionTarget(
        secondary=secondary, primary_name=primary_name, backlog_queue_count=count
    )


def rows(text: str) -> list[list[str]]:
    """Return the cells of each line of a table."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def put_invalid_messages(backlog: Backlog) -> None:
    """Store one invalid message of each kind in the first queue, with sequence numbers 1 to 3."""
    wrong = Message.parse(to_backlog(message("wrong"), "orders"))
    wrong.edit_application_properties({"x-ms-timetolive": Int32(5)})
    backlog.put_raw([message("no path"), wrong.encode(), to_backlog(message("x"), "orders")])
    corrupt(backlog, 3, NONSENSE)


def corrupt(backlog: Backlog, sequence: int, rest: bytes) -> None:
    """Overwrite a message of the first queue with bytes that the emulator itself would reject."""

    def write(core: Any) -> None:
        queue = core.entities.source(backlog.queues[0])[1]
        (stored,) = queue.peek(sequence - 1, 1)
        stored.rest = rest
        queue._messages.put(queue.id, stored)

    backlog.secondary.call(write)


def test_list_is_the_default_command_and_shows_each_queue(backlog: Backlog) -> None:
    backlog.put("orders", numbered(1200))
    backlog.put("bills", [message("b", body=b"x" * 5000)], queue=1)
    backlog.dead_letter(2, "Gone", "no such queue")

    listed = as_process(backlog, "list", "--backlog-queues", "3")
    default = as_process(backlog, "--backlog-queues", "3")
    only_name = run(
        *("backlog", *backlog.arguments),
        PAIRBUS_SECONDARY=backlog.secondary.connection_string,
    )

    assert listed.returncode == 0
    assert listed.stderr == "--backlog-queues is 3, but backlog queue 2 does not exist.\n"
    table = rows(listed.stdout)
    assert table[0] == [f"Backlog queues {backlog.name}/x-servicebus-transfer/*"]
    assert table[1] == ["queue", "messages", "dead-lettered", "size", "oldest"]
    assert table[2][:3] == ["0", "1,198", "2"]
    assert table[3][:3] == ["1", "1", "0"]
    assert table[4] == ["2", "does not exist"]
    assert table[5] == ["1,199 messages, 2 dead-lettered in 2 backlog queues."]
    assert rows(default.stdout)[2][:3] == table[2][:3]
    assert only_name.returncode == 0
    assert backlog.message_count() == 1201


def test_list_prints_json(backlog: Backlog) -> None:
    backlog.put("orders", numbered(4))
    backlog.dead_letter(1, "Gone", "no such queue")

    output = invoke_json(backlog)

    assert (output["expected"], output["found"]) == (2, 2)
    assert (output["messages"], output["dead_lettered"]) == (3, 1)
    first, second = output["queues"]
    assert first["queue"] == backlog.queues[0]
    assert first["size_in_bytes"] > 0
    assert first["oldest_age_seconds"] >= 0
    assert (second["messages"], second["oldest_time"]) == (0, None)


def test_counts_and_peeks_work_over_tls(backlog: Backlog) -> None:
    backlog.put("orders", numbered(3))
    plain = ClientOptions.from_connection_string(backlog.secondary.connection_string)
    options = replace(plain, tls=True, ca_file=backlog.secondary.ca_file)

    target = target_in(options, backlog.name, 2)
    contents = inspect_backlog(target, list_backlog_queues(target), peek_count=1)

    assert (contents.messages, contents.counting_error, contents.problem) == (3, None, None)
    assert contents.listing_error is None
    assert contents.oldest_ms is not None


@pytest.mark.parametrize("host", ["no such host", "a..b", "x" * 70])
def test_invalid_host_is_a_problem_of_the_result(host: str) -> None:
    target = target_in(ClientOptions(host=host, tokens=SharedAccessKey("n", KEY)), "p", 1)
    contents = inspect_backlog(target, list_backlog_queues(target), peek_count=1)

    assert contents.problem is not None
    assert contents.messages is None


def test_without_the_manage_right_messages_are_peeked_instead_of_counted(
    backlog: Backlog, listen_key: str
) -> None:
    backlog.put("orders", numbered(120))
    backlog.put("orders", [message("one")], queue=1)
    backlog.dead_letter(1, "Gone", "no such queue")

    result = invoke(backlog, "list", PAIRBUS_SECONDARY=listen_key)

    assert result.exit_code == 0
    table = rows(result.stdout)
    assert table[2][:3] == ["0", "100+", "1"]
    assert table[3][:3] == ["1", "1", "0"]
    assert table[4] == ["101+ messages, 1+ dead-lettered in 2 backlog queues found up to index 11."]
    assert "The messages could not be counted: reading queue '" in result.stderr
    assert invoke_json(backlog, PAIRBUS_SECONDARY=listen_key)["more_messages"] is True


def test_every_command_includes_a_queue_beyond_the_expected_count(backlog: Backlog) -> None:
    backlog.put("orders", [message("far")], queue=backlog.add_queue(8))

    listed = invoke(backlog, "list")
    warning = (
        "--backlog-queues is 2, but backlog queue 8 exists too; a syphon with --backlog-queues 2 "
        "does not drain it.\n"
    )

    assert (listed.exit_code, listed.stderr) == (0, warning)
    assert rows(listed.stdout)[4][:3] == ["8", "1", "0"]
    assert invoke_json(backlog, "list")["unexpected"] == [8]
    peeked = invoke(backlog, "peek", "--json")
    assert [message["message_id"] for message in json.loads(peeked.stdout)] == ["far"]
    assert peeked.stderr == warning
    by_destination = invoke(backlog, "destinations", "--json")
    assert json.loads(by_destination.stdout)["messages"] == 1
    assert json.loads(by_destination.stdout)["searched_to"] is None
    assert by_destination.stderr == warning


def test_without_the_manage_right_every_command_reports_the_searched_indexes(
    backlog: Backlog, listen_key: str
) -> None:
    position = backlog.add_queue(8)
    backlog.put("orders", [message("far")], queue=position)
    limit = 8 + PROBE_GAP
    warning = (
        "The queues could not be listed: listing queues needs the Manage right. Indexes above "
        f"{limit} were not searched.\n"
    )

    listed = invoke(backlog, "list", "--json", PAIRBUS_SECONDARY=listen_key)
    peeked = invoke(backlog, "peek", "--json", PAIRBUS_SECONDARY=listen_key)
    by_destination = invoke(backlog, "destinations", "--json", PAIRBUS_SECONDARY=listen_key)

    assert [result.exit_code for result in (listed, peeked, by_destination)] == [0, 0, 0]
    assert json.loads(listed.stdout)["searched_to"] == limit
    assert [message["message_id"] for message in json.loads(peeked.stdout)] == ["far"]
    assert json.loads(by_destination.stdout)["messages"] == 1
    assert json.loads(by_destination.stdout)["searched_to"] == limit
    for result in (listed, peeked, by_destination):
        assert warning in result.stderr
        assert "backlog queue 8 exists too" in result.stderr


def test_peek_stops_probing_when_it_has_enough_messages(backlog: Backlog, listen_key: str) -> None:
    backlog.put("orders", numbered(5))

    result = invoke(backlog, "peek", "--count", "2", PAIRBUS_SECONDARY=listen_key)

    assert (result.exit_code, result.stderr) == (0, "")
    assert "2 messages shown." in result.stdout


def test_key_restricted_to_the_expected_queues_is_enough(backlog: Backlog) -> None:
    rule = SharedAccessRule(name="one", primary_key=KEY, rights=frozenset({Right.LISTEN}))
    name = f"{backlog.name}-own"
    backlog.secondary.create_queue(backlog_path(name, 0), authorization_rules=(rule,))
    text = backlog.secondary.connection_string_of("one", KEY)

    result = run_here(
        *("backlog", "list", "--primary-name", name, "--backlog-queues", "1", "--json"),
        PAIRBUS_SECONDARY=text,
    )
    output = json.loads(result.stdout)

    assert result.exit_code == 0
    assert (output["problem"], output["searched_to"], output["messages"]) == (None, 0, 0)


@COMMANDS
def test_with_the_send_right_alone_every_command_fails(
    backlog: Backlog, send_key: str, command: str
) -> None:
    result = invoke(backlog, command, PAIRBUS_SECONDARY=send_key)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "'Listen' claim(s) are required" in result.stderr


def test_peek_shows_messages_and_receives_none(backlog: Backlog) -> None:
    backlog.put("shop/orders", numbered(3, session="s 1"))
    backlog.put("bills", [message("b", body=b"x" * 2000)], queue=1)
    before = backlog.peeks()

    result = as_process(backlog, "peek")

    assert (result.returncode, result.stderr) == (0, "")
    table = rows(result.stdout)
    assert table[0] == [
        *("queue", "sequence", "enqueued", "age"),
        *("destination", "message id", "session", "size"),
    ]
    assert [row[0] for row in table[1:5]] == ["0", "0", "0", "1"]
    assert table[1][1] == "1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", table[1][2])
    assert table[1][4:7] == ["shop/orders", "m-0", "s 1"]
    assert table[4][4:6] == ["bills", "b"]
    assert table[4][-1].endswith(" kB")
    assert table[5] == ["4 messages shown. Nothing was received or moved."]
    assert backlog.message_count() == 4
    assert backlog.peeks() > before


def test_peek_starts_at_the_given_queue_and_sequence_number(backlog: Backlog) -> None:
    backlog.put("orders", numbered(8))
    backlog.put("orders", numbered(8, "o"), queue=1)

    def ids(*arguments: str) -> list[str]:
        return [message["message_id"] for message in invoke_json(backlog, "peek", *arguments)]

    assert ids("--count", "9") == [f"m-{n}" for n in range(8)] + ["o-0"]
    assert ids("--queue", "1", "--count", "2") == ["o-0", "o-1"]
    assert ids("--queue", backlog.queues[1], "--from", "7") == ["o-6", "o-7"]
    assert ids("--queue", "0", "--from", "9") == []
    assert ids("--dead-letters") == []


def test_peek_by_path_needs_no_primary_name(backlog: Backlog) -> None:
    backlog.put("orders", [message("m")])

    result = run(
        *("backlog", "peek", "--queue", backlog.queues[0], "--json"),
        PAIRBUS_SECONDARY=backlog.secondary.connection_string,
    )

    assert result.returncode == 0
    assert [message["message_id"] for message in json.loads(result.stdout)] == ["m"]


def test_peek_shows_the_reasons_of_dead_letters(backlog: Backlog) -> None:
    backlog.put("orders", numbered(3, session="s"))
    backlog.dead_letter(2, "Gone", "there is no such queue")

    shown = rows(invoke(backlog, "peek", "--dead-letters").stdout)
    (first, _) = invoke_json(backlog, "peek", "--dead-letters")

    assert shown[0][-2:] == ["reason", "description"]
    assert shown[1][4:7] == ["orders", "m-0", "s"]
    assert shown[1][-2:] == ["Gone", "there is no such queue"]
    assert shown[3] == ["2 dead-lettered messages shown. Nothing was received or moved."]
    assert first["dead_letter_reason"] == "Gone"
    assert first["dead_letter_description"] == "there is no such queue"
    assert first["problem"] is None


def test_peek_shows_the_problems_of_invalid_messages(backlog: Backlog) -> None:
    put_invalid_messages(backlog)
    backlog.put("orders", [message("good")])

    shown = rows(invoke(backlog, "peek").stdout)
    none, wrong, nonsense, good = invoke_json(backlog, "peek")

    assert shown[0][-1] == "problem"
    assert shown[1][4:6] == ["(none)", "no path"]
    assert shown[1][-1].startswith("would be dead-lettered: MissingPath: ")
    assert shown[2][4:6] == ["orders", "wrong"]
    assert "would be dead-lettered: WrongAlias: x-ms-timetolive" in shown[2][-1]
    assert shown[3][4] == "(none)"
    assert shown[3][-1].startswith("would be dead-lettered: NotAMessage")
    assert shown[4][4:6] == ["orders", "good"]
    assert (none["destination"], none["problem"]) == (None, "MissingPath")
    assert (wrong["destination"], wrong["problem"]) == ("orders", "WrongAlias")
    assert wrong["time_to_live_ms"] is None
    assert (nonsense["sequence_number"], nonsense["problem"]) == (3, "NotAMessage")
    assert base64.b64decode(nonsense["body"]).endswith(NONSENSE)
    assert (good["problem"], good["body"]) == (None, "body")


def test_peek_prints_the_body_as_text_or_base64(backlog: Backlog) -> None:
    backlog.put("orders", [message("t", body="é".encode()), message("b", body=b"\xff\x00")])

    text, binary = invoke_json(backlog, "peek")

    assert (text["body"], text["body_encoding"]) == ("é", "text")
    assert (binary["body"], binary["body_encoding"]) == ("/wA=", "base64")
    assert text["application_properties"] == {"x-ms-path": "orders", "n": 1, "text": "é"}


def test_control_characters_of_messages_are_escaped(backlog: Backlog) -> None:
    backlog.put("a[red]b\x1b[2J", [message("\x1b]0;title\x07[/]\r\n")])

    result = invoke(backlog, "peek")

    assert result.exit_code == 0
    assert rows(result.stdout)[1][4:6] == ["a[red]b\\x1b[2J", "\\x1b]0;title\\x07[/]\\r\\n"]
    assert "a[red]b\\x1b[2J" in invoke(backlog, "destinations").stdout


def test_destinations_sum_up_the_whole_backlog(backlog: Backlog) -> None:
    backlog.put("orders", [message(f"m-{n}", body=b"x" * 100) for n in range(700)])
    backlog.put("bills", numbered(30, "b"), queue=1)
    backlog.put("orders", numbered(20, "o"), queue=1)
    before = backlog.peeks()

    shown = rows(as_process(backlog, "destinations").stdout)
    after = backlog.peeks()
    output = invoke_json(backlog, "destinations")

    assert shown[0] == ["destination", "messages", "size", "oldest"]
    assert shown[1][:2] == ["orders", "720"]
    assert shown[2][:2] == ["bills", "30"]
    assert shown[3] == ["750 messages, 0 without a destination. Nothing was received or moved."]
    assert after - before >= 750
    assert (output["messages"], output["without_destination"], output["complete"]) == (750, 0, True)
    orders, bills = output["destinations"]
    assert (orders["destination"], orders["messages"]) == ("orders", 720)
    assert orders["size_in_bytes"] > 70_000
    assert bills["oldest_age_seconds"] >= 0
    assert backlog.message_count() == 750


def test_destinations_separate_invalid_messages(backlog: Backlog) -> None:
    put_invalid_messages(backlog)
    backlog.put("orders", numbered(2))

    shown = rows(invoke(backlog, "destinations").stdout)
    output = invoke_json(backlog, "destinations")

    assert shown[1][:2] == ["orders", "2"]
    assert {(row[0], row[1], row[-1]) for row in shown[2:5]} == {
        ("(none)", "1", "would be dead-lettered: MissingPath"),
        ("(none)", "1", "would be dead-lettered: NotAMessage"),
        ("orders", "1", "would be dead-lettered: WrongAlias"),
    }
    assert shown[5] == ["5 messages, 2 without a destination. Nothing was received or moved."]
    assert output["without_destination"] == 2


def test_destinations_sum_up_dead_letters(backlog: Backlog) -> None:
    backlog.put("orders", numbered(3))
    backlog.dead_letter(2, "Gone", "no such queue")

    output = invoke_json(backlog, "destinations", "--dead-letters")

    assert [
        (summary["destination"], summary["messages"]) for summary in output["destinations"]
    ] == [("orders", 2)]


def test_interrupted_destinations_show_the_totals_so_far(
    backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog.put("orders", numbered(300))

    def interrupt(self: PeekProgress, peeked: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PeekProgress, "update", interrupt)
    result = invoke(backlog, "destinations")

    assert result.exit_code == 4
    assert "250 messages, 0 without a destination." in result.stdout
    assert result.stderr == "Stopped before the whole backlog was read.\n"


def test_ctrl_c_stops_destinations_of_a_frozen_namespace(
    backlog: Backlog, paused_emulator: EmulatorProcess
) -> None:
    variables = backlog.variables | {"PAIRBUS_SECONDARY": paused_emulator.connection_string}
    arguments = ("backlog", "destinations", *backlog.arguments, "--timeout", "600")
    with Terminal(80, *arguments, **variables) as terminal:
        wait_until(lambda: "reading the backlog" in terminal.text, "the bar")
        terminal.interrupt()
        assert terminal.exit_status() == 4

    assert "Stopped before the whole backlog was read." in terminal.text


def test_destinations_on_a_terminal_have_a_progress_bar_and_a_frame(backlog: Backlog) -> None:
    backlog.put("orders", numbered(300))
    with Terminal(
        80, "backlog", "destinations", *backlog.arguments, **backlog.variables
    ) as terminal:
        assert terminal.exit_status() == 0

    assert re.search(r"reading the backlog ━+", terminal.text)
    assert "300/300" in terminal.text
    assert "─────" in terminal.text
    assert re.search(r"orders +300 ", terminal.text)


@pytest.mark.parametrize("columns", [80, 120])
def test_messages_on_a_terminal_fit_its_width_and_are_not_truncated(
    backlog: Backlog, columns: int
) -> None:
    long = "0123456789abcdef" * 4
    backlog.put("orders", [message(long, session="customer-17")])
    backlog.dead_letter(1, "Gone", "there is no such queue, and there never was one of this name")
    arguments = ("backlog", "peek", "--dead-letters", *backlog.arguments)
    with Terminal(columns, *arguments, **backlog.variables) as terminal:
        assert terminal.exit_status() == 0

    lines = terminal.text.splitlines()
    assert max(map(len, lines)) <= columns
    assert any(line.startswith(f"message id   {long[:60]}") for line in lines)
    assert any(line.startswith("reason       Gone") for line in lines)
    assert "one of this name" in " ".join(terminal.text.split())


@COMMANDS
def test_secondary_that_is_down_or_frozen_is_an_error_with_exit_status_1(
    backlog: Backlog, stopped_namespace: str, paused_emulator: EmulatorProcess, command: str
) -> None:
    down, frozen = (
        invoke(backlog, command, "--timeout", timeout, PAIRBUS_SECONDARY=text)
        for text, timeout in ((stopped_namespace, "5"), (paused_emulator.connection_string, "0.5"))
    )

    assert [(result.exit_code, result.stdout) for result in (down, frozen)] == [(1, "")] * 2
    assert "localhost" in down.stderr
    assert TIMED_OUT.search(frozen.stderr)


@COMMANDS
def test_missing_queues_are_an_error_with_exit_status_1(backlog: Backlog, command: str) -> None:
    result = invoke(backlog, command, "--primary-name", "other")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "No backlog queue other/x-servicebus-transfer/* was found in the secondary. "
        "Either no sender has paired yet, or the name of the primary is wrong.\n"
    )


def test_missing_queue_is_an_error_with_exit_status_1(backlog: Backlog) -> None:
    result = invoke(backlog, "peek", "--queue", "9")

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"The queue {backlog.name}/x-servicebus-transfer/9 does not exist." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["list", "--secondary", "nonsense", "--primary-name", "p"], "secondary: it is neither"),
        (["list", "--secondary", TWO], "name of the primary is missing"),
        (["list", "--secondary", TWO, "--primary", LOCAL], "--primary-name"),
        (["list", "--secondary", TWO, "--primary", TWO], "the same namespace"),
        (["list", "--primary", ONE], "--secondary"),
        (["--secondary", TWO, "--primary", ONE, "--backlog-queues", "0"], "--backlog-queues"),
        (["peek", "--secondary", TWO, "--primary", ONE, "--from", "5"], "--from needs --queue"),
        (["peek", "--secondary", TWO, "--primary", ONE, "--queue", ""], "--queue"),
        (["peek", "--secondary", TWO, "--primary", ONE, "--count", "0"], "--count"),
        (["peek", "--secondary", TWO, "--queue", "3"], "name of the primary is missing"),
        (["destinations", "--secondary", TWO, "--primary", ONE, "--timeout", "x"], "--timeout"),
        (["remove", "--secondary", TWO], "remove"),
    ],
)
def test_invalid_option_is_an_error_with_exit_status_2(arguments: list[str], error: str) -> None:
    result = run_here("backlog", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert error in result.stderr
