"""`pairbus emulator`: local namespaces until they are told to stop."""

import contextlib
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.logging import RichHandler

from pairbus.cli.console import consoles, print_error
from pairbus.emulator.config import NamespaceConfig, read_config
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConfigurationError, StateError

EXAMPLE = (
    "Example: pairbus emulator --namespace primary --namespace secondary --queue orders "
    "--folder data"
)


def emulator(
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", help="A namespace to serve; may be repeated.")
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option("--queue", help="A queue to have in each; may be repeated.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A Config.json of the Azure Service Bus emulator."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Where data is kept; without it, nothing is kept."),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The first port; 0: any free ones.")
    ] = 0,
    while_input: Annotated[
        bool,
        typer.Option(
            "--while-input", help="Stop when standard input ends: for programs that start it."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what happens.")] = False,
) -> None:
    """Serve Service Bus namespaces on this machine, without a cloud.

    Prints a connection string for each, which the azure-servicebus SDK takes as it is.

    Stop with Ctrl-C: everything that was accepted is on disk.

    Where the disk fails one of them, all stop.

    The folder of a namespace is served by one process at a time.

    Exit status: 0 stopped; 1 failed, or the folder is in use; 2 a wrong option or file.
    """
    out, err = consoles()
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(message)s",
        handlers=[RichHandler(console=err, show_path=False)],
    )
    try:
        wanted = _wanted(namespace, config)
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        serving: list[LocalNamespace] = []
        with contextlib.ExitStack() as running:
            for index, one in enumerate(wanted):
                served = running.enter_context(
                    LocalNamespace(
                        one.name,
                        folder=None if folder is None else folder / one.name,
                        port=port + index if port else 0,
                        on_failure=stopped.set,
                    )
                )
                serving.append(served)
                served.ensure(one, queue or [])
                out.print(f"[bold]{one.name}[/bold]  port {served.port}")
                out.print(f"  {served.connection_string}")
                out.print(f"  CA for TLS and administration: {served.ca_file}")
            kept = "nowhere: it goes when this stops" if folder is None else str(folder)
            out.print(f"Data is kept {kept}. Stop with Ctrl-C.")
            if while_input:
                threading.Thread(target=_stop_at_end, args=(stopped,), daemon=True).start()
            stopped.wait()
        out.print("Stopped.")
        failed = [served for served in serving if served.failure is not None]
        for served in failed:
            print_error(err, f"{served.name} failed: {served.failure}")
        if failed:
            raise typer.Exit(1)
    except StateError as exc:
        print_error(err, exc)
        raise typer.Exit(1) from exc
    except (ConfigurationError, OSError) as exc:
        print_error(err, exc)
        raise typer.Exit(2) from exc


def _stop_at_end(stopped: threading.Event) -> None:
    """Whoever started this holds its input, and is gone when it ends."""
    while sys.stdin.buffer.read(1024):
        pass
    stopped.set()


def _wanted(names: list[str] | None, config: Path | None) -> list[NamespaceConfig]:
    """The namespaces to serve: by name, and from a file."""
    found: list[NamespaceConfig] = []
    if config is not None:
        try:
            found += read_config(config.read_text(encoding="utf-8"))
        except ConfigurationError as exc:
            raise ConfigurationError(f"{config}: {exc}") from exc
    known = {one.name for one in found}
    found += [NamespaceConfig(name=name) for name in names or [] if name not in known]
    return found or [NamespaceConfig(name="local")]
