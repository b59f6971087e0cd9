"""All commands, put together."""

from typing import Annotated

import typer

from pairbus import __version__
from pairbus.cli import broker, cost, syphon

app = typer.Typer(
    name="pairbus",
    help="Paired namespaces for Azure Service Bus.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command(epilog=broker.EXAMPLE)(broker.broker)
app.command(epilog=syphon.EXAMPLE)(syphon.syphon)
app.add_typer(cost.app, name="cost")


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
