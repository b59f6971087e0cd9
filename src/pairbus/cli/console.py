"""The consoles that commands print to. Without a terminal, lines are not wrapped."""

import json

import typer
from rich.console import Console
from rich.markup import escape


def consoles() -> tuple[Console, Console]:
    """Return the consoles for standard output and standard error."""
    return (
        Console(highlight=False, soft_wrap=True),
        Console(stderr=True, highlight=False, soft_wrap=True),
    )


def print_json(value: object) -> None:
    """Print a value as JSON to standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_error(err: Console, message: object, colour: str = "red") -> None:
    err.print(f"[{colour}]{escape(str(message))}[/{colour}]")


def print_warning(err: Console, message: object) -> None:
    print_error(err, message, "yellow")
