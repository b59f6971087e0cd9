"""Telemetry with the SDK of OpenTelemetry and its exporters in memory."""

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, Metric
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pairbus.telemetry.providers import Telemetry, make_telemetry

Point = tuple[dict[str, Any], Any]
"""The attributes and the value of a data point; of a histogram, the count."""


class RecordedTelemetry:
    """The providers of an application, and what they have recorded."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._exporter = InMemorySpanExporter()
        self.meters = MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        telemetry = make_telemetry(self.meters, self.tracers)
        assert telemetry is not None
        self.telemetry: Telemetry = telemetry

    def metrics(self) -> dict[str, Metric]:
        """Return all metrics that have a value."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> list[Point]:
        """Return the data points of a metric."""
        metric = self.metrics().get(name)
        if metric is None:
            return []
        return [
            (
                dict(point.attributes or {}),
                point.count if isinstance(point, HistogramDataPoint) else point.value,
            )
            for point in metric.data.data_points
        ]

    def value(self, name: str, **labels: str | int) -> Any:
        """Return the sum of the data points that have these attributes, written with `_`."""
        return sum(value for attributes, value in self.points(name) if _has(attributes, labels))

    def spans(self, prefix: str = "") -> list[ReadableSpan]:
        """Return the spans that have ended, in the order of their ends."""
        spans = self._exporter.get_finished_spans()
        return [span for span in spans if span.name.startswith(prefix)]


def set_providers(patches: pytest.MonkeyPatch) -> RecordedTelemetry:
    """Return the providers of the application, until the patches are undone. The API sets them once
    for a process, so the functions that return them are replaced."""
    recorded = RecordedTelemetry()
    patches.setattr(metrics, "get_meter_provider", lambda: recorded.meters)
    patches.setattr(trace, "get_tracer_provider", lambda: recorded.tracers)
    return recorded


def _has(attributes: Mapping[str, Any], labels: Mapping[str, str | int]) -> bool:
    values = {key.replace(".", "_"): value for key, value in attributes.items()}
    return all(values.get(key) == value for key, value in labels.items())
