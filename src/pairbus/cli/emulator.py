"""`pairbus emulator`: serve local namespaces until stopped."""

import contextlib
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler

from pairbus.cli.console import consoles, print_error, print_warning
from pairbus.cli.emulator_control import add_commands
from pairbus.errors import ConfigurationError, StateError

if TYPE_CHECKING:
    from pairbus.emulator.namespace import LocalNamespace

EXAMPLE = (
    "Example: pairbus emulator --namespace primary --namespace secondary --queue orders "
    "--folder data"
)


app = typer.Typer()
add_commands(app)


@app.callback(invoke_without_command=True, epilog=EXAMPLE)
def emulator(
    context: typer.Context,
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", help="Name of a namespace to serve. Can be repeated."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", help="Queue to create in every namespace. Can be repeated."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="Config.json of the Azure Service Bus emulator: namespaces with their entities.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", help="Folder to keep the data in. Without it, data is lost at the end."
        ),
    ] = None,
    port: Annotated[
        list[int] | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port of the first namespace; each further namespace gets the next number. "
            "Repeat the option to set the port of each. 0, the default, is the port that the "
            "folder was last served on, or any free port.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on; 0.0.0.0 is every interface. Beyond loopback, only TLS is "
            "served.",
        ),
    ] = "127.0.0.1",
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name",
            help="Further name by which clients reach the namespaces, for the certificate. Can be "
            "repeated.",
        ),
    ] = None,
    allow_plaintext: Annotated[
        bool,
        typer.Option(
            "--allow-plaintext",
            help="Also serve connections without TLS beyond loopback. Anyone on the network can "
            "read their tokens and messages.",
        ),
    ] = False,
    disable_local_auth: Annotated[
        bool,
        typer.Option(
            "--disable-local-auth",
            help="Refuse shared access keys and signatures, and accept bearer tokens only.",
        ),
    ] = False,
    tier: Annotated[
        str | None,
        typer.Option(
            "--tier",
            help="Limits of every namespace, as in Azure: standard, premium or unlimited. "
            "Overrides the file of --config.",
            show_default="unlimited",
        ),
    ] = None,
    messaging_units: Annotated[
        int, typer.Option(min=1, help="Messaging units of each namespace, with --tier premium.")
    ] = 1,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one line of JSON instead of text, as soon as all namespaces accept "
            "connections: name, port, connection string, CA file, and the sources of bearer tokens "
            "of each.",
        ),
    ] = False,
    while_input: Annotated[
        bool,
        typer.Option(
            "--while-input",
            help="Stop at the end of standard input, and so with the program that holds it open.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log connections and refused requests.")
    ] = False,
) -> None:
    """Serve Service Bus namespaces on this machine.

    Prints a connection string for each namespace, for use with the azure-servicebus SDK.

    Runs until Ctrl-C or SIGTERM. Every accepted message is on disk.

    If the disk fails for one namespace, all of them stop.

    The folder of a namespace can be served by one process at a time.

    The commands stop, kill and start are for one namespace of a running emulator.

    Exit status: 0 stopped; 1 failed, or the folder or a port is in use; 2 a wrong option or file.
    """
    if context.invoked_subcommand is not None:
        return
    from pairbus.emulator.config import load_namespaces
    from pairbus.emulator.control_socket import ControlSocket
    from pairbus.emulator.host_names import is_loopback
    from pairbus.emulator.namespace import LocalNamespace
    from pairbus.emulator.tiers import UNLIMITED, tier_of
    from pairbus.emulator.token_issuer import KEY_FILE, TokenIssuer
    from pairbus.garbage import collect_rarely

    out, err = consoles()
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(message)s",
        handlers=[RichHandler(console=err, show_path=False)],
    )
    try:
        configs = load_namespaces(namespace or [], config)
        if len(port or ()) > len(configs):
            raise ConfigurationError(
                f"There are {len(port or ())} ports for {len(configs)} "
                f"namespace{'' if len(configs) == 1 else 's'}. Use --port once for each namespace, "
                "or only for the first."
            )
        tier_for_all = None
        if tier is not None or messaging_units > 1:
            tier_for_all = tier_of(tier or UNLIMITED, messaging_units)
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        namespaces: list[LocalNamespace] = []
        issuer = None if folder is None else TokenIssuer(folder / KEY_FILE)
        with contextlib.ExitStack() as running:
            for index, namespace_config in enumerate(configs):
                served = LocalNamespace(
                    namespace_config.name,
                    folder=None if folder is None else folder / namespace_config.name,
                    port=port_for(port or [0], index),
                    on_failure=stopped.set,
                    host=host,
                    host_names=host_name or (),
                    allow_plaintext=allow_plaintext,
                    local_authentication=not disable_local_auth,
                    token_issuer=issuer,
                    tier=tier_for_all or namespace_config.tier or UNLIMITED,
                )
                issuer = served.token_issuer  # of all namespaces, as in a tenant
                namespaces.append(running.enter_context(served))
                served.ensure(namespace_config, queue or [])
                running.enter_context(ControlSocket(served))
            collect_rarely()
            if not is_loopback(host):
                print_warning(err, _risk(host, allow_plaintext))
            if as_json:
                _print_json(namespaces)
            else:
                _print_text(out, namespaces, folder)
            if while_input:
                threading.Thread(target=_stop_at_end_of_input, args=(stopped,), daemon=True).start()
            stopped.wait()
        failed = [served for served in namespaces if served.failure is not None]
        for served in failed:
            print_error(err, f"{served.name} failed: {served.failure}")
        if failed:
            raise typer.Exit(1)
        if not as_json:
            out.print("Stopped.")
    except StateError as exc:
        print_error(err, exc)
        raise typer.Exit(1) from exc
    except ConfigurationError as exc:
        print_error(err, exc)
        raise typer.Exit(2) from exc
    except OSError as exc:
        print_error(err, f"{exc.filename or folder} cannot be used: {exc.strerror or exc}.")
        raise typer.Exit(2) from exc


def port_for(ports: list[int], index: int) -> int:
    """Return the port of a namespace: as listed, or counted on from the last that is listed."""
    if index < len(ports):
        return ports[index]
    return ports[-1] + index - len(ports) + 1 if ports[-1] else 0


def _risk(host: str, allow_plaintext: bool) -> str:
    readable = "read all messages without TLS, and can " if allow_plaintext else ""
    return (
        f"Every machine that reaches {host} can {readable}connect to these namespaces; they are "
        "for tests, so keep keys and folder secret, and use a network that you trust."
    )


def _print_text(out: Console, namespaces: "list[LocalNamespace]", folder: Path | None) -> None:
    for served in namespaces:
        tier = f"  tier {served.tier.name}" if served.tier.is_strict else ""
        out.print(f"[bold]{served.name}[/bold]  port {served.port}{tier}")
        out.print(f"  {served.connection_string}")
        out.print(f"  CA file for TLS and administration: {served.ca_file}")
    if folder is None:
        out.print("Data is lost when the emulator stops: use --folder to keep it.")
    else:
        out.print(f"Data is kept in {folder}.")
    out.print("Stop with Ctrl-C.")


def _print_json(namespaces: "list[LocalNamespace]") -> None:
    addresses = [
        {
            "name": served.name,
            "port": served.port,
            "connection_string": served.connection_string,
            "ca_file": served.ca_file,
            "token_key_file": str(served.token_issuer.key_file),
            "identity_endpoint": served.identity_endpoint,
            "identity_header": served.token_issuer.identity_header,
        }
        for served in namespaces
    ]
    print(json.dumps({"namespaces": addresses}), flush=True)


def _stop_at_end_of_input(stopped: threading.Event) -> None:
    # Not through sys.stdin: the interpreter aborts if a thread is reading there when it ends.
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 1024):
            pass
    stopped.set()
