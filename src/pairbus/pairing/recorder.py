"""Counts the messages of a pairing, and keeps the last error of each path."""

import os
from collections.abc import Callable
from datetime import datetime
from threading import RLock
from weakref import finalize

from pairbus.errors import PairbusError, PartlyStored, SendUnavailable
from pairbus.options import FailureKind
from pairbus.pairing.counters import SentCounter
from pairbus.pairing.path_state import PathState


class SendRecorder:
    """Records the results of sends. Its methods take the lock of the state, and can be called from
    any thread."""

    def __init__(
        self,
        lock: RLock,
        classify: Callable[[BaseException], FailureKind],
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._lock = lock
        self._classify = classify
        self._wall_clock = wall_clock
        self._pid = os.getpid()

    def add_sender(self, path: PathState, sender: object) -> SentCounter:
        """Return a new counter for a sender. Its messages are kept when the sender is deleted."""
        counter = SentCounter()
        with self._lock:
            path.counters.add_sender(counter)
        finalize(sender, self._remove_sender, path, counter).atexit = False
        return counter

    def _remove_sender(self, path: PathState, counter: SentCounter) -> None:
        if os.getpid() != self._pid:  # in a forked child the lock may be held for ever
            return
        with self._lock:
            path.counters.remove_sender(counter)

    def sent(self, path: PathState, messages: int) -> None:
        """Count messages that the primary accepted and their sender has not counted."""
        with self._lock:
            path.counters.add_sent(messages)

    def stored(self, path: PathState, messages: int) -> None:
        """Count messages that the backlog accepted."""
        with self._lock:
            path.counters.stored += messages

    def call_failed(self, path: PathState, error: Exception, messages: int) -> None:
        """Record the error that the caller of a send gets, for so many messages."""
        last = path.last_error
        known = last is not None and last.error is error
        if isinstance(error, PairbusError):
            unavailable = isinstance(error, SendUnavailable)
            kind = FailureKind.UNAVAILABLE if unavailable else FailureKind.CALLER
        elif last is not None and known:
            kind = last.kind
        else:
            kind = self._classify(error)
        if isinstance(error, PartlyStored):
            messages -= len(error.stored)
        with self._lock:
            path.counters.failed[kind] += messages
            if not known:
                path.record_error(error, kind, self._wall_clock())
