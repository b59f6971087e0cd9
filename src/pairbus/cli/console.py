"""The consoles that commands print to. Without a terminal, lines are not wrapped."""

import json

import typer
from rich.console import Console
from rich.markup import escape

from pairbus.errors import AmqpError, ConnectionLost, NotAuthorized, OperationTimeout


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


def print_failure(err: Console, error: AmqpError) -> None:
    """Print an error of a namespace, and what to check."""
    text = error.description or error.condition
    advice = ""
    if isinstance(error, NotAuthorized):
        advice = "Check the key or the credential, and its rights."
    elif isinstance(error, ConnectionLost | OperationTimeout):
        advice = "Check the address, the port and the network."
    print_error(err, with_advice(f"{text[0].upper()}{text[1:]}", advice))


def with_advice(problem: str, advice: str) -> str:
    """Return a problem with what to do about it. A problem that ends with a period has its own
    advice."""
    return problem if problem.endswith(".") else f"{problem}. {advice}".rstrip()


def print_warning(err: Console, message: object) -> None:
    print_error(err, message, "yellow")
