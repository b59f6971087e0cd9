"""`pairbus emulator stop`, `start` and `kill`: a single namespace of a running emulator."""

from pathlib import Path
from typing import Annotated

import typer

from pairbus.cli.console import consoles, print_error
from pairbus.errors import StateError

EXAMPLE = "Example: pairbus emulator {} primary --folder data"

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the namespace.")]
Folder = Annotated[
    Path | None, typer.Option("--folder", help="Folder of the running emulator. Required.")
]


def stop(context: typer.Context, name: Name, folder: Folder = None) -> None:
    """Stop a namespace of a running emulator.

    Its connections are closed, and new ones are refused until it is started. Its data and its port
    are kept. The other namespaces of the emulator go on.

    Exit status: 0 done; 1 no emulator serves this namespace, or it failed; 2 a wrong option.
    """
    _request(context, "stop", name, folder, "Stopped {}.")


def start(context: typer.Context, name: Name, folder: Folder = None) -> None:
    """Start a namespace of a running emulator that was stopped or killed.

    It has the same port and connection string as before.

    Exit status: 0 done; 1 no emulator serves this namespace, or it failed; 2 a wrong option.
    """
    _request(context, "start", name, folder, "Started {}.")


def kill(context: typer.Context, name: Name, folder: Folder = None) -> None:
    """Stop a namespace of a running emulator as if its process were killed.

    Only what is on disk is kept, which includes every accepted message.

    Exit status: 0 done; 1 no emulator serves this namespace, or it failed; 2 a wrong option.
    """
    _request(context, "kill", name, folder, "Killed {}.")


def _request(
    context: typer.Context, action: str, name: str, folder: Path | None, done: str
) -> None:
    from pairbus.emulator.control_socket import NamespaceAction, request_action

    out, err = consoles()
    parent = context.parent
    folder = folder or (None if parent is None else parent.params.get("folder"))
    if folder is None:
        print_error(err, "Add --folder FOLDER, the same as for the running emulator.")
        raise typer.Exit(2)
    try:
        request_action(folder / name, NamespaceAction(action))
    except StateError as exc:
        print_error(err, exc)
        raise typer.Exit(1) from exc
    out.print(done.format(name), markup=False)


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `pairbus emulator`."""
    for command in (stop, start, kill):
        app.command(epilog=EXAMPLE.format(command.__name__))(command)
