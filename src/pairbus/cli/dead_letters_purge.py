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
    ChosenLetters,
    DeadLetterQueues,
    LedgerOptions,
    MaxCount,
    MaxRate,
)
from pairbus.cli.dead_letters_screen import (
    RedriveScreen,
    dead_letters,
    print_outcome,
    print_plan,
)
from pairbus.cli.network_options import NetworkOptions
from pairbus.cli.option_groups import with_option_groups
from pairbus.cli.pairing_options import AsJson, Timeout

INCOMPLETE = 3
EXAMPLE = "Example: PAIRBUS_PRIMARY=… pairbus dead-letters purge --entity orders --until 30d"


@with_option_groups
def purge(
    *,
    queues: DeadLetterQueues,
    chosen: ChosenLetters,
    count: MaxCount = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show how many would be deleted.")
    ] = False,
    max_rate: MaxRate = None,
    ledger: LedgerOptions,
    timeout: Timeout = 30,
    network: NetworkOptions,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters for good, after a confirmation. Later ones stay.

    Needs the Listen right. Costs three operations for each dead letter: peek, receive, complete.

    Exit status: 0 done; 1 failed; 2 invalid option; 3 some stay, because another receiver has
    locked them; 4 not confirmed, or stopped.
    """
    out, err = consoles()

    def run() -> int:
        choice = chosen.choice(count)
        source = queues.source(err, timeout, network)
        if source is None:
            return FAILED
        usage = ledger.usage(source)
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
