"""`pairbus syphon`: drain the backlog with Spark."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console

from pairbus.cli.configuration_options import ConfigFileOfAll, PairingNameOfAll
from pairbus.cli.console import check_java, consoles, print_error, print_warning
from pairbus.cli.default_paths import ledger_folder
from pairbus.cli.network_options import CaFile, NetworkOptions, ProxyUrl, Transport
from pairbus.cli.pairing_options import (
    DEFAULT_BACKLOG_QUEUES,
    BacklogQueues,
    PairingSettings,
    PrimaryName,
    SyphonPrimary,
    SyphonSecondary,
    required,
    uses_entra,
)
from pairbus.cli.syphon_dry_run import print_dry_run
from pairbus.cli.syphon_run import DRAINED, FAILED, STOPPED, SyphonRun
from pairbus.cli.threads import run_in_thread
from pairbus.errors import ConfigurationError, PairbusError

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions

USAGE_ERROR = 2
EXAMPLE = "Example: PAIRBUS_PRIMARY=… PAIRBUS_SECONDARY=… pairbus syphon --once"

app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")


@app.callback(epilog=EXAMPLE)
def syphon(
    context: typer.Context,
    primary: SyphonPrimary = None,
    secondary: SyphonSecondary = None,
    primary_name: PrimaryName = None,
    backlog_queues: BacklogQueues = DEFAULT_BACKLOG_QUEUES,
    config: ConfigFileOfAll = None,
    pairing: PairingNameOfAll = None,
    transport: Transport = "tcp",
    proxy: ProxyUrl = None,
    ca_file: CaFile = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when every backlog queue is empty.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show what would be moved, by destination, without moving it or starting Spark.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Move only messages for this queue or topic. Can be repeated."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help='Move only messages for which this SQL expression is true, such as "destination '
            "= 'orders' AND subject LIKE 'new%'\". docs/syphon.md lists the columns. Other "
            "messages stay in the backlog.",
        ),
    ] = None,
    max_rate: Annotated[
        float | None, typer.Option(help="Maximum number of messages a second.", min=0.001)
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            help="Folder for Parquet files with every moved message. A message may be in it twice, "
            "and is never missing.",
            file_okay=False,
        ),
    ] = None,
    ttl: Annotated[
        str,
        typer.Option(
            help="Time-to-live after the drain. restore: the full original value. deduct: the "
            "original minus the time spent in the backlog."
        ),
    ] = "restore",
    poll: Annotated[
        float,
        typer.Option(help="Timeout of a receive from an empty queue, in seconds.", min=1, max=3600),
    ] = 900,
    master: Annotated[
        str | None,
        typer.Option(
            help="URL of a Spark master. By default Spark runs on this machine, in local mode."
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Folder for the checkpoint of the Spark query.", show_default="temporary"
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the ledger of billable operations; see `pairbus cost report`.",
            show_default="$XDG_STATE_HOME/pairbus/ledger",
            file_okay=False,
        ),
    ] = None,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Write no ledger.")] = False,
    stuck_after: Annotated[
        float,
        typer.Option(
            help="Seconds without progress after which the syphon is reported as stuck.", min=1
        ),
    ] = 120,
    status_file: Annotated[
        Path | None,
        typer.Option(
            help="Write the syphon's health to this JSON file, once a second: running, healthy, "
            "problem, moved, dead_lettered, remaining, errors, rate, seconds_to_go, time. The file "
            "is replaced atomically.",
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Move the backlog of a pairing to its destinations in the primary, on Spark.

    Runs until Ctrl-C, which finishes the current batch. A second Ctrl-C stops at once.

    With --once, runs until every backlog queue is empty, and waits for messages that another
    receiver has locked. With --only and --where, other messages may stay.

    Exit status: 0 drained, or stopped without --once; 1 failed; 2 invalid option; 3 stuck: messages
    remain, and there is no progress; 4 stopped before --once was complete.
    """
    if context.invoked_subcommand is not None:
        return
    from pairbus.syphon.options import TimeToLive

    out, err = consoles()
    try:
        settings = PairingSettings(
            primary=required("primary", primary),
            secondary=required("secondary", secondary),
            primary_name=primary_name,
            backlog_queues=backlog_queues,
            network=NetworkOptions(transport, proxy, ca_file),
        )
        options = _syphon_options(
            settings,
            only=tuple(only or ()),
            where=where,
            max_rate=max_rate,
            archive=None if archive is None else str(archive.absolute()),
            ttl=cast(TimeToLive, ttl),
            poll=timedelta(seconds=poll),
            stuck_after=timedelta(seconds=stuck_after),
            ledger=None if no_ledger else str((ledger or ledger_folder()).absolute()),
        )
        _check_status_file(status_file)
        if dry_run and where is not None:
            raise ConfigurationError(
                "--dry-run does not start Spark, which --where needs. Use one of them."
            )
    except PairbusError as exc:
        print_error(err, exc)
        raise typer.Exit(USAGE_ERROR) from exc
    if not dry_run and not check_java(err):
        raise typer.Exit(FAILED)
    try:
        _warn_of_other_queues(err, options)
        if dry_run:
            status = print_dry_run(out, err, options)
        else:
            run = SyphonRun(options, master, checkpoint, once=once, status_file=status_file)
            status = run.run(out, err)
    except KeyboardInterrupt:
        print_warning(err, "Stopped.")
        status = STOPPED if once or dry_run else DRAINED
    raise typer.Exit(status)


def _syphon_options(settings: PairingSettings, **fields: Any) -> "SyphonOptions":
    """Return the options of a syphon for a pairing. Raises ConfigurationError."""
    from pairbus.amqp.client import ClientOptions
    from pairbus.amqp.client.default_credential import default_credential
    from pairbus.servicebus.namespace_access import NamespaceAccess
    from pairbus.syphon.options import SyphonOptions

    # Checks the same values first, with errors in the terms of the command line.
    settings.target(30, needs_primary=True)
    primary, secondary = settings.primary, settings.secondary
    assert primary is not None
    credential = default_credential() if uses_entra(primary, secondary) else None
    network = settings.network.client_fields()
    return SyphonOptions(
        primary=ClientOptions.from_access(NamespaceAccess.parse(primary, credential), **network),
        secondary=ClientOptions.from_access(
            NamespaceAccess.parse(secondary, credential), **network
        ),
        primary_name=settings.primary_name,
        backlog_queue_count=settings.backlog_queues,
        **fields,
    )


def _check_status_file(path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise ConfigurationError(
            f"--status-file: the folder {path.parent} does not exist. Create it first."
        )


def _warn_of_other_queues(err: Console, options: "SyphonOptions") -> None:
    """Name the backlog queues that exist and are not drained, if the queues can be listed."""
    from pairbus.backlog.discovery import describe_queues
    from pairbus.syphon.counts import unread_queues

    count = options.backlog_queue_count
    unread = run_in_thread(
        lambda: unread_queues(options.secondary, options.name or "", count, options.usage)
    )
    if unread:
        names, single = describe_queues(unread), len(unread) == 1
        print_warning(
            err,
            f"{names[0].upper()}{names[1:]} {'exists' if single else 'exist'}, but "
            f"{'is' if single else 'are'} not drained, because --backlog-queues is {count}. Stop "
            f"the syphon and start it with --backlog-queues {max(unread) + 1}.",
        )
