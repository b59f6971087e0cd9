"""Values in a rule: what they are, how they compare, and how they are computed with.

Two of them are not ordinary. UNKNOWN is a user property that the message does not have: whatever is
computed or compared with it is unknown. None is NULL, a property that is there without a value: it
equals NULL only, and is neither less nor greater than anything.

The rest is as the service documents it, "C# operator binding": numbers of all types compare and
compute with each other, integers in 64 bits, and nothing is converted between strings, numbers,
booleans, times and UUIDs. What C# would refuse to bind, such as a string with a number, is an
EvaluationError. Strings compare by code point, case matters, and `+` appends to a string.
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
    """A rule could not be evaluated for this message: types that do not go together, or a division
    by zero. A subscription can be set to dead-letter such messages; otherwise it does not get them.
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
# How .NET clients write types that AMQP lacks; a tick is a tenth of a microsecond.
_DESCRIBED: dict[str, Callable[[Any], Any]] = {
    described_types.TIME_SPAN: lambda ticks: timedelta(microseconds=ticks // 10),
    described_types.DATE_TIME_OFFSET: lambda ticks: _YEAR_1 + timedelta(microseconds=ticks // 10),
    described_types.URI: str,
}


def kind_of(value: Any) -> str:
    """What a plain value is, for people and for deciding what goes with what."""
    return _KINDS.get(value.__class__) or f"a value of type {value.__class__.__name__}"


def normalize(value: Any) -> Any:
    """The value of a property in the form that is computed with: AMQP's times are `datetime`."""
    try:
        if isinstance(value, Timestamp):
            return value.to_datetime()
        if isinstance(value, Described) and value.descriptor in _DESCRIBED:
            return _DESCRIBED[value.descriptor](value.value)
        if isinstance(value, datetime) and value.tzinfo is None:
            return value.replace(tzinfo=UTC)
    except (OverflowError, TypeError) as exc:
        raise EvaluationError(f"{value!r} is beyond what can be computed with") from exc
    return value


def check_value(what: str, value: Any) -> Any:
    """The plain form of a value that a rule is given. Raises ConfigurationError."""
    try:
        value = normalize(value)
    except EvaluationError as exc:
        raise ConfigurationError(f"{what}: {exc}") from exc
    if value is not None and kind_of(value) not in VALUE_KINDS:
        allowed = ", ".join(sorted(VALUE_KINDS))
        raise ConfigurationError(f"{what} is {kind_of(value)}; allowed are {allowed} and NULL")
    return value


def compare(by: Comparator, left: Any, right: Any) -> bool | None:
    """What a comparison gives, None if it is unknown. Raises EvaluationError."""
    if left is UNKNOWN or right is UNKNOWN:
        return None
    left, right = normalize(left), normalize(right)
    if left is None or right is None:
        return by in _EQUALITY and by(left, right)
    kind = kind_of(left)
    ordered = kind not in _UNORDERED or by in _EQUALITY
    if kind in VALUE_KINDS and kind == kind_of(right) and ordered:
        return by(left, right)
    sign = next(sign for sign, known in COMPARISONS.items() if known is by)
    raise EvaluationError(f"{sign} does not compare {kind} with {kind_of(right)}")


def is_member(value: Any, choices: Iterable[Any]) -> bool | None:
    """Whether a value equals one of the choices, which are looked at only as far as needed."""
    if value is UNKNOWN:
        return None
    answer: bool | None = False
    for choice in choices:
        same = compare(operator.eq, value, choice)
        if same:
            return True
        if same is None:
            answer = None
    return answer


def equal(left: Any, right: Any) -> bool:
    """Whether two values of properties are equal; values of different kinds never are."""
    if left.__class__ is right.__class__ is str:
        return bool(left == right)
    left, right = normalize(left), normalize(right)
    kind = kind_of(left)
    return kind in VALUE_KINDS and kind == kind_of(right) and bool(left == right)


def signed(sign: str, value: Any) -> Any:
    """`+value` or `-value`."""
    value = normalize(value)
    if value is UNKNOWN or value is None:
        return value
    kind = kind_of(value)
    if kind not in {"a number", "a duration"}:
        raise EvaluationError(f"{sign} has no meaning before {kind}")
    if sign == "+":
        return value
    return _in_64_bits(-value) if isinstance(value, int) else -value


def compute(sign: str, left: Any, right: Any) -> Any:
    """What `left sign right` gives, for + - * / and %. Raises EvaluationError."""
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
                result = _INTEGER[sign](left, right)
                unsigned = isinstance(left, ULong) or isinstance(right, ULong)
                fits = unsigned and 0 <= result < 2**64
                return ULong(result) if fits else _in_64_bits(result)
            return _FLOAT[sign](float(left), float(right))
        if (sign, *kinds) in _TIMES:
            return (operator.add if sign == "+" else operator.sub)(left, right)
    except ZeroDivisionError:
        raise EvaluationError("an integer is divided by zero") from None
    except OverflowError as exc:
        raise EvaluationError(f"{left} {sign} {right} is beyond what can be computed") from exc
    raise EvaluationError(f"{sign} has no meaning between {kinds[0]} and {kinds[1]}")


def text_of(value: Any) -> str:
    """A value as .NET prints it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(float(value)).removesuffix(".0")
    if isinstance(value, datetime):
        return value.isoformat()
    if kind_of(value) in VALUE_KINDS:
        return str(value)
    raise EvaluationError(f"{kind_of(value)} has no text")


def _in_64_bits(value: int) -> int:
    """As C# computes: what does not fit wraps around."""
    return (value + 2**63) % 2**64 - 2**63


def _quotient(left: int, right: int) -> int:
    """Rounded towards zero, unlike Python's."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    return nan if not left or isnan(left) else copysign(inf, left) * copysign(1, right)


_INTEGER: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": lambda left, right: left - right * _quotient(left, right),
}
_FLOAT: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": lambda left, right: fmod(left, right) if right and abs(left) != inf else nan,
}
_TIMES = {
    ("-", "a time", "a time"),
    ("+", "a time", "a duration"),
    ("-", "a time", "a duration"),
    ("+", "a duration", "a duration"),
    ("-", "a duration", "a duration"),
}
