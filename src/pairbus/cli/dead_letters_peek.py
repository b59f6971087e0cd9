"""`pairbus dead-letters peek`: single dead letters."""

from typing import Annotated

import typer

from pairbus.backlog.dead_letter_peek import peek_dead_letters
from pairbus.cli.backlog_command import DONE, FAILED, now_ms
from pairbus.cli.backlog_screen import print_messages
from pairbus.cli.console import consoles, print_json
from pairbus.cli.dead_letters_command import run_command
from pairbus.cli.dead_letters_options import (
    DeadLetterPrimary,
    DeadLetterSecondary,
    Destinations,
    Entities,
    LedgerFolder,
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
from pairbus.cli.network_options import CaFile, NetworkOptions, ProxyUrl, Transport
from pairbus.cli.pairing_options import ExpectedQueues, PrimaryName, Timeout
from pairbus.errors import ConfigurationError

EXAMPLE = "Example: PAIRBUS_PRIMARY=… pairbus dead-letters peek --entity orders --count 5"


def peek(
    primary: DeadLetterPrimary = None,
    secondary: DeadLetterSecondary = None,
    primary_name: PrimaryName = None,
    backlog_queues: ExpectedQueues = 10,
    entity: Entities = None,
    namespace: Namespace = "primary",
    queue: Queues = None,
    reason: Reasons = None,
    destination: Destinations = None,
    since: Since = None,
    until: Until = None,
    count: Annotated[int, typer.Option(min=1, help="Maximum number of messages.")] = 10,
    from_sequence: Annotated[
        int | None,
        typer.Option("--from", min=1, help="Sequence number to start from; for one queue only."),
    ] = None,
    ledger: LedgerFolder = None,
    no_ledger: NoLedger = False,
    timeout: Timeout = 30,
    transport: Transport = "tcp",
    proxy: ProxyUrl = None,
    ca_file: CaFile = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print JSON instead of tables: all properties, and the body as text or base64.",
        ),
    ] = False,
) -> None:
    """Show dead letters without receiving them. Bodies are shown with --json only.

    Without --entity, those of the backlog queues. Needs the Listen right. Costs one operation for
    each dead letter that is read, also those that a filter leaves out.

    Exit status: 0 done; 1 failed; 2 invalid option.
    """
    out, err = consoles()
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
        if from_sequence is not None and len(source.entities) > 1:
            raise ConfigurationError(
                "--from needs one --entity or one --queue, because every queue has its own "
                "sequence numbers."
            )
        messages = list(
            peek_dead_letters(
                source,
                choice=choice,
                usage=usage_of(source, ledger, no_ledger=no_ledger),
                from_sequence=from_sequence or 1,
            )
        )
        time_ms = now_ms()
        if as_json:
            print_json([message.to_json(time_ms) for message in messages])
        else:
            print_messages(out, messages, time_ms, dead_letters=True)
        return DONE

    run_command(err, run)
