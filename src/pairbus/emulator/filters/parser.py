"""The SQL of subscription rules: the documented grammar, and a text parsed into a syntax tree.

What `parse_filter` and `parse_action` return is checked as far as text alone can be: scopes, system
properties and functions exist, an action sets only what may be set, and the limits are kept. Every
mistake is a ConfigurationError that says where (line and column, from 1) and what was expected.
The parser is LALR: its time is linear in the text, and it does not recurse.
"""

from dataclasses import fields, is_dataclass
from functools import cache
from math import isinf
from typing import Any, Never

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from pairbus.emulator.filters import syntax_tree as tree
from pairbus.emulator.filters.system_properties import SETTABLE, system_name
from pairbus.errors import ConfigurationError

MAX_TEXT = 1024
MAX_STATEMENTS = 32
MAX_DEPTH = 64

# The builder gets terminals that stand here by name; words in quotes are left out. An optional NOT
# that is absent is None.
_GRAMMAR = r"""
condition: predicate
action: statement (";"? statement)* ";"?

?statement: SET property "=" expression         -> assignment
          | REMOVE property                     -> removal

?predicate: conjunction
          | conjunction ("OR"i conjunction)+    -> any_of
?conjunction: negation
            | negation ("AND"i negation)+       -> all_of
?negation: test
         | "NOT"i negation                      -> not_
?test: expression (EQUAL | OTHER) expression                            -> comparison
     | property "IS"i [NOT] "NULL"i                                     -> is_null
     | expression [NOT] "IN"i "(" expression ("," expression)* ")"      -> member
     | expression [NOT] "LIKE"i expression ["ESCAPE"i expression]       -> like
     | "EXISTS"i "(" property ")"                                       -> exists
     | "(" predicate ")"

?expression: term
           | expression SIGN term               -> arithmetic
?term: factor
     | term TIMES factor                        -> arithmetic
?factor: atom
       | SIGN factor                            -> signed
?atom: NUMBER                                   -> number
     | STRING                                   -> string
     | PARAMETER                                -> parameter
     | "TRUE"i                                  -> true
     | "FALSE"i                                 -> false
     | "NULL"i                                  -> null
     | IDENTIFIER "(" ")"                       -> call
     | IDENTIFIER "(" expression ("," expression)* ")"  -> call
     | property
     | "(" expression ")"
property: name
        | name "." name
?name: IDENTIFIER | DELIMITED | QUOTED

SET: "SET"i
REMOVE: "REMOVE"i
NOT: "NOT"i
EQUAL: "="
OTHER: /<>|!=|>=|<=|<|>/
SIGN: /[+-]/
TIMES: /[*\/%]/
NUMBER: /(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?/i
STRING: /'(?:[^']|'')*'/
DELIMITED: /\[(?:[^\]]|\]\])*\]/
QUOTED: /"(?:[^"]|"")*"/
PARAMETER: /@\w+/
IDENTIFIER: /[^\W\d_]\w*/i
%ignore /\s+/
"""

_START = {"filter": "condition", "action": "action"}
_OPENED = {"'": "string", '"': "quoted name", "[": "name in brackets"}
_WORDS = {
    "a property": {"IDENTIFIER", "DELIMITED", "QUOTED"},
    "a constant": {"NUMBER", "STRING", "TRUE", "FALSE", "NULL", "PARAMETER"},
    "a comparison": {"OTHER", "IN", "LIKE"},
    "an arithmetic operator": {"TIMES"},
    "a sign": {"SIGN"},
    "'='": {"EQUAL"},
    "'('": {"LPAR"},
    "')'": {"RPAR"},
    "','": {"COMMA"},
    "'.'": {"DOT"},
    "';'": {"SEMICOLON"},
    "the end": {"$END"},
}


def parse_filter(text: str) -> tree.Predicate:
    """The predicate of a SQL filter. Raises ConfigurationError, whatever the text."""
    predicate: tree.Predicate = _parse(text, "filter")
    return predicate


def parse_action(text: str) -> tuple[tree.Statement, ...]:
    """The statements of a SQL action, in order. Raises ConfigurationError, whatever the text."""
    statements: tuple[tree.Statement, ...] = _parse(text, "action")
    if len(statements) > MAX_STATEMENTS:
        raise ConfigurationError(
            f"the action has {len(statements)} statements, and {MAX_STATEMENTS} are allowed"
        )
    return statements


def syntax_error(line: int, column: int, what: str) -> ConfigurationError:
    """A ConfigurationError that says where in the text it is."""
    return ConfigurationError(f"line {line}, column {column}: {what}")


def _parse(text: object, kind: str) -> Any:
    if not isinstance(text, str) or not text.strip():
        raise ConfigurationError(f"the {kind} is empty: it needs a SQL expression")
    if len(text) > MAX_TEXT:
        raise ConfigurationError(
            f"the {kind} has {len(text)} characters, and {MAX_TEXT} are allowed"
        )
    try:
        found = _parser().parse(text, start=_START[kind])
    except UnexpectedCharacters as exc:
        opened = _OPENED.get(exc.char)
        what = f"the {opened} never ends" if opened else f"{exc.char!r} has no meaning here"
        raise syntax_error(exc.line, exc.column, what) from exc
    except UnexpectedToken as exc:
        token, line, column = repr(str(exc.token)[:40]), exc.line, exc.column
        if exc.token.type == "$END":
            lines = text.split("\n")
            token, line, column = "the end", len(lines), len(lines[-1]) + 1
        raise syntax_error(line, column, f"found {token}, expected {_words(exc.accepts)}") from exc
    _check_depth(found, kind)
    return found


@cache
def _parser() -> Lark:
    return Lark(
        _GRAMMAR,
        parser="lalr",
        # Not the contextual lexer: a keyword is not a property name, wherever it stands.
        lexer="basic",
        start=list(_START.values()),
        transformer=_Builder(),
        maybe_placeholders=True,
    )


def _words(terminals: set[str]) -> str:
    """What could have stood there, for people."""
    # Where every operator may stand, one word for all of them will do.
    left = set(terminals)
    if "OTHER" in left:
        left -= {"EQUAL"}
    if "TIMES" in left:
        left -= {"SIGN"}
    words = []
    for word, group in _WORDS.items():
        if left & group:
            words.append(word)
            left -= group
    words += sorted(left)
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def _check_depth(root: Any, kind: str) -> None:
    """A level of nesting costs a frame when the tree is compiled and evaluated: so count first."""
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ConfigurationError(f"the {kind} is nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, tuple):
            waiting += [(part, depth) for part in node]
        elif is_dataclass(node):
            waiting += [(getattr(node, field.name), depth + 1) for field in fields(node)]


def _fail(at: Token, what: str) -> Never:
    raise syntax_error(at.line or 1, at.column or 1, what)


def _name(token: Token) -> str:
    """A property's name without its quotes or brackets."""
    if token.type == "IDENTIFIER":
        # \w knows digits that are not decimal, and the grammar does not.
        if not all(char.isalpha() or char.isdecimal() or char == "_" for char in token):
            _fail(token, f"put the name {str(token)!r} into brackets: it is not letters and digits")
        return str(token)
    end = token[-1]
    name = token[1:-1].replace(end + end, end)
    if not name:
        _fail(token, "a property's name is empty")
    return name


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """What the parser calls for each rule of the grammar as it finds it."""

    def condition(self, predicate: tree.Predicate) -> tree.Predicate:
        return predicate

    def action(self, *statements: tree.Statement) -> tuple[tree.Statement, ...]:
        return statements

    def assignment(
        self, at: Token, target: tree.Property, value: tree.Expression
    ) -> tree.Assignment:
        if isinstance(target, tree.SystemProperty) and target.name not in SETTABLE:
            _fail(at, f"sys.{target.name} cannot be set; these can: {', '.join(SETTABLE)}")
        return tree.Assignment(target, value)

    def removal(self, at: Token, target: tree.Property) -> tree.Removal:
        if isinstance(target, tree.SystemProperty):
            _fail(at, f"sys.{target.name} cannot be removed: only user properties can")
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
                _fail(token, f"{token} is beyond a 64-bit integer")
            return tree.Constant(int(token))
        if isinf(value := float(token)):
            _fail(token, f"{token} is beyond a double")
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
            case "property" | "p", (tree.Constant(of),):
                if not isinstance(of, str):
                    _fail(name, f"{name}() needs a name in single quotes")
                return tree.UserProperty(of)
            case "property" | "p", (of,):
                return tree.PropertyCall(of)
        known = "newid(), property(name) and p(name)"
        _fail(name, f"there is no function {name}() with {len(arguments)} arguments, only {known}")

    def property(self, first: Token, second: Token | None = None) -> tree.Property:
        if second is None:
            return tree.UserProperty(_name(first))
        scope = _name(first).lower()
        if scope == "user":
            return tree.UserProperty(_name(second))
        if scope != "sys":
            _fail(first, f"there is no scope {str(first)!r}, only sys and user")
        name = _name(second)
        system = system_name(name)
        if system is None:
            _fail(second, f"a message has no system property {name!r}")
        return tree.SystemProperty(system)
