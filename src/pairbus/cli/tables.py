"""Tables: framed on a terminal, plain columns elsewhere. Cells are never truncated."""

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

MAX_WIDTH = 2000


def new_table(out: Console, columns: Iterable[str], numbers: Iterable[str] = ()) -> Table:
    """Return an empty table. The columns named in `numbers` are aligned to the right."""
    framed = out.is_terminal
    table = Table(
        box=box.SIMPLE_HEAD if framed else None,  # the frame separates the columns
        pad_edge=False,
        padding=(0, 1 if framed else 2, 0, 0),
    )
    numeric = set(numbers)
    for name in columns:
        # On a terminal that is too narrow, text is wrapped and numbers are not.
        table.add_column(
            name,
            justify="right" if name in numeric else "left",
            no_wrap=not framed or name in numeric,
            overflow="fold",
        )
    return table


def add_row(table: Table, cells: Iterable[str]) -> None:
    """Add a row of plain text, without markup."""
    table.add_row(*map(escape, cells))


def natural_width(out: Console, table: Table) -> int:
    """Return the width of a table without wrapped cells."""
    return out.measure(table, options=out.options.update(width=MAX_WIDTH)).maximum


def print_table(out: Console, table: Table) -> None:
    if out.is_terminal:
        out.print(table)
        return
    out.width = max(out.width, natural_width(out, table))
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.print(line.rstrip(), markup=False)
