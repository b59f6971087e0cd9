"""`pairbus drill`: an outage on purpose, and proof that nothing was lost."""

import json
import logging
import signal
import tempfile
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console

from pairbus.cli.console import check_java, consoles, print_error
from pairbus.errors import ConfigurationError, PairbusError

if TYPE_CHECKING:
    from pairbus.drill.environments import Environment
    from pairbus.drill.plan import DrillOptions

PASSED, FAILED, WRONG, STOPPED = 0, 1, 2, 4
EXAMPLE = "Example: pairbus drill --senders 12 --rate 300 --outage 30"


def drill(
    senders: Annotated[int, typer.Option(help="Threads that send.")] = 6,
    rate: Annotated[float, typer.Option(help="Messages a second, of all senders.")] = 150,
    size: Annotated[int, typer.Option(help="Bytes of a body.")] = 1024,
    outage: Annotated[float, typer.Option(help="Seconds that the primary is down.")] = 15,
    backlog_queues: Annotated[int, typer.Option(help="How many backlog queues to have.")] = 4,
    failback: Annotated[
        str, typer.Option(help="after-drain: keep order in sessions. immediate: sooner.")
    ] = "after-drain",
    primary: Annotated[
        str | None,
        typer.Option(
            envvar="PAIRBUS_DRILL_PRIMARY",
            help="Connection string of a primary of your own, with the right to manage.",
            show_envvar=True,
        ),
    ] = None,
    secondary: Annotated[
        str | None,
        typer.Option(
            envvar="PAIRBUS_DRILL_SECONDARY",
            help="Connection string of a secondary of your own, with the right to manage.",
            show_envvar=True,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before your own namespaces are used.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Keep data and ledger here; without it, nothing is kept.", file_okay=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Make an outage on purpose, and prove that nothing was lost.

    Two namespaces are started on this machine and paired. Senders are at work when the primary is
    killed; they go on. The primary comes back, the syphon moves the backlog on Spark, everything is
    received, and each message that was acknowledged is looked for by its id.

    With --primary and --secondary the same is done on your own namespaces, after asking: on a
    topic and two queues that it makes and removes. Its outage: they are disabled for sending.

    Exit status: 0 nothing was lost; 1 something was, or the drill failed; 2 a wrong option; 4
    stopped.
    """
    out, err = consoles()
    screen_to = err if as_json else out
    logging.getLogger("pairbus").setLevel(logging.CRITICAL)  # the screen says the same
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    with ExitStack() as places:
        try:
            from pairbus.drill.plan import DrillOptions

            options = DrillOptions(
                senders=senders,
                rate=rate,
                size=size,
                outage=timedelta(seconds=outage),
                backlog_queue_count=backlog_queues,
                failback=cast(Any, failback),
            )
            place = _folder(folder, places)
            site = _site(primary, secondary, place)
            if not check_java(err):
                raise typer.Exit(FAILED)
            if primary is not None and not yes:
                _ask(site, options)
        except ConfigurationError as exc:
            print_error(err, exc)
            raise typer.Exit(WRONG) from exc
        status = _run(site, options, place, screen_to, err, as_json=as_json)
    raise typer.Exit(status)


def _folder(given: Path | None, places: ExitStack) -> Path:
    if given is None:
        return Path(places.enter_context(tempfile.TemporaryDirectory(prefix="pairbus-drill-")))
    if given.exists() and any(given.iterdir()):
        raise ConfigurationError(f"--folder: {given} is not empty, and a drill begins anew")
    given.mkdir(parents=True, exist_ok=True)
    return given


def _site(primary: str | None, secondary: str | None, folder: Path) -> "Environment":
    from pairbus.backlog.target import Target
    from pairbus.drill.environments import ExistingEnvironment, LocalEnvironment

    if primary is None and secondary is None:
        return LocalEnvironment(folder)
    if primary is None or secondary is None:
        raise ConfigurationError("--primary and --secondary are given together, or neither")
    Target.from_connection_strings(
        primary=primary, secondary=secondary
    )  # two namespaces, and not one of them twice
    return ExistingEnvironment(primary, secondary)


def _ask(site: "Environment", options: "DrillOptions") -> None:
    from pairbus.amqp.client import ClientOptions

    hosts = [
        ClientOptions.from_connection_string(one).host for one in (site.primary, site.secondary)
    ]
    count = round(options.rate * options.lasts.total_seconds())
    typer.echo(
        f"This makes two queues and a topic below {site.primary_name}/ in {hosts[0]}, and "
        f"{options.backlog_queue_count} queues below {site.primary_name}/ in {hosts[1]}. It sends "
        f"some {count:,} messages of {options.size:,} bytes, which is billed, and removes "
        "everything that it made. Nothing else is touched.",
        err=True,
    )
    if not typer.confirm("Go on?", err=True):
        raise typer.Exit(STOPPED)


def _run(
    site: "Environment",
    options: "DrillOptions",
    folder: Path,
    out: Console,
    err: Console,
    *,
    as_json: bool,
) -> int:
    from pairbus.cli.drill_screen import DrillScreen, show_result
    from pairbus.drill.run import Drill

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with DrillScreen(out, err) as screen:
            drill = Drill(site, options, folder, screen.tell)
            screen.watch(drill.snapshot)
            result = drill.run()
    except KeyboardInterrupt:
        print_error(err, "Stopped. What the drill had made is removed.", "yellow")
        return STOPPED
    except (PairbusError, OSError) as exc:
        print_error(err, f"The drill failed: {exc}")
        return FAILED
    if as_json:
        typer.echo(json.dumps(result.plain(), indent=2, ensure_ascii=False))
    else:
        show_result(out, result)
    return PASSED if result.passed else FAILED
