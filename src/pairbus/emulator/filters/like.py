"""LIKE patterns compiled to functions: `%` matches any characters, `_` any single character.

A pattern is split at its `%` into pieces. Each piece is searched from the end of the previous
match, and its first match is always sufficient. There is no backtracking, so patterns with many `%`
are not slow.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pairbus.emulator.filters.values import STRINGS, UNKNOWN, EvaluationError, kind_of, normalize

Matcher = Callable[[str], bool]

_Piece = list[str | None]
"""The characters of a piece; None stands for `_`."""


def compile_like(pattern: str, escape: str | None = None) -> Matcher:
    """Return a function that tests if a whole string matches the pattern.

    Raises ValueError if the escape is not one character, or ends the pattern.
    """
    pieces = _pieces(pattern, escape)
    return _simple_matcher(pieces) or _general_matcher(pieces)


def is_like(value: Any, pattern: Any, escape: Any) -> bool | None:
    """Return the result of LIKE for values of any kind, or None if one of them is unknown.

    NULL matches no pattern. An escape of None means that there is none. Raises EvaluationError.
    """
    if value is UNKNOWN or pattern is UNKNOWN or escape is UNKNOWN:
        return None
    value = normalize(value)
    if value is None or pattern is None:
        return False
    for operand in (value, pattern) if escape is None else (value, pattern, escape):
        if operand.__class__ not in STRINGS:
            raise EvaluationError(f"LIKE compares strings, not {kind_of(operand)}")
    try:
        return _cached_like(pattern, escape)(value)
    except ValueError as exc:
        raise EvaluationError(str(exc)) from exc


def _simple_matcher(pieces: list[_Piece]) -> Matcher | None:
    """Return the matcher for `a`, `a%`, `%a`, `a%b` or `%a%`, or None for other patterns."""
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


def _general_matcher(pieces: list[_Piece]) -> Matcher:
    regexes = [_regex(piece) for piece in pieces]
    first, last = regexes[0], regexes[-1]
    if len(pieces) == 1:
        return lambda text: first.fullmatch(text) is not None
    searches = [regex.search for regex in regexes[1:-1] if regex.pattern]
    length = len(pieces[-1])

    def matches(text: str) -> bool:
        end = len(text) - length
        match = first.match(text)
        for search in searches:
            if match is None:
                return False
            match = search(text, match.end(), end)
        return match is not None and match.end() <= end and last.match(text, end) is not None

    return matches


def _regex(piece: _Piece) -> re.Pattern[str]:
    return re.compile(
        "".join("." if char is None else re.escape(char) for char in piece), re.DOTALL
    )


def _pieces(pattern: str, escape: str | None) -> list[_Piece]:
    if escape is not None and len(escape) != 1:
        raise ValueError(f"the escape of LIKE must be one character, not {escape!r}")
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


_cached_like = lru_cache(maxsize=64)(compile_like)
