from collections.abc import Iterator

import pytest

from tests.telemetry import RecordedTelemetry


@pytest.fixture
def recorded() -> Iterator[RecordedTelemetry]:
    telemetry = RecordedTelemetry()
    yield telemetry
    telemetry.shutdown()
