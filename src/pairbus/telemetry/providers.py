"""Decides whether telemetry is on, and connects it to the providers of the application.

OpenTelemetry is imported only if the application has imported it, or asks for telemetry.
"""

import os
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import TYPE_CHECKING

from pairbus.errors import ConfigurationError
from pairbus.telemetry.instruments import Instruments

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

_MODULES = ("opentelemetry.metrics", "opentelemetry.trace")
_VARIABLES = ("OTEL_PYTHON_METER_PROVIDER", "OTEL_PYTHON_TRACER_PROVIDER")
"""With these, the API of OpenTelemetry loads a provider by itself."""

_lock = Lock()
_last: "list[tuple[MeterProvider, Instruments]]" = []
"""The last provider of metrics and its instruments."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The instruments and the tracer. None: the application has no provider for them."""

    instruments: Instruments | None
    tracer: "Tracer | None"


def find_telemetry(enabled: bool | None) -> Telemetry | None:
    """Return the telemetry of this process, or None if it is off.

    `enabled` None: it is on if the application has set a provider. True: it is on even if a
    provider is set later; raises ConfigurationError if OpenTelemetry is not installed.
    """
    if enabled is False or (enabled is None and not _may_be_configured()):
        return None
    try:
        from opentelemetry import metrics, trace
    except ImportError as exc:
        if enabled is None:
            return None
        raise ConfigurationError(
            "telemetry=True needs the package opentelemetry-api. Run: pip install "
            "'pairbus[telemetry]'"
        ) from exc
    meters, tracers = metrics.get_meter_provider(), trace.get_tracer_provider()
    return make_telemetry(
        meters if enabled or is_real(meters) else None,
        tracers if enabled or is_real(tracers) else None,
    )


def make_telemetry(
    meters: "MeterProvider | None", tracers: "TracerProvider | None"
) -> Telemetry | None:
    """Return telemetry for these providers, or None if there are none."""
    if meters is None and tracers is None:
        return None
    return Telemetry(
        None if meters is None else _instruments_of(meters),
        None if tracers is None else tracers.get_tracer("pairbus", _version()),
    )


def is_real(provider: "MeterProvider | TracerProvider") -> bool:
    """Return False for the placeholders of the API, which record nothing."""
    return not type(provider).__module__.startswith(_MODULES)


def _may_be_configured() -> bool:
    """Return False if the application cannot have set a provider."""
    return any(name in sys.modules for name in _MODULES) or any(
        name in os.environ for name in _VARIABLES
    )


def _instruments_of(provider: "MeterProvider") -> Instruments:
    """Return the instruments of a provider, always the same ones: an instrument that is created
    twice is reported twice."""
    with _lock:
        # The placeholder of the API passes its instruments on to the provider that is set later.
        if not _last or (_last[0][0] is not provider and is_real(_last[0][0])):
            _last[:] = [(provider, Instruments(provider.get_meter("pairbus", _version())))]
        return _last[0][1]


def _version() -> str | None:
    try:
        return version("pairbus")
    except PackageNotFoundError:  # a copy of the source, as on a Spark worker
        return None
