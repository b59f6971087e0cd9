"""`pairbus dead-letters`: the group of commands for dead letters."""

import typer

from pairbus.cli import (
    dead_letters_export,
    dead_letters_list,
    dead_letters_peek,
    dead_letters_purge,
    dead_letters_redrive,
)

app = typer.Typer(
    help="List, peek, export, redrive and purge dead letters, of the backlog queues or of any "
    "queue or subscription (--entity).",
    no_args_is_help=True,
    epilog=dead_letters_list.EXAMPLE,
)
app.command("list", epilog=dead_letters_list.EXAMPLE)(dead_letters_list.list_dead_letters)
app.command("peek", epilog=dead_letters_peek.EXAMPLE)(dead_letters_peek.peek)
app.command("export", epilog=dead_letters_export.EXAMPLE)(dead_letters_export.export)
app.command("redrive", epilog=dead_letters_redrive.EXAMPLE)(dead_letters_redrive.redrive)
app.command("purge", epilog=dead_letters_purge.EXAMPLE)(dead_letters_purge.purge)
