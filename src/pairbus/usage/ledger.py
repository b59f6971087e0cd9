"""The ledger: an append-only record of billable operations, written in the background."""

import logging
import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pairbus.errors import ConfigurationError
from pairbus.servicebus.limits import BILLING_UNIT
from pairbus.usage.operations import OperationKind, Purpose, billable_units
from pairbus.usage.records import MAX_CAUSE_CHARACTERS, encode_record
from pairbus.usage.rotating_file import RotatingFile

MAX_PENDING = 10_000
"""The most sums, and the most state changes, that wait to be written."""
MAX_UNSUMMED = 1_000
"""The most calls of `add_messages` that wait to be summed up. Summing up many at once takes a
fraction of the time that it takes after each call."""
FLUSH_INTERVAL_S = 1.0
MAX_FILE_BYTES = 64 * 2**20

# Errors that trying again does not solve.
_PERMANENT_ERRORS = (FileExistsError, NotADirectoryError, PermissionError)

_logger = logging.getLogger(__name__)

_Key = tuple[int, str, str, str, str, bool]
_Call = tuple[float, str, str, OperationKind, Purpose, bool, Sequence[int]]


class Ledger:
    """Sums up billable operations per second, and appends the sums to files in a folder.

    The files of each ledger are written by that ledger only. `add` takes microseconds and never
    waits for the disk. The pending sums are bounded: further records are dropped, and the number of
    dropped records is recorded. If the disk is full or fails, nothing is raised: one warning is
    logged, and the pending sums are written as soon as the disk works again. A process that is
    killed loses its unflushed sums; the report recognises a truncated record at the end of a file.
    After a fork the child writes to a new file, and the pending sums stay with the parent.

    `start` flushes once a second in a thread; without it, call `flush`. As a context manager, a
    ledger is started and closed. Raises ConfigurationError if the folder cannot be created.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        writer: str,
        max_file_bytes: int = MAX_FILE_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        if re.fullmatch(r"[a-z0-9_]+", writer) is None:
            raise ConfigurationError(
                f"writer must consist of lower-case letters, digits and '_', not {writer!r}"
            )
        if max_file_bytes < 1:
            raise ConfigurationError(f"max_file_bytes must be at least 1, not {max_file_bytes!r}")
        self._folder = Path(folder)
        self._writer = writer
        self._now = now
        self._thread: threading.Thread | None = None
        self._is_started = False
        self._stop = threading.Event()
        self._reset()
        self._file = RotatingFile(self._folder, writer, max_file_bytes, now)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except _PERMANENT_ERRORS as exc:
            raise ConfigurationError(
                f"The ledger folder {folder} cannot be created ({exc}). Choose another folder."
            ) from exc
        except OSError as exc:
            _logger.warning(
                "The ledger folder %s cannot be created yet (%s). Each flush tries again.",
                folder,
                exc,
            )
        _ledgers.add(self)

    def _reset(self) -> None:
        """Start without locks and pending sums, in a new object or after a fork."""
        self._lock = threading.Lock()
        """Protects the sums. It is never held during I/O."""
        self._write_lock = threading.Lock()
        """Protects the file, and is held during I/O."""
        self._unsummed: deque[_Call] = deque()
        self._pending: dict[_Key, list[int]] = {}
        self._state_changes: list[dict[str, Any]] = []
        self._dropped_total = 0
        self._dropped = 0
        """Records dropped since the last flush."""
        self._dropped_operations = 0
        self._failed_writes = 0
        self._is_failing = False

    def add(
        self,
        *,
        namespace: str,
        entity: str,
        kind: OperationKind,
        purpose: Purpose,
        messages: int = 1,
        operations: int | None = None,
        bytes: int = 0,  # noqa: A002
        units: int | None = None,
        answered: bool = True,
    ) -> None:
        """Record operations of one kind.

        Without `operations` there is one for each message, or one if there are no messages. Without
        `units` all messages are taken to have the same size. `answered=False` means that the
        namespace did not answer; such operations are not billed.
        """
        if operations is None:
            operations = messages if messages > 0 else 1
        if units is None:
            if bytes <= messages * BILLING_UNIT:
                units = operations
            else:
                units = operations * billable_units(-(-bytes // max(messages, 1)))
        key = (int(self._now()), namespace, entity, kind._value_, purpose._value_, answered)
        with self._lock:
            self._add_to_sum(key, operations, messages, bytes, units)
        self._restart_thread_in_child()

    def add_messages(
        self,
        sizes: Sequence[int],
        namespace: str,
        entity: str,
        kind: OperationKind,
        purpose: Purpose,
        answered: bool = True,
    ) -> None:
        """Record one operation on each message, given by its size, or one without a message.

        The sequence is read later and must not change.
        """
        unsummed = self._unsummed
        unsummed.append((self._now(), namespace, entity, kind, purpose, answered, sizes))
        if self._thread is None or len(unsummed) >= MAX_UNSUMMED:
            with self._lock:
                self._sum_up()
            self._restart_thread_in_child()

    def _sum_up(self) -> None:
        """Add all calls of `add_messages` to the sums. The caller holds the lock."""
        unsummed = self._unsummed
        while unsummed:
            time, namespace, entity, kind, purpose, answered, sizes = unsummed.popleft()
            # Enum.__hash__ is a Python function, and slower than the hash of the value.
            key = (int(time), namespace, entity, kind._value_, purpose._value_, answered)
            messages, size = len(sizes), sum(sizes)
            operations = messages or 1
            small = size <= BILLING_UNIT or max(sizes) <= BILLING_UNIT
            units = operations if small else sum(map(billable_units, sizes))
            self._add_to_sum(key, operations, messages, size, units)

    def _add_to_sum(self, key: _Key, operations: int, messages: int, size: int, units: int) -> None:
        """Add to the pending sum of a key, or drop the record. The caller holds the lock."""
        sums = self._pending.get(key)
        if sums is not None:
            sums[0] += operations
            sums[1] += messages
            sums[2] += size
            sums[3] += units
        elif len(self._pending) < MAX_PENDING:
            self._pending[key] = [operations, messages, size, units]
        else:
            self._drop(operations)

    def _restart_thread_in_child(self) -> None:
        """Start the flush thread again in a child process, where it did not survive the fork."""
        if self._is_started and self._thread is None:
            self.start()

    @property
    def dropped(self) -> int:
        """The number of records that were dropped since the start."""
        with self._lock:
            self._sum_up()
            return self._dropped_total

    def add_state_change(
        self,
        *,
        namespace: str,
        entity: str,
        from_state: str,
        to_state: str,
        cause: str | None = None,
        at: float | None = None,
    ) -> None:
        """Record that a path changed its state, at a time of the wall clock; None means now."""
        record = {
            "time": round(self._now() if at is None else at, 3),
            "namespace": namespace,
            "entity": entity,
            "from_state": from_state,
            "to_state": to_state,
            "cause": None if cause is None else cause[:MAX_CAUSE_CHARACTERS],
        }
        with self._lock:
            if len(self._state_changes) >= MAX_PENDING:
                self._drop(0)
            else:
                self._state_changes.append(record)

    def _drop(self, operations: int) -> None:
        self._dropped_total += 1
        self._dropped += 1
        self._dropped_operations += operations

    def flush(self) -> None:
        """Write the pending records. Raises nothing: what cannot be written stays pending."""
        with self._write_lock:
            try:
                self._file.write(b"")  # The rest of the previous flush comes first.
                block = self._take_pending()
                if block:
                    self._file.write(block)
            except OSError as exc:
                self._failed_writes += 1
                if not self._is_failing:
                    self._is_failing = True
                    _logger.warning("The ledger in %s cannot be written: %s", self._folder, exc)
            else:
                if self._is_failing:
                    self._is_failing = False
                    _logger.warning("The ledger in %s can be written again", self._folder)

    def _take_pending(self) -> bytes:
        """Return all pending records as lines, and forget them."""
        with self._lock:
            self._sum_up()
            pending, self._pending = self._pending, {}
            state_changes, self._state_changes = self._state_changes, []
            dropped, self._dropped = self._dropped, 0
            dropped_operations, self._dropped_operations = self._dropped_operations, 0
        lines = [encode_record(record) for record in state_changes]
        lines += [encode_record(_operations_record(key, sums)) for key, sums in pending.items()]
        if dropped or self._failed_writes:
            gap = {
                "time": int(self._now()),
                "dropped": dropped,
                "dropped_operations": dropped_operations,
                "failed_writes": self._failed_writes,
            }
            self._failed_writes = 0
            lines.append(encode_record(gap))
        return b"".join(lines)

    def start(self) -> None:
        """Start a thread that flushes once a second."""
        with self._lock:
            if self._thread is not None:
                return
            self._is_started = True
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stop,), name="pairbus ledger", daemon=True
            )
            self._thread.start()

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(FLUSH_INTERVAL_S):
            self.flush()

    def close(self) -> None:
        """Write the pending records, and sync the file to disk. Can be called more than once.

        A flush that hangs delays the caller by two flush intervals at most.
        """
        with self._lock:
            self._is_started = False
            thread, self._thread = self._thread, None
            self._stop.set()
        if thread is not None:
            thread.join(FLUSH_INTERVAL_S)
        if self._write_lock.acquire(timeout=FLUSH_INTERVAL_S):
            self._write_lock.release()
            self.flush()
            with self._write_lock:
                self._file.close()

    def __enter__(self) -> "Ledger":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _after_fork_in_child(self) -> None:
        """Start anew: file, locks and sums belong to the parent, and threads do not survive."""
        self._reset()
        self._thread = None
        self._stop = threading.Event()
        self._file = self._file.reopen_in_child()


def _operations_record(key: _Key, sums: list[int]) -> dict[str, Any]:
    second, namespace, entity, kind, purpose, answered = key
    operations, messages, size, units = sums
    return {
        "time": second,
        "namespace": namespace,
        "entity": entity,
        "kind": kind,
        "purpose": purpose,
        "operations": operations,
        "messages": messages,
        "bytes": size,
        "units": units,
        "answered": answered,
    }


_ledgers: "weakref.WeakSet[Ledger]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for ledger in list(_ledgers):
        ledger._after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
