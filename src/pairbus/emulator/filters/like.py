"""LIKE patterns as functions: `%` is any run of characters, `_` any one character.

A pattern is cut at its `%` into pieces, and each piece is looked for from where the one before it
ended. The first place where a piece fits is always good enough, so nothing is tried twice: no
pattern is slow for having many `%`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pairbus.emulator.filters.values import STRINGS, UNKNOWN, EvaluationError, kind_of, normalize

Matcher = Callable[[str], bool]

# The characters of a piece; None is `_`.
_Piece = list[str | None]


def compile_like(pattern: str, escape: str | None = None) -> Matcher:
    """A function that says whether a string, all of it, is like the pattern.

    Raises ValueError for an escape that is not one character, or that has nothing to escape.
    """
    pieces = _pieces(pattern, escape)
    return _easy(pieces) or _hard(pieces)


def is_like(value: Any, pattern: Any, escape: Any) -> bool | None:
    """LIKE for values of any kind; None if one of them is unknown. NULL is like nothing, and an
    escape of None is none. Raises EvaluationError."""
    if value is UNKNOWN or pattern is UNKNOWN or escape is UNKNOWN:
        return None
    value = normalize(value)
    if value is None or pattern is None:
        return False
    for operand in (value, pattern) if escape is None else (value, pattern, escape):
        if operand.__class__ not in STRINGS:
            raise EvaluationError(f"LIKE needs strings, not {kind_of(operand)}")
    try:
        return _like(pattern, escape)(value)
    except ValueError as exc:
        raise EvaluationError(str(exc)) from exc


def _easy(pieces: list[_Piece]) -> Matcher | None:
    """The matcher of a common form, `a`, `a%`, `%a`, `a%b` or `%a%`, or None."""
    if any(None in piece for piece in pieces):
        return None
    match ["".join(char for char in piece if char) for piece in pieces]:
        case [whole]:
            return lambda text: text == whole
        case [start, ""]:
            return lambda text: text.startswith(start)
        case ["", end]:
            return lambda text: text.endswith(end)
        case [start, end]:
            shortest = len(start) + len(end)
            return lambda text: (
                len(text) >= shortest and text.startswith(start) and text.endswith(end)
            )
        case ["", part, ""]:
            return lambda text: part in text
    return None


def _hard(pieces: list[_Piece]) -> Matcher:
    expressions = [_expression(piece) for piece in pieces]
    first, last = expressions[0], expressions[-1]
    if len(pieces) == 1:
        return lambda text: first.fullmatch(text) is not None
    searches = [piece.search for piece in expressions[1:-1] if piece.pattern]
    length = len(pieces[-1])

    def matches(text: str) -> bool:
        end = len(text) - length
        found = first.match(text)
        for search in searches:
            if found is None:
                return False
            found = search(text, found.end(), end)
        return found is not None and found.end() <= end and last.match(text, end) is not None

    return matches


def _expression(piece: _Piece) -> re.Pattern[str]:
    return re.compile(
        "".join("." if char is None else re.escape(char) for char in piece), re.DOTALL
    )


def _pieces(pattern: str, escape: str | None) -> list[_Piece]:
    if escape is not None and len(escape) != 1:
        raise ValueError(f"the escape of LIKE is one character, not {escape!r}")
    pieces: list[_Piece] = [[]]
    characters = iter(pattern)
    for char in characters:
        if char == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError(f"the pattern {pattern!r} ends with its escape character")
            pieces[-1].append(escaped)
        elif char == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if char == "_" else char)
    return pieces


_like = lru_cache(maxsize=64)(compile_like)
