"""LIKE patterns: % matches any characters, _ one character, and no pattern is slow."""

import pytest

from pairbus.emulator.filters.like import compile_like

PATTERNS: list[tuple[str, str | None, list[str], list[str]]] = [
    ("abc", None, ["abc"], ["", "ab", "abcd", "ABC", "xabc"]),
    ("", None, [""], ["a"]),
    ("%", None, ["", "a", "a\nb"], []),
    ("%%", None, ["", "a"], []),
    ("_", None, ["a", "\n", "%"], ["", "ab"]),
    ("a%", None, ["a", "abc", "a\nb"], ["", "ba"]),
    ("%a", None, ["a", "ba"], ["", "ab"]),
    ("%a%", None, ["a", "bab", "ab"], ["", "b"]),
    ("a%b", None, ["ab", "axb", "ab ab"], ["a", "b", "ba", "abx"]),
    ("aba%ba", None, ["ababa", "aba ba"], ["aba", "abba"]),
    ("a_c", None, ["abc", "a_c", "a\nc"], ["ac", "abbc"]),
    ("_%", None, ["a", "abc"], [""]),
    ("%_", None, ["a", "abc"], [""]),
    ("_%_", None, ["ab", "abc"], ["", "a"]),
    ("%a_b%c", None, ["axbc", "-axb-c", "aabc"], ["abc", "axbcd"]),
    ("a%b%c%d", None, ["abcd", "a-b-c-d", "abbccdd"], ["abdc", "abc"]),
    ("a%bc%bc", None, ["abcbc", "abc-bc"], ["abc"]),
    ("%ab%abc", None, ["ababc", "ab-abc"], ["abc"]),
    (".*", None, [".*"], ["a", "ab"]),
    ("[ab]", None, ["[ab]"], ["a"]),
    ("100!%", "!", ["100%"], ["100", "1000"]),
    ("!_!!x%", "!", ["_!x", "_!xyz"], ["a!x"]),
    ("!a", "!", ["a"], ["!a"]),
    ("a%%b", "%", ["a%b"], ["ab", "axb"]),
    ("%_b", "%", ["_b"], ["ab"]),
]


@pytest.mark.parametrize(("pattern", "escape", "matching", "other"), PATTERNS)
def test_pattern_matches_these_strings_and_no_others(
    pattern: str, escape: str | None, matching: list[str], other: list[str]
) -> None:
    matches = compile_like(pattern, escape)

    assert [text for text in matching if not matches(text)] == []
    assert [text for text in other if matches(text)] == []


@pytest.mark.parametrize("pattern", ["%a" * 300 + "%b", "%a_" * 300 + "b", "_%" * 500 + "b"])
@pytest.mark.timeout(20)
def test_time_does_not_grow_with_the_number_of_wildcards(pattern: str) -> None:
    # A regular expression with backtracking would not finish.
    assert compile_like(pattern)("a" * 60_000) is False
    assert compile_like(pattern)("a" * 60_000 + "b") is True
