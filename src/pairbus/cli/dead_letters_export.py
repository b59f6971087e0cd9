"""`pairbus dead-letters export`: dead letters as JSON lines."""

import base64
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TextIO

import typer

from pairbus.backlog.dead_letter_peek import peek_dead_letters
from pairbus.backlog.message import BacklogMessage
from pairbus.cli.backlog_command import DONE, FAILED, now_ms
from pairbus.cli.console import consoles, print_error
from pairbus.cli.dead_letters_command import run_command
from pairbus.cli.dead_letters_options import (
    ChosenLetters,
    DeadLetterQueues,
    LedgerOptions,
    MaxCount,
)
from pairbus.cli.dead_letters_screen import RedriveScreen, dead_letters
from pairbus.cli.network_options import NetworkOptions
from pairbus.cli.option_groups import with_option_groups
from pairbus.cli.pairing_options import Timeout

EXAMPLE = "Example: PAIRBUS_PRIMARY=… pairbus dead-letters export --entity orders -o orders.jsonl"


@with_option_groups
def export(
    *,
    queues: DeadLetterQueues,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write. It is replaced when the export is complete.",
            show_default="standard output",
            dir_okay=False,
        ),
    ] = None,
    chosen: ChosenLetters,
    count: MaxCount = None,
    ledger: LedgerOptions,
    timeout: Timeout = 30,
    network: NetworkOptions,
) -> None:
    """Write dead letters to a file, one JSON object in each line, without receiving them.

    Each has all properties, the body, and in `payload` the bytes of the whole AMQP message in
    base64, from which it can be restored exactly. Needs the Listen right. Costs one operation for
    each dead letter.

    Exit status: 0 done; 1 failed; 2 invalid option.
    """
    _, err = consoles()

    def run() -> int:
        choice = chosen.choice(count)
        source = queues.source(err, timeout, network)
        if source is None:
            return FAILED
        usage = ledger.usage(source)
        with RedriveScreen(err, "reading dead letters", None) as screen:
            messages = peek_dead_letters(
                source, choice=choice, usage=usage, on_peeked=screen.show_count
            )
            try:
                written = _write(messages, output)
            except OSError as exc:
                print_error(err, f"{output or 'Standard output'} cannot be written: {exc.strerror}")
                return FAILED
        err.print(f"{dead_letters(written)} exported. Nothing was received or moved.")
        return DONE

    run_command(err, run)


def _write(messages: Iterable[BacklogMessage], output: Path | None) -> int:
    if output is None:
        return write_lines(messages, sys.stdout)
    part = output.with_name(f"{output.name}.part")
    with part.open("w", encoding="utf-8") as file:
        written = write_lines(messages, file)
    part.replace(output)
    return written


def write_lines(messages: Iterable[BacklogMessage], file: TextIO) -> int:
    """Write messages as JSON lines, and return how many there were."""
    written = 0
    time_ms = now_ms()
    for message in messages:
        values = message.to_json(time_ms)
        del values["age_seconds"]
        values["payload"] = base64.b64encode(message.payload).decode()
        file.write(f"{json.dumps(values, ensure_ascii=False)}\n")
        written += 1
    return written
