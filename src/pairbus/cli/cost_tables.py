"""Tables with a title, as `pairbus cost` prints them."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pairbus.cli.tables import natural_width


def titled_table(
    out: Console, title: str, columns: Sequence[str], *, text_columns: int = 1
) -> Table:
    """Return an empty table, which has rules on a terminal.

    The first `text_columns` columns are aligned left, the others right.
    """
    is_terminal = out.is_terminal
    table = Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if is_terminal else None,
        pad_edge=is_terminal,
        padding=(0, 1) if is_terminal else (0, 2, 0, 0),
    )
    for index, column in enumerate(columns):
        is_text = index < text_columns
        table.add_column(escape(column), justify="left" if is_text else "right", no_wrap=True)
    return table


def print_titled_table(out: Console, table: Table) -> None:
    """Print a table in full. A terminal that is too narrow wraps its lines."""
    out.width = max(out.width, natural_width(out, table))
    out.print(table)
