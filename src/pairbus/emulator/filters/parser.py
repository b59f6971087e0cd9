"""The parser for SQL filters and actions, with the documented grammar of Service Bus.

An invalid text raises ConfigurationError with the position (line and column) and what was expected
there. The parser is LALR: its time is linear in the length of the text, and it is not recursive.
"""

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from lark import Lark, UnexpectedCharacters, UnexpectedToken

from pairbus.emulator.filters import syntax_tree as tree
from pairbus.emulator.filters.tree_builder import TreeBuilder, syntax_error
from pairbus.errors import ConfigurationError

MAX_TEXT = 1024
MAX_STATEMENTS = 32
MAX_DEPTH = 64

# The builder gets the named terminals; words in quotes are omitted. An absent optional NOT is None.
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

_START_RULES = {"filter": "condition", "action": "action"}
_DELIMITERS = {"'": "string", '"': "quoted name", "[": "name in brackets"}
_TERMINAL_NAMES = {
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
    """Parse a SQL filter. Raises ConfigurationError, and no other exception, for any text."""
    predicate: tree.Predicate = _parse(text, "filter")
    return predicate


def parse_action(text: str) -> tuple[tree.Statement, ...]:
    """Parse a SQL action. Raises ConfigurationError, and no other exception, for any text."""
    statements: tuple[tree.Statement, ...] = _parse(text, "action")
    if len(statements) > MAX_STATEMENTS:
        raise ConfigurationError(
            f"The action has {len(statements)} statements; the maximum is {MAX_STATEMENTS}."
        )
    return statements


def _parse(text: object, kind: str) -> Any:
    if not isinstance(text, str) or not text.strip():
        raise ConfigurationError(f"The {kind} is empty. It needs a SQL expression.")
    if len(text) > MAX_TEXT:
        raise ConfigurationError(
            f"The {kind} has {len(text)} characters; the maximum is {MAX_TEXT}."
        )
    try:
        root = _parser().parse(text, start=_START_RULES[kind])
    except UnexpectedCharacters as exc:
        delimited = _DELIMITERS.get(exc.char)
        detail = f"the {delimited} is not closed" if delimited else f"unexpected {exc.char!r}"
        raise syntax_error(exc.line, exc.column, detail) from exc
    except UnexpectedToken as exc:
        token, line, column = repr(str(exc.token)[:40]), exc.line, exc.column
        if exc.token.type == "$END":
            lines = text.split("\n")
            token, line, column = "the end", len(lines), len(lines[-1]) + 1
        raise syntax_error(
            line, column, f"found {token}, expected {_describe(exc.accepts)}"
        ) from exc
    _check_depth(root, kind)
    return root


@cache
def _parser() -> Lark:
    return Lark(
        _GRAMMAR,
        parser="lalr",
        # Unlike the contextual lexer, this one never reads a keyword as a property name.
        lexer="basic",
        start=list(_START_RULES.values()),
        transformer=TreeBuilder(),
        maybe_placeholders=True,
    )


def _describe(terminals: set[str]) -> str:
    """Return the expected terminals as text for an error message."""
    remaining = set(terminals)
    # "a comparison" and "an arithmetic operator" include these.
    if "OTHER" in remaining:
        remaining -= {"EQUAL"}
    if "TIMES" in remaining:
        remaining -= {"SIGN"}
    names = []
    for name, group in _TERMINAL_NAMES.items():
        if remaining & group:
            names.append(name)
            remaining -= group
    names += sorted(remaining)
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _check_depth(root: Any, kind: str) -> None:
    """Limit the nesting, because compilation and evaluation are recursive."""
    pending = [(root, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise ConfigurationError(f"The {kind} is nested more than {MAX_DEPTH} levels deep.")
        if isinstance(node, tuple):
            pending += [(part, depth) for part in node]
        elif is_dataclass(node):
            pending += [(getattr(node, field.name), depth + 1) for field in fields(node)]
