"""Python types for AMQP 1.0 values. A value keeps its AMQP type when it is decoded and encoded.

| AMQP | Python | AMQP | Python |
| --- | --- | --- | --- |
| null | None | float | Float32 |
| boolean | bool | double | float |
| ubyte, ushort, uint, ulong | UByte, UShort, UInt, ULong | decimal32, 64, 128 | Decimal32, 64,
128 |
| byte, short, int | Byte, Short, Int32 | char | Char |
| long | int | timestamp | Timestamp |
| binary | bytes | uuid | uuid.UUID |
| string | str | symbol | Symbol |
| list | list (a tuple is encoded as a list) | array | Array |
| map | dict, or Pairs if a dict cannot hold it | described | Described |

The number types are subclasses of `int` and `float`, and compare and compute like them. Ranges are
checked when a value is encoded.
"""

import datetime
from dataclasses import dataclass
from typing import Any


class UByte(int):
    """An unsigned 8-bit integer."""

    __slots__ = ()


class UShort(int):
    """An unsigned 16-bit integer."""

    __slots__ = ()


class UInt(int):
    """An unsigned 32-bit integer."""

    __slots__ = ()


class ULong(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


class Byte(int):
    """A signed 8-bit integer."""

    __slots__ = ()


class Short(int):
    """A signed 16-bit integer."""

    __slots__ = ()


class Int32(int):
    """A signed 32-bit integer, AMQP's `int`. A plain Python `int` is AMQP's 64-bit `long`."""

    __slots__ = ()


class Float32(float):
    """A 32-bit float. A plain Python `float` is AMQP's `double`."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970-01-01 UTC."""

    __slots__ = ()

    @classmethod
    def from_datetime(cls, when: datetime.datetime) -> "Timestamp":
        """Return the timestamp of an aware datetime, rounded down to milliseconds."""
        if when.tzinfo is None:
            raise ValueError("a timestamp needs a datetime with a time zone")
        return cls((when - _EPOCH) // datetime.timedelta(milliseconds=1))

    def to_datetime(self) -> datetime.datetime:
        """Return the timestamp as an aware datetime. Raises OverflowError after the year 9999."""
        return _EPOCH + datetime.timedelta(milliseconds=int(self))


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Char(str):
    """A single Unicode character."""

    __slots__ = ()


class Symbol(str):
    """An ASCII name from a constrained domain. Equal to the `str` of the same text."""

    __slots__ = ()


class Decimal32(bytes):
    """The four bytes of an IEEE 754-2008 decimal32, not interpreted."""

    __slots__ = ()


class Decimal64(bytes):
    """The eight bytes of an IEEE 754-2008 decimal64, not interpreted."""

    __slots__ = ()


class Decimal128(bytes):
    """The sixteen bytes of an IEEE 754-2008 decimal128, not interpreted."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor, which identifies its type."""

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type.

    `element_type` is their Python class in the table above (`NoneType` for null). If there is a
    `descriptor`, it describes every element, and `elements` holds the undescribed values.
    """

    element_type: type
    elements: tuple[Any, ...]
    descriptor: Any = None


class Pairs(tuple[tuple[Any, Any], ...]):
    """The key-value pairs of a map that a dict cannot hold.

    Either a key is a list or a map, or two keys are equal in Python but not in AMQP (the uint 1 and
    the long 1, or a symbol and a string with the same text).
    """

    __slots__ = ()
