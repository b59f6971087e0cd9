"""The inputs of a forecast: values out of range are rejected."""

from datetime import timedelta
from typing import Any

import pytest

from pairbus.cost.forecast import forecast
from pairbus.cost.inputs import Outage, PairingProfile, Traffic
from pairbus.errors import ConfigurationError

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("input_type", "values", "error"),
    [
        (PairingProfile, {"clients": 0}, "clients must be an integer of at least 1, not 0"),
        (PairingProfile, {"clients": 1.5}, "clients must be an integer"),
        (PairingProfile, {"clients": True}, "clients must be an integer"),
        (PairingProfile, {"syphons": -1}, "syphons must be an integer of at least 0, not -1"),
        (PairingProfile, {"redeliveries": -1}, "redeliveries must be an integer"),
        (PairingProfile, {"poll": timedelta()}, "poll must be 0:00:01 to 1:00:00, not 0:00:00"),
        (PairingProfile, {"poll": 2 * HOUR}, "poll must be 0:00:01 to 1:00:00, not 2:00:00"),
        (PairingProfile, {"poll": 900}, "poll must be a timedelta, not 900"),
        (PairingProfile, {"drain_rate": 0}, "drain_rate must be greater than 0"),
        (PairingProfile, {"drain_rate": "x"}, "drain_rate must be a number"),
        (Traffic, {"rate": -1}, "rate must be a number from 0 to 1e\\+09, not -1"),
        (Traffic, {"rate": float("nan")}, "rate must be a number"),
        (Traffic, {"rate": float("inf")}, "rate must be a number"),
        (Traffic, {"size": -1}, "size must be an integer of at least 0, not -1"),
        (Traffic, {"entities": 0}, "entities must be an integer of at least 1, not 0"),
        (Traffic, {"alias_bytes": -1}, "alias_bytes must be an integer"),
        (Outage, {"length": -SECOND}, "the outage length must be 0:00:00 to 30 days"),
        (Outage, {"length": 31 * DAY}, "the outage length must be 0:00:00 to 30 days"),
        (Outage, {"length": 7200}, "the outage length must be a timedelta, not 7200"),
        (Outage, {"share": 1.1}, "share must be a number from 0 to 1, not 1.1"),
        (Outage, {"share": -0.1}, "share must be a number from 0 to 1, not -0.1"),
    ],
)
def test_value_out_of_range_is_rejected(
    input_type: Any, values: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error):
        input_type(**values)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tier": "gold"}, "Unknown tier 'gold'"),
        ({"messaging_units": 0}, "messaging_units must be at least 1, not 0"),
    ],
)
def test_forecast_rejects_invalid_tier_and_messaging_units(
    options: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error):
        forecast(**options)
