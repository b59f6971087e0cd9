"""How commands speak: plain lines, none broken by the width of a terminal that is not there."""

from rich.console import Console
from rich.markup import escape


def screens() -> tuple[Console, Console]:
    """For what was asked for, and for what went wrong."""
    return (
        Console(highlight=False, soft_wrap=True),
        Console(stderr=True, highlight=False, soft_wrap=True),
    )


def complain(err: Console, what: object, colour: str = "red") -> None:
    err.print(f"[{colour}]{escape(str(what))}[/{colour}]")
