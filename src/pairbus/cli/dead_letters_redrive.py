"""`pairbus dead-letters redrive`: move dead letters back to where they were going."""

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console

from pairbus.backlog.dead_letter_peek import plan_redrive
from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.duplicate_detection import duplicate_windows
from pairbus.backlog.redrive_journal import RedriveJournal
from pairbus.cli.backlog_command import DONE, FAILED
from pairbus.cli.console import consoles, print_warning
from pairbus.cli.dead_letters_command import run_command
from pairbus.cli.dead_letters_options import (
    ChosenLetters,
    DeadLetterQueues,
    LedgerOptions,
    MaxCount,
    MaxRate,
)
from pairbus.cli.dead_letters_screen import RedriveScreen, dead_letters, print_plan
from pairbus.cli.default_paths import redrive_folder
from pairbus.cli.formatting import utc_time
from pairbus.cli.network_options import NetworkOptions
from pairbus.cli.option_groups import with_option_groups
from pairbus.cli.pairing_options import AsJson, Timeout
from pairbus.cli.redrive_run import RedriveRun
from pairbus.errors import ConfigurationError, EntityNotFound
from pairbus.spark.usage import UsageRecorder

EXAMPLE = (
    "Example: PAIRBUS_PRIMARY=… PAIRBUS_SECONDARY=… pairbus dead-letters redrive --reason "
    "EntityNotFound --dry-run"
)


@with_option_groups
def redrive(
    *,
    queues: DeadLetterQueues,
    chosen: ChosenLetters,
    count: MaxCount = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Send all of them to this queue or topic instead. Needed for a subscription, and "
            "for backlog messages without a destination."
        ),
    ] = None,
    ignore_duplicate_detection: Annotated[
        bool,
        typer.Option(
            "--ignore-duplicate-detection",
            help="Do not check if the queue or topic that the dead letters return to has duplicate "
            "detection, which would drop them. The check needs the Manage right.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show how many would be moved to which destination, and how many would stay "
            "because of duplicate detection.",
        ),
    ] = False,
    max_rate: MaxRate = None,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Take the dead letters that are there now, instead of continuing a redrive that "
            "was interrupted.",
        ),
    ] = False,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark",
            help="Run on Spark, with one task for each dead-letter queue.",
            show_default="above 100,000 messages in several queues",
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="URL of a Spark master, or of a Spark Connect server (sc://…). By default Spark "
            "runs on this machine, in local mode."
        ),
    ] = None,
    ledger: LedgerOptions,
    timeout: Timeout = 30,
    network: NetworkOptions,
    as_json: AsJson = False,
) -> None:
    """Move dead letters back to where they were going, as they were sent.

    Without --entity, those of the backlog queues, to their destinations in the primary. A dead
    letter of a queue goes to that queue again. Takes the dead letters that are there when it
    starts. Each is completed after its destination has accepted it. One that its destination
    refuses stays, and does not stop the others.

    Ctrl-C finishes the current messages; a second one stops at once. Run the same command again to
    continue with the same messages.

    Needs the Listen right on the entity or the backlog queues, and the Send right on the
    destinations; for dead letters that return to their own queue or topic also the Manage right,
    to check its duplicate detection. Costs four operations for each dead letter: peek, receive,
    send, complete; and with a filter three for each other one in front of them.

    Exit status: 0 done; 1 failed; 2 invalid option; 3 some stay: refused, or their destination
    does not accept messages; 4 stopped.
    """
    out, err = consoles()

    def run() -> int:
        if spark is False and master is not None:
            raise ConfigurationError("Use --master or --no-spark, not both.")
        choice = chosen.choice(count)
        source = queues.source(err, timeout, network, to=to)
        if source is None:
            return FAILED
        source = replace(source, ignore_duplicate_detection=ignore_duplicate_detection)
        source.require_destinations()
        usage = ledger.usage(source)
        journal = RedriveJournal(redrive_folder(), source, choice, (chosen.since, chosen.until))
        interrupted = None if restart or dry_run else journal.load()
        windows = _windows(err, source, usage) if dry_run else {}
        with RedriveScreen(err, "reading dead letters", None) as screen:
            plan = plan_redrive(
                source,
                choice=choice,
                within=interrupted,
                windows=windows,
                usage=usage,
                on_peeked=screen.show_count,
            )
        if dry_run:
            print_plan(out, plan, purge=False, windows=windows)
            return DONE
        if interrupted is not None:
            print_warning(
                err,
                f"Continuing the redrive of {utc_time(interrupted.taken_ms)} UTC: "
                f"{dead_letters(len(plan))} of {len(interrupted):,} are left. Later ones are not "
                "taken. For a new redrive, add --restart.",
            )
        if not len(plan):
            journal.remove()
            out.print("There are no dead letters to move.")
            return DONE
        journal.save(plan)
        redrive_run = RedriveRun(source, plan, usage, max_rate=max_rate, as_json=as_json)
        status, finished = redrive_run.run(out, err, spark=spark, master=master)
        if finished:
            journal.remove()
        return status

    run_command(err, run)


def _windows(err: Console, source: DeadLetterSource, usage: UsageRecorder) -> dict[str, timedelta]:
    """Return the time windows of duplicate detection. A dry run goes on if they cannot be read."""
    try:
        return duplicate_windows(source, usage)
    except EntityNotFound:
        return {}  # The peek that follows names the entity.
    except ConfigurationError as exc:
        print_warning(err, exc)
        return {}
