"""`pairbus dead-letters peek`: single dead letters."""

from typing import Annotated

import typer

from pairbus.backlog.dead_letter_peek import peek_dead_letters
from pairbus.cli.backlog_command import DONE, FAILED, now_ms
from pairbus.cli.backlog_screen import print_messages
from pairbus.cli.console import consoles, print_json
from pairbus.cli.dead_letters_command import run_command
from pairbus.cli.dead_letters_options import ChosenLetters, DeadLetterQueues, LedgerOptions
from pairbus.cli.network_options import NetworkOptions
from pairbus.cli.option_groups import with_option_groups
from pairbus.cli.pairing_options import MessagesAsJson, PeekCount, Timeout
from pairbus.errors import ConfigurationError

EXAMPLE = "Example: PAIRBUS_PRIMARY=… pairbus dead-letters peek --entity orders --count 5"


@with_option_groups
def peek(
    *,
    queues: DeadLetterQueues,
    chosen: ChosenLetters,
    count: PeekCount = 10,
    from_sequence: Annotated[
        int | None,
        typer.Option("--from", min=1, help="Sequence number to start from; for one queue only."),
    ] = None,
    ledger: LedgerOptions,
    timeout: Timeout = 30,
    network: NetworkOptions,
    as_json: MessagesAsJson = False,
) -> None:
    """Show dead letters without receiving them. Bodies are shown with --json only.

    Without --entity, those of the backlog queues. Needs the Listen right. Costs one operation for
    each dead letter that is read, also those that a filter leaves out.

    Exit status: 0 done; 1 failed; 2 invalid option.
    """
    out, err = consoles()

    def run() -> int:
        choice = chosen.choice(count)
        source = queues.source(err, timeout, network)
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
                usage=ledger.usage(source),
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
