"""`pairbus backlog`: the group of commands that inspect the backlog."""

from typing import Any

import typer
from typer.core import TyperGroup

from pairbus.cli import backlog_destinations, backlog_list, backlog_peek


class _ListByDefault(TyperGroup):
    """Runs `pairbus backlog list` if no command is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListByDefault,
    epilog=backlog_list.EXAMPLE,
    help="Inspect the backlog: its queues (list, the default), its messages (peek), or totals by "
    "destination (destinations). No message is received or moved.",
)
app.command("list", epilog=backlog_list.EXAMPLE)(backlog_list.list_queues)
app.command("peek", epilog=backlog_peek.EXAMPLE)(backlog_peek.peek)
app.command("destinations", epilog=backlog_destinations.EXAMPLE)(backlog_destinations.destinations)
