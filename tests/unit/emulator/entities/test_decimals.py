"""Decimals among the application properties, as the service encodes them."""

import pytest

from pairbus.amqp.types import Decimal128
from pairbus.emulator.entities.decimals import decimals_of_service

COEFFICIENT = "0000000000000000000000003039"
IN_IEEE_754 = Decimal128(bytes.fromhex("3038" + COEFFICIENT))
OF_SERVICE = Decimal128(bytes.fromhex("0c38" + COEFFICIENT))


def test_exponent_of_a_decimal_is_written_as_the_service_does():
    properties = {"price": IN_IEEE_754, "name": "x"}
    assert decimals_of_service(properties) == {"price": OF_SERVICE}


@pytest.mark.parametrize(
    "value",
    [
        OF_SERVICE,
        Decimal128(bytes.fromhex("7800" + COEFFICIENT)),  # infinity
        Decimal128(bytes.fromhex("3040" + "01" + COEFFICIENT[2:])),  # more than 96 bits
        Decimal128(bytes.fromhex("3000" + COEFFICIENT)),  # more than 28 decimal places
    ],
)
def test_decimal_that_net_cannot_represent_is_unchanged(value: Decimal128):
    assert decimals_of_service({"price": value}) == {}
