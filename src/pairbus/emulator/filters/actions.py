"""What a SQL action does to a message: SET and REMOVE, in order, each seeing what those before did.

The message itself is not touched; the outcome is `MessageChanges`. A property that the message
already has keeps its spelling (`SET Priority` changes `priority`) and, if the new value can be
converted, its type: an AMQP int that is halved is an int again. A property set to
something unknown becomes NULL.
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
    """What is to be done to the copy of a message that a subscription gets.

    Values in `user_set` are in the types of `pairbus.amqp.types`. Those in `system_set` are text,
    but `datetime` for ScheduledEnqueueTimeUtc, `timedelta` for TimeToLive and `bool` for
    ForcePersistence; None unsets.
    """

    user_set: Mapping[str, Any] = field(default_factory=dict)
    user_removed: frozenset[str] = frozenset()
    system_set: Mapping[str, Any] = field(default_factory=dict)


class _Draft:
    """A message as the statements so far have left it."""

    __slots__ = ("_message", "system_set", "user", "user_set")

    def __init__(self, message: MessageView) -> None:
        self._message = message
        self.user: dict[str, Any] = dict(message.user)
        self.user_set: dict[str, Any] = {}
        self.system_set: dict[str, Any] = {}

    def system(self, name: str) -> Any:
        return self.system_set[name] if name in self.system_set else self._message.system(name)


_Step = Callable[[_Draft], None]


def compile_statements(
    statements: tuple[tree.Statement, ...], compiler: Compiler
) -> Callable[[MessageView], MessageChanges]:
    """A function that says what the statements change. It may raise EvaluationError."""
    steps = [_step(statement, compiler) for statement in statements]

    def act(message: MessageView) -> MessageChanges:
        draft = _Draft(message)
        for step in steps:
            step(draft)
        return MessageChanges(
            user_set=draft.user_set,
            user_removed=frozenset(message.user).difference(draft.user),
            system_set=draft.system_set,
        )

    return act


def _step(statement: tree.Statement, compiler: Compiler) -> _Step:
    name = statement.property.name
    if isinstance(statement, tree.Removal):
        return _removal(name)
    value_of = compiler.operand(statement.value)
    if isinstance(statement.property, tree.UserProperty):
        return _assignment(name, value_of)

    def set_system(draft: _Draft) -> None:
        draft.system_set[name] = _system_value(name, value_of(draft))

    return set_system


def _removal(name: str) -> _Step:
    lowered = name.lower()

    def remove(draft: _Draft) -> None:
        key = name if name in draft.user else find_key(draft.user, lowered)
        if key is not None:
            del draft.user[key]
            draft.user_set.pop(key, None)

    return remove


def _assignment(name: str, value_of: MessageExpression) -> _Step:
    lowered = name.lower()

    def assign(draft: _Draft) -> None:
        user = draft.user
        key = name if name in user else find_key(user, lowered) or name
        user[key] = draft.user_set[key] = _user_value(value_of(draft), user.get(key))

    return assign


def _user_value(value: Any, before: Any) -> Any:
    """A new value in the type of the one before where it can be, and in a type that AMQP has."""
    if value is UNKNOWN:
        return None
    if value is not None and value.__class__ is not before.__class__:
        value = _converted(value, before)
    if isinstance(value, datetime):
        return Timestamp.from_datetime(value)
    if isinstance(value, timedelta):
        return Described(Symbol(described_types.TIME_SPAN), value // timedelta(microseconds=1) * 10)
    return value


def _converted(value: Any, before: Any) -> Any:
    kind = before.__class__
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
            return _time(text)
        if kind is Described and before.descriptor == described_types.TIME_SPAN:
            return _span(text)
    except (ValueError, OverflowError):
        pass  # "if possible": otherwise the property takes the type of the new value
    return value


def _system_value(name: str, value: Any) -> Any:
    value = normalize(value)
    if value is UNKNOWN or value is None:
        return None
    wanted = SETTABLE[name]
    if wanted is str:
        text = text_of(value)
        if len(text) > MAX_LENGTH.get(name, len(text)):
            raise EvaluationError(f"sys.{name} has at most {MAX_LENGTH[name]} characters")
        return text
    try:
        if wanted is bool and isinstance(value, str):
            value = _BOOLEANS.get(value.strip().lower(), value)
        elif wanted is datetime and isinstance(value, str):
            value = _time(value)
        elif wanted is timedelta and isinstance(value, str):
            value = _span(value)
    except (ValueError, OverflowError) as exc:
        raise EvaluationError(f"sys.{name} cannot be set to {value!r}") from exc
    if not isinstance(value, wanted):
        raise EvaluationError(f"sys.{name} cannot be set to {kind_of(value)}")
    if isinstance(value, timedelta) and value <= timedelta(0):
        raise EvaluationError(f"sys.{name} cannot be set to {value}: it must be above zero")
    return value


def _time(text: str) -> datetime:
    when = datetime.fromisoformat(text.strip())
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def _span(text: str) -> timedelta:
    """A duration as .NET writes it, `1.02:03:04.5`, or in ISO 8601."""
    found = _DOTNET_SPAN.fullmatch(text.strip())
    if found is None:
        return parse_time_span(text)
    days, hours, minutes, seconds = (int(part or 0) for part in found.group(2, 3, 4, 5))
    part = int(f"{found[6] or '':0<7}") // 10
    span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=part)
    return -span if found[1] else span


_DOTNET_SPAN = re.compile(
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
