"""Compiled SQL actions: SET and REMOVE statements, each of which sees the effects of the previous.

The message is not changed; the result is `MessageChanges`. A property that the message already has
keeps its spelling (`SET Priority` changes `priority`) and, if the new value can be converted, its
type: half of an AMQP int is an int again. A property that is set to an unknown value becomes NULL.
"""

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pairbus.amqp.types import (
    Byte,
    Described,
    Int32,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from pairbus.emulator.filters import syntax_tree as tree
from pairbus.emulator.filters.compiler import Compiler, MessageExpression
from pairbus.emulator.filters.message_view import MessageView, find_key
from pairbus.emulator.filters.system_properties import MAX_LENGTH, SETTABLE
from pairbus.emulator.filters.values import (
    INTEGERS,
    NUMBERS,
    STRINGS,
    UNKNOWN,
    EvaluationError,
    kind_of,
    normalize,
    text_of,
)
from pairbus.servicebus import described_types
from pairbus.servicebus.time_spans import parse_time_span


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChanges:
    """The changes to the copy of a message for a subscription.

    Values in `user_set` have the types of `pairbus.amqp.types`. Those in `system_set` are strings,
    except for `datetime` (ScheduledEnqueueTimeUtc), `timedelta` (TimeToLive) and `bool`
    (ForcePersistence); None removes the property.
    """

    user_set: Mapping[str, Any] = field(default_factory=dict)
    user_removed: frozenset[str] = frozenset()
    system_set: Mapping[str, Any] = field(default_factory=dict)


class _ChangedMessage:
    """A message with the effects of the statements so far."""

    __slots__ = ("_message", "system_set", "user", "user_set")

    def __init__(self, message: MessageView) -> None:
        self._message = message
        self.user: dict[str, Any] = dict(message.user)
        self.user_set: dict[str, Any] = {}
        self.system_set: dict[str, Any] = {}

    def system(self, name: str) -> Any:
        return self.system_set[name] if name in self.system_set else self._message.system(name)


_Step = Callable[[_ChangedMessage], None]


def compile_statements(
    statements: tuple[tree.Statement, ...], compiler: Compiler
) -> Callable[[MessageView], MessageChanges]:
    """Return a function that computes the changes to a message. It may raise EvaluationError."""
    steps = [_step(statement, compiler) for statement in statements]

    def apply(message: MessageView) -> MessageChanges:
        changed = _ChangedMessage(message)
        for step in steps:
            step(changed)
        return MessageChanges(
            user_set=changed.user_set,
            user_removed=frozenset(message.user).difference(changed.user),
            system_set=changed.system_set,
        )

    return apply


def _step(statement: tree.Statement, compiler: Compiler) -> _Step:
    name = statement.property.name
    if isinstance(statement, tree.Removal):
        return _removal(name)
    value_of = compiler.expression(statement.value)
    if isinstance(statement.property, tree.UserProperty):
        return _assignment(name, value_of)

    def set_system(message: _ChangedMessage) -> None:
        message.system_set[name] = _system_value(name, value_of(message))

    return set_system


def _removal(name: str) -> _Step:
    lowered = name.lower()

    def remove(message: _ChangedMessage) -> None:
        key = name if name in message.user else find_key(message.user, lowered)
        if key is not None:
            del message.user[key]
            message.user_set.pop(key, None)

    return remove


def _assignment(name: str, value_of: MessageExpression) -> _Step:
    lowered = name.lower()

    def assign(message: _ChangedMessage) -> None:
        user = message.user
        key = name if name in user else find_key(user, lowered) or name
        user[key] = message.user_set[key] = _user_value(value_of(message), user.get(key))

    return assign


def _user_value(value: Any, old: Any) -> Any:
    """Return a new value in the type of the old one, if possible, and in a type of AMQP."""
    if value is UNKNOWN:
        return None
    if value is not None and value.__class__ is not old.__class__:
        value = _convert(value, old)
    if isinstance(value, datetime):
        return Timestamp.from_datetime(value)
    if isinstance(value, timedelta):
        return Described(Symbol(described_types.TIME_SPAN), value // timedelta(microseconds=1) * 10)
    return value


def _convert(value: Any, old: Any) -> Any:
    kind = old.__class__
    text = value if value.__class__ in STRINGS else None
    try:
        if kind in INTEGERS and (value.__class__ in INTEGERS or text):
            number = int(value)
            low, high = _RANGES[kind]
            return kind(number) if low <= number <= high else value
        if kind in NUMBERS and kind not in INTEGERS and (value.__class__ in NUMBERS or text):
            return kind(value)
        if text is None:
            return value
        if kind is bool:
            return _BOOLEANS.get(text.strip().lower(), value)
        if kind is uuid.UUID:
            return uuid.UUID(text)
        if kind is Timestamp:
            return _parse_time(text)
        if kind is Described and old.descriptor == described_types.TIME_SPAN:
            return _parse_time_span(text)
    except (ValueError, OverflowError):
        pass  # the property gets the type of the new value
    return value


def _system_value(name: str, value: Any) -> Any:
    value = normalize(value)
    if value is UNKNOWN or value is None:
        return None
    type_ = SETTABLE[name]
    if type_ is str:
        text = text_of(value)
        if len(text) > MAX_LENGTH.get(name, len(text)):
            raise EvaluationError(
                f"sys.{name} would have {len(text)} characters; the maximum is {MAX_LENGTH[name]}"
            )
        return text
    try:
        if type_ is bool and isinstance(value, str):
            value = _BOOLEANS.get(value.strip().lower(), value)
        elif type_ is datetime and isinstance(value, str):
            value = _parse_time(value)
        elif type_ is timedelta and isinstance(value, str):
            value = _parse_time_span(value)
    except (ValueError, OverflowError) as exc:
        raise EvaluationError(f"sys.{name} cannot be set to {value!r}") from exc
    if not isinstance(value, type_):
        raise EvaluationError(f"sys.{name} cannot be set to {kind_of(value)}")
    if isinstance(value, timedelta) and value <= timedelta(0):
        raise EvaluationError(f"sys.{name} cannot be set to {value}: it must be positive")
    return value


def _parse_time(text: str) -> datetime:
    time = datetime.fromisoformat(text.strip())
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _parse_time_span(text: str) -> timedelta:
    """Parse a duration in the format of .NET, `1.02:03:04.5`, or of ISO 8601."""
    match = _DOTNET_TIME_SPAN.fullmatch(text.strip())
    if match is None:
        return parse_time_span(text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.group(2, 3, 4, 5))
    fraction = int(f"{match[6] or '':0<7}") // 10
    span = timedelta(
        days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=fraction
    )
    return -span if match[1] else span


_DOTNET_TIME_SPAN = re.compile(
    r"(-)?(?:([0-9]{1,8})\.)?([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,7}))?)?"
)
_BOOLEANS = {"true": True, "false": False}
_RANGES: dict[type, tuple[int, int]] = {
    UByte: (0, 2**8 - 1),
    UShort: (0, 2**16 - 1),
    UInt: (0, 2**32 - 1),
    ULong: (0, 2**64 - 1),
    Byte: (-(2**7), 2**7 - 1),
    Short: (-(2**15), 2**15 - 1),
    Int32: (-(2**31), 2**31 - 1),
    int: (-(2**63), 2**63 - 1),
}
