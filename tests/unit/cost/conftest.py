"""Fixtures for the forecast."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pairbus.cost.forecast import Forecast, forecast
from pairbus.cost.inputs import Outage, PairingProfile, Traffic
from pairbus.options import SendAvailabilityOptions

MakePairing = Callable[..., PairingProfile]
MakeForecast = Callable[..., Forecast]


@pytest.fixture(scope="session")
def make_pairing() -> MakePairing:
    """Make a PairingProfile from its own values and from options of the pairing, by name."""

    def make(**values: Any) -> PairingProfile:
        own_names = values.keys() & PairingProfile.__dataclass_fields__.keys()
        profile_values = {name: values.pop(name) for name in own_names}
        return PairingProfile(options=SendAvailabilityOptions(**values), **profile_values)

    return make


@pytest.fixture(scope="session")
def make_forecast(make_pairing: MakePairing) -> MakeForecast:
    """Make a forecast of an outage, by default of 2 h, for four clients and three entities."""

    def make(length: timedelta = timedelta(hours=2), rate: float = 100, **options: Any) -> Forecast:
        return forecast(
            pairing=make_pairing(**{"clients": 4, **options}),
            traffic=Traffic(rate=rate, size=1024, entities=3),
            outage=Outage(length=length),
        )

    return make
