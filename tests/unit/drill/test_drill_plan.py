"""The options of a drill, and its forecast."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pairbus import SendAvailabilityOptions
from pairbus.drill.costs import OutageTimes, forecast_counts
from pairbus.drill.milestones import Milestone
from pairbus.drill.plan import DrillOptions, EntityType, entities
from pairbus.errors import ConfigurationError
from pairbus.usage.operations import Purpose

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "options",
    [
        {"senders": 2},
        {"senders": 65},
        {"rate": 0},
        {"rate": 1001},
        {"size": 0},
        {"backlog_queue_count": 0},
        {"outage": timedelta(seconds=2)},
        {"outage": timedelta(hours=2)},
        {"before": timedelta(seconds=-1)},
    ],
)
def test_option_out_of_bounds_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        DrillOptions(**options)


def test_there_is_one_entity_of_each_type() -> None:
    drill_entities = entities("drill/")

    paths = [entity.path for entity in drill_entities]
    assert paths == ["drill/orders", "drill/payments", "drill/news"]
    assert {entity.type for entity in drill_entities} == set(EntityType)


def times_of(**seconds: float) -> dict[Milestone, datetime]:
    return {Milestone(name): START + timedelta(seconds=value) for name, value in seconds.items()}


def test_forecast_uses_the_measured_times() -> None:
    milestones = times_of(outage_started=5, drain_started=25, drained=35)

    times = OutageTimes.measure(milestones, 4000, DrillOptions())

    assert times == OutageTimes(down_s=20.0, drain_rate=400.0)


def test_forecast_of_an_incomplete_drill_uses_its_options() -> None:
    options = DrillOptions(rate=100)

    assert OutageTimes.measure(times_of(outage_started=5), 0, options) == OutageTimes(15.0, 200)


def test_forecast_has_the_operations_of_each_purpose() -> None:
    options = DrillOptions(rate=100, failback="immediate")
    pairing = SendAvailabilityOptions(
        failover_interval=options.failover_interval,
        ping_primary_interval=options.ping_primary_interval,
    )

    usage = forecast_counts(options, pairing, 3, OutageTimes(12.0, 1000.0)).by_purpose()

    # 8 healthy seconds, 2 seconds whose messages are repeated, and 10 seconds in failover.
    assert usage[Purpose.TRAFFIC].operations == 1000
    assert usage[Purpose.PINGS].operations == 30
    assert usage[Purpose.BACKLOG].operations == 1000
    assert usage[Purpose.DRAIN].operations == 3000
