"""The commands of a console to a sender, in the answer to a report. No I/O.

The console is another program, and perhaps of another version: what is not understood is ignored.
"""

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pairbus.errors import ProtocolError

MAX_COMMANDS = 100
"""The most commands of one answer, the most ids of one report, and the most commands that are being
carried out."""
MAX_ID = 64
MAX_REMEMBERED = 1000
"""The number of commands whose repetition is recognized."""


@dataclass(frozen=True, slots=True)
class MarkHealthy:
    """The command to end the failover of a path."""

    id: str
    path: str


def parse_answer(body: bytes) -> list[MarkHealthy]:
    """Return the commands of an answer. Raises ProtocolError if it is not an answer of a
    console."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise ProtocolError("the answer is not JSON") from exc
    if not isinstance(answer, dict):
        raise ProtocolError("the answer is not a JSON object")
    commands = answer.get("commands")
    if not isinstance(commands, list):
        return []
    parsed = [_parse(command) for command in commands[:MAX_COMMANDS]]
    return [command for command in parsed if command is not None]


def _parse(command: Any) -> MarkHealthy | None:
    match command:
        case {"id": str(id), "action": "mark-healthy", "path": str(path)} if _is_id(id):
            return MarkHealthy(id, path)
    return None


def _is_id(id: str) -> bool:
    return 0 < len(id) <= MAX_ID and id.isascii() and id.isprintable()


class CommandLog:
    """Remembers commands, so that each is carried out once. The console repeats a command until a
    report says that it was carried out. `finish` can be called in any thread."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        """The ids of commands, and whether they were carried out; the oldest first."""
        self._finished: deque[str] = deque()
        self._unreported: dict[str, None] = {}

    def begin(self, command: MarkHealthy) -> bool:
        """Return True if the command must be carried out now."""
        self._collect()
        if (finished := self._known.get(command.id)) is not None:
            if finished:  # the report that said so was not received
                self._unreported[command.id] = None
            return False
        if list(self._known.values()).count(False) >= MAX_COMMANDS:
            return False  # the console repeats it
        self._known[command.id] = False
        if len(self._known) > MAX_REMEMBERED:
            oldest = next(id for id, finished in self._known.items() if finished)
            del self._known[oldest]
            self._unreported.pop(oldest, None)
        return True

    def finish(self, id: str) -> None:
        """Record that a command was carried out."""
        self._finished.append(id)

    def unreported(self) -> list[str]:
        """Return the ids of commands that were carried out, for the next report."""
        self._collect()
        return list(self._unreported)[:MAX_COMMANDS]

    def reported(self, ids: Iterable[str]) -> None:
        """Record that a report with these ids was answered."""
        for id in ids:
            self._unreported.pop(id, None)

    def _collect(self) -> None:
        while self._finished:
            id = self._finished.popleft()
            self._known[id] = True
            self._unreported[id] = None
