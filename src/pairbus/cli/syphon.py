"""`pairbus syphon`: drain the backlog with Spark."""

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pairbus.backlog.configuration import Configuration
from pairbus.backlog.syphon_control import ControlFile
from pairbus.cli import syphon_control
from pairbus.cli.configuration_options import (
    ConfigFileOfAll,
    PairingNameOfAll,
    loaded_configuration,
    selected_section,
)
from pairbus.cli.console import consoles, print_error, print_warning
from pairbus.cli.default_paths import chosen_ledger
from pairbus.cli.default_paths import control_file as default_control_file
from pairbus.cli.durations import parse_optional_duration
from pairbus.cli.metrics_options import MetricsOptions
from pairbus.cli.network_options import CaFile, NetworkOptions, ProxyUrl, Transport
from pairbus.cli.option_errors import with_option
from pairbus.cli.option_groups import with_option_groups
from pairbus.cli.other_queues import warn_of_other_queues
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
from pairbus.cli.spark_requirements import check_spark
from pairbus.cli.syphon_dry_run import run_dry_run
from pairbus.cli.syphon_pairings import PairingsRun
from pairbus.cli.syphon_run import SyphonRun
from pairbus.cli.syphon_status_file import DRAINED, FAILED, STOPPED, USAGE_ERROR
from pairbus.errors import ConfigurationError, PairbusError

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions

EXAMPLE = "Example: PAIRBUS_PRIMARY=… PAIRBUS_SECONDARY=… pairbus syphon --once"

app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")
app.add_typer(syphon_control.app, name="control")


@app.callback(epilog=EXAMPLE)
@with_option_groups
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
            help="Show what would be moved, by destination, without moving it. Starts Spark only "
            "for --where.",
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
            "= 'orders' AND subject LIKE 'new%'\". The page Columns of the documentation lists the "
            "columns. Other messages stay in the backlog.",
        ),
    ] = None,
    max_rate: Annotated[
        float | None, typer.Option(help="Maximum number of messages a second.", min=0.001)
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            help="Folder for files with every moved message. A message may be in it twice, and is "
            "never missing.",
            file_okay=False,
        ),
    ] = None,
    archive_format: Annotated[
        str | None,
        typer.Option(
            metavar="[parquet|orc|json|csv]",
            help="Format of the --archive. Others need a query that follows the archive.",
            show_default="parquet",
        ),
    ] = None,
    control_file: Annotated[
        Path | None,
        typer.Option(
            help="File through which `pairbus syphon control` pauses the syphon and changes its "
            "rates.",
            show_default="$XDG_STATE_HOME/pairbus/control/PRIMARY-NAME.json",
            dir_okay=False,
        ),
    ] = None,
    ttl: Annotated[
        str,
        typer.Option(
            help="Time-to-live after the drain. restore: the full original value. deduct: the "
            "original minus the time spent in the backlog."
        ),
    ] = "restore",
    missing_destination_grace: Annotated[
        str,
        typer.Option(
            help="Time that messages wait in the backlog for a destination that does not exist, "
            "before they are dead-lettered: a duration such as 90s or 2h, 0 or forever. Counted "
            "from the first attempt of this run."
        ),
    ] = "1h",
    poll: Annotated[
        float,
        typer.Option(help="Timeout of a receive from an empty queue, in seconds.", min=1, max=3600),
    ] = 900,
    master: Annotated[
        str | None,
        typer.Option(
            help="URL of a Spark master, or of a Spark Connect server (sc://…). By default Spark "
            "runs on this machine, in local mode."
        ),
    ] = None,
    executor_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds after which the syphon fails if messages wait and Spark has no executor, "
            "so that a supervisor can start it again. 0: wait for ever.",
            min=0,
        ),
    ] = 300,
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
            help="Write the syphon's health to this JSON file, once a second: running, ended, "
            "healthy, paused, problem, moved, dead_lettered, dead_letter_reasons, remaining, "
            "errors, throttled_sends, throttled_receives, rate, seconds_to_go, time. The file is "
            "replaced atomically.",
            dir_okay=False,
        ),
    ] = None,
    *,
    metrics: MetricsOptions,
) -> None:
    """Move the backlog of a pairing to its destinations in the primary, on Spark.

    With a configuration file of several pairings and without --pairing, it drains all of them in
    one Spark session. One that fails does not end the others; the exit status is the worst.

    Runs until Ctrl-C, which finishes the current batch. A second Ctrl-C stops at once.

    With --once, runs until every backlog queue is empty, and waits for messages that another
    receiver has locked. With --only and --where, other messages may stay.

    Exit status: 0 drained, or stopped without --once; 1 failed; 2 invalid option; 3 stuck: messages
    remain, and there is no progress; 4 stopped before --once was complete; 5 drained with --once,
    but some messages were dead-lettered.
    """
    if context.invoked_subcommand is not None:
        return
    from pairbus.syphon.options import ArchiveFormat, TimeToLive

    out, err = consoles()
    try:
        network = NetworkOptions(transport, proxy, ca_file)
        if archive_format is not None and archive is None:
            raise ConfigurationError("--archive-format needs --archive FOLDER.")
        if "" in (only or ()):
            raise ConfigurationError("--only needs the path of a queue or topic, such as orders.")
        ledger_path = chosen_ledger(ledger, no_ledger=no_ledger)
        fields: dict[str, Any] = {
            "only": tuple(only or ()),
            "where": where,
            "max_rate": max_rate,
            "control_file": None if control_file is None else str(control_file.absolute()),
            "archive": None if archive is None else str(archive.absolute()),
            "archive_format": cast(ArchiveFormat, archive_format or "parquet"),
            "ttl": cast(TimeToLive, ttl),
            "missing_destination_grace": parse_optional_duration(
                "missing-destination-grace", missing_destination_grace, "forever"
            ),
            "poll": timedelta(seconds=poll),
            "stuck_after": timedelta(seconds=stuck_after),
            "ledger": None if ledger_path is None else str(ledger_path.absolute()),
        }
        configuration = loaded_configuration(context)
        section = selected_section(context)
        if configuration is not None and section is None and not (primary or secondary):
            pairings = _all_pairings(configuration, network, backlog_queues, fields)
        else:
            settings = PairingSettings(
                primary=required("primary", primary),
                secondary=required("secondary", secondary),
                primary_name=primary_name,
                backlog_queues=backlog_queues,
                network=network,
            )
            fields["max_rates"] = {} if section is None else section.max_rates
            pairings = {"": _syphon_options(settings, **fields)}
        _check_status_file(status_file)
        for options in pairings.values():
            _control_settings(options)
        endpoint = None if dry_run else metrics.open()
    except PairbusError as exc:
        print_error(err, with_option(exc))
        raise typer.Exit(USAGE_ERROR) from exc
    publish = None
    if endpoint is not None:
        publish = context.with_resource(endpoint).publish
    needs_spark = not dry_run or where is not None
    if needs_spark and not check_spark(err, master):
        raise typer.Exit(FAILED)
    try:
        other_queues = {}
        for name, options in pairings.items():
            prefix = f"{name}: " if name else ""
            other_queues[name] = warn_of_other_queues(err, options)
            for line in _control_settings(options):
                print_warning(err, f"{prefix}{line}")
        if endpoint is not None:
            endpoint.announce(out)
        if dry_run:
            status = run_dry_run(out, err, pairings, master)
        elif len(pairings) > 1:
            several = PairingsRun(
                pairings,
                master,
                checkpoint,
                once=once,
                status_file=status_file,
                publish=publish,
                executor_timeout_s=executor_timeout,
                other_queues=other_queues,
            )
            status = several.run(out, err)
        else:
            (options,) = pairings.values()
            run = SyphonRun(
                options,
                master,
                checkpoint,
                once=once,
                status_file=status_file,
                publish=publish,
                executor_timeout_s=executor_timeout,
                other_queues=next(iter(other_queues.values())),
            )
            status = run.run(out, err)
    except KeyboardInterrupt:
        print_warning(err, "Stopped.")
        status = STOPPED if once or dry_run else DRAINED
    raise typer.Exit(status)


def _all_pairings(
    configuration: Configuration,
    network: NetworkOptions,
    backlog_queues: int,
    fields: dict[str, Any],
) -> dict[str, "SyphonOptions"]:
    """Return the options of a syphon for each pairing of a file. Raises ConfigurationError."""
    if fields["control_file"] is not None:
        raise ConfigurationError(
            "--control-file is for one pairing. Select it with --pairing NAME."
        )
    pairings = {}
    for name, section in configuration.pairings.items():
        values = section.values(os.environ)
        changes = {"max_rate": values.get("max_rate", fields["max_rate"])}
        if fields["archive"] is not None:  # Spark reads such a folder as a column
            changes["archive"] = f"{fields['archive']}/pairing={name}"
        try:
            settings = PairingSettings(
                primary=required("primary", values.get("primary")),
                secondary=required("secondary", values.get("secondary")),
                primary_name=values.get("primary_name"),
                backlog_queues=values.get("backlog_queues", backlog_queues),
                network=NetworkOptions(
                    values.get("transport", network.transport),
                    values.get("proxy", network.proxy),
                    values.get("ca_file", network.ca_file),
                ),
            )
            pairings[name] = _syphon_options(
                settings, **{**fields, **changes, "max_rates": section.max_rates}
            )
        except ConfigurationError as exc:
            raise ConfigurationError(f"{section.location}: {exc}") from exc
    return pairings


def _syphon_options(settings: PairingSettings, **fields: Any) -> "SyphonOptions":
    """Return the options of a syphon for a pairing. Raises ConfigurationError."""
    from pairbus.amqp.client import ClientOptions
    from pairbus.amqp.client.default_credential import default_credential
    from pairbus.servicebus.namespace_access import NamespaceAccess
    from pairbus.syphon.options import SyphonOptions

    # Checks the same values first, with errors in the terms of the command line.
    target = settings.target(30, needs_primary=True)
    primary, secondary = settings.primary, settings.secondary
    assert primary is not None
    credential = default_credential() if uses_entra(primary, secondary) else None
    network = settings.network.client_fields()
    if fields["control_file"] is None and target.primary_name is not None:
        fields["control_file"] = str(default_control_file(target.primary_name).absolute())
    return SyphonOptions(
        primary=ClientOptions.from_access(NamespaceAccess.parse(primary, credential), **network),
        secondary=ClientOptions.from_access(
            NamespaceAccess.parse(secondary, credential), **network
        ),
        primary_name=settings.primary_name,
        backlog_queue_count=settings.backlog_queues,
        **fields,
    )


def _control_settings(options: "SyphonOptions") -> list[str]:
    """Return what the control file says. Raises ConfigurationError if it is not valid."""
    return ControlFile(Path(options.control_file or "")).read().describe()


def _check_status_file(path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise ConfigurationError(
            f"--status-file: the folder {path.parent} does not exist. Create it first."
        )
