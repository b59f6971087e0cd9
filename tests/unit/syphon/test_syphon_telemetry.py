"""Metrics of a syphon from its status, and its drains as spans."""

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pairbus.syphon import drain_files
from pairbus.syphon.drain_files import DrainFiles
from pairbus.syphon.status import SyphonStatus, initial_status
from pairbus.syphon.telemetry import SyphonTelemetry
from pairbus.telemetry.drains import DrainRecord
from pairbus.telemetry.metrics import (
    DEAD_LETTERS,
    DRAIN_RATE,
    DRAINED_MESSAGES,
    METRICS,
    SYPHON_HEALTHY,
    UNSETTLED_MESSAGES,
)
from pairbus.telemetry.senders import ServerAddress
from tests.telemetry import RecordedTelemetry
from tests.waiting import wait_until

pytestmark = pytest.mark.rule("O1")

RECORD = DrainRecord(destination="orders", messages=1, started_at=1.0, ended_at=2.0)


@pytest.fixture
def recorded() -> RecordedTelemetry:
    return RecordedTelemetry()


@pytest.fixture
def files(tmp_path: Path) -> DrainFiles:
    return DrainFiles(tmp_path / "drains")


class FakeSyphon:
    def __init__(self) -> None:
        self.status = replace(
            initial_status(),
            moved=Counter(orders=10, bills=2),
            dead_letter_reasons={"orders": Counter(Refused=3)},
            unsettled=1,
            rate=12.5,
        )

    def read(self) -> SyphonStatus:
        return self.status


def telemetry_of(
    recorded: RecordedTelemetry, syphon: FakeSyphon, files: DrainFiles | None = None
) -> SyphonTelemetry:
    return SyphonTelemetry(
        recorded.telemetry, syphon.read, files, pairing="one", primary=ServerAddress("one.example")
    )


def test_metrics_are_those_of_the_status(recorded: RecordedTelemetry) -> None:
    telemetry = telemetry_of(recorded, FakeSyphon())
    telemetry.start()

    assert recorded.value(DRAINED_MESSAGES, destination="orders", pairing="one") == 10
    assert recorded.value(DRAINED_MESSAGES) == 12
    assert recorded.value(DEAD_LETTERS, destination="orders", reason="Refused") == 3
    assert recorded.value(UNSETTLED_MESSAGES) == 1
    assert recorded.value(DRAIN_RATE) == 12.5
    assert recorded.value(SYPHON_HEALTHY) == 1
    for name in recorded.metrics():
        for attributes, _ in recorded.points(name):
            assert set(attributes) == set(METRICS[name].attributes)
    telemetry.close()


def test_unhealthy_syphon_is_0(recorded: RecordedTelemetry) -> None:
    syphon = FakeSyphon()
    syphon.status = replace(syphon.status, healthy=False, problem="stuck")
    telemetry = telemetry_of(recorded, syphon)
    telemetry.start()

    assert recorded.points(SYPHON_HEALTHY) == [({"pairing": "one"}, 0)]
    telemetry.close()


def test_counters_of_a_syphon_that_ended_stay(recorded: RecordedTelemetry) -> None:
    first, second = FakeSyphon(), FakeSyphon()
    for syphon in (first, second):
        telemetry = telemetry_of(recorded, syphon)
        telemetry.start()
        syphon.status = replace(syphon.status, running=False, moved=Counter(orders=20))
        telemetry.close()
        telemetry.close()

    assert recorded.value(DRAINED_MESSAGES, destination="orders") == 40
    assert recorded.points(SYPHON_HEALTHY) == recorded.points(DRAIN_RATE) == []


def test_records_of_the_sink_become_spans(recorded: RecordedTelemetry, files: DrainFiles) -> None:
    telemetry = telemetry_of(recorded, FakeSyphon(), files)
    telemetry.start()
    files.write([RECORD])
    wait_until(lambda: len(recorded.spans()) == 1, "the span")
    files.write([replace(RECORD, destination="bills")])
    telemetry.close()

    assert [span.name for span in recorded.spans()] == ["drain orders", "drain bills"]


def test_broken_record_does_not_end_the_telemetry(
    recorded: RecordedTelemetry,
    files: DrainFiles,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    files.write([RECORD])
    (tmp_path / "drains" / "broken").write_text("{")
    telemetry = telemetry_of(recorded, FakeSyphon(), files)
    with caplog.at_level(logging.ERROR):
        telemetry.start()
        wait_until(lambda: "could not be made" in caplog.text, "the error")
    (tmp_path / "drains" / "broken").unlink()
    files.write([RECORD])
    telemetry.close()

    assert recorded.spans()


def test_files_are_taken_once_and_in_order(files: DrainFiles) -> None:
    assert files.take() == []
    files.write([])
    assert files.take() == []
    records = [replace(RECORD, destination=str(number)) for number in range(3)]
    files.write(records[:2])
    files.write(records[2:])

    assert files.take() == records
    assert files.take() == []


def test_number_of_files_is_limited(files: DrainFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_files, "MAX_FILES", 2)
    for _ in range(5):
        files.write([RECORD])

    assert len(files.take()) == 2


def test_records_that_cannot_be_written_are_dropped(tmp_path: Path) -> None:
    DrainFiles(tmp_path / "missing" / "drains").write([RECORD])

    assert list(tmp_path.iterdir()) == []
