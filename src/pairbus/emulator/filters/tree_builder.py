"""Construction of the syntax tree: the methods that the parser calls for each grammar rule.

They check what the grammar cannot: that scopes, system properties and functions exist, and that an
action sets only properties that can be set.
"""

from math import isinf
from typing import Any, Never

from lark import Token, Transformer, v_args

from pairbus.emulator.filters import syntax_tree as tree
from pairbus.emulator.filters.system_properties import SETTABLE, system_name
from pairbus.errors import ConfigurationError


def syntax_error(line: int, column: int, detail: str) -> ConfigurationError:
    """Return a ConfigurationError with a position in the text, counted from 1."""
    return ConfigurationError(f"line {line}, column {column}: {detail}")


def _fail(token: Token, detail: str) -> Never:
    raise syntax_error(token.line or 1, token.column or 1, detail)


def _name(token: Token) -> str:
    """Return the name of a property without its quotes or brackets."""
    if token.type == "IDENTIFIER":
        # \w matches digits that are not decimal, which the grammar does not allow.
        if not all(char.isalpha() or char.isdecimal() or char == "_" for char in token):
            _fail(
                token,
                f"the name {str(token)!r} has other characters than letters, digits and "
                "underscores; put it into brackets",
            )
        return str(token)
    end = token[-1]
    name = token[1:-1].replace(end + end, end)
    if not name:
        _fail(token, "the name of the property is empty")
    return name


@v_args(inline=True)
class TreeBuilder(Transformer[Token, Any]):
    """Creates the node for each grammar rule."""

    def condition(self, predicate: tree.Predicate) -> tree.Predicate:
        return predicate

    def action(self, *statements: tree.Statement) -> tuple[tree.Statement, ...]:
        return statements

    def assignment(
        self, keyword: Token, target: tree.Property, value: tree.Expression
    ) -> tree.Assignment:
        if isinstance(target, tree.SystemProperty) and target.name not in SETTABLE:
            _fail(
                keyword,
                f"sys.{target.name} cannot be set. Settable properties: {', '.join(SETTABLE)}",
            )
        return tree.Assignment(target, value)

    def removal(self, keyword: Token, target: tree.Property) -> tree.Removal:
        if isinstance(target, tree.SystemProperty):
            _fail(
                keyword, f"sys.{target.name} cannot be removed. Only user properties can be removed"
            )
        return tree.Removal(target)

    def any_of(self, *parts: tree.Predicate) -> tree.AnyOf:
        return tree.AnyOf(parts)

    def all_of(self, *parts: tree.Predicate) -> tree.AllOf:
        return tree.AllOf(parts)

    def not_(self, predicate: tree.Predicate) -> tree.Not:
        return tree.Not(predicate)

    def comparison(
        self, left: tree.Expression, operator: Token, right: tree.Expression
    ) -> tree.Comparison:
        return tree.Comparison("<>" if operator == "!=" else str(operator), left, right)

    def is_null(self, target: tree.Property, negated: Token | None) -> tree.Predicate:
        return tree.Not(tree.IsNull(target)) if negated else tree.IsNull(target)

    def member(
        self, value: tree.Expression, negated: Token | None, *choices: tree.Expression
    ) -> tree.Predicate:
        return tree.Not(tree.Member(value, choices)) if negated else tree.Member(value, choices)

    def like(
        self,
        value: tree.Expression,
        negated: Token | None,
        pattern: tree.Expression,
        escape: tree.Expression | None,
    ) -> tree.Predicate:
        like = tree.Like(value, pattern, escape)
        return tree.Not(like) if negated else like

    def exists(self, target: tree.Property) -> tree.Exists:
        return tree.Exists(target)

    def arithmetic(
        self, left: tree.Expression, operator: Token, right: tree.Expression
    ) -> tree.Arithmetic:
        return tree.Arithmetic(str(operator), left, right)

    def signed(self, sign: Token, operand: tree.Expression) -> tree.Signed:
        return tree.Signed(str(sign), operand)

    def number(self, token: Token) -> tree.Constant:
        if token.isdecimal():
            if len(token) > 19 or int(token) >= 2**63:
                _fail(token, f"{token} does not fit into a 64-bit integer")
            return tree.Constant(int(token))
        if isinf(value := float(token)):
            _fail(token, f"{token} does not fit into a double")
        return tree.Constant(value)

    def string(self, token: Token) -> tree.Constant:
        return tree.Constant(token[1:-1].replace("''", "'"))

    def parameter(self, token: Token) -> tree.Parameter:
        return tree.Parameter(token.lower(), token.line or 1, token.column or 1)

    def true(self) -> tree.Constant:
        return tree.Constant(True)

    def false(self) -> tree.Constant:
        return tree.Constant(False)

    def null(self) -> tree.Constant:
        return tree.Constant(None)

    def call(self, name: Token, *arguments: tree.Expression) -> tree.Expression:
        match name.lower(), arguments:
            case "newid", ():
                return tree.NewId()
            case "property" | "p", (tree.Constant(value),):
                if not isinstance(value, str):
                    _fail(name, f"{name}() expects a name in single quotes")
                return tree.UserProperty(value)
            case "property" | "p", (argument,):
                return tree.PropertyCall(argument)
        _fail(
            name,
            f"there is no function {name}() with {len(arguments)} arguments. "
            "Functions: newid(), property(name), p(name)",
        )

    def property(self, first: Token, second: Token | None = None) -> tree.Property:
        if second is None:
            return tree.UserProperty(_name(first))
        scope = _name(first).lower()
        if scope == "user":
            return tree.UserProperty(_name(second))
        if scope != "sys":
            _fail(first, f"there is no scope {str(first)!r}. Scopes: sys, user")
        name = _name(second)
        system = system_name(name)
        if system is None:
            _fail(second, f"there is no system property {name!r}")
        return tree.SystemProperty(system)
