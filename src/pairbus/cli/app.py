"""All commands, put together."""

from typing import Annotated

import typer

from pairbus import __version__
from pairbus.cli import backlog, cost, drill, emulator, status, syphon

app = typer.Typer(
    name="pairbus",
    help="Paired namespaces for Azure Service Bus.",
    epilog=status.EXAMPLE,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # text is filled to the width of the terminal
    add_completion=False,
)
app.command(epilog=status.EXAMPLE)(status.status)
app.add_typer(backlog.app, name="backlog")
app.command(epilog=syphon.EXAMPLE)(syphon.syphon)
app.command(epilog=drill.EXAMPLE)(drill.drill)
app.add_typer(cost.app, name="cost", epilog=cost.EXAMPLE)
app.command(epilog=emulator.EXAMPLE)(emulator.emulator)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    pass
