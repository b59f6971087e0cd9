"""How commands speak: plain lines, none broken by the width of a terminal that is not there."""

import os
import shutil

from rich.console import Console
from rich.markup import escape


def consoles() -> tuple[Console, Console]:
    """For what was asked for, and for what went wrong."""
    return (
        Console(highlight=False, soft_wrap=True),
        Console(stderr=True, highlight=False, soft_wrap=True),
    )


def check_java(err: Console) -> bool:
    """Whether there is Java, without which Spark does not start; complains if not."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        print_error(err, "Spark needs Java 17: install it, or set JAVA_HOME")
        return False
    return True


def print_error(err: Console, what: object, colour: str = "red") -> None:
    err.print(f"[{colour}]{escape(str(what))}[/{colour}]")
