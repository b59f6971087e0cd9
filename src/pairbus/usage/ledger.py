"""The ledger: what was done, written beside the work to files that nobody else writes to."""

import logging
import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pairbus.errors import ConfigurationError
from pairbus.servicebus.limits import BILLING_UNIT
from pairbus.usage.operations import OperationKind, Part
from pairbus.usage.operations import units as units_of
from pairbus.usage.records import CAUSE_LIMIT, line
from pairbus.usage.rolled_file import RolledFile

MOST_PENDING = 10_000
"""Sums that wait for the disk, at most; and changes of state."""
MOST_NOTED = 1_000
"""Notes that wait to be summed up, at most. To sum up many at once costs a fraction of what each
costs by itself, between two calls to the network."""
FLUSH_S = 1.0
ROLL_BYTES = 64 * 2**20

# What was configured cannot be: no use in waiting.
_WRONG = (FileExistsError, NotADirectoryError, PermissionError)

_logger = logging.getLogger(__name__)

_Key = tuple[int, str, str, str, str, bool]
_Note = tuple[float, str, str, OperationKind, Part, bool, Sequence[int]]


class Ledger:
    """Sums up what is done for each second, and writes it to files of its own in a folder.

    `add` costs microseconds and never waits for the disk. What is pending is bounded: beyond
    it records are dropped, counted, and the count is a record. A disk that is full or fails raises
    nothing; it is logged once, and what is pending is written when it is back. A process that is
    killed loses what it had not flushed; half a record at the end of a file is recognised by the
    report. After a fork the child has a file of its own, without what was the parent's.

    `start` flushes about once a second in a thread. Without it, call `flush` now and then. As a
    context manager: started, and closed. Raises ConfigurationError where the folder cannot be made.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        writer: str,
        roll_bytes: int = ROLL_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        if re.fullmatch(r"[a-z0-9_]+", writer) is None:
            raise ConfigurationError(
                f"a ledger's writer is small letters, digits and '_', not {writer!r}"
            )
        if roll_bytes < 1:
            raise ConfigurationError(f"roll_bytes is at least 1, not {roll_bytes!r}")
        self._folder = Path(folder)
        self._writer = writer
        self._now = now
        self._thread: threading.Thread | None = None
        self._wants_thread = False
        self._ended = threading.Event()
        self._begin()
        self._file = RolledFile(self._folder, writer, roll_bytes, now)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except _WRONG as exc:
            raise ConfigurationError(f"{folder}: this cannot be a folder for ledgers") from exc
        except OSError:  # tried again with each file
            _logger.warning("%s: the folder cannot be made yet", folder, exc_info=True)
        _ledgers.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        """Held for as long as sums take."""
        self._writing = threading.Lock()
        """Held while the disk works."""
        self._noted: deque[_Note] = deque()
        self._pending: dict[_Key, list[int]] = {}
        self._changes: list[dict[str, Any]] = []
        self._dropped = 0
        self._dropped_operations = 0
        self._failed_writes = 0
        self._troubled = False
        self._dropped_ever = 0

    def add(
        self,
        *,
        namespace: str,
        entity: str,
        kind: OperationKind,
        part: Part,
        messages: int = 1,
        operations: int | None = None,
        bytes: int = 0,  # noqa: A002
        units: int | None = None,
        answered: bool = True,
    ) -> None:
        """Note that something was done.

        Without `operations` there is one for each message, or one where there is none. Without
        `units` the messages are taken to be of one size. `answered`: the namespace said what came
        of it; what it never answered is not billed.
        """
        if operations is None:
            operations = messages if messages > 0 else 1
        if units is None:
            if bytes <= messages * BILLING_UNIT:
                units = operations
            else:
                units = operations * units_of(-(-bytes // max(messages, 1)))
        key = (int(self._now()), namespace, entity, kind._value_, part._value_, answered)
        with self._lock:
            self._count(key, operations, messages, bytes, units)
        self._see_to_thread()

    def add_each(
        self,
        sizes: Sequence[int],
        namespace: str,
        entity: str,
        kind: OperationKind,
        part: Part,
        answered: bool = True,
    ) -> None:
        """Note an operation on each of some messages, by their bytes, or one on none. The sizes are
        kept until they are summed up: they are not to change."""
        noted = self._noted
        noted.append((self._now(), namespace, entity, kind, part, answered, sizes))
        if self._thread is None or len(noted) >= MOST_NOTED:
            with self._lock:
                self._sum_up()
            self._see_to_thread()

    def _sum_up(self) -> None:
        """All that was noted. The lock is held."""
        noted = self._noted
        while noted:
            time, namespace, entity, kind, part, answered, sizes = noted.popleft()
            # An enum's own hash is a function in Python, the hash of its value is not.
            key = (int(time), namespace, entity, kind._value_, part._value_, answered)
            messages, size = len(sizes), sum(sizes)
            operations = messages or 1
            small = size <= BILLING_UNIT or max(sizes) <= BILLING_UNIT
            units = operations if small else sum(map(units_of, sizes))
            self._count(key, operations, messages, size, units)

    def _count(self, key: _Key, operations: int, messages: int, size: int, units: int) -> None:
        """The lock is held."""
        sums = self._pending.get(key)
        if sums is not None:
            sums[0] += operations
            sums[1] += messages
            sums[2] += size
            sums[3] += units
        elif len(self._pending) < MOST_PENDING:
            self._pending[key] = [operations, messages, size, units]
        else:
            self._drop(operations)

    def _see_to_thread(self) -> None:
        if self._wants_thread and self._thread is None:  # after a fork
            self.start()

    @property
    def dropped(self) -> int:
        """Records that were dropped since the start."""
        with self._lock:
            self._sum_up()
            return self._dropped_ever

    def change(
        self,
        *,
        namespace: str,
        entity: str,
        from_state: str,
        to_state: str,
        cause: str | None = None,
    ) -> None:
        """Note that a path is in another state."""
        record = {
            "time": round(self._now(), 3),
            "namespace": namespace,
            "entity": entity,
            "from_state": from_state,
            "to_state": to_state,
            "cause": None if cause is None else cause[:CAUSE_LIMIT],
        }
        with self._lock:
            if len(self._changes) >= MOST_PENDING:
                self._drop(0)
            else:
                self._changes.append(record)

    def _drop(self, operations: int) -> None:
        self._dropped_ever += 1
        self._dropped += 1
        self._dropped_operations += operations

    def flush(self) -> None:
        """Write what is pending. Raises nothing: what could not be written stays pending."""
        with self._writing:
            try:
                self._file.write(b"")  # first what is left from the last time
                block = self._take()
                if block:
                    self._file.write(block)
            except OSError as exc:
                self._failed_writes += 1
                if not self._troubled:
                    self._troubled = True
                    _logger.warning("%s: the ledger cannot be written: %s", self._folder, exc)
            else:
                if self._troubled:
                    self._troubled = False
                    _logger.warning("%s: the ledger is written again", self._folder)

    def _take(self) -> bytes:
        """All that is pending, as lines."""
        with self._lock:
            self._sum_up()
            pending, self._pending = self._pending, {}
            changes, self._changes = self._changes, []
            dropped, self._dropped = self._dropped, 0
            operations, self._dropped_operations = self._dropped_operations, 0
        lines = [line(record) for record in changes]
        lines += [line(_done(key, sums)) for key, sums in pending.items()]
        if dropped or self._failed_writes:
            missing = {
                "time": int(self._now()),
                "dropped": dropped,
                "dropped_operations": operations,
                "failed_writes": self._failed_writes,
            }
            self._failed_writes = 0
            lines.append(line(missing))
        return b"".join(lines)

    def start(self) -> None:
        """Flush about once a second from now on, in a thread."""
        with self._lock:
            if self._thread is not None:
                return
            self._wants_thread = True
            self._ended = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._ended,), name="pairbus ledger", daemon=True
            )
            self._thread.start()

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(FLUSH_S):
            self.flush()

    def close(self) -> None:
        """Write what is pending, and see it to the disk. Can be called again."""
        with self._lock:
            self._wants_thread = False
            thread, self._thread = self._thread, None
            self._ended.set()
        if thread is not None:
            thread.join(FLUSH_S)  # a disk that hangs holds up nobody for longer
        if self._writing.acquire(timeout=FLUSH_S):
            self._writing.release()
            self.flush()
            with self._writing:
                self._file.close()

    def __enter__(self) -> "Ledger":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _forked(self) -> None:
        """This is a child: files, locks and sums are the parent's, and threads are gone."""
        self._begin()
        self._thread = None
        self._ended = threading.Event()
        self._file = self._file.another()


def _done(key: _Key, sums: list[int]) -> dict[str, Any]:
    second, namespace, entity, kind, part, answered = key
    operations, messages, size, units = sums
    return {
        "time": second,
        "namespace": namespace,
        "entity": entity,
        "kind": kind,
        "part": part,
        "operations": operations,
        "messages": messages,
        "bytes": size,
        "units": units,
        "answered": answered,
    }


_ledgers: "weakref.WeakSet[Ledger]" = weakref.WeakSet()


def _in_child() -> None:
    for ledger in list(_ledgers):
        ledger._forked()


os.register_at_fork(after_in_child=_in_child)
