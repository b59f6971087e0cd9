"""Drained messages as spans, and how long the drain took.

The processes of Spark that move messages have no SDK of OpenTelemetry. They describe what they did
in a `DrainRecord`, and the process that started the syphon makes the spans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pairbus.telemetry.metrics import (
    BATCH_SIZE,
    DESTINATION,
    OPERATION,
    OPERATION_TYPE,
    PORT,
    PROCESS_DURATION,
    SERVER,
    SERVICE_BUS,
    SYSTEM,
)
from pairbus.telemetry.providers import Telemetry
from pairbus.telemetry.senders import ServerAddress

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer

MAX_TRACED = 128
"""The most messages of a record that have a context: OpenTelemetry allows as many links."""
QUEUE = "pairbus.backlog.queue"
DRAIN_NAME, WAIT_NAME = "drain {}", "wait {}"


class TracedMessage(NamedTuple):
    """A message that was moved, and the context of its producer."""

    traceparent: str
    tracestate: str | None
    queue: str
    """The backlog queue."""
    enqueued_time: int | None
    """The time when the backlog stored the message, in microseconds since 1970."""
    moved_time: int
    """The time when the destination had accepted it, in microseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRecord:
    """The messages that one task moved to one destination."""

    destination: str
    messages: int
    started_at: float
    """The start of the task, in seconds since 1970."""
    ended_at: float
    """The last delivery."""
    traced: tuple[TracedMessage, ...] = ()
    """Some of the messages: those with a context, at most `MAX_TRACED`."""

    def to_json(self) -> dict[str, Any]:
        """Return the values for a JSON file."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "DrainRecord":
        """Return a record from its JSON values."""
        traced = tuple(TracedMessage(*each) for each in values["traced"])
        return cls(**{**values, "traced": traced})


class DrainTelemetry:
    """Makes spans and durations from records."""

    def __init__(self, telemetry: Telemetry, primary: ServerAddress) -> None:
        self._telemetry = telemetry
        self._primary = primary

    def add(self, record: DrainRecord) -> None:
        """Add the span of a drain, those of the waits of its messages, and its duration."""
        attributes: dict[str, str | int] = {
            SYSTEM: SERVICE_BUS,
            OPERATION: "drain",
            OPERATION_TYPE: "process",
            DESTINATION: record.destination,
            SERVER: self._primary.host,
        }
        if self._primary.port is not None:
            attributes[PORT] = self._primary.port
        if self._telemetry.instruments is not None:
            histogram = self._telemetry.instruments.histograms[PROCESS_DURATION]
            histogram.record(record.ended_at - record.started_at, attributes)
        if self._telemetry.tracer is not None:
            _add_spans(self._telemetry.tracer, record, attributes | {BATCH_SIZE: record.messages})


def _add_spans(tracer: "Tracer", record: DrainRecord, attributes: Mapping[str, str | int]) -> None:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind

    producers = [(message, _context_of(message)) for message in record.traced]
    drain = tracer.start_span(
        DRAIN_NAME.format(record.destination),
        context=Context(),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=_links([context for _, context in producers]),
        start_time=int(record.started_at * 1e9),
    )
    for message, context in producers:
        if message.enqueued_time is not None:
            _add_wait(tracer, record.destination, message, message.enqueued_time, context, drain)
    drain.end(int(record.ended_at * 1e9))


def _add_wait(
    tracer: "Tracer",
    destination: str,
    message: TracedMessage,
    enqueued_time: int,
    context: "Context",
    drain: "Span",
) -> None:
    from opentelemetry.trace import Link

    attributes = {SYSTEM: SERVICE_BUS, DESTINATION: destination, QUEUE: message.queue}
    span = tracer.start_span(
        WAIT_NAME.format(destination),
        context=context,
        attributes=attributes,
        links=[Link(drain.get_span_context())],
        start_time=enqueued_time * 1000,
    )
    # The enqueued time is that of another clock.
    span.end(max(enqueued_time, message.moved_time) * 1000)


def _context_of(message: TracedMessage) -> "Context":
    """Return the context of the producer, whatever propagators the application uses: the SDK of
    Service Bus writes W3C trace contexts."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": message.traceparent}
    if message.tracestate is not None:
        carrier["tracestate"] = message.tracestate
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _links(contexts: "Sequence[Context]") -> "list[Link]":
    from opentelemetry.trace import Link, get_current_span

    return [Link(get_current_span(context).get_span_context()) for context in contexts]
