"""Comparison of AMQP values with their types: in Python a uint equals a long."""

import struct
from typing import Any

from pairbus.amqp.types import Array, Described


def same(a: Any, b: Any) -> bool:
    """Return whether values and types are equal at every level. NaN equals NaN; 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack(">d", a) == struct.pack(">d", b) or (a != a and b != b)
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Described):
        return same(a.descriptor, b.descriptor) and same(a.value, b.value)
    if isinstance(a, Array):
        return (
            a.element_type is b.element_type
            and same(a.elements, b.elements)
            and same(a.descriptor, b.descriptor)
        )
    return bool(a == b)
