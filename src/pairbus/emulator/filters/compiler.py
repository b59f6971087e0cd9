"""Compilation of a syntax tree to functions of a message, which are called for every message.

A filter matches if its predicate is true, not if it is false or unknown. So a predicate need not be
evaluated to three values. It is compiled to a test that it is true or, below a NOT, to a test that
it is false; if it is unknown, both tests fail. AND and OR are evaluated from left to right and stop
as soon as the result is known.
"""

import operator
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from pairbus.emulator.filters import syntax_tree as tree
from pairbus.emulator.filters.like import compile_like, is_like
from pairbus.emulator.filters.message_view import MessageView, find_property
from pairbus.emulator.filters.tree_builder import syntax_error
from pairbus.emulator.filters.values import (
    COMPARISONS,
    NUMBERS,
    STRINGS,
    UNKNOWN,
    Comparator,
    EvaluationError,
    check_value,
    compare,
    compute,
    is_member,
    kind_of,
    normalize,
    signed,
)
from pairbus.errors import ConfigurationError

MessagePredicate = Callable[[MessageView], bool]
MessageExpression = Callable[[MessageView], Any]

_MIRRORED: dict[Comparator, Comparator] = {
    operator.lt: operator.gt,
    operator.gt: operator.lt,
    operator.le: operator.ge,
    operator.ge: operator.le,
}


class Compiler:
    """Compiles nodes to functions. The keys of `parameters` are `@name`, case-insensitive."""

    def __init__(
        self,
        parameters: Mapping[str, Any] | None = None,
        newid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self._parameters: dict[str, Any] = {}
        self._newid = newid
        for name, value in (parameters or {}).items():
            self._parameters[name.lower()] = check_value(f"Parameter {name}", value)

    def test(self, node: tree.Predicate, expected: bool = True) -> MessagePredicate:
        """Return a function that tests if a predicate is true, or false if `expected` is False.

        The function may raise EvaluationError.
        """
        match node:
            case tree.Not(predicate):
                return self.test(predicate, not expected)
            case tree.AllOf(parts):
                tests = [self.test(part, expected) for part in parts]
                return _all(tests) if expected else _any(tests)
            case tree.AnyOf(parts):
                tests = [self.test(part, expected) for part in parts]
                return _any(tests) if expected else _all(tests)
            case tree.Comparison(sign, left, right):
                return self._comparison(COMPARISONS[sign], left, right, expected)
            case tree.Member(value, choices):
                return self._member(value, choices, expected)
            case tree.Like(value, pattern, escape):
                return self._like(value, pattern, escape, expected)
            case tree.IsNull(of):
                return _is_null(self.expression(of), expected)
            case tree.Exists(of):
                missing = UNKNOWN if isinstance(of, tree.UserProperty) else None
                value_of = self.expression(of)
                return lambda message: (value_of(message) is not missing) is expected

    def expression(self, node: tree.Expression) -> MessageExpression:
        """Return a function that computes an expression. It may raise EvaluationError."""
        match node:
            case tree.Constant() | tree.Parameter():
                value = self._constant_value(node)
                return lambda message: value
            case tree.UserProperty(name):
                lowered = name.lower()
                return lambda message: find_property(message.user, name, lowered)
            case tree.SystemProperty(name):
                return lambda message: message.system(name)
            case tree.PropertyCall(of):
                return _property_call(self.expression(of))
            case tree.NewId():
                newid = self._newid
                return lambda message: newid()
            case tree.Signed(sign, of):
                value_of = self.expression(of)
                return lambda message: signed(sign, value_of(message))
            case tree.Arithmetic(sign, left, right):
                left_of, right_of = self.expression(left), self.expression(right)
                return lambda message: compute(sign, left_of(message), right_of(message))

    def _constant_value(self, node: tree.Expression) -> Any:
        """Return the value of a constant or parameter, or UNKNOWN for any other node."""
        match node:
            case tree.Constant(value):
                return value
            case tree.Parameter(name, line, column) if name not in self._parameters:
                names = ", ".join(self._parameters) or "none"
                raise syntax_error(
                    line, column, f"parameter {name} has no value; parameters with values: {names}"
                )
            case tree.Parameter(name):
                return self._parameters[name]
        return UNKNOWN

    def _comparison(
        self, by: Comparator, left: tree.Expression, right: tree.Expression, expected: bool
    ) -> MessagePredicate:
        if self._constant_value(left) is not UNKNOWN:
            left, right, by = right, left, _MIRRORED.get(by, by)
        constant = self._constant_value(right)
        if constant is UNKNOWN:
            left_of, right_of = self.expression(left), self.expression(right)
            return lambda message: compare(by, left_of(message), right_of(message)) is expected

        # Values of these types are compared directly: the common case, and by far the fastest.
        direct = next((types for types in (STRINGS, NUMBERS) if constant.__class__ in types), ())
        if isinstance(left, tree.UserProperty):
            name, lowered = left.name, left.name.lower()

            def user_test(message: MessageView) -> bool:
                user = message.user
                value = user.get(name, UNKNOWN)
                if value is UNKNOWN:
                    value = find_property(user, name, lowered)
                if value.__class__ in direct:
                    return by(value, constant) is expected
                return compare(by, value, constant) is expected

            return user_test
        value_of = self.expression(left)

        def test(message: MessageView) -> bool:
            value = value_of(message)
            if value.__class__ in direct:
                return by(value, constant) is expected
            return compare(by, value, constant) is expected

        return test

    def _member(
        self, node: tree.Expression, choices: tuple[tree.Expression, ...], expected: bool
    ) -> MessagePredicate:
        value_of = self.expression(node)
        operands = [self.expression(choice) for choice in choices]
        constants = [self._constant_value(choice) for choice in choices]
        direct, members = frozenset[type](), frozenset[Any]()
        for types in (STRINGS, NUMBERS):
            if all(constant.__class__ in types for constant in constants):
                direct, members = types, frozenset(constants)

        def test(message: MessageView) -> bool:
            value = value_of(message)
            if value.__class__ in direct:
                return (value in members) is expected
            return is_member(value, (choice(message) for choice in operands)) is expected

        return test

    def _like(
        self,
        node: tree.Expression,
        pattern: tree.Expression,
        escape: tree.Expression | None,
        expected: bool,
    ) -> MessagePredicate:
        value_of, pattern_of = self.expression(node), self.expression(pattern)
        escape_of = self.expression(escape or tree.Constant(None))
        constant_pattern = self._constant_value(pattern)
        constant_escape = self._constant_value(escape or tree.Constant(None))
        if constant_pattern is UNKNOWN or constant_escape is UNKNOWN:
            return lambda message: (
                is_like(value_of(message), pattern_of(message), escape_of(message)) is expected
            )
        # An invalid constant pattern is an error of the filter, not of a message.
        try:
            is_like("", constant_pattern, constant_escape)
        except EvaluationError as exc:
            raise ConfigurationError(str(exc)) from exc
        matches = compile_like(constant_pattern or "", constant_escape)

        def test(message: MessageView) -> bool:
            value = value_of(message)
            if value.__class__ is str and constant_pattern is not None:
                return matches(value) is expected
            return is_like(value, constant_pattern, constant_escape) is expected

        return test


def _is_null(value_of: MessageExpression, expected: bool) -> MessagePredicate:
    def test(message: MessageView) -> bool:
        value = value_of(message)
        return (value is None or value is UNKNOWN) is expected

    return test


def _property_call(name_of: MessageExpression) -> MessageExpression:
    def call(message: MessageView) -> Any:
        name = normalize(name_of(message))
        if name is None or name is UNKNOWN:
            return UNKNOWN
        if name.__class__ not in STRINGS:
            raise EvaluationError(f"property() expects a name, not {kind_of(name)}")
        return find_property(message.user, name, name.lower())

    return call


def _all(tests: list[MessagePredicate]) -> MessagePredicate:
    if len(tests) == 2:
        first, second = tests
        return lambda message: first(message) and second(message)

    def every(message: MessageView) -> bool:
        for test in tests:  # noqa: SIM110 - half the time of all() over a generator
            if not test(message):
                return False
        return True

    return every


def _any(tests: list[MessagePredicate]) -> MessagePredicate:
    if len(tests) == 2:
        first, second = tests
        return lambda message: first(message) or second(message)

    def some(message: MessageView) -> bool:
        for test in tests:  # noqa: SIM110
            if test(message):
                return True
        return False

    return some
