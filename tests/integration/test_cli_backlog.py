"""`pairbus backlog` as its users run it: what it shows is what is there, and nothing is taken."""

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import Result

from pairbus.amqp.client import ClientOptions, SharedAccessKey
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Int32
from pairbus.backlog.discovery import PROBE_GAP, list_backlog_queues
from pairbus.backlog.queues import inspect_backlog
from pairbus.backlog.target import Target
from pairbus.cli.backlog_screen import PeekProgress
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.backlog_paths import backlog_path
from pairbus.transfer import to_backlog
from tests.integration.cli_pair_kit import (
    KEY,
    LOCAL,
    ONE,
    RULES,
    TWO,
    Pairing,
    Terminal,
    message,
    paused_emulator,
    run,
    run_here,
    wait_until,
)

NONSENSE = b"\x00\x53\xff nonsense"


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with (
        LocalNamespace("primary") as primary,
        LocalNamespace("secondary", rules=RULES) as secondary,
    ):
        yield primary, secondary


@pytest.fixture
def pairing(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Pairing:
    return Pairing(*namespaces, name=f"p{uuid4().hex[:8]}")


def words_of(pairing: Pairing, words: tuple[str, ...]) -> list[str]:
    """A command, if one is given, then which pairing it is, then the rest."""
    head = words[:1] if words and not words[0].startswith("-") else ()
    return ["backlog", *head, *pairing.options, *words[len(head) :]]


def as_process(pairing: Pairing, *words: str) -> subprocess.CompletedProcess[str]:
    return run(*words_of(pairing, words), **pairing.given)


def backlog(pairing: Pairing, *words: str, **given: str) -> Result:
    return run_here(*words_of(pairing, words), **(pairing.given | given))


def told(pairing: Pairing, *words: str, **given: str) -> Any:
    """What a program is told."""
    ended = backlog(pairing, *words, "--json", **given)
    assert (ended.exit_code, "Traceback" in ended.stderr) == (0, False), ended.stderr
    return json.loads(ended.stdout)


def pair_to(secondary: ClientOptions, primary_name: str, count: int) -> Target:
    return Target(secondary=secondary, primary_name=primary_name, backlog_queue_count=count)


def rows(text: str) -> list[list[str]]:
    """The cells of the lines of a table."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def poison(pairing: Pairing) -> None:
    """One message of each odd kind, in the first queue: numbers 1 to 3."""
    wrong = Message.parse(to_backlog(message("wrong"), "orders"))
    wrong.edit_application_properties({"x-ms-timetolive": Int32(5)})
    pairing.put_raw([message("no path"), wrong.encode(), to_backlog(message("x"), "orders")])
    pairing.spoil(3, NONSENSE)


def test_list_shows_each_queue_also_when_no_command_is_given(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(1200)])
    pairing.put("bills", [message("b", body=b"x" * 5000)], queue=1)
    pairing.bury(2, "Gone", "no such queue")

    listed = as_process(pairing, "list", "--backlog-queues", "3")
    default = as_process(pairing, "--backlog-queues", "3")
    only_name = run(
        *("backlog", *pairing.options),
        PAIRBUS_SECONDARY=pairing.secondary.connection_string,
    )

    assert listed.returncode == 0
    assert listed.stderr == "--backlog-queues is 3, but backlog queue 2 does not exist.\n"
    found = rows(listed.stdout)
    assert found[0] == [f"Backlog queues of {pairing.name}/x-servicebus-transfer/"]
    assert found[1] == ["queue", "messages", "dead-lettered", "size", "oldest"]
    assert found[2][:3] == ["0", "1,198", "2"]
    assert found[3][:3] == ["1", "1", "0"]
    assert found[4] == ["2", "not there"]
    assert found[5] == ["1,199 messages, 2 dead-lettered in 2 backlog queues."]
    assert rows(default.stdout)[2][:3] == found[2][:3]
    assert only_name.returncode == 0
    assert pairing.held() == 1201


def test_list_tells_programs_the_same(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(4)])
    pairing.bury(1, "Gone", "no such queue")

    found = told(pairing)

    assert (found["asked_for"], found["there"]) == (2, 2)
    assert (found["messages"], found["dead_lettered"]) == (3, 1)
    first, second = found["queues"]
    assert first["queue"] == pairing.queues[0]
    assert first["size"] > 0
    assert first["oldest_age_seconds"] >= 0
    assert (second["messages"], second["oldest_time"]) == (0, None)


def test_counts_and_peeks_go_over_tls_too(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(3)])
    plain = ClientOptions.from_connection_string(pairing.secondary.connection_string)
    options = replace(plain, tls=True, ca_file=pairing.secondary.ca_file)

    pair = pair_to(options, pairing.name, 2)
    found = inspect_backlog(pair, list_backlog_queues(pair), peeked=1)

    assert (found.messages, found.not_counted, found.problem) == (3, None, None)
    assert found.not_listed is None
    assert found.oldest_ms is not None


@pytest.mark.parametrize("host", ["no such host", "a..b", "x" * 70])
def test_options_of_a_host_that_cannot_be_are_a_problem_and_no_stack(host: str) -> None:
    pair = pair_to(ClientOptions(host=host, tokens=SharedAccessKey("n", KEY)), "p", 1)
    found = inspect_backlog(pair, list_backlog_queues(pair), peeked=1)

    assert found.problem is not None
    assert found.messages is None


def test_without_the_right_to_manage_it_peeks_and_says_so(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(120)])
    pairing.put("orders", [message("one")], queue=1)
    pairing.bury(1, "Gone", "no such queue")
    listen = pairing.secondary.connection_string_of("Listen", KEY)

    ended = backlog(pairing, "list", PAIRBUS_SECONDARY=listen)

    assert ended.exit_code == 0
    found = rows(ended.stdout)
    assert found[2][:3] == ["0", "100+", "1"]
    assert found[3][:3] == ["1", "1", "0"]
    assert found[4] == [
        "101+ messages, 1+ dead-lettered in the 2 backlog queues found up to index 11."
    ]
    assert "Not counted: reading queue '" in ended.stderr
    assert told(pairing, PAIRBUS_SECONDARY=listen)["more_messages"] is True


def test_queue_beyond_the_given_number_is_in_every_view(pairing: Pairing) -> None:
    pairing.put("orders", [message("far")], queue=pairing.add_queue(8))

    listed = backlog(pairing, "list")
    warning = (
        "--backlog-queues is 2, but backlog queue 8 exists too; a syphon with --backlog-queues 2 "
        "does not drain it.\n"
    )

    assert (listed.exit_code, listed.stderr) == (0, warning)
    assert rows(listed.stdout)[4][:3] == ["8", "1", "0"]
    assert told(pairing, "list")["unexpected"] == [8]
    peeked = backlog(pairing, "peek", "--json")
    assert [one["message_id"] for one in json.loads(peeked.stdout)] == ["far"]
    assert peeked.stderr == warning
    by_destination = backlog(pairing, "destinations", "--json")
    assert json.loads(by_destination.stdout)["messages"] == 1
    assert json.loads(by_destination.stdout)["searched_to"] is None
    assert by_destination.stderr == warning


def test_without_the_right_to_list_every_view_says_how_far_it_looked(pairing: Pairing) -> None:
    position = pairing.add_queue(8)
    pairing.put("orders", [message("far")], queue=position)
    listen = pairing.secondary.connection_string_of("Listen", KEY)
    limit = 8 + PROBE_GAP
    note = (
        "Not listed: listing queues needs the Manage right. Backlog queues with an index above "
        f"{limit} were not looked for.\n"
    )

    listed = backlog(pairing, "list", "--json", PAIRBUS_SECONDARY=listen)
    peeked = backlog(pairing, "peek", "--json", PAIRBUS_SECONDARY=listen)
    by_destination = backlog(pairing, "destinations", "--json", PAIRBUS_SECONDARY=listen)

    assert [ended.exit_code for ended in (listed, peeked, by_destination)] == [0, 0, 0]
    assert json.loads(listed.stdout)["searched_to"] == limit
    assert [one["message_id"] for one in json.loads(peeked.stdout)] == ["far"]
    assert json.loads(by_destination.stdout)["messages"] == 1
    assert json.loads(by_destination.stdout)["searched_to"] == limit
    for ended in (listed, peeked, by_destination):
        assert note in ended.stderr
        assert "backlog queue 8 exists too" in ended.stderr


def test_peek_that_has_enough_messages_probes_no_further(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(5)])
    listen = pairing.secondary.connection_string_of("Listen", KEY)

    ended = backlog(pairing, "peek", "--count", "2", PAIRBUS_SECONDARY=listen)

    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "2 messages shown." in ended.stdout


def test_rights_to_the_given_queues_alone_are_enough(pairing: Pairing) -> None:
    rule = SharedAccessRule(name="one", primary_key=KEY, rights=frozenset({Right.LISTEN}))
    name = f"{pairing.name}-own"
    pairing.secondary.create_queue(backlog_path(name, 0), authorization_rules=(rule,))
    text = pairing.secondary.connection_string_of("one", KEY)

    ended = run_here(
        *("backlog", "list", "--primary-name", name, "--backlog-queues", "1", "--json"),
        PAIRBUS_SECONDARY=text,
    )
    found = json.loads(ended.stdout)

    assert ended.exit_code == 0
    assert (found["problem"], found["searched_to"], found["messages"]) == (None, 0, 0)


def test_with_the_right_to_send_alone_nothing_can_be_seen(pairing: Pairing) -> None:
    pairing.put("orders", [message("m")])
    send = pairing.secondary.connection_string_of("Send", KEY)

    for words in (["list"], ["peek"], ["destinations"]):
        ended = backlog(pairing, *words, PAIRBUS_SECONDARY=send)
        assert (ended.exit_code, ended.stdout) == (1, "")
        assert "'Listen' claim(s) are required" in ended.stderr


def test_peek_shows_messages_and_takes_none(pairing: Pairing) -> None:
    pairing.put("shop/orders", [message(f"m-{n}", session="s 1") for n in range(3)])
    pairing.put("bills", [message("b", body=b"x" * 2000)], queue=1)
    before = pairing.peeks()

    ended = as_process(pairing, "peek")

    assert (ended.returncode, ended.stderr) == (0, "")
    found = rows(ended.stdout)
    assert found[0] == [
        *("queue", "sequence", "enqueued", "age"),
        *("destination", "message id", "session", "size"),
    ]
    assert [row[0] for row in found[1:5]] == ["0", "0", "0", "1"]
    assert found[1][1] == "1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", found[1][2])
    assert found[1][4:7] == ["shop/orders", "m-0", "s 1"]
    assert found[4][4:6] == ["bills", "b"]
    assert found[4][-1].endswith(" kB")
    assert found[5] == ["4 messages shown. Nothing was taken."]
    assert pairing.held() == 4
    assert pairing.peeks() > before


def test_peek_goes_where_it_is_told(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(8)])
    pairing.put("orders", [message(f"o-{n}") for n in range(8)], queue=1)

    def ids(*words: str) -> list[str]:
        return [one["message_id"] for one in told(pairing, "peek", *words)]

    assert ids("--count", "9") == [f"m-{n}" for n in range(8)] + ["o-0"]
    assert ids("--queue", "1", "--count", "2") == ["o-0", "o-1"]
    assert ids("--queue", pairing.queues[1], "--from", "7") == ["o-6", "o-7"]
    assert ids("--queue", "0", "--from", "9") == []
    assert ids("--dead-letters") == []


def test_peek_by_path_needs_no_name(pairing: Pairing) -> None:
    pairing.put("orders", [message("m")])

    ended = run(
        *("backlog", "peek", "--queue", pairing.queues[0], "--json"),
        PAIRBUS_SECONDARY=pairing.secondary.connection_string,
    )

    assert ended.returncode == 0
    assert [one["message_id"] for one in json.loads(ended.stdout)] == ["m"]


def test_peek_shows_why_messages_are_dead_lettered(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}", session="s") for n in range(3)])
    pairing.bury(2, "Gone", "there is no such queue")

    shown = rows(backlog(pairing, "peek", "--dead-letters").stdout)
    (first, _) = told(pairing, "peek", "--dead-letters")

    assert shown[0][-2:] == ["reason", "description"]
    assert shown[1][4:7] == ["orders", "m-0", "s"]
    assert shown[1][-2:] == ["Gone", "there is no such queue"]
    assert shown[3] == ["2 messages, dead-lettered, shown. Nothing was taken."]
    assert first["dead_letter_reason"] == "Gone"
    assert first["dead_letter_description"] == "there is no such queue"
    assert first["problem"] is None


def test_peek_is_right_about_odd_messages(pairing: Pairing) -> None:
    poison(pairing)
    pairing.put("orders", [message("good")])

    shown = rows(backlog(pairing, "peek").stdout)
    none, wrong, nonsense, good = told(pairing, "peek")

    assert shown[0][-1] == "problem"
    assert shown[1][4:6] == ["nowhere", "no path"]
    assert shown[1][-1].startswith("would be dead-lettered: MissingPath: no x-ms-path")
    assert shown[2][4:6] == ["orders", "wrong"]
    assert "would be dead-lettered: WrongAlias: x-ms-timetolive must be a long" in shown[2][-1]
    assert shown[3][4] == "nowhere"
    assert shown[3][-1].startswith("would be dead-lettered: NotAMessage")
    assert shown[4][4:6] == ["orders", "good"]
    assert (none["destination"], none["problem"]) == (None, "MissingPath")
    assert (wrong["destination"], wrong["problem"]) == ("orders", "WrongAlias")
    assert wrong["time_to_live_ms"] is None
    assert (nonsense["sequence_number"], nonsense["problem"]) == (3, "NotAMessage")
    assert base64.b64decode(nonsense["body"]).endswith(NONSENSE)
    assert (good["problem"], good["body"]) == (None, "body")


def test_the_body_is_text_or_base64(pairing: Pairing) -> None:
    pairing.put("orders", [message("t", body="é".encode()), message("b", body=b"\xff\x00")])

    text, binary = told(pairing, "peek")

    assert (text["body"], text["body_encoding"]) == ("é", "text")
    assert (binary["body"], binary["body_encoding"]) == ("/wA=", "base64")
    assert text["application_properties"] == {"x-ms-path": "orders"}


def test_what_messages_say_does_nothing_to_a_terminal(pairing: Pairing) -> None:
    pairing.put("a[red]b\x1b[2J", [message("\x1b]0;title\x07[/]\r\n")])

    ended = backlog(pairing, "peek")

    assert ended.exit_code == 0
    assert rows(ended.stdout)[1][4:6] == ["a[red]b\\x1b[2J", "\\x1b]0;title\\x07[/]\\r\\n"]
    assert "a[red]b\\x1b[2J" in backlog(pairing, "destinations").stdout


def test_destinations_add_up_all_of_the_backlog(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}", body=b"x" * 100) for n in range(700)])
    pairing.put("bills", [message(f"b-{n}") for n in range(30)], queue=1)
    pairing.put("orders", [message(f"o-{n}") for n in range(20)], queue=1)
    before = pairing.peeks()

    shown = rows(as_process(pairing, "destinations").stdout)
    after = pairing.peeks()
    found = told(pairing, "destinations")

    assert shown[0] == ["destination", "messages", "size", "oldest"]
    assert shown[1][:2] == ["orders", "720"]
    assert shown[2][:2] == ["bills", "30"]
    assert shown[3] == ["750 messages, 0 without a destination. Nothing was taken."]
    assert after - before >= 750
    assert (found["messages"], found["without_destination"], found["complete"]) == (750, 0, True)
    orders, bills = found["destinations"]
    assert (orders["destination"], orders["messages"]) == ("orders", 720)
    assert orders["bytes"] > 70_000
    assert bills["oldest_age_seconds"] >= 0
    assert pairing.held() == 750


def test_destinations_tell_poison_apart(pairing: Pairing) -> None:
    poison(pairing)
    pairing.put("orders", [message(f"m-{n}") for n in range(2)])

    shown = rows(backlog(pairing, "destinations").stdout)
    found = told(pairing, "destinations")

    assert shown[1][:2] == ["orders", "2"]
    assert {(row[0], row[1], row[-1]) for row in shown[2:5]} == {
        ("nowhere", "1", "would be dead-lettered: MissingPath"),
        ("nowhere", "1", "would be dead-lettered: NotAMessage"),
        ("orders", "1", "would be dead-lettered: WrongAlias"),
    }
    assert shown[5] == ["5 messages, 2 without a destination. Nothing was taken."]
    assert found["without_destination"] == 2


def test_destinations_of_dead_letters(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(3)])
    pairing.bury(2, "Gone", "no such queue")

    found = told(pairing, "destinations", "--dead-letters")

    assert [(one["destination"], one["messages"]) for one in found["destinations"]] == [
        ("orders", 2)
    ]


def test_destinations_interrupted_show_what_was_found_so_far(
    pairing: Pairing, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(300)])

    def interrupt(self: PeekProgress, looked_at: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PeekProgress, "at", interrupt)
    ended = backlog(pairing, "destinations")

    assert ended.exit_code == 4
    assert "250 messages, 0 without a destination." in ended.stdout
    assert ended.stderr == "Stopped before all of the backlog was looked at.\n"


def test_ctrl_c_ends_destinations_of_a_namespace_that_hangs(
    pairing: Pairing, tmp_path: Path
) -> None:
    with paused_emulator(tmp_path) as emulator:
        given = pairing.given | {"PAIRBUS_SECONDARY": emulator.connection_string}
        words = ("backlog", "destinations", *pairing.options, "--timeout", "600")
        with Terminal(80, *words, **given) as terminal:
            wait_until(lambda: "looking at the backlog" in terminal.text, "the bar")
            terminal.interrupt()
            assert terminal.ended() == 4
        assert emulator.is_paused

    assert "Stopped before all of the backlog was looked at." in terminal.text


def test_on_a_terminal_destinations_have_a_bar_and_a_frame(pairing: Pairing) -> None:
    pairing.put("orders", [message(f"m-{n}") for n in range(300)])
    with Terminal(80, "backlog", "destinations", *pairing.options, **pairing.given) as terminal:
        assert terminal.ended() == 0

    assert re.search(r"looking at the backlog ━+", terminal.text)
    assert "300/300" in terminal.text
    assert "─────" in terminal.text
    assert re.search(r"orders +300 ", terminal.text)


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_no_line_of_a_message_is_cut_or_too_long(
    pairing: Pairing, columns: int
) -> None:
    long = "0123456789abcdef" * 4
    pairing.put("orders", [message(long, session="customer-17")])
    pairing.bury(1, "Gone", "there is no such queue, and there never was one of this name")
    words = ("backlog", "peek", "--dead-letters", *pairing.options)
    with Terminal(columns, *words, **pairing.given) as terminal:
        assert terminal.ended() == 0

    lines = terminal.text.splitlines()
    assert max(map(len, lines)) <= columns
    assert any(line.startswith(f"message id   {long[:60]}") for line in lines)
    assert any(line.startswith("reason       Gone") for line in lines)
    assert "one of this name" in " ".join(terminal.text.split())


@pytest.mark.parametrize("words", [["list"], ["peek"], ["destinations"]])
def test_a_secondary_that_is_down_or_frozen_is_a_sentence_and_status_1(
    pairing: Pairing, tmp_path: Path, words: list[str]
) -> None:
    with LocalNamespace("gone") as gone:
        down = gone.connection_string
    with paused_emulator(tmp_path) as emulator:
        ended = [
            backlog(pairing, *words, "--timeout", timeout, PAIRBUS_SECONDARY=text)
            for text, timeout in ((down, "5"), (emulator.connection_string, "0.5"))
        ]
        assert emulator.is_paused

    assert [(one.exit_code, one.stdout) for one in ended] == [(1, "")] * 2
    assert "cannot connect to localhost" in ended[0].stderr
    assert re.search("in vain|in time", ended[1].stderr)


def test_queues_that_are_not_there_are_a_sentence_and_status_1(pairing: Pairing) -> None:
    for words in (["list"], ["peek"], ["destinations"]):
        ended = run_here(
            *("backlog", *words, *pairing.options, "--primary-name", "other"), **pairing.given
        )
        assert (ended.exit_code, ended.stdout) == (1, "")
        assert ended.stderr == (
            "No backlog queue was found: other/x-servicebus-transfer/ has none in the secondary. "
            "Either no sender has paired yet, or the name of the primary is wrong.\n"
        )
    one = run_here("backlog", "peek", *pairing.options, "--queue", "9", **pairing.given)
    assert (one.exit_code, one.stdout) == (1, "")
    assert f"There is no queue {pairing.name}/x-servicebus-transfer/9." in one.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "--secondary", "nonsense", "--primary-name", "p"], "secondary: part 1"),
        (["list", "--secondary", TWO], "give --primary or --primary-name"),
        (["list", "--secondary", TWO, "--primary", LOCAL], "--primary-name"),
        (["list", "--secondary", TWO, "--primary", TWO], "one namespace"),
        (["list", "--primary", ONE], "--secondary"),
        (["--secondary", TWO, "--primary", ONE, "--backlog-queues", "0"], "--backlog-queues"),
        (["peek", "--secondary", TWO, "--primary", ONE, "--from", "5"], "--from needs --queue"),
        (["peek", "--secondary", TWO, "--primary", ONE, "--queue", ""], "--queue"),
        (["peek", "--secondary", TWO, "--primary", ONE, "--count", "0"], "--count"),
        (["peek", "--secondary", TWO, "--queue", "3"], "give --primary or --primary-name"),
        (["destinations", "--secondary", TWO, "--primary", ONE, "--timeout", "x"], "--timeout"),
        (["remove", "--secondary", TWO], "remove"),
    ],
)
def test_a_mistake_is_a_sentence_and_status_2(words: list[str], said: str) -> None:
    ended = run_here("backlog", *words)

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said in ended.stderr
