"""What a sender notes: before each call, after it, and what its paths do. Lines that outlive it.

A line is written with one call of the system to the end of a file, so that it is there whole even
if the process is killed the next moment.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairbus.drill.reconciliation import MessageKey, SentMessage

HEALTHY, FAILOVER = "healthy", "failover"
QUEUE_PULLED = "BacklogQueuePulled"


class NoteWriter:
    """Notes of one life of a sender process, for any number of threads."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, **values: Any) -> None:
        line = json.dumps({"what": what, "at": time.time(), **values})
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


@dataclass
class Notes:
    """The notes of one life, so far, or of several. `take` adds to them."""

    tries: Counter[MessageKey] = field(default_factory=Counter)
    failed: set[MessageKey] = field(default_factory=set)
    """Messages of which a try failed."""
    acknowledged: dict[MessageKey, SentMessage] = field(default_factory=dict)
    calls: dict[MessageKey, tuple[float, float]] = field(default_factory=dict)
    """From when to when the call took that was acknowledged."""
    states: dict[str, str] = field(default_factory=dict)
    """Of paths that are not, or not any more, as they were at first: healthy."""
    given_up: list[float] = field(default_factory=list)
    """When a namespace or a backlog queue was given up, so that what had been sent to it went to
    another place, too."""
    errors: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    """Errors that are nobody's to expect."""
    events: Counter[str] = field(default_factory=Counter)
    _rest: bytes = b""
    _began: dict[MessageKey, float] = field(default_factory=dict)

    def take(self, data: bytes) -> None:
        """What was added to the file. A last line may be torn."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._note(json.loads(line))

    def _note(self, note: dict[str, Any]) -> None:
        what, at, path = note["what"], note["at"], note.get("path", "")
        keys = [MessageKey(path, id) for id in note.get("ids", ())]
        match what:
            case "try":
                self.tries.update(keys)
                self._began.update(dict.fromkeys(keys, at))
            case "done":
                for key in keys:
                    self.acknowledged[key] = sent(key, note.get("session"))
                    self.calls[key] = self._began.pop(key), at
            case "failed":
                self.failed.update(keys)
                self.errors[note["error"]] += 1
            case "state":
                self.states[path] = note["state"]
                if note["state"] == FAILOVER:
                    self.given_up.append(at)
            case "broken":
                self.broken.append(note["error"])
            case _:
                self.events[what] += 1
                if what == QUEUE_PULLED:
                    self.given_up.append(at)

    def state(self, path: str) -> str:
        return self.states.get(path, HEALTHY)

    def doubtful(self) -> set[MessageKey]:
        """Messages that may have been sent more than once: a try failed, or was never answered, or
        there was more than one."""
        unanswered = self.tries.keys() - self.acknowledged.keys()
        return self.failed | unanswered | {key for key, tries in self.tries.items() if tries > 1}


def sent(key: MessageKey, session: str | None) -> SentMessage:
    return SentMessage(key, session, int(key.id.rpartition("-")[2]))


class NoteFile:
    """The file of one life, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes = Notes()
        self._read = 0

    def look(self) -> Notes:
        """All that is noted by now."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
            self._read += len(data)
            self.notes.take(data)
        return self.notes


def together(lives: Iterable[Notes]) -> Notes:
    """What several lives have done. Each had messages of its own."""
    all_notes = Notes()
    for one in lives:
        all_notes.tries += one.tries
        all_notes.failed |= one.failed
        all_notes.acknowledged |= one.acknowledged
        all_notes.calls |= one.calls
        all_notes.given_up += one.given_up
        all_notes.errors += one.errors
        all_notes.events += one.events
    return all_notes
