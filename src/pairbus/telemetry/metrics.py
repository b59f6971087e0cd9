"""The metrics of pairbus: names, units, descriptions and attributes, in one table.

The names of the messaging semantic conventions of OpenTelemetry are used where they exist.
"""

from dataclasses import dataclass
from enum import StrEnum

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
BATCH_SIZE = "messaging.batch.message_count"
SERVER = "server.address"
PORT = "server.port"
"""Set if it is not the default port."""
ERROR = "error.type"
SERVICE_BUS = "servicebus"
"""The value of `messaging.system`."""

OPERATION_DURATION = "messaging.client.operation.duration"
SENT_MESSAGES = "messaging.client.sent.messages"
PROCESS_DURATION = "messaging.process.duration"
PATH_STATE = "pairbus.path.state"
FAILOVERS = "pairbus.failovers"
PINGS = "pairbus.pings"
THROTTLED_CALLS = "pairbus.throttled.calls"
OPERATIONS = "pairbus.operations"
OPERATION_BYTES = "pairbus.operation.bytes"
BACKLOG_MESSAGES = "pairbus.backlog.messages"
BACKLOG_ALL_MESSAGES = "pairbus.backlog.all_messages"
BACKLOG_AGE = "pairbus.backlog.oldest.age"
BACKLOG_DEAD_LETTERS = "pairbus.backlog.dead_letters"
DRAINED_MESSAGES = "pairbus.drained.messages"
DRAIN_RATE = "pairbus.drain.rate"
TIME_TO_GO = "pairbus.drain.time_to_go"
DEAD_LETTERS = "pairbus.dead_letters"
UNSETTLED_MESSAGES = "pairbus.unsettled.messages"
SYPHON_HEALTHY = "pairbus.syphon.healthy"
SYPHON_PAUSED = "pairbus.syphon.paused"
SYPHON_THROTTLED = "pairbus.syphon.throttled.calls"
NAMESPACE_AVAILABLE = "pairbus.namespace.available"
CONSOLE_SENDERS = "pairbus.console.senders"
CONSOLE_OPERATIONS = "pairbus.console.operations"
OUTAGE_COST = "pairbus.outage.cost"

CONSOLE = "console"
"""The process that records a metric, if only the console does. Its metrics are for Prometheus."""

DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The bucket boundaries of durations in seconds, which the conventions recommend."""


class MetricKind(StrEnum):
    """The kind of a metric, by the names of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: MetricKind
    unit: str
    """The unit in UCUM, as OpenTelemetry writes it. Empty for a state: exporters to Prometheus take
    the unit 1 for a ratio, and add that to the name."""
    description: str
    attributes: tuple[str, ...]
    recorded_by: str
    """The processes that record it: senders, syphon or console."""


_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

_METRICS = (
    Metric(
        OPERATION_DURATION,
        _HISTOGRAM,
        "s",
        "Duration of a call of a sender to a namespace.",
        (SYSTEM, OPERATION, OPERATION_TYPE, DESTINATION, SERVER, PORT, ERROR),
        "senders",
    ),
    Metric(
        SENT_MESSAGES,
        _COUNTER,
        "{message}",
        "Messages that the primary or the backlog accepted, or whose call failed.",
        (SYSTEM, OPERATION, OPERATION_TYPE, DESTINATION, SERVER, PORT, ERROR),
        "senders",
    ),
    Metric(
        PATH_STATE,
        _GAUGE,
        "",
        "State of a path: 1 for the current state, 0 for the others.",
        ("path", "state"),
        "senders",
    ),
    Metric(
        FAILOVERS,
        _COUNTER,
        "{failover}",
        "Failovers of a path, by the type of the error that caused them.",
        ("path", "cause"),
        "senders",
    ),
    Metric(
        PINGS,
        _COUNTER,
        "{ping}",
        "Pings and probes of the primary.",
        ("path", "outcome"),
        "senders",
    ),
    Metric(
        THROTTLED_CALLS,
        _COUNTER,
        "{call}",
        "Calls that a namespace did not accept because it throttles.",
        ("namespace",),
        "senders",
    ),
    Metric(
        OPERATIONS,
        _COUNTER,
        "{operation}",
        "Billable operations that a namespace answered.",
        ("kind", "namespace"),
        "senders",
    ),
    Metric(
        OPERATION_BYTES,
        _COUNTER,
        "By",
        "Size of the messages of billable operations.",
        ("kind", "namespace"),
        "senders",
    ),
    Metric(
        DRAINED_MESSAGES,
        _COUNTER,
        "{message}",
        "Messages that the syphon moved to their destination.",
        ("pairing", "destination"),
        "syphon",
    ),
    Metric(
        DRAIN_RATE,
        _GAUGE,
        "{message}/s",
        "Messages a second that the syphon moves.",
        ("pairing",),
        "syphon",
    ),
    Metric(
        TIME_TO_GO,
        _GAUGE,
        "s",
        "Time until the backlog is empty, if it is known.",
        ("pairing",),
        "syphon",
    ),
    Metric(
        DEAD_LETTERS,
        _COUNTER,
        "{message}",
        "Messages that the syphon dead-lettered in the backlog.",
        ("pairing", "destination", "reason"),
        "syphon",
    ),
    Metric(
        UNSETTLED_MESSAGES,
        _COUNTER,
        "{message}",
        "Messages that were moved, could not be completed in the backlog, and are moved again.",
        ("pairing",),
        "syphon",
    ),
    Metric(
        SYPHON_THROTTLED,
        _COUNTER,
        "{call}",
        "Calls of the syphon that a namespace did not accept because it throttles.",
        ("pairing", "role"),
        "syphon",
    ),
    Metric(
        SYPHON_HEALTHY,
        _GAUGE,
        "",
        "Health of the syphon: 1 if there is progress or nothing to do, 0 if not.",
        ("pairing",),
        "syphon",
    ),
    Metric(
        SYPHON_PAUSED,
        _GAUGE,
        "",
        "1 if an operator has paused the syphon, 0 if not.",
        ("pairing",),
        "syphon",
    ),
    Metric(
        PROCESS_DURATION,
        _HISTOGRAM,
        "s",
        "Time in which the syphon moved the messages of one destination in one task.",
        (SYSTEM, OPERATION, OPERATION_TYPE, DESTINATION, SERVER, PORT),
        "syphon",
    ),
    Metric(
        BACKLOG_ALL_MESSAGES,
        _GAUGE,
        "{message}",
        "Messages in the backlog, if they were counted.",
        ("pairing",),
        "syphon",
    ),
    Metric(
        BACKLOG_MESSAGES,
        _GAUGE,
        "{message}",
        "Messages in the backlog by destination, estimated from samples if there are many.",
        ("pairing", "destination"),
        CONSOLE,
    ),
    Metric(
        BACKLOG_AGE,
        _GAUGE,
        "s",
        "Age of the oldest message in the backlog, where it was peeked at.",
        ("pairing", "destination"),
        CONSOLE,
    ),
    Metric(
        BACKLOG_DEAD_LETTERS,
        _GAUGE,
        "{message}",
        "Dead letters of the backlog queues, estimated from samples if there are many.",
        ("pairing", "destination", "reason"),
        CONSOLE,
    ),
    Metric(
        NAMESPACE_AVAILABLE,
        _GAUGE,
        "",
        "1 if the last inspection of the console reached the namespace, 0 if not.",
        ("pairing", "role"),
        CONSOLE,
    ),
    Metric(
        CONSOLE_SENDERS,
        _GAUGE,
        "{sender}",
        "Sender processes that report, and those that stopped reporting.",
        ("pairing", "state"),
        CONSOLE,
    ),
    Metric(
        CONSOLE_OPERATIONS,
        _COUNTER,
        "{operation}",
        "Billable operations of the console's own inspections.",
        ("pairing",),
        CONSOLE,
    ),
    Metric(
        OUTAGE_COST,
        _GAUGE,
        "",
        "Cost of the current or last outage so far, by the ledger.",
        ("pairing", "currency"),
        CONSOLE,
    ),
)

METRICS = {metric.name: metric for metric in _METRICS}
"""All metrics by name."""
