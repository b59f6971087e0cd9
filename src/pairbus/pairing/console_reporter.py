"""Reports the state of a pairing to a console, from a thread of its own.

Sends have nothing to do with it: an event only enters a bounded queue, and wakes the thread. The
thread builds a report from the state of the moment and sends it with a deadline. A report that
fails is dropped. The asynchronous client uses a thread, too, so that an event loop that is blocked
is not silent, and a console that is slow does not delay the loop.
"""

import contextlib
import logging
import os
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from time import monotonic
from typing import Any
from uuid import uuid4
from weakref import ref

from pairbus.console_address import ConsoleAddress, is_token, parse_console_address
from pairbus.errors import AmqpError, ConfigurationError, Unavailable
from pairbus.events import Event
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.console_commands import CommandLog, MarkHealthy, parse_answer
from pairbus.pairing.console_report import (
    MAX_BYTES,
    MAX_EVENTS,
    SenderIdentity,
    build_report,
    describe_event,
    is_reported,
    shorten,
)
from pairbus.pairing.console_schedule import ReportSchedule
from pairbus.pairing.forks import notify_after_fork
from pairbus.pairing.reporter import utc_now
from pairbus.pairing.state import PairingState
from pairbus.servicebus.http_transport import HttpTransport

logger = logging.getLogger("pairbus.pairing")

REPORT_TIMEOUT_S = 5.0
"""The longest time of one report, after the name of the host is resolved."""
CLOSE_TIMEOUT_S = 2.0
"""The longest time that closing a pairing waits for the last report."""
MAX_ANSWER_BYTES = MAX_BYTES
REPORTS_PATH = "/api/reports"

CallHandler = Callable[[Callable[[], None]], None]
"""Calls a function where event handlers run: at once, or in the event loop."""


class ConsoleReporter:
    """Reports the state of one pairing. `observe` and `stop` can be called from any thread, and do
    not wait."""

    close_timeout_s = CLOSE_TIMEOUT_S

    def __init__(
        self,
        address: ConsoleAddress,
        identity: SenderIdentity,
        *,
        token: str | Callable[[], str] | None,
        tls: ssl.SSLContext | None,
        random: Random | None = None,
    ) -> None:
        self._address = address
        self._identity = identity
        self._token = token
        self._last_token: str | None = None
        self._http = HttpTransport(
            address.host, address.port, tls=tls, max_body=MAX_ANSWER_BYTES, clock=monotonic
        )
        self._random = Random() if random is None else random
        self._pairing: Callable[[], PairingState | None] = lambda: None
        self._call_handler: CallHandler = lambda function: function()
        self._observed: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        """The events that no report contained yet."""
        self._commands = CommandLog()
        # Its `put` is reentrant: a signal handler may send, and so change the state.
        self._changes: SimpleQueue[None] = SimpleQueue()
        self._has_changed = False
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._warned = False
        notify_after_fork(self)

    def after_fork_in_child(self) -> None:
        """Close the child's copy of the connection, which would keep it open after the parent."""
        self._stopping = True
        self._thread = None
        self._http.close()

    def start(self, pairing: PairingState, call_handler: CallHandler) -> None:
        """Start to report the state of a pairing. The thread does not keep the pairing alive."""
        self._pairing = ref(pairing, lambda _: self._change())
        self._call_handler = call_handler
        thread = threading.Thread(target=self._run, name="pairbus console reports", daemon=True)
        try:
            thread.start()
        except RuntimeError as exc:  # there are too many threads, or the interpreter shuts down
            logger.warning("Nothing is reported to the console: %s", exc)
        else:
            self._thread = thread

    def observe(self, event: Event) -> None:
        """Report an event, and the state that it led to, soon."""
        if is_reported(event):
            self._observed.append(event)
            self._change()

    def stop(self) -> None:
        """Send a last report, and end."""
        self._stopping = True
        self._change()

    def has_ended(self) -> bool:
        """Return True if the thread has ended, or calls this itself."""
        thread = self._thread
        return thread is None or thread is threading.current_thread() or not thread.is_alive()

    def _change(self) -> None:
        if not self._has_changed:  # many changes wake the thread once
            self._has_changed = True
            self._changes.put(None)

    # The thread.

    def _run(self) -> None:
        schedule = ReportSchedule(monotonic(), self._random)
        try:
            while self._wait_for_next(schedule):
                self._report(schedule)
            if not schedule.failures:
                self._report(schedule, closed=True)
        finally:
            self._http.close()
            self._thread = None
            if (pairing := self._pairing()) is not None:
                with contextlib.suppress(RuntimeError):  # the event loop is closed
                    self._call_handler(pairing.notify)

    def _wait_for_next(self, schedule: ReportSchedule) -> bool:
        """Wait until a report is due. Return False if the thread must end."""
        while not self._stopping and self._pairing() is not None:
            remaining_s = schedule.due - monotonic()
            if remaining_s <= 0:
                return True
            try:
                self._changes.get(timeout=remaining_s)
            except Empty:
                continue
            self._has_changed = False
            schedule.changed(monotonic())
        return False

    def _report(self, schedule: ReportSchedule, *, closed: bool = False) -> None:
        """Send a report. Raises nothing."""
        try:
            done = self._commands.unreported()
            report = self._build(done, closed=closed)
            if report is None:
                return
            answer = self._post(report, CLOSE_TIMEOUT_S if closed else REPORT_TIMEOUT_S)
            commands = parse_answer(answer)
            self._events.clear()
            self._commands.reported(done)
            if not closed:
                for command in commands:
                    self._carry_out(command)
        except Exception as exc:  # noqa: BLE001  the next report may succeed
            schedule.failed(monotonic())
            self._log_failure(exc, schedule.failures)
        else:
            schedule.succeeded(monotonic())
            self._log_success()

    def _build(self, done: list[str], *, closed: bool) -> bytes | None:
        pairing = self._pairing()
        if pairing is None:
            return None
        while self._observed:
            self._events.append(describe_event(self._observed.popleft()))
        return build_report(
            pairing.status(),
            self._identity,
            list(self._events),
            time=utc_now(),
            done=done,
            closed=closed,
        )

    def _post(self, report: bytes, timeout_s: float) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if (token := self._current_token()) is not None:
            headers["Authorization"] = f"Bearer {token}"
        status, answer = self._http.request(
            "POST",
            self._address.path + REPORTS_PATH,
            deadline=monotonic() + timeout_s,
            headers=headers,
            body=report,
        )
        if status in (401, 403):
            raise Unavailable(f"it refused the token (status {status}). Check console_token")
        if 300 <= status < 400:
            raise Unavailable(
                f"it redirects (status {status}), which is not followed. Set console to the final "
                "address"
            )
        if status != 200:
            raise Unavailable(f"it answered with status {status}")
        return answer

    def _current_token(self) -> str | None:
        if self._token is None:
            return None
        token: object = self._token() if callable(self._token) else self._token
        if not is_token(token):
            raise Unavailable("the function console_token returned no valid token")
        self._last_token = token
        return token

    # Commands.

    def _carry_out(self, command: MarkHealthy) -> None:
        if self._commands.begin(command):
            self._call_handler(partial(self._mark_healthy, command))

    def _mark_healthy(self, command: MarkHealthy) -> None:
        """Mark a path healthy. A path that this pairing does not have is nothing to do."""
        try:
            pairing = self._pairing()
            if pairing is None or pairing.primary.down:
                return
            if (path := pairing.find_path(command.path)) is not None:
                logger.info("%s is marked healthy, by a command of the console", path.name)
                pairing.mark_healthy(path)
        finally:
            self._commands.finish(command.id)
            self._change()

    # The log.

    def _log_failure(self, error: Exception, failures: int) -> None:
        if not isinstance(error, AmqpError):
            if failures == 1:
                logger.error("A report to the console failed", exc_info=error)
            return
        # The first failure may be a connection that the console had just closed.
        if failures < 2 or self._warned:
            return
        self._warned = True
        logger.warning(
            "The console at %s does not take reports; sends are not affected: %s",
            self._address,
            self._printable(error.description),
        )

    def _log_success(self) -> None:
        if self._warned:
            self._warned = False
            logger.info("The console at %s takes reports again", self._address)

    def _printable(self, text: str) -> str:
        """Return a text that may contain anything that a server has sent, without the token."""
        if self._last_token is not None:
            text = text.replace(self._last_token, "…")
        return "".join(c if c.isprintable() else "?" for c in shorten(text) or "")


def make_reporter(options: SendAvailabilityOptions, primary_name: str) -> ConsoleReporter:
    """Return a reporter that is not started. Raises ConfigurationError."""
    address = parse_console_address(options.console)
    identity = SenderIdentity(
        id=str(uuid4()),
        host=socket.gethostname(),
        process=os.getpid(),
        application=options.console_application or program_name(sys.argv),
        started_at=utc_now(),
        version=_installed_version(),
        primary_name=primary_name,
        backlog_queues=options.backlog_queue_count,
    )
    tls = _tls_context(options) if address.tls else None
    return ConsoleReporter(address, identity, token=options.console_token, tls=tls)


def program_name(arguments: list[str]) -> str:
    """Return the name of a program, from its arguments."""
    path = Path(arguments[0] if arguments else "")
    return (path.parent.name if path.name == "__main__.py" else path.name) or "python"


def _installed_version() -> str:
    try:
        return version("pairbus")
    except PackageNotFoundError:  # run from its source
        return "unknown"


def _tls_context(options: SendAvailabilityOptions) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=options.console_ca_file)
    except OSError as exc:
        raise ConfigurationError(f"console_ca_file cannot be read: {exc}") from exc
