"""The application: all commands together."""

from typing import Annotated

import typer

from pairbus import __version__
from pairbus.cli import backlog, cost, dead_letters, drill, emulator, status, syphon, web_console

app = typer.Typer(
    name="pairbus",
    help="Paired namespaces for Azure Service Bus.",
    epilog=status.EXAMPLE,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # wraps text to the width of the terminal
    add_completion=False,
)
app.command(epilog=status.EXAMPLE)(status.status)
app.add_typer(backlog.app, name="backlog")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(syphon.app, name="syphon")
app.add_typer(web_console.app, name="console")
app.command(epilog=drill.EXAMPLE)(drill.drill)
app.add_typer(cost.app, name="cost", epilog=cost.EXAMPLE)
app.add_typer(emulator.app, name="emulator")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass
