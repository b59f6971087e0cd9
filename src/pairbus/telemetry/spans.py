"""The spans of a pairing: each failover of a path, and each call that stores messages.

The producer's own context is not touched: it is in the application properties of a message, and
travels through the backlog with them.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pairbus.events import (
    BacklogQueuePulled,
    BacklogQueueRestored,
    DrainStalled,
    Event,
    PathStatus,
    Pinged,
    SecondaryRestored,
    SecondaryUnavailable,
    StateChanged,
    Throttled,
)
from pairbus.telemetry.error_types import error_text, error_type
from pairbus.telemetry.metrics import BATCH_SIZE, DESTINATION, ERROR, SERVICE_BUS, SYSTEM

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

CAUSE, CAUSE_TYPE = "pairbus.failover.cause", "pairbus.failover.cause.type"
QUEUES = "pairbus.backlog.queues"
FAILOVER_NAME, STORE_NAME = "failover {}", "store {}"


class StoreSpan:
    """The span of a call that stores messages, which is the current one within the `with` block.
    Without a function that starts it, it does nothing.

    `on_error` gets every exception of the application's SDK and of its span processors: the call
    goes on.
    """

    def __init__(
        self,
        start: "Callable[[], Span] | None" = None,
        on_error: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._start = start
        self._on_error = on_error
        self._span: Span | None = None
        self._token: Token[Context] | None = None

    def __enter__(self) -> Self:
        if self._start is not None:
            self._guard(self._begin)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._span is not None:
            self._guard(partial(self._end, self._span, error))

    def set_queues(self, queues: Iterable[str]) -> None:
        """Set the backlog queues that accepted messages."""
        if self._span is not None:
            self._guard(partial(self._span.set_attribute, QUEUES, sorted(queues)))

    def _begin(self) -> None:
        from opentelemetry.context import attach
        from opentelemetry.trace import set_span_in_context

        assert self._start is not None
        self._span = self._start()
        self._token = attach(set_span_in_context(self._span))

    def _end(self, span: "Span", error: BaseException | None) -> None:
        from opentelemetry.context import detach

        if self._token is not None:
            detach(self._token)
        if error is not None:
            _set_error(span, error)
        span.end()

    def _guard(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as exc:  # noqa: BLE001  telemetry must not fail a send
            self._on_error(exc)


NO_STORE_SPAN = StoreSpan()


class PairingSpans:
    """Makes the spans of one pairing.

    A failover is a trace of its own, from the failover to the failback. A call that stores messages
    is a span in the trace of the caller, and links to the failover. Events are passed in one at a
    time; `storing` can be called from any thread.
    """

    def __init__(self, tracer: "Tracer", on_error: Callable[[Exception], None]) -> None:
        self._tracer = tracer
        self._on_error = on_error
        self._failovers: dict[str, Span] = {}

    def on_event(self, event: Event) -> None:
        """Begin and end the spans of failovers, and add events to them."""
        match event:
            case StateChanged(path=path, to_state=PathStatus.FAILOVER):
                if path not in self._failovers:
                    self._begin(event)
            case StateChanged(path=path, to_state=PathStatus.DRAINING):
                self._add(path, "draining", event.when)
            case StateChanged(path=path) if path in self._failovers:
                self._failovers.pop(path).end(_nanoseconds(event.when))
            case Pinged(path=path, error=error):
                self._add(path, "ping", event.when, _error_attributes(error))
            case DrainStalled(path=path, error=error):
                self._add(path, "drain stalled", event.when, _error_attributes(error))
            case Throttled(path=path, namespace=namespace):
                self._add(path, "throttled", event.when, {"namespace": namespace})
            case BacklogQueuePulled(queue=queue, cause=cause):
                self._add_to_all("queue pulled", event, _error_attributes(cause) | {"queue": queue})
            case BacklogQueueRestored(queue=queue):
                self._add_to_all("queue restored", event, {"queue": queue})
            case SecondaryUnavailable(cause=cause):
                self._add_to_all("secondary unavailable", event, _error_attributes(cause))
            case SecondaryRestored():
                self._add_to_all("secondary restored", event)

    def storing(self, path: str, messages: int, cause: BaseException | None) -> StoreSpan:
        """Return the span of a call that stores messages."""
        return StoreSpan(partial(self._start_store, path, messages, cause), self._on_error)

    def _start_store(self, path: str, messages: int, cause: BaseException | None) -> "Span":
        from opentelemetry.trace import Link

        attributes: dict[str, Any] = {SYSTEM: SERVICE_BUS, DESTINATION: path, BATCH_SIZE: messages}
        failover = self._failovers.get(path)
        links = [] if failover is None else [Link(failover.get_span_context())]
        return self._tracer.start_span(
            STORE_NAME.format(path), attributes=attributes | _cause_attributes(cause), links=links
        )

    def close(self) -> None:
        """End the spans of the failovers that last."""
        while self._failovers:
            self._failovers.popitem()[1].end()

    def _begin(self, change: StateChanged) -> None:
        from opentelemetry.context import Context

        attributes: dict[str, Any] = {SYSTEM: SERVICE_BUS, DESTINATION: change.path}
        # The failover concerns all callers, so it is not part of the trace of the first of them.
        self._failovers[change.path] = self._tracer.start_span(
            FAILOVER_NAME.format(change.path),
            context=Context(),
            attributes=attributes | _cause_attributes(change.cause),
            start_time=_nanoseconds(change.when),
        )

    def _add(
        self, path: str, name: str, when: datetime, attributes: Mapping[str, Any] | None = None
    ) -> None:
        if (span := self._failovers.get(path)) is not None:
            span.add_event(name, attributes, _nanoseconds(when))

    def _add_to_all(
        self, name: str, event: Event, attributes: Mapping[str, Any] | None = None
    ) -> None:
        for path in list(self._failovers):
            self._add(path, name, event.when, attributes)


def _set_error(span: "Span", error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute(ERROR, error_type(error))
    span.set_status(StatusCode.ERROR, error_text(error))


def _cause_attributes(cause: BaseException | None) -> dict[str, Any]:
    if cause is None:
        return {}
    return {CAUSE: error_text(cause), CAUSE_TYPE: error_type(cause)}


def _error_attributes(error: BaseException | None) -> dict[str, Any]:
    if error is None:
        return {}
    return {ERROR: error_type(error), "error.message": error_text(error)}


def _nanoseconds(when: datetime) -> int:
    """Return a time as OpenTelemetry has it."""
    return int(when.timestamp() * 1_000_000) * 1000
