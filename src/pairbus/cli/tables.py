"""Tables: framed on a terminal, columns of text elsewhere. Nothing is ever cut."""

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDEST = 2000


def new_table(out: Console, columns: Iterable[str], right: Iterable[str] = ()) -> Table:
    """An empty table; the columns of `right` hold numbers."""
    framed = out.is_terminal
    made = Table(
        box=box.SIMPLE_HEAD if framed else None,  # it puts a column between columns
        pad_edge=False,
        padding=(0, 1 if framed else 2, 0, 0),
    )
    numbers = set(right)
    for name in columns:
        # On a terminal that is too narrow, text is folded and numbers stay whole.
        made.add_column(
            name,
            justify="right" if name in numbers else "left",
            no_wrap=not framed or name in numbers,
            overflow="fold",
        )
    return made


def add_row(made: Table, cells: Iterable[str]) -> None:
    made.add_row(*map(escape, cells))


def natural_width(out: Console, made: Table) -> int:
    """How wide a table would like to be."""
    return out.measure(made, options=out.options.update(width=WIDEST)).maximum


def print_table(out: Console, made: Table) -> None:
    if out.is_terminal:
        out.print(made)
        return
    out.width = max(out.width, natural_width(out, made))
    with out.capture() as captured:
        out.print(made)
    for line in captured.get().splitlines():
        out.print(line.rstrip(), markup=False)
