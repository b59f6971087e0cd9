"""Samples in the text formats of Prometheus and OpenMetrics."""

import math
import re

import pytest

from pairbus.telemetry import prometheus
from pairbus.telemetry.metrics import (
    BACKLOG_AGE,
    BACKLOG_MESSAGES,
    DRAIN_RATE,
    DRAINED_MESSAGES,
    METRICS,
    OPERATION_BYTES,
    OPERATION_DURATION,
    PATH_STATE,
    SENT_MESSAGES,
    Metric,
    MetricKind,
)
from pairbus.telemetry.prometheus import (
    ExpositionFormat,
    choose_format,
    prometheus_name,
    render_metrics,
)
from pairbus.telemetry.samples import Sample

pytestmark = pytest.mark.rule("O1")

SAMPLES = [
    Sample(DRAIN_RATE, 12.5, {"pairing": "one"}),
    Sample(DRAINED_MESSAGES, 3, {"pairing": "one", "destination": "orders"}),
    Sample(OPERATION_BYTES, 1024, {"kind": "send", "namespace": "one"}),
    Sample(PATH_STATE, 1, {"path": "orders", "state": "healthy"}),
]


def lines(*samples: Sample) -> list[str]:
    """Return the lines of samples without the metadata."""
    text = render_metrics(samples).decode()
    return [line for line in text.split("\n")[:-1] if not line.startswith("#")]


def value(number: float) -> str:
    return lines(Sample(DRAIN_RATE, number, {}))[0].partition(" ")[2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (OPERATION_DURATION, "messaging_client_operation_duration_seconds"),
        (SENT_MESSAGES, "messaging_client_sent_messages_total"),
        (PATH_STATE, "pairbus_path_state"),
        (OPERATION_BYTES, "pairbus_operation_bytes_total"),
        (DRAIN_RATE, "pairbus_drain_rate_per_second"),
        (BACKLOG_AGE, "pairbus_backlog_oldest_age_seconds"),
    ],
)
def test_name_has_the_unit_and_the_suffix_of_counters(name: str, expected: str) -> None:
    assert prometheus_name(METRICS[name]) == expected


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_every_metric_has_a_valid_name(metric: Metric) -> None:
    name = prometheus_name(metric)

    assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name)
    assert name.endswith("_total") == (metric.kind is MetricKind.COUNTER)


def test_names_are_unique() -> None:
    assert len({prometheus_name(metric) for metric in METRICS.values()}) == len(METRICS)


def test_plain_text_has_help_and_type_of_each_metric_once() -> None:
    assert render_metrics(SAMPLES).decode() == (
        "# HELP pairbus_path_state State of a path: 1 for the current state, 0 for the others.\n"
        "# TYPE pairbus_path_state gauge\n"
        'pairbus_path_state{path="orders",state="healthy"} 1.0\n'
        "# HELP pairbus_operation_bytes_total Size of the messages of billable operations.\n"
        "# TYPE pairbus_operation_bytes_total counter\n"
        'pairbus_operation_bytes_total{kind="send",namespace="one"} 1024.0\n'
        "# HELP pairbus_drained_messages_total Messages that the syphon moved to their "
        "destination.\n"
        "# TYPE pairbus_drained_messages_total counter\n"
        'pairbus_drained_messages_total{pairing="one",destination="orders"} 3.0\n'
        "# HELP pairbus_drain_rate_per_second Messages a second that the syphon moves.\n"
        "# TYPE pairbus_drain_rate_per_second gauge\n"
        'pairbus_drain_rate_per_second{pairing="one"} 12.5\n'
    )


def test_openmetrics_has_units_families_without_the_suffix_and_an_end() -> None:
    text = render_metrics(SAMPLES, ExpositionFormat.OPENMETRICS).decode()

    assert text.startswith("# HELP pairbus_path_state State of a path: ")
    assert (
        "# TYPE pairbus_operation_bytes counter\n"
        "# UNIT pairbus_operation_bytes bytes\n"
        'pairbus_operation_bytes_total{kind="send",namespace="one"} 1024.0\n'
    ) in text
    assert "# UNIT pairbus_drain_rate_per_second per_second\n" in text
    assert "# UNIT pairbus_drained_messages" not in text
    assert text.endswith('pairbus_drain_rate_per_second{pairing="one"} 12.5\n# EOF\n')


def test_nothing_is_rendered_without_samples() -> None:
    assert render_metrics([]) == b""
    assert render_metrics([], ExpositionFormat.OPENMETRICS) == b"# EOF\n"


def test_label_values_are_escaped() -> None:
    assert lines(Sample(BACKLOG_MESSAGES, 1, {"destination": 'a"b\\c\nd'})) == [
        'pairbus_backlog_messages{destination="a\\"b\\\\c\\nd"} 1.0'
    ]


def test_characters_that_cannot_be_encoded_are_replaced() -> None:
    assert lines(Sample(BACKLOG_MESSAGES, 1, {"destination": "a\ud800b"})) == [
        'pairbus_backlog_messages{destination="a?b"} 1.0'
    ]


def test_names_of_labels_have_no_dots_and_numbers_become_text() -> None:
    labels: dict[str, str | int] = {"messaging.destination.name": "orders", "server.port": 5672}

    (line,) = lines(Sample(SENT_MESSAGES, 1, labels))
    assert line.endswith('_total{messaging_destination_name="orders",server_port="5672"} 1.0')


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0.0"),
        (-1.5, "-1.5"),
        (10**20, "1e+20"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(number: float, expected: str) -> None:
    assert value(number) == expected


def test_counters_with_the_same_labels_are_added_and_the_last_gauge_counts() -> None:
    samples = [
        Sample(name, number, {"pairing": "a"})
        for name in (DRAINED_MESSAGES, DRAIN_RATE)
        for number in (2, 5)
    ]

    assert lines(*samples) == [
        'pairbus_drained_messages_total{pairing="a"} 7.0',
        'pairbus_drain_rate_per_second{pairing="a"} 5.0',
    ]


def test_number_of_series_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MAX_SERIES", 2)
    samples = [Sample(DRAINED_MESSAGES, 1, {"destination": name}) for name in "abcab"]

    assert lines(*samples) == [
        'pairbus_drained_messages_total{destination="a"} 2.0',
        'pairbus_drained_messages_total{destination="b"} 2.0',
    ]


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text",
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        "application/openmetrics-text;version=0.0.1;q=0.9, application/openmetrics-text;q=0.1",
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "application/openmetrics-text;escaping=allow-utf-8;q=0.6,text/plain;q=0.3,*/*;q=0.2",
    ],
)
def test_openmetrics_is_chosen_if_the_client_names_it(accept: str) -> None:
    assert choose_format(accept) is ExpositionFormat.OPENMETRICS


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/html, */*;q=0.1",
        "application/openmetrics-text;version=0.0.1",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;q=many",
        "application/openmetrics-text;q=0.2, text/plain;q=0.5",
        ";;,=,q",
    ],
)
def test_plain_text_is_chosen_otherwise(accept: str) -> None:
    assert choose_format(accept) is ExpositionFormat.PROMETHEUS
