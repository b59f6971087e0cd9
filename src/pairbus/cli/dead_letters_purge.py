"""`pairbus dead-letters purge`: delete dead letters."""

from typing import Annotated

import typer
from rich.console import Console

from pairbus.backlog.dead_letter_peek import plan_redrive
from pairbus.backlog.redrive import purge as purge_dead_letters
from pairbus.cli.backlog_command import DONE, FAILED, STOPPED
from pairbus.cli.cancellation import cancel_on_signal
from pairbus.cli.console import consoles, print_json, print_warning
from pairbus.cli.dead_letters_command import run_command, where
from pairbus.cli.dead_letters_options import (
    DeadLetterPrimary,
    DeadLetterSecondary,
    Destinations,
    Entities,
    LedgerFolder,
    MaxCount,
    MaxRate,
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
from pairbus.cli.dead_letters_screen import (
    RedriveScreen,
    dead_letters,
    print_outcome,
    print_plan,
)
from pairbus.cli.network_options import CaFile, NetworkOptions, ProxyUrl, Transport
from pairbus.cli.pairing_options import AsJson, ExpectedQueues, PrimaryName, Timeout

INCOMPLETE = 3
EXAMPLE = "Example: PAIRBUS_PRIMARY=… pairbus dead-letters purge --entity orders --until 30d"


def purge(
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
    count: MaxCount = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show how many would be deleted.")
    ] = False,
    max_rate: MaxRate = None,
    ledger: LedgerFolder = None,
    no_ledger: NoLedger = False,
    timeout: Timeout = 30,
    transport: Transport = "tcp",
    proxy: ProxyUrl = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters for good, after a confirmation. Later ones stay.

    Needs the Listen right. Costs three operations for each dead letter: peek, receive, complete.

    Exit status: 0 done; 1 failed; 2 invalid option; 3 some stay, because another receiver has
    locked them; 4 not confirmed, or stopped.
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
        usage = usage_of(source, ledger, no_ledger=no_ledger)
        with RedriveScreen(err, "reading dead letters", None) as screen:
            plan = plan_redrive(source, choice=choice, usage=usage, on_peeked=screen.show_count)
        if dry_run:
            print_plan(out, plan, purge=True)
            return DONE
        if not len(plan):
            out.print("There are no dead letters to delete.")
            return DONE
        if not yes and not _confirm(err, len(plan), where(source), plan.others):
            print_warning(err, "Nothing was deleted.")
            return STOPPED
        with (
            cancel_on_signal() as cancel,
            RedriveScreen(err, "deleting", len(plan), quiet=as_json) as screen,
        ):
            outcome = purge_dead_letters(
                source, plan, max_rate=max_rate, usage=usage, cancel=cancel, on_progress=screen.show
            )
        if as_json:
            print_json(outcome.to_json())
        else:
            print_outcome(out, err, outcome, purge=True)
        if outcome.cancelled:
            return STOPPED
        return DONE if outcome.finished else INCOMPLETE

    run_command(err, run)


def _confirm(err: Console, count: int, place: str, others: int) -> bool:
    stay = f" {others:,} others stay." if others else ""
    err.print(
        f"{dead_letters(count)} of {place} will be deleted and cannot be restored.{stay} To keep a "
        "copy, run `pairbus dead-letters export` first.",
        markup=False,
    )
    try:
        return typer.confirm("Delete them?", err=True)
    except typer.Abort:  # the end of standard input, or Ctrl-C
        return False
