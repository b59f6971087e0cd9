"""What a drill is told, and what its forecast makes of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pairbus import SendAvailabilityOptions
from pairbus.drill.costs import OutageTimes, forecast_counts
from pairbus.drill.plan import DrillOptions, entities
from pairbus.errors import ConfigurationError
from pairbus.usage.operations import Purpose

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "wrong",
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
def test_a_value_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        DrillOptions(**wrong)


def test_there_are_three_entities_of_different_shapes() -> None:
    found = entities("mine/")

    assert [one.path for one in found] == ["mine/orders", "mine/payments", "mine/news"]
    assert len({one.shape for one in found}) == 3


def at(**seconds: float) -> dict[str, datetime]:
    return {name: START + timedelta(seconds=value) for name, value in seconds.items()}


def test_the_forecast_takes_the_times_that_things_took() -> None:
    times = OutageTimes.of(at(down=5, drain=25, drained=35), 4000, DrillOptions())

    assert times == OutageTimes(down_s=20.0, drain_rate=400.0)


def test_a_drill_that_was_not_drained_is_forecast_by_its_plan() -> None:
    options = DrillOptions(rate=100)

    assert OutageTimes.of(at(down=5), 0, options) == OutageTimes(15.0, 200)


def test_the_forecast_of_a_drill_has_its_parts() -> None:
    options = DrillOptions(rate=100, failback="immediate")
    pairing = SendAvailabilityOptions(
        failover_interval=options.failover_interval,
        ping_primary_interval=options.ping_primary_interval,
    )

    found = forecast_counts(options, pairing, 3, OutageTimes(12.0, 1000.0)).by_purpose()

    # 8 healthy seconds, and 2 whose messages are sent again; then 10 in failover.
    assert found[Purpose.TRAFFIC].operations == 1000
    assert found[Purpose.PINGS].operations == 30
    assert found[Purpose.BACKLOG].operations == 1000
    assert found[Purpose.DRAIN].operations == 3000
