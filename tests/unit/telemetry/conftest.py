import pytest

from tests.telemetry import RecordedTelemetry


@pytest.fixture
def recorded() -> RecordedTelemetry:
    return RecordedTelemetry()
