"""Decimals among the application properties, as the service delivers them.

The service reads application properties and encodes them again. Its AMQP library writes the
exponent of a decimal128 two bits too far to the right, and the Python SDK decodes only that form:
it drops a message that has a decimal in the form of IEEE 754.
"""

from typing import Any

from pairbus.amqp.types import Decimal128

CODE = b"\x94"
"""The format code of a decimal128."""
_BIAS = 6176
_MAX_SCALE = 28
_MAX_COEFFICIENT_BITS = 96


def with_decimals_of_service(section: bytes, properties: dict[Any, Any]) -> bytes:
    """Return the section of these application properties, with the decimals that .NET can represent
    as the service encodes them. Everything else stays as it was sent."""
    for value in properties.values():
        if isinstance(value, Decimal128) and (changed := _of_service(value)) is not None:
            section = section.replace(CODE + value, CODE + changed)
    return section


def _of_service(value: Decimal128) -> Decimal128 | None:
    number = int.from_bytes(value, "big")
    sign, exponent = number >> 127, number >> 113 & 0x3FFF
    coefficient = number & ((1 << 113) - 1)
    is_small = coefficient.bit_length() <= _MAX_COEFFICIENT_BITS
    if not (0 <= _BIAS - exponent <= _MAX_SCALE and is_small):
        return None  # not a decimal of .NET, or encoded by the service before
    first = sign << 7 | exponent >> 9
    second = (exponent & 0x7F) << 1
    return Decimal128(bytes((first, second)) + value[2:])
