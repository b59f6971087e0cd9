"""`pairbus status`: the namespaces, the backlog and the syphon of a pairing."""

import json
import threading
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from pairbus.backlog.discovery import list_backlog_queues
from pairbus.backlog.inspection import inspect_backlog
from pairbus.backlog.probe import probe_namespaces
from pairbus.backlog.status import PairingCondition, PairingInspection
from pairbus.backlog.syphon_file import SyphonSummary, parse_syphon_status
from pairbus.backlog.target import InspectionTarget
from pairbus.cli.configuration_options import ConfigFile, PairingName
from pairbus.cli.console import consoles, print_error, print_json
from pairbus.cli.network_options import CaFile, NetworkOptions, ProxyUrl, Transport
from pairbus.cli.pairing_options import (
    DEFAULT_BACKLOG_QUEUES,
    AsJson,
    ExpectedQueues,
    PairingSettings,
    Primary,
    PrimaryName,
    Secondary,
    Timeout,
)
from pairbus.cli.status_screen import print_status, status_line, status_panel
from pairbus.errors import ConfigurationError, PairbusError

USAGE_ERROR = 2
EXAMPLE = "Example: PAIRBUS_PRIMARY=… PAIRBUS_SECONDARY=… pairbus status"


def status(
    primary: Primary,
    secondary: Secondary,
    primary_name: PrimaryName = None,
    backlog_queues: ExpectedQueues = DEFAULT_BACKLOG_QUEUES,
    config: ConfigFile = None,
    pairing: PairingName = None,
    timeout: Timeout = 5,
    transport: Transport = "tcp",
    proxy: ProxyUrl = None,
    ca_file: CaFile = None,
    status_file: Annotated[
        Path | None,
        typer.Option(
            help="Path of the --status-file of a syphon, to show if it is running and healthy."
        ),
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Repeat after this number of seconds, until Ctrl-C. Without a terminal, print one "
            "line each time. The exit status is that of the last repetition.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show if both namespaces are available, what waits in the backlog, and if a syphon is running.

    All backlog queues that exist are shown, also those beyond --backlog-queues. This costs one
    operation for each backlog queue, one more for each queue that is not empty, and one for every
    100 queues of the secondary. It needs the Manage right. With the Listen right alone, one message
    of each queue is peeked, and indexes beyond --backlog-queues are tried until 10 in a row have no
    queue.

    Exit status: 0 both namespaces are available, and the backlog is empty; 1 failed: a namespace is
    not available or rejects the token, or the backlog does not exist or could not be read; 2
    invalid option; 3 messages wait in the backlog, or are dead-lettered; 4 no message was found,
    but the queues could not be listed, so others may exist.
    """
    out, err = consoles()
    settings = PairingSettings(
        primary=primary,
        secondary=secondary,
        primary_name=primary_name,
        backlog_queues=backlog_queues,
        network=NetworkOptions(transport, proxy, ca_file),
    )
    try:
        target = settings.target(timeout, needs_primary=True)
        if watch is None:
            condition = _show_once(out, target, status_file, as_json=as_json)
        else:
            condition = _watch(out, target, status_file, watch, as_json=as_json)
    except PairbusError as exc:
        print_error(err, exc)
        raise typer.Exit(USAGE_ERROR) from exc
    raise typer.Exit(condition)


def _inspect(target: InspectionTarget, status_file: Path | None) -> PairingInspection:
    syphon = None if status_file is None else _read_status_file(status_file)
    assert target.primary is not None
    probes = probe_namespaces(
        {
            "primary": (target.primary, ""),
            # The token is for a backlog queue: the key may be restricted to these.
            "secondary": (target.secondary, target.backlog_queues[0]),
        }
    )
    backlog = None
    if probes["secondary"].available:
        backlog = inspect_backlog(target, list_backlog_queues(target), peek_count=1)
    return PairingInspection(time.time_ns() // 1_000_000, probes, backlog, syphon)


def _read_status_file(path: Path) -> SyphonSummary:
    try:
        values = json.loads(path.read_text()) if path.exists() else None
        return parse_syphon_status(values, time.time())
    except (OSError, ValueError) as exc:
        raise ConfigurationError(f"--status-file: {path}: {exc}") from exc


def _show_once(
    out: Console, target: InspectionTarget, status_file: Path | None, *, as_json: bool
) -> PairingCondition:
    inspection = _inspect(target, status_file)
    if as_json:
        print_json(inspection.to_json())
    else:
        print_status(out, inspection)
    return inspection.summary.condition


def _watch(
    out: Console,
    target: InspectionTarget,
    status_file: Path | None,
    interval_s: float,
    *,
    as_json: bool,
) -> PairingCondition:
    """Repeat until Ctrl-C. Return the last condition."""
    condition = PairingCondition.FAILED
    pause = threading.Event()
    live = Live(console=out, auto_refresh=False)
    interactive = out.is_terminal and not as_json
    try:
        if interactive:
            live.start()
        while True:
            inspection = _inspect(target, status_file)
            condition = inspection.summary.condition  # before printing, where Ctrl-C may interrupt
            if as_json:
                typer.echo(json.dumps(inspection.to_json(), ensure_ascii=False))
            elif interactive:
                live.update(status_panel(inspection), refresh=True)
            else:
                typer.echo(status_line(inspection))
            pause.wait(interval_s)
    except KeyboardInterrupt:
        return condition
    finally:
        live.stop()
