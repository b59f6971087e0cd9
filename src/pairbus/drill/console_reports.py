"""The console that shows a drill, as the drill sees it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pairbus.drill.run import DrillSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleReports:
    """A running console, to which the senders of a drill report."""

    url: str
    token: Callable[[], str] = field(repr=False)
    """Returns a token for senders."""
    control_file: Path
    """The control file of the syphon, which the console changes."""
    announcement: str
    """The address, for the log of the drill."""


ConsoleStarter = Callable[[Callable[[], "DrillSnapshot"]], AbstractContextManager[ConsoleReports]]
"""Starts a console when the namespaces are running, and closes it before they end. It gets a
function that returns the state of the drill."""
