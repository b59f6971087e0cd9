"""Metrics in the text formats of Prometheus and of OpenMetrics. No I/O.

The names follow the rules of OpenTelemetry for Prometheus, so that a metric has the same name here
as behind an exporter of OpenTelemetry.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from pairbus.telemetry.metrics import METRICS, Metric, MetricKind
from pairbus.telemetry.samples import Sample

MAX_SERIES: Final = 2_000
"""Series of one metric. More would be a burden for a Prometheus server."""

_ANNOTATION: Final = re.compile(r"\{[^}]*\}")
_UNITS: Final = {"": "", "s": "seconds", "By": "bytes"}
_PER_UNITS: Final = {"s": "per_second"}
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9]+")


class ExpositionFormat(Enum):
    """A text format. The value is its content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def choose_format(accept: str) -> ExpositionFormat:
    """Return the format for an Accept header: OpenMetrics if the client names it, and does not
    prefer plain text."""
    openmetrics = text = 0.0
    for media_range in accept.lower().split(","):
        name, *parameters = (part.strip() for part in media_range.split(";"))
        values = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        quality = _quality(values.get("q", "1"))
        if name == "text/plain":
            text = max(text, quality)
        elif name == "application/openmetrics-text" and values.get("version", "1.0.0") == "1.0.0":
            openmetrics = max(openmetrics, quality)
    if openmetrics > 0 and openmetrics >= text:
        return ExpositionFormat.OPENMETRICS
    return ExpositionFormat.PROMETHEUS


def prometheus_unit(unit: str) -> str:
    """Return the name of a unit, or an empty text. Annotations such as `{message}` are no units."""
    numerator, slash, denominator = _ANNOTATION.sub("", unit).partition("/")
    words = [_UNITS[numerator], _PER_UNITS[denominator] if slash else ""]
    return "_".join(word for word in words if word)


def prometheus_name(metric: Metric) -> str:
    """Return the name of the samples of a metric."""
    return f"{_family_name(metric)}{_suffix(metric)}"


def render_metrics(
    samples: Iterable[Sample], exposition: ExpositionFormat = ExpositionFormat.PROMETHEUS
) -> bytes:
    """Return samples as text. Counters with the same labels are added; of gauges with the same
    labels, the last one counts."""
    families: dict[str, dict[str, float]] = {}
    for sample in samples:
        series = families.setdefault(sample.name, {})
        labels = _labels(sample.labels)
        is_counter = METRICS[sample.name].kind is MetricKind.COUNTER
        if labels in series or len(series) < MAX_SERIES:
            series[labels] = sample.value + (series.get(labels, 0) if is_counter else 0)
    lines: list[str] = []
    for name, metric in METRICS.items():
        if name in families:
            lines += _family(metric, families[name], exposition)
    if exposition is ExpositionFormat.OPENMETRICS:
        lines.append("# EOF")
    return "".join(f"{line}\n" for line in lines).encode()


def _family(
    metric: Metric, series: Mapping[str, float], exposition: ExpositionFormat
) -> Iterator[str]:
    sample_name = prometheus_name(metric)
    if exposition is ExpositionFormat.OPENMETRICS:
        family, text = _family_name(metric), _quote(metric.description)
    else:
        family, text = sample_name, _escape(metric.description)
    yield f"# HELP {family} {text}"
    yield f"# TYPE {family} {metric.kind}"
    unit = prometheus_unit(metric.unit)
    if unit and exposition is ExpositionFormat.OPENMETRICS:
        yield f"# UNIT {family} {unit}"
    for labels, value in series.items():
        yield f"{sample_name}{labels} {_number(value)}"


def _family_name(metric: Metric) -> str:
    name, unit = _NOT_IN_NAMES.sub("_", metric.name), prometheus_unit(metric.unit)
    return f"{name}_{unit}" if unit and not name.endswith(f"_{unit}") else name


def _suffix(metric: Metric) -> str:
    return "_total" if metric.kind is MetricKind.COUNTER else ""


def _labels(labels: Mapping[str, str | int]) -> str:
    pairs = (
        f'{_NOT_IN_NAMES.sub("_", name)}="{_quote(_valid(str(value)))}"'
        for name, value in labels.items()
    )
    text = ",".join(pairs)
    return f"{{{text}}}" if text else ""


def _valid(text: str) -> str:
    """Return a text that UTF-8 can encode. The names in the report of a sender can be any text."""
    return text.encode("utf-8", "replace").decode()


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quote(text: str) -> str:
    return _escape(text).replace('"', '\\"')
