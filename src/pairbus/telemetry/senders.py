"""Records what the senders of a pairing do: durations of calls, operations, and events."""

import logging
import os
from collections.abc import Iterator, Sequence
from threading import Lock
from time import perf_counter
from typing import NamedTuple

from pairbus.events import Event, PathStatus, Pinged, Probed, StateChanged, Throttled
from pairbus.telemetry.durations import CallTimer, Durations
from pairbus.telemetry.error_types import error_type
from pairbus.telemetry.metrics import (
    DESTINATION,
    ERROR,
    FAILOVERS,
    OPERATION,
    OPERATION_BYTES,
    OPERATION_DURATION,
    OPERATION_TYPE,
    OPERATIONS,
    PINGS,
    PORT,
    SERVER,
    SERVICE_BUS,
    SYSTEM,
    THROTTLED_CALLS,
)
from pairbus.telemetry.providers import Telemetry
from pairbus.telemetry.samples import Sample, SampleSource
from pairbus.telemetry.spans import NO_STORE_SPAN, PairingSpans, StoreSpan

logger = logging.getLogger("pairbus.telemetry")

SEND, SCHEDULE, CANCEL = "send", "schedule", "cancel"
"""The names of operations."""


class ServerAddress(NamedTuple):
    """The address of a namespace."""

    host: str
    port: int | None = None
    """None: the default port."""


def send_attributes(operation: str, path: str, server: ServerAddress) -> dict[str, str | int]:
    """Return the attributes of calls of a sender. The destination of a message in the backlog is
    the path that it is for; its server is the secondary."""
    attributes: dict[str, str | int] = {
        SYSTEM: SERVICE_BUS,
        OPERATION: operation,
        DESTINATION: path,
        SERVER: server.host,
    }
    if operation != CANCEL:
        attributes[OPERATION_TYPE] = SEND
    if server.port is not None:
        attributes[PORT] = server.port
    return dict(sorted(attributes.items()))  # the SDK sorts them for each record


class SenderTelemetry:
    """The telemetry of one pairing. Can be used from any thread.

    A failure of the application's SDK is logged once, and does not reach the caller.
    """

    def __init__(
        self, telemetry: Telemetry, *, primary: ServerAddress, secondary: ServerAddress
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self._instruments = telemetry.instruments
        self._durations: Durations | None = None
        if telemetry.instruments is not None:
            histogram = telemetry.instruments.histograms[OPERATION_DURATION]
            self._durations = Durations(histogram, self._log_failure)
        self._spans: PairingSpans | None = None
        if telemetry.tracer is not None:
            self._spans = PairingSpans(telemetry.tracer, self._log_failure)
        self._attributes: dict[tuple[str, str, bool], dict[str, str | int]] = {}
        self._operations: dict[tuple[str, str], list[int]] = {}
        """Operations and bytes, by kind and namespace."""
        self._lock = Lock()
        self._pid = os.getpid()
        self._source: SampleSource | None = None
        self._has_failed = False

    def observe(self, source: SampleSource) -> None:
        """Report the values of a source, and the operations, until `close`."""
        self._source = source
        if self._instruments is not None:
            self._instruments.observe(self)

    def samples(self) -> Iterator[Sample]:
        """Return the current values; none in a forked child, where the pairing is not usable and
        a thread of the parent may hold the lock."""
        if os.getpid() != self._pid:
            return
        if self._durations is not None:
            self._durations.record()
        if self._source is not None:
            yield from self._source.samples()
        with self._lock:
            operations = {key: tuple(sums) for key, sums in self._operations.items()}
        for (kind, namespace), (count, size) in operations.items():
            labels = {"kind": kind, "namespace": namespace}
            yield Sample(OPERATIONS, count, labels)
            yield Sample(OPERATION_BYTES, size, labels)

    def close(self) -> None:
        """End the spans and the source. Can be called repeatedly."""
        if self._instruments is not None:
            self._instruments.end(self)
        if self._spans is not None:
            try:
                self._spans.close()
            except Exception as exc:  # noqa: BLE001  telemetry must not fail the application
                self._log_failure(exc)

    def send_timer(self, path: str) -> CallTimer | None:
        """Return the timer of sends that the primary accepts, or None if there are no metrics."""
        if self._durations is None:
            return None
        return CallTimer(self._durations, self._attributes_of(SEND, path, secondary=False))

    def call_ended(
        self,
        operation: str,
        path: str,
        started_at: float,
        error: BaseException | None = None,
        *,
        secondary: bool = False,
    ) -> None:
        """Record the duration of a call to a namespace, which began at a time of `perf_counter`."""
        if self._durations is None:
            return
        seconds = perf_counter() - started_at
        attributes = self._attributes_of(operation, path, secondary=secondary)
        if error is not None:
            attributes = attributes | {ERROR: error_type(error)}
        self._durations.add(seconds, attributes)

    def _attributes_of(self, operation: str, path: str, *, secondary: bool) -> dict[str, str | int]:
        key = operation, path, secondary
        attributes = self._attributes.get(key)
        if attributes is None:
            server = self.secondary if secondary else self.primary
            attributes = self._attributes[key] = send_attributes(operation, path, server)
        return attributes

    def count_operations(self, kind: str, namespace: str, sizes: Sequence[int]) -> None:
        """Count billable operations that a namespace answered: one for each message size, or one
        without a message."""
        with self._lock:
            sums = self._operations.get((kind, namespace))
            if sums is None:
                sums = self._operations[kind, namespace] = [0, 0]
            sums[0] += len(sizes) or 1
            sums[1] += sum(sizes)

    def on_event(self, event: Event) -> None:
        """Record an event of the pairing."""
        if self._instruments is not None:
            self._count_event(event)
        if self._spans is not None:
            self._spans.on_event(event)

    def _count_event(self, event: Event) -> None:
        assert self._instruments is not None
        match event:
            case StateChanged(path=path, to_state=PathStatus.FAILOVER, cause=cause):
                name = "" if cause is None else type(cause).__name__
                self._instruments.add(FAILOVERS, 1, {"path": path, "cause": name})
            case Pinged(path=path) | Probed(path=path):
                self._instruments.add(PINGS, 1, {"path": path, "outcome": _outcome(event)})
            case Throttled(namespace=namespace):
                self._instruments.add(THROTTLED_CALLS, 1, {"namespace": namespace})

    def storing(self, path: str, messages: int, cause: BaseException | None) -> StoreSpan:
        """Return a span around the storing of messages in the backlog. `cause` is the reason of
        the failover."""
        if self._spans is None:
            return NO_STORE_SPAN
        return self._spans.storing(path, messages, cause)

    def _log_failure(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.warning("OpenTelemetry raised %r; later errors are not logged", error)


def _outcome(event: Pinged | Probed) -> str:
    if event.error is None:
        return "accepted"
    return "refused" if isinstance(event, Pinged) and event.refused else "failed"
