"""A syntax tree as functions of a message: compiled once, called for every message.

A filter lets through what is true, and neither what is false nor what is unknown. So a predicate is
not evaluated to three values: it is compiled either to "is it true?" or, below a NOT, to "is it
false?", and unknown is neither. NOT turns the question round; AND and OR are Python's own, from
left to right, as far as needed.
"""

import operator
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from pairbus.emulator.filters import syntax_tree as tree
from pairbus.emulator.filters.like import compile_like, is_like
from pairbus.emulator.filters.message_view import MessageView, find_property
from pairbus.emulator.filters.parser import syntax_error
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
    """Makes functions of nodes. The keys of `parameters` are such as `@name`, in any case."""

    def __init__(
        self,
        parameters: Mapping[str, Any] | None = None,
        newid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self._parameters: dict[str, Any] = {}
        self._newid = newid
        for name, given in (parameters or {}).items():
            self._parameters[name.lower()] = check_value(f"parameter {name}", given)

    def test(self, node: tree.Predicate, want: bool = True) -> MessagePredicate:
        """A function that says whether the predicate is `want`. It may raise EvaluationError."""
        match node:
            case tree.Not(predicate):
                return self.test(predicate, not want)
            case tree.AllOf(parts):
                tests = [self.test(part, want) for part in parts]
                return _all(tests) if want else _any(tests)
            case tree.AnyOf(parts):
                tests = [self.test(part, want) for part in parts]
                return _any(tests) if want else _all(tests)
            case tree.Comparison(sign, left, right):
                return self._comparison(COMPARISONS[sign], left, right, want)
            case tree.Member(value, choices):
                return self._member(value, choices, want)
            case tree.Like(value, pattern, escape):
                return self._like(value, pattern, escape, want)
            case tree.IsNull(of):
                return _is_null(self.operand(of), want)
            case tree.Exists(of):
                missing = UNKNOWN if isinstance(of, tree.UserProperty) else None
                value_of = self.operand(of)
                return lambda message: (value_of(message) is not missing) is want

    def operand(self, node: tree.Expression) -> MessageExpression:
        """A function that gives the value of an expression. It may raise EvaluationError."""
        match node:
            case tree.Constant() | tree.Parameter():
                value = self._fixed(node)
                return lambda message: value
            case tree.UserProperty(name):
                lowered = name.lower()
                return lambda message: find_property(message.user, name, lowered)
            case tree.SystemProperty(name):
                return lambda message: message.system(name)
            case tree.PropertyCall(of):
                return _property_call(self.operand(of))
            case tree.NewId():
                newid = self._newid
                return lambda message: newid()
            case tree.Signed(sign, of):
                value_of = self.operand(of)
                return lambda message: signed(sign, value_of(message))
            case tree.Arithmetic(sign, one, two):
                left, right = self.operand(one), self.operand(two)
                return lambda message: compute(sign, left(message), right(message))

    def _fixed(self, node: tree.Expression) -> Any:
        """The value of a constant or parameter, UNKNOWN for any other node."""
        match node:
            case tree.Constant(value):
                return value
            case tree.Parameter(name, line, column) if name not in self._parameters:
                given = ", ".join(self._parameters) or "none"
                raise syntax_error(line, column, f"there is no parameter {name}; given: {given}")
            case tree.Parameter(name):
                return self._parameters[name]
        return UNKNOWN

    def _comparison(
        self, by: Comparator, left: tree.Expression, right: tree.Expression, want: bool
    ) -> MessagePredicate:
        if self._fixed(left) is not UNKNOWN:
            left, right, by = right, left, _MIRRORED.get(by, by)
        constant = self._fixed(right)
        if constant is UNKNOWN:
            one, two = self.operand(left), self.operand(right)
            return lambda message: compare(by, one(message), two(message)) is want

        # Values of these types need no further look: the common case, and by far the fastest.
        easy = next((types for types in (STRINGS, NUMBERS) if constant.__class__ in types), ())
        if isinstance(left, tree.UserProperty):
            name, lowered = left.name, left.name.lower()

            def user_test(message: MessageView) -> bool:
                user = message.user
                value = user.get(name, UNKNOWN)
                if value is UNKNOWN:
                    value = find_property(user, name, lowered)
                if value.__class__ in easy:
                    return by(value, constant) is want
                return compare(by, value, constant) is want

            return user_test
        value_of = self.operand(left)

        def test(message: MessageView) -> bool:
            value = value_of(message)
            if value.__class__ in easy:
                return by(value, constant) is want
            return compare(by, value, constant) is want

        return test

    def _member(
        self, node: tree.Expression, choices: tuple[tree.Expression, ...], want: bool
    ) -> MessagePredicate:
        value_of = self.operand(node)
        operands = [self.operand(choice) for choice in choices]
        constants = [self._fixed(choice) for choice in choices]
        easy, known = frozenset[type](), frozenset[Any]()
        for types in (STRINGS, NUMBERS):
            if all(constant.__class__ in types for constant in constants):
                easy, known = types, frozenset(constants)

        def test(message: MessageView) -> bool:
            value = value_of(message)
            if value.__class__ in easy:
                return (value in known) is want
            return is_member(value, (choice(message) for choice in operands)) is want

        return test

    def _like(
        self,
        node: tree.Expression,
        pattern: tree.Expression,
        escape: tree.Expression | None,
        want: bool,
    ) -> MessagePredicate:
        value_of, patterns = self.operand(node), self.operand(pattern)
        escapes = self.operand(escape or tree.Constant(None))
        form, mark = self._fixed(pattern), self._fixed(escape or tree.Constant(None))
        if form is UNKNOWN or mark is UNKNOWN:
            return lambda message: (
                is_like(value_of(message), patterns(message), escapes(message)) is want
            )
        # A pattern that can never work is a mistake of whoever writes the filter.
        try:
            is_like("", form, mark)
        except EvaluationError as exc:
            raise ConfigurationError(str(exc)) from exc
        matches = compile_like(form or "", mark)

        def test(message: MessageView) -> bool:
            value = value_of(message)
            if value.__class__ is str and form is not None:
                return matches(value) is want
            return is_like(value, form, mark) is want

        return test


def _is_null(value_of: MessageExpression, want: bool) -> MessagePredicate:
    def test(message: MessageView) -> bool:
        value = value_of(message)
        return (value is None or value is UNKNOWN) is want

    return test


def _property_call(name_of: MessageExpression) -> MessageExpression:
    def call(message: MessageView) -> Any:
        name = normalize(name_of(message))
        if name is None or name is UNKNOWN:
            return UNKNOWN
        if name.__class__ not in STRINGS:
            raise EvaluationError(f"property() needs a name, not {kind_of(name)}")
        return find_property(message.user, name, name.lower())

    return call


def _all(tests: list[MessagePredicate]) -> MessagePredicate:
    if len(tests) == 2:
        one, two = tests
        return lambda message: one(message) and two(message)

    def every(message: MessageView) -> bool:
        for test in tests:  # noqa: SIM110 - half the time of all() over a generator
            if not test(message):
                return False
        return True

    return every


def _any(tests: list[MessagePredicate]) -> MessagePredicate:
    if len(tests) == 2:
        one, two = tests
        return lambda message: one(message) or two(message)

    def some(message: MessageView) -> bool:
        for test in tests:  # noqa: SIM110
            if test(message):
                return True
        return False

    return some
