"""Untrusted text."""

import pytest

from pairbus.console.text import clean, label, shorten

pytestmark = pytest.mark.rule("O3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", "orders"),
        ("<b>&amp;", "<b>&amp;"),
        ("a\r\nb\x00\x1b[31m", "a⟨U+000D⟩⟨U+000A⟩b⟨U+0000⟩⟨U+001B⟩[31m"),
        ("a\u202eb\u2066c", "a⟨U+202E⟩b⟨U+2066⟩c"),
        ("הזמנות\u200f", "הזמנות\u200f"),
        ("a\u00a0b", "a b"),
        ("\ud800", "⟨U+D800⟩"),
    ],
)
def test_clean_text_has_no_control_characters(text: str, expected: str):
    assert clean(text) == expected


def test_long_text_is_cut_off():
    assert clean("x" * 1_000_000, 3) == "xxx… (999,997 more characters)"
    assert shorten("x" * 5, 5) == "xxxxx"
    assert len(label("x" * 1_000_000)) < 400


def test_label_keeps_control_characters():
    assert label("a\x00\u202e") == "a\x00\u202e"
    assert label("\ud800") == "?"
