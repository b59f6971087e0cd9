"""The consoles that commands print to. Without a terminal, lines are not wrapped."""

import json
import os
import shutil

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


def check_java(err: Console) -> bool:
    """Return True if Java is installed, which Spark needs. Print an error if it is not."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        print_error(err, "Spark needs Java 17, which was not found. Install it, or set JAVA_HOME.")
        return False
    return True
