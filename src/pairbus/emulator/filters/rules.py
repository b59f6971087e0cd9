"""Subscription rules: which messages a subscription gets, and what is done to them on the way.

A rule is a filter and perhaps an action. All rules without an action count as one: a message that
any of them lets through arrives once. Each rule with an action makes a copy of its own, changed as
the action says, with the rule's name in the property `RuleName`.

Filters and actions are checked when they are compiled, which is once: ConfigurationError. What they
are compiled to are plain functions of a message, which may raise EvaluationError, and nothing else.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, assert_never

from pairbus.emulator.filters.actions import MessageChanges, compile_statements
from pairbus.emulator.filters.compiler import Compiler, MessagePredicate
from pairbus.emulator.filters.message_view import MessageView, find_property
from pairbus.emulator.filters.parser import parse_action, parse_filter
from pairbus.emulator.filters.values import EvaluationError, check_value, equal
from pairbus.errors import ConfigurationError

RULE_NAME = "RuleName"


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Lets every message through."""


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Lets no message through."""


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Lets through the messages for which the expression is true. Parameters are `@name`: value."""

    expression: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationFilter:
    """Lets through the messages that have all of these values.

    Strings are equal if every character is, case included; names of properties are without regard
    to case. Numbers are equal by value, whatever their AMQP type; a number never equals a string.
    """

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.properties.items():
            if check_value(f"the property {name!r} of the filter", value) is None:
                raise ConfigurationError(f"the property {name!r} of the filter has no value")


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Changes a message as the statements say. Parameters are `@name`: value."""

    expression: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


Filter: TypeAlias = TrueFilter | FalseFilter | SqlFilter | CorrelationFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A filter by name, with what is done to the messages that it lets through."""

    name: str
    filter: Filter = field(default_factory=TrueFilter)
    action: SqlAction | None = None


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The outcome of a subscription's rules for a message: one copy for each `MessageChanges`, and
    the errors of the rules that could not be evaluated."""

    copies: tuple[MessageChanges, ...] = ()
    failures: tuple[EvaluationError, ...] = ()


NewId = Callable[[], uuid.UUID]


def compile_filter(rule_filter: Filter, *, newid: NewId = uuid.uuid4) -> MessagePredicate:
    """A function that says whether a message goes through. Raises ConfigurationError."""
    match rule_filter:
        case TrueFilter():
            return lambda message: True
        case FalseFilter():
            return lambda message: False
        case SqlFilter(expression, parameters):
            return Compiler(parameters, newid).test(parse_filter(expression))
        case CorrelationFilter():
            return _correlation(rule_filter)
    assert_never(rule_filter)


def compile_action(
    action: SqlAction, *, newid: NewId = uuid.uuid4
) -> Callable[[MessageView], MessageChanges]:
    """A function that says how a message is changed. Raises ConfigurationError."""
    return compile_statements(parse_action(action.expression), Compiler(action.parameters, newid))


def compile_rules(
    rules: Iterable[Rule], *, newid: NewId = uuid.uuid4
) -> Callable[[MessageView], RuleResult]:
    """A function that says what a subscription with these rules gets of a message; it never raises.

    Raises ConfigurationError itself.
    """
    plain: list[tuple[str, MessagePredicate]] = []
    acting: list[tuple[str, MessagePredicate, Callable[[MessageView], MessageChanges]]] = []
    for rule in rules:
        test = compile_filter(rule.filter, newid=newid)
        if rule.action is None:
            plain.append((rule.name, test))
        else:
            acting.append((rule.name, test, compile_action(rule.action, newid=newid)))

    def select(message: MessageView) -> RuleResult:
        selected = False
        copies: list[MessageChanges] = []
        failures: list[EvaluationError] = []
        for name, test in plain:
            try:
                if test(message):
                    selected = True
                    break
            except EvaluationError as exc:
                failures.append(_failure(name, exc))
        if not acting and not failures:
            return _WHOLE if selected else _NOTHING
        if selected:
            copies.append(_AS_IT_IS)
        for name, test, act in acting:
            try:
                if test(message):
                    copies.append(_named(act(message), name))
            except EvaluationError as exc:
                failures.append(_failure(name, exc))
        return RuleResult(tuple(copies), tuple(failures))

    return select


_AS_IT_IS = MessageChanges()
_WHOLE = RuleResult((_AS_IT_IS,))
_NOTHING = RuleResult()
_SYSTEM_OF = {
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "label": "Label",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}


def _correlation(wanted: CorrelationFilter) -> MessagePredicate:
    values = [(name, getattr(wanted, attribute)) for attribute, name in _SYSTEM_OF.items()]
    system = [(name, value) for name, value in values if value is not None]
    user = [(name, name.lower(), value) for name, value in wanted.properties.items()]

    def test(message: MessageView) -> bool:
        for name, value in system:
            if message.system(name) != value:
                return False
        if user:
            properties = message.user
            for name, lowered, value in user:
                if not equal(find_property(properties, name, lowered), value):
                    return False
        return True

    return test


def _named(changes: MessageChanges, name: str) -> MessageChanges:
    return replace(changes, user_set={**changes.user_set, RULE_NAME: name})


def _failure(name: str, exc: EvaluationError) -> EvaluationError:
    failure = EvaluationError(f"rule {name}: {exc}")
    failure.__cause__ = exc
    return failure
