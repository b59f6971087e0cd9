"""The commands of a console: parsed with care, and carried out once."""

import json
from typing import Any

import pytest

from pairbus.errors import ProtocolError
from pairbus.pairing.console_commands import (
    MAX_COMMANDS,
    MAX_ID,
    MAX_REMEMBERED,
    CommandLog,
    MarkHealthy,
    parse_answer,
)

pytestmark = pytest.mark.rule("O4")

MARK = {"id": "1", "action": "mark-healthy", "path": "orders"}


def answer(*commands: Any) -> bytes:
    return json.dumps({"commands": commands}).encode()


def command(number: int) -> MarkHealthy:
    return MarkHealthy(str(number), "orders")


def test_commands_are_parsed_in_their_order() -> None:
    second = MARK | {"id": "2", "path": "Größe/東京", "of a later version": 1}

    commands = parse_answer(answer(MARK, second))

    assert commands == [MarkHealthy("1", "orders"), MarkHealthy("2", "Größe/東京")]


@pytest.mark.parametrize("body", [b"{}", b'{"commands": null}', b'{"commands": {"id": "1"}}'])
def test_answer_without_commands_is_valid(body: bytes) -> None:
    assert parse_answer(body) == []


@pytest.mark.parametrize(
    "ignored",
    [
        MARK | {"action": "stop"},
        MARK | {"action": ["mark-healthy"]},
        MARK | {"id": 1},
        MARK | {"id": ""},
        MARK | {"id": "x" * (MAX_ID + 1)},
        MARK | {"id": "1\r\n2"},
        MARK | {"path": None},
        {"id": "1", "action": "mark-healthy"},
        "mark-healthy",
        None,
        [],
    ],
)
def test_command_that_is_not_understood_is_ignored(ignored: Any) -> None:
    assert parse_answer(answer(ignored, MARK)) == [MarkHealthy("1", "orders")]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"\x00\xff\xfe",
        b"[]",
        b"null",
        b'"commands"',
        b"[" * 60_000,
        b'{"a":' * 12_000,
        b'{"number": ' + b"9" * 60_000 + b"}",
        b'{"commands": [',
    ],
)
def test_answer_that_is_not_that_of_a_console_is_an_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="the answer is not"):
        parse_answer(body)


def test_answer_with_too_many_commands_is_cut_off() -> None:
    commands = parse_answer(answer(*[MARK | {"id": str(number)} for number in range(1000)]))

    assert len(commands) == MAX_COMMANDS


def test_command_is_carried_out_once_and_reported_until_a_report_is_answered() -> None:
    log = CommandLog()
    assert log.begin(command(1))
    assert not log.begin(command(1))  # repeated, while it is carried out
    assert log.unreported() == []

    log.finish("1")

    assert log.unreported() == log.unreported() == ["1"]
    assert not log.begin(command(1))
    log.reported(["1"])
    assert log.unreported() == []


def test_command_that_the_console_repeats_is_reported_again_and_not_carried_out() -> None:
    log = CommandLog()
    log.begin(command(1))
    log.finish("1")
    log.reported(log.unreported())

    assert not log.begin(command(1))
    assert log.unreported() == ["1"]


def test_commands_that_are_not_carried_out_are_bounded() -> None:
    log = CommandLog()

    begun = [log.begin(command(number)) for number in range(1000)]

    assert begun.count(True) == MAX_COMMANDS
    log.finish("0")
    assert log.begin(command(2000))
    assert not log.begin(command(2001))


def test_memory_of_finished_commands_is_bounded() -> None:
    log = CommandLog()
    for number in range(5 * MAX_REMEMBERED):
        assert log.begin(command(number))
        log.finish(str(number))

    assert len(log.unreported()) == MAX_COMMANDS
    assert len(log._known) <= MAX_REMEMBERED + 1
    assert len(log._unreported) <= MAX_REMEMBERED + 1
    assert not log.begin(command(5 * MAX_REMEMBERED - 1))
