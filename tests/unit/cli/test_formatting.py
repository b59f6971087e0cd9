"""Text for times, sizes, counts and values of other systems."""

import pytest

from pairbus.cli.formatting import age, count, printable, size, utc_time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (86400 * 3 + 4 * 3600, "3 d 4 h"),
    ],
)
def test_age_has_at_most_two_units(seconds: int, text: str) -> None:
    assert age(1_000_000_000, 1_000_000_000 + seconds * 1000) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_951, "1.0 MB"),
        (5 * 10**9, "5.0 GB"),
        (10**16, "10,000.0 TB"),
    ],
)
def test_size_is_in_decimal_units(number: int, text: str) -> None:
    assert size(number) == text


def test_unknown_values_are_empty_or_a_question_mark() -> None:
    assert [age(None, 5), size(None), utc_time(None), utc_time(2**62)] == [""] * 4
    assert count(None) == "?"


def test_count_has_a_plus_sign_if_there_may_be_more() -> None:
    assert (count(1200, more=True), count(0, more=True), count(7)) == ("1,200+", "0", "7")


def test_printable_text_has_no_control_characters() -> None:
    assert printable("a\x1b[2J\r\nb\u202e") == "a\\x1b[2J\\r\\nb\\u202e"
    assert printable(b"\xff") == "�"
    assert printable("é 漢") == "é 漢"
