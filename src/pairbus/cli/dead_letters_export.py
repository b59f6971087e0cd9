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
    DeadLetterPrimary,
    DeadLetterSecondary,
    Destinations,
    Entities,
    LedgerFolder,
    MaxCount,
    Namespace,
    NoLedger,
    Queues,
    Reasons,
    Since,
    SourceOptions,
    Until,
    choice_of,
    usage_of,
)
from pairbus.cli.dead_letters_screen import RedriveScreen, dead_letters
from pairbus.cli.network_options import CaFile, NetworkOptions, ProxyUrl, Transport
from pairbus.cli.pairing_options import ExpectedQueues, PrimaryName, Timeout

EXAMPLE = "Example: PAIRBUS_PRIMARY=… pairbus dead-letters export --entity orders -o orders.jsonl"


def export(
    primary: DeadLetterPrimary = None,
    secondary: DeadLetterSecondary = None,
    primary_name: PrimaryName = None,
    backlog_queues: ExpectedQueues = 10,
    entity: Entities = None,
    namespace: Namespace = "primary",
    queue: Queues = None,
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
    reason: Reasons = None,
    destination: Destinations = None,
    since: Since = None,
    until: Until = None,
    count: MaxCount = None,
    ledger: LedgerFolder = None,
    no_ledger: NoLedger = False,
    timeout: Timeout = 30,
    transport: Transport = "tcp",
    proxy: ProxyUrl = None,
    ca_file: CaFile = None,
) -> None:
    """Write dead letters to a file, one JSON object in each line, without receiving them.

    Each has all properties, the body, and in `payload` the bytes of the whole AMQP message in
    base64, from which it can be restored exactly. Needs the Listen right. Costs one operation for
    each dead letter.

    Exit status: 0 done; 1 failed; 2 invalid option.
    """
    _, err = consoles()
    options = SourceOptions(
        primary=primary,
        secondary=secondary,
        primary_name=primary_name,
        backlog_queues=backlog_queues,
        entities=entity,
        namespace=namespace,
        queues=queue,
        timeout_s=timeout,
        network=NetworkOptions(transport, proxy, ca_file),
    )

    def run() -> int:
        choice = choice_of(reason, destination, since, until, count)
        source = options.source(err)
        if source is None:
            return FAILED
        usage = usage_of(source, ledger, no_ledger=no_ledger)
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
