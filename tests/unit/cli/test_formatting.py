"""How times, sizes and foreign text are written."""

import pytest

from pairbus.cli.formatting import age, count, printable, size, utc_time


@pytest.mark.parametrize(
    ("seconds", "said"),
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
def test_an_age_has_at_most_two_units(seconds: int, said: str) -> None:
    assert age(1_000_000_000, 1_000_000_000 + seconds * 1000) == said


@pytest.mark.parametrize(
    ("number", "said"),
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
def test_a_size_is_in_thousands(number: int, said: str) -> None:
    assert size(number) == said


def test_what_is_not_known_is_empty_or_a_question_mark() -> None:
    assert (age(None, 5), size(None), utc_time(None), utc_time(2**62), count(None)) == (
        "",
        "",
        "",
        "",
        "?",
    )


def test_a_count_says_where_there_may_be_more() -> None:
    assert (count(1200, more=True), count(0, more=True), count(7)) == ("1,200+", "0", "7")


def test_text_from_elsewhere_does_nothing_to_a_terminal() -> None:
    assert printable("a\x1b[2J\r\nb\u202e") == "a\\x1b[2J\\r\\nb\\u202e"
    assert printable(b"\xff") == "�"
    assert printable("é 漢") == "é 漢"
