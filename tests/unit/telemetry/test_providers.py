"""Telemetry is on if the application has configured OpenTelemetry, and costs nothing otherwise.

Each case is a process of its own: providers can be set once in a process.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.rule("O1")

TIMEOUT_S = 60.0
IMPORTED = "any(name.partition('.')[0] == 'opentelemetry' for name in sys.modules)"
SET_METERS = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
metrics.set_meter_provider(MeterProvider())
"""
SET_TRACERS = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
"""
BLOCKED = """
class Finder:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
"""


def run(code: str, **environment: str) -> None:
    """Run code that ends with assertions, after `find_telemetry` was imported."""
    start = "import sys, warnings\nfrom pairbus.telemetry.providers import find_telemetry\n"
    result = subprocess.run(
        [sys.executable, "-c", start + code],
        env={"PYTHONPATH": ":".join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_nothing_is_imported_if_nothing_is_configured() -> None:
    run(f"assert find_telemetry(None) is None\nassert not {IMPORTED}")


def test_pairing_imports_no_telemetry_of_others() -> None:
    run(f"import pairbus.pairing.client, pairbus.pairing.aio.client\nassert not {IMPORTED}")


def test_imported_package_without_a_provider_is_not_used() -> None:
    run("from opentelemetry import metrics, trace\nassert find_telemetry(None) is None")


@pytest.mark.parametrize("enabled", ["None", "True"])
def test_providers_that_are_set_are_used(enabled: str) -> None:
    run(
        f"{SET_METERS}{SET_TRACERS}\ntelemetry = find_telemetry({enabled})\n"
        "assert telemetry.instruments is not None\nassert telemetry.tracer is not None\n"
        f"assert find_telemetry({enabled}).instruments is telemetry.instruments"
    )


@pytest.mark.parametrize(
    ("code", "has_metrics", "has_traces"), [(SET_METERS, True, False), (SET_TRACERS, False, True)]
)
def test_only_the_provider_that_is_set_is_used(
    code: str, has_metrics: bool, has_traces: bool
) -> None:
    run(
        f"{code}\ntelemetry = find_telemetry(None)\n"
        f"assert (telemetry.instruments is not None) is {has_metrics}\n"
        f"assert (telemetry.tracer is not None) is {has_traces}"
    )


def test_provider_of_the_environment_is_used() -> None:
    run(
        "telemetry = find_telemetry(None)\nassert telemetry.tracer is not None\n"
        "assert telemetry.instruments is None",
        OTEL_PYTHON_TRACER_PROVIDER="sdk_tracer_provider",
    )


def test_telemetry_that_is_switched_off_is_off() -> None:
    run(f"{SET_METERS}{SET_TRACERS}\nassert find_telemetry(False) is None")


def test_provider_that_is_set_later_is_used_if_telemetry_is_switched_on() -> None:
    run(
        """
first = find_telemetry(True)
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
trace.set_tracer_provider(TracerProvider())
second = find_telemetry(None)
assert second.instruments is first.instruments
first.instruments.add("pairbus.failovers", 1, {"path": "orders", "cause": ""})
[resource] = reader.get_metrics_data().resource_metrics
[scope] = resource.scope_metrics
assert [metric.name for metric in scope.metrics] == ["pairbus.failovers"]
assert scope.scope.name == "pairbus"
assert first.tracer.start_span("x").is_recording()
"""
    )


def test_missing_package_is_an_error_only_if_telemetry_is_switched_on() -> None:
    run(
        f"""{BLOCKED}
from pairbus.errors import ConfigurationError
assert find_telemetry(None) is None
try:
    find_telemetry(True)
except ConfigurationError as error:
    assert "pip install 'pairbus[telemetry]'" in str(error), error
else:
    raise AssertionError
"""
    )


def test_missing_package_is_no_error_if_a_variable_names_a_provider() -> None:
    run(f"{BLOCKED}\nassert find_telemetry(None) is None", OTEL_PYTHON_METER_PROVIDER="sdk")
