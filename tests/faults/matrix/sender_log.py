"""The log of a sender process: a line before and after each call, and for each change of state.

A line is appended with one system call, so that it is complete even if the process is killed
immediately afterwards.
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
REJECTED = "rejected"
"""A namespace rejected an invalid message."""


class SenderLogWriter:
    """Writes the log of one sender process, from any number of threads."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, kind: str, **values: Any) -> None:
        line = json.dumps({"kind": kind, "time": time.time(), **values})
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


@dataclass
class SenderLog:
    """The log of one sender process, or of several. `read` adds lines to it."""

    attempts: Counter[MessageKey] = field(default_factory=Counter)
    not_sent: Counter[MessageKey] = field(default_factory=Counter)
    """The attempts after which the sender reported that the message was not sent."""
    acknowledged: dict[MessageKey, SentMessage] = field(default_factory=dict)
    calls: dict[MessageKey, tuple[float, float]] = field(default_factory=dict)
    """The start and the end of the acknowledged call of each message."""
    states: dict[str, str] = field(default_factory=dict)
    """The states of paths that have changed at least once."""
    rerouted: list[float] = field(default_factory=list)
    """The times at which a path failed over or a backlog queue left the rotation, so that messages
    already sent to it were sent elsewhere too."""
    errors: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    """Stack traces of unexpected errors."""
    events: Counter[str] = field(default_factory=Counter)
    _rest: bytes = b""
    _started: dict[MessageKey, float] = field(default_factory=dict)

    def read(self, data: bytes) -> None:
        """Add lines from the file. The last one may be incomplete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._add(json.loads(line))

    def _add(self, entry: dict[str, Any]) -> None:
        kind, time_s, path = entry["kind"], entry["time"], entry.get("path", "")
        keys = [MessageKey(path, id) for id in entry.get("ids", ())]
        match kind:
            case "attempt":
                self.attempts.update(keys)
                self._started.update(dict.fromkeys(keys, time_s))
            case "acknowledged":
                for key in keys:
                    self.acknowledged[key] = sent_message(key, entry.get("session"))
                    self.calls[key] = self._started.pop(key), time_s
            case "failed":
                self.not_sent.update(MessageKey(path, id) for id in entry.get("not_sent", ()))
                self.errors[entry["error"]] += 1
            case "state":
                self.states[path] = entry["state"]
                if entry["state"] == FAILOVER:
                    self.rerouted.append(time_s)
            case "unexpected":
                self.unexpected.append(entry["error"])
            case _:
                self.events[kind] += 1
                if kind == QUEUE_PULLED:
                    self.rerouted.append(time_s)

    def state(self, path: str) -> str:
        return self.states.get(path, HEALTHY)

    def ambiguous(self) -> set[MessageKey]:
        """Return the messages that may have been sent more often than they were acknowledged."""
        return {
            key
            for key, count in self.attempts.items()
            if count - self.not_sent[key] > (key in self.acknowledged)
        }

    def reported_as_not_sent(self) -> set[MessageKey]:
        """Return the messages for which every attempt ended with the report that they were not
        sent."""
        return {key for key, count in self.attempts.items() if count == self.not_sent[key]}


def sent_message(key: MessageKey, session: str | None) -> SentMessage:
    return SentMessage(key, session, int(key.id.rpartition("-")[2]))


class SenderLogFile:
    """Reads the log file of one sender process while it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = SenderLog()
        self._position = 0

    def read(self) -> SenderLog:
        """Return the log so far."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
            self._position += len(data)
            self.log.read(data)
        return self.log


def combine(logs: Iterable[SenderLog]) -> SenderLog:
    """Combine the logs of several sender processes, which sent different messages."""
    combined = SenderLog()
    for log in logs:
        combined.attempts += log.attempts
        combined.not_sent += log.not_sent
        combined.acknowledged |= log.acknowledged
        combined.calls |= log.calls
        combined.rerouted += log.rerouted
        combined.errors += log.errors
        combined.events += log.events
    return combined
