"""Dataclasses as groups of options."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from pairbus.cli.option_groups import with_option_groups

Name = Annotated[str, typer.Option("--name", help="A name.")]
Size = Annotated[int, typer.Option("--size", min=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    name: Name
    size: Size = 3


def test_fields_are_options_in_the_place_of_their_parameter() -> None:
    app = typer.Typer()
    received = []

    @app.command()
    @with_option_groups
    def command(*, first: bool = False, box: Box, last: bool = False) -> None:
        received.append((first, box, last))

    runner = CliRunner()
    help_text = runner.invoke(app, ["--help"]).output
    positions = [help_text.index(option) for option in ("--first", "--name", "--size", "--last")]
    assert positions == sorted(positions)
    assert runner.invoke(app, ["--name", "a", "--last"]).exit_code == 0
    assert runner.invoke(app, ["--name", "b", "--size", "0"]).exit_code == 2
    assert runner.invoke(app, []).exit_code == 2
    assert received == [(False, Box(name="a", size=3), True)]
