"""Values in rules: their kinds, comparisons and arithmetic.

Two values are special. UNKNOWN is the value of a user property that the message does not have:
every computation and comparison with it is unknown. None is NULL, a property without a value: it
equals only NULL, and is neither less nor greater than any value.

Everything else follows the service's "C# operator binding": numbers of all types can be compared
and computed with each other, integers have 64 bits, and there is no conversion between strings,
numbers, booleans, times and UUIDs. Operands that C# cannot bind, such as a string and a number,
raise EvaluationError. Strings are compared by code point, case-sensitively, and `+` concatenates
them.
"""

import operator
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from math import copysign, fmod, inf, isnan, nan
from typing import Any, Final

from pairbus.amqp.types import (
    Byte,
    Char,
    Described,
    Float32,
    Int32,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from pairbus.errors import ConfigurationError, PairbusError
from pairbus.servicebus import described_types


class EvaluationError(PairbusError):
    """Raised when a rule cannot be evaluated for a message: incompatible types, division by zero.

    A subscription dead-letters such messages if it is configured to, and discards them otherwise.
    """


class Unknown(Enum):
    UNKNOWN = auto()


UNKNOWN: Final = Unknown.UNKNOWN

INTEGERS = frozenset({int, UByte, UShort, UInt, ULong, Byte, Short, Int32})
NUMBERS = INTEGERS | {float, Float32}
STRINGS = frozenset({str, Char, Symbol})

_KINDS: dict[type, str] = (
    dict.fromkeys(NUMBERS, "a number")
    | dict.fromkeys(STRINGS, "a string")
    | {
        bool: "a boolean",
        datetime: "a time",
        timedelta: "a duration",
        uuid.UUID: "a UUID",
    }
)
VALUE_KINDS = frozenset(_KINDS.values())
_UNORDERED = {"a boolean", "a UUID"}

Comparator = Callable[[Any, Any], bool]
COMPARISONS: dict[str, Comparator] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUALITY = {operator.eq, operator.ne}

_YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)
_DESCRIBED: dict[str, Callable[[Any], Any]] = {
    described_types.TIME_SPAN: lambda ticks: timedelta(microseconds=ticks // 10),
    described_types.DATE_TIME_OFFSET: lambda ticks: _YEAR_1 + timedelta(microseconds=ticks // 10),
    described_types.URI: str,
}
"""Types of .NET that AMQP does not have. Times are in ticks of 0.1 microseconds."""


def kind_of(value: Any) -> str:
    """Return the kind of a normalized value, for error messages and for compatibility checks."""
    return _KINDS.get(value.__class__) or f"a value of type {value.__class__.__name__}"


def normalize(value: Any) -> Any:
    """Return the value of a property in the form for evaluation: times as aware `datetime`."""
    try:
        if isinstance(value, Timestamp):
            return value.to_datetime()
        if isinstance(value, Described) and value.descriptor in _DESCRIBED:
            return _DESCRIBED[value.descriptor](value.value)
        if isinstance(value, datetime) and value.tzinfo is None:
            return value.replace(tzinfo=UTC)
    except (OverflowError, TypeError) as exc:
        raise EvaluationError(f"{value!r} is outside the supported range") from exc
    return value


def check_value(name: str, value: Any) -> Any:
    """Return the normalized value of a parameter or property of a rule.

    Raises ConfigurationError, with `name` as the subject of the message.
    """
    try:
        value = normalize(value)
    except EvaluationError as exc:
        raise ConfigurationError(f"{name}: {exc}") from exc
    if value is not None and kind_of(value) not in VALUE_KINDS:
        allowed = ", ".join(sorted(VALUE_KINDS))
        raise ConfigurationError(f"{name} is {kind_of(value)}. Use {allowed} or NULL.")
    return value


def compare(by: Comparator, left: Any, right: Any) -> bool | None:
    """Return the result of a comparison, or None if it is unknown. Raises EvaluationError."""
    if left is UNKNOWN or right is UNKNOWN:
        return None
    left, right = normalize(left), normalize(right)
    if left is None or right is None:
        return by in _EQUALITY and by(left, right)
    kind = kind_of(left)
    ordered = kind not in _UNORDERED or by in _EQUALITY
    if kind in VALUE_KINDS and kind == kind_of(right) and ordered:
        return by(left, right)
    sign = next(sign for sign, comparator in COMPARISONS.items() if comparator is by)
    raise EvaluationError(f"{sign} cannot compare {kind} with {kind_of(right)}")


def is_member(value: Any, choices: Iterable[Any]) -> bool | None:
    """Return True if a value equals one of the choices, or None if that is unknown."""
    if value is UNKNOWN:
        return None
    result: bool | None = False
    for choice in choices:
        is_equal = compare(operator.eq, value, choice)
        if is_equal:
            return True
        if is_equal is None:
            result = None
    return result


def equal(left: Any, right: Any) -> bool:
    """Return True if two values of properties are equal. Different kinds are never equal."""
    if left.__class__ is right.__class__ is str:
        return bool(left == right)
    left, right = normalize(left), normalize(right)
    kind = kind_of(left)
    return kind in VALUE_KINDS and kind == kind_of(right) and bool(left == right)


def signed(sign: str, value: Any) -> Any:
    """Return `+value` or `-value`. Raises EvaluationError."""
    value = normalize(value)
    if value is UNKNOWN or value is None:
        return value
    kind = kind_of(value)
    if kind not in {"a number", "a duration"}:
        raise EvaluationError(f"{sign} cannot be applied to {kind}")
    if sign == "+":
        return value
    return _wrap_64_bits(-value) if isinstance(value, int) else -value


def compute(sign: str, left: Any, right: Any) -> Any:
    """Return the result of `left sign right`, for + - * / and %. Raises EvaluationError."""
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    left, right = normalize(left), normalize(right)
    kinds = kind_of(left), kind_of(right)
    if sign == "+" and "a string" in kinds:
        return text_of(left) + text_of(right)
    if left is None or right is None:
        return None
    try:
        if kinds == ("a number", "a number"):
            if isinstance(left, int) and isinstance(right, int):
                result = _INTEGER_OPERATORS[sign](left, right)
                unsigned = isinstance(left, ULong) or isinstance(right, ULong)
                fits = unsigned and 0 <= result < 2**64
                return ULong(result) if fits else _wrap_64_bits(result)
            return _FLOAT_OPERATORS[sign](float(left), float(right))
        if (sign, *kinds) in _TIME_OPERATIONS:
            return (operator.add if sign == "+" else operator.sub)(left, right)
    except ZeroDivisionError:
        raise EvaluationError("division of an integer by zero") from None
    except OverflowError as exc:
        raise EvaluationError(
            f"the result of {left} {sign} {right} is outside the supported range"
        ) from exc
    raise EvaluationError(f"{sign} cannot be applied to {kinds[0]} and {kinds[1]}")


def text_of(value: Any) -> str:
    """Return a value as text, in the format of .NET. Raises EvaluationError."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(float(value)).removesuffix(".0")
    if isinstance(value, datetime):
        return value.isoformat()
    if kind_of(value) in VALUE_KINDS:
        return str(value)
    raise EvaluationError(f"{kind_of(value)} cannot be converted to a string")


def _wrap_64_bits(value: int) -> int:
    """Return the value modulo 2**64 as a signed integer, as C# does on overflow."""
    return (value + 2**63) % 2**64 - 2**63


def _quotient(left: int, right: int) -> int:
    """Return the quotient rounded towards zero, unlike that of Python."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    return nan if not left or isnan(left) else copysign(inf, left) * copysign(1, right)


_INTEGER_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": lambda left, right: left - right * _quotient(left, right),
}
_FLOAT_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": lambda left, right: fmod(left, right) if right and abs(left) != inf else nan,
}
_TIME_OPERATIONS = {
    ("-", "a time", "a time"),
    ("+", "a time", "a duration"),
    ("-", "a time", "a duration"),
    ("+", "a duration", "a duration"),
    ("-", "a duration", "a duration"),
}
