"""Blocking steps of the synchronous SDK that can be abandoned. Uses private names of the SDK.

To open a link, the SDK resolves a host name, connects, and asks the credential for a token. These
steps may block for ever, without a socket that could be shut down. Between two attempts it sleeps.
Each of these steps runs in a thread of its own, so that the caller can leave it. Messages are sent
in the thread of the caller: a step that was abandoned never sends one.
"""

import contextlib
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from pairbus.pairing.sdk import CallInterrupted, call_interrupted, interrupt, require, socket_of

T = TypeVar("T")

_SIGNAL_CHECK_S = 1.0
"""A signal that arrives just before a wait begins does not end the wait."""


def make_opening_interruptible(link: Any) -> None:
    """Let `interrupt` reach a sender or receiver while it opens its link or waits for the next
    attempt."""
    require(link, "_create_handler", "_backoff")
    steps = AbandonableSteps()
    create_handler, backoff = link._create_handler, link._backoff

    def create(auth: Any) -> None:
        if auth is not None:
            get_token = auth.get_token  # called again when the token of an open link expires
            auth.get_token = lambda: steps.run(get_token)
        create_handler(auth)
        _open_in_thread(link, link._handler, steps)

    link._create_handler = create
    link._backoff = lambda *args, **options: steps.run(lambda: backoff(*args, **options))
    link._pairbus_steps = steps


def _open_in_thread(link: Any, handler: Any, steps: "AbandonableSteps") -> None:
    open_handler, close_handler = handler.open, handler.close

    def close_late() -> None:
        sock = socket_of(handler)
        if sock is not None:
            sock.close()
        close_handler()

    def open_in_thread(connection: Any = None) -> None:
        if handler._session:  # the SDK calls `open` at every send
            return
        try:
            steps.run(lambda: open_handler(connection=connection), close_late)
        except BaseException as exc:
            if isinstance(exc, CallInterrupted) or not isinstance(exc, Exception):
                handler.close = _do_nothing  # the thread closes the handler
                interrupt(link)
            raise

    handler.open = open_in_thread


def _do_nothing() -> None:
    pass


class AbandonableSteps:
    """Runs blocking steps of one sender or receiver, one at a time, until it is interrupted."""

    def __init__(self) -> None:
        self._interrupted = False
        self._step: _Step[Any] | None = None

    def run(self, function: Callable[[], T], clean_up: Callable[[], None] | None = None) -> T:
        """Call a function in another thread, in the context of the caller. Raises CallInterrupted
        after `interrupt`. A function that was abandoned continues, and `clean_up` is called when it
        returns."""
        step = _Step(function, clean_up)
        self._step = step
        try:
            if self._interrupted:
                raise call_interrupted()
            try:
                step.start()
            except RuntimeError:  # the interpreter shuts down, or there are too many threads
                return function()
            return step.wait()
        except BaseException:
            step.abandon()  # after KeyboardInterrupt; no effect on a step that has ended
            raise
        finally:
            self._step = None

    def interrupt(self) -> None:
        """Abandon the step in progress, and prevent others."""
        self._interrupted = True
        step = self._step
        if step is not None:
            step.abandon()


class _Step(Generic[T]):
    """A function that runs in a thread, for a caller that may leave."""

    def __init__(self, function: Callable[[], T], clean_up: Callable[[], None] | None) -> None:
        self._function = function
        self._clean_up = clean_up
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._abandoned = False
        self._result: T
        self._error: BaseException | None = None

    def start(self) -> None:
        threading.Thread(
            target=copy_context().run, args=(self._run,), name="pairbus opening", daemon=True
        ).start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as exc:  # noqa: BLE001  raised in the thread of the caller
            self._error = exc
        with self._lock:
            self._ended = True
            abandoned = self._abandoned
        self._wake.set()
        if abandoned and self._clean_up is not None:
            with contextlib.suppress(Exception):
                self._clean_up()

    def abandon(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._abandoned = True
        self._wake.set()

    def wait(self) -> T:
        while not self._wake.wait(_SIGNAL_CHECK_S):
            pass
        if self._abandoned:
            raise call_interrupted()
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            error = None  # it refers to this frame
