"""Decimals among the application properties, as the service encodes them."""

import pytest

from pairbus.amqp.types import Decimal128
from pairbus.emulator.entities.decimals import with_decimals_of_service

COEFFICIENT = "0000000000000000000000003039"
IN_IEEE_754 = Decimal128(bytes.fromhex("3038" + COEFFICIENT))
OF_SERVICE = Decimal128(bytes.fromhex("0c38" + COEFFICIENT))


def section(value: Decimal128) -> bytes:
    """Return application properties with a boolean in its longer form."""
    entries = b"\xa1\x05price\x94" + value + b"\xa1\x01b\x56\x01"
    return b"\x00St\xc1" + bytes((len(entries) + 1, 4)) + entries


def test_exponent_of_a_decimal_is_written_as_the_service_does():
    properties = {"price": IN_IEEE_754, "b": True}
    assert with_decimals_of_service(section(IN_IEEE_754), properties) == section(OF_SERVICE)


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
    assert with_decimals_of_service(section(value), {"price": value, "b": True}) == section(value)
