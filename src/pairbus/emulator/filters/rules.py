"""Subscription rules: the messages that a subscription gets, and the changes to its copies.

A rule is a filter with an optional action. All rules without an action together yield one copy of a
message that any of them matches. Each matching rule with an action yields another copy, changed by
the action, with the name of the rule in the property `RuleName`.

Filters and actions are checked and compiled once, and raise ConfigurationError then. The compiled
functions of a message raise EvaluationError and no other exceptions.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias, assert_never

from pairbus.emulator.filters.actions import MessageChanges, compile_statements
from pairbus.emulator.filters.compiler import Compiler, MessagePredicate
from pairbus.emulator.filters.message_view import MessageView, find_property
from pairbus.emulator.filters.parser import parse_action, parse_filter
from pairbus.emulator.filters.values import EvaluationError, check_value, equal
from pairbus.errors import ConfigurationError
from pairbus.servicebus.atom import property_name

RULE_NAME = "RuleName"


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Matches every message."""


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Matches no message."""


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Matches the messages for which the expression is true. Keys of parameters are `@name`."""

    expression: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationFilter:
    """Matches the messages that have all of these values.

    Strings are compared case-sensitively; names of properties are case-insensitive. Numbers are
    compared by value, regardless of their AMQP types; a number never equals a string.
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
            if check_value(f"Property {name!r} of the filter", value) is None:
                raise ConfigurationError(f"Property {name!r} of the filter has no value.")


CORRELATION_PROPERTIES = {
    property_name(field.name): field.name
    for field in fields(CorrelationFilter)
    if field.name != "properties"
}
"""The fields of correlation filters for system properties, by the service's name."""


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Changes a message with SQL statements. Keys of parameters are `@name`."""

    expression: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


Filter: TypeAlias = TrueFilter | FalseFilter | SqlFilter | CorrelationFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A named filter, with an optional action on the messages that it matches."""

    name: str
    filter: Filter = field(default_factory=TrueFilter)
    action: SqlAction | None = None


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The result of a subscription's rules for a message.

    The subscription gets a copy for each of the `copies`. `failures` are the errors of the rules
    that could not be evaluated.
    """

    copies: tuple[MessageChanges, ...] = ()
    failures: tuple[EvaluationError, ...] = ()


NewId = Callable[[], uuid.UUID]


def compile_filter(rule_filter: Filter, *, newid: NewId = uuid.uuid4) -> MessagePredicate:
    """Return a function that tests if a message matches. Raises ConfigurationError."""
    match rule_filter:
        case TrueFilter():
            return lambda message: True
        case FalseFilter():
            return lambda message: False
        case SqlFilter(expression, parameters):
            return Compiler(parameters, newid).test(parse_filter(expression))
        case CorrelationFilter():
            return _compile_correlation(rule_filter)
    assert_never(rule_filter)


def compile_action(
    action: SqlAction, *, newid: NewId = uuid.uuid4
) -> Callable[[MessageView], MessageChanges]:
    """Return a function that computes the changes to a message. Raises ConfigurationError."""
    return compile_statements(parse_action(action.expression), Compiler(action.parameters, newid))


def compile_rules(
    rules: Iterable[Rule], *, newid: NewId = uuid.uuid4
) -> Callable[[MessageView], RuleResult]:
    """Return a function that applies the rules of a subscription to a message.

    Raises ConfigurationError. The returned function does not raise.
    """
    without_action: list[tuple[str, MessagePredicate]] = []
    with_action: list[tuple[str, MessagePredicate, Callable[[MessageView], MessageChanges]]] = []
    for rule in rules:
        test = compile_filter(rule.filter, newid=newid)
        if rule.action is None:
            without_action.append((rule.name, test))
        else:
            with_action.append((rule.name, test, compile_action(rule.action, newid=newid)))

    def apply_rules(message: MessageView) -> RuleResult:
        selected = False
        copies: list[MessageChanges] = []
        failures: list[EvaluationError] = []
        for name, test in without_action:
            try:
                if test(message):
                    selected = True
                    break
            except EvaluationError as exc:
                failures.append(_failure(name, exc))
        if not with_action and not failures:
            return _UNCHANGED_COPY if selected else _NO_COPY
        if selected:
            copies.append(_NO_CHANGES)
        for name, test, action in with_action:
            try:
                if test(message):
                    copies.append(_with_rule_name(action(message), name))
            except EvaluationError as exc:
                failures.append(_failure(name, exc))
        return RuleResult(tuple(copies), tuple(failures))

    return apply_rules


_NO_CHANGES = MessageChanges()
_UNCHANGED_COPY = RuleResult((_NO_CHANGES,))
_NO_COPY = RuleResult()


def _compile_correlation(correlation: CorrelationFilter) -> MessagePredicate:
    values = [(name, getattr(correlation, field)) for name, field in CORRELATION_PROPERTIES.items()]
    system = [(name, value) for name, value in values if value is not None]
    user = [(name, name.lower(), value) for name, value in correlation.properties.items()]

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


def _with_rule_name(changes: MessageChanges, name: str) -> MessageChanges:
    return replace(changes, user_set={**changes.user_set, RULE_NAME: name})


def _failure(name: str, exc: EvaluationError) -> EvaluationError:
    failure = EvaluationError(f"rule {name}: {exc}")
    failure.__cause__ = exc
    return failure
