"""The metrics of a syphon for Prometheus, from its status and its progress."""

from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from pairbus.syphon.metrics import measured_samples
from pairbus.syphon.progress import DrainProgress
from pairbus.syphon.status import SyphonStatus, initial_status
from pairbus.telemetry.metrics import (
    BACKLOG_ALL_MESSAGES,
    DEAD_LETTERS,
    DRAIN_RATE,
    DRAINED_MESSAGES,
    METRICS,
    SYPHON_HEALTHY,
    SYPHON_PAUSED,
    SYPHON_THROTTLED,
    TIME_TO_GO,
    UNSETTLED_MESSAGES,
)

pytestmark = pytest.mark.rule("O1")

STATUS = replace(
    initial_status(),
    moved=Counter(orders=100),
    dead_letter_reasons={"bills": Counter(Refused=3)},
    unsettled=1,
    throttled_sends=4,
    throttled_receives=7,
    rate=999.0,
)


def drain() -> DrainProgress:
    """Return the progress of a drain of 10 messages a second, with 50 messages left."""
    progress = DrainProgress()
    progress.add(0.0, 0)
    progress.add(10.0, 100)
    progress.add_count(10.0, 100, 50)
    return progress


def values(status: SyphonStatus, progress: DrainProgress) -> dict[str, float]:
    samples = list(measured_samples(status, progress, "one"))
    for sample in samples:
        assert set(sample.labels) == set(METRICS[sample.name].attributes)
        assert sample.labels["pairing"] == "one"
    sums: defaultdict[str, float] = defaultdict(float)
    for sample in samples:
        sums[sample.name] += sample.value
    return dict(sums)


def test_rate_and_time_to_go_are_those_of_the_status_file() -> None:
    assert values(STATUS, drain()) == {
        DRAINED_MESSAGES: 100,
        DEAD_LETTERS: 3,
        UNSETTLED_MESSAGES: 1,
        SYPHON_THROTTLED: 4 + 7,
        DRAIN_RATE: 10.0,
        BACKLOG_ALL_MESSAGES: 50,
        TIME_TO_GO: 5.0,
        SYPHON_HEALTHY: 1.0,
        SYPHON_PAUSED: 0.0,
    }


def test_values_that_are_not_known_are_left_out() -> None:
    assert values(initial_status(), DrainProgress()) == {
        UNSETTLED_MESSAGES: 0,
        SYPHON_THROTTLED: 0,
        DRAIN_RATE: 0.0,
        SYPHON_HEALTHY: 1.0,
        SYPHON_PAUSED: 0.0,
    }


def test_throttled_calls_are_told_apart_by_namespace() -> None:
    samples = measured_samples(STATUS, drain(), "one")
    throttled = [sample for sample in samples if sample.name == SYPHON_THROTTLED]

    assert {sample.labels["role"]: sample.value for sample in throttled} == {
        "primary": 4,
        "secondary": 7,
    }


def test_paused_syphon_is_healthy() -> None:
    paused = values(replace(STATUS, paused=True), drain())

    assert (paused[SYPHON_PAUSED], paused[SYPHON_HEALTHY]) == (1.0, 1.0)


def test_syphon_that_ended_has_counters_only() -> None:
    assert values(replace(STATUS, running=False), drain()) == {
        DRAINED_MESSAGES: 100,
        DEAD_LETTERS: 3,
        UNSETTLED_MESSAGES: 1,
        SYPHON_THROTTLED: 4 + 7,
    }


def test_syphon_that_ended_with_a_problem_is_not_healthy() -> None:
    failed = replace(STATUS, running=False, healthy=False, problem="no master")

    assert values(failed, drain())[SYPHON_HEALTHY] == 0.0
