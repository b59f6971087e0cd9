"""Times in options."""

import pytest

from pairbus.cli.times import parse_time
from pairbus.errors import ConfigurationError

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("90s", NOW - 90_000),
        ("90m", NOW - 5_400_000),
        ("90 min", NOW - 5_400_000),
        ("12h", NOW - 43_200_000),
        ("3d", NOW - 259_200_000),
        ("1970-01-01", 0),
        ("1970-01-01T01:00Z", 3_600_000),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_time_is_a_date_or_an_age(text: str | None, expected: int | None):
    assert parse_time("--since", text, NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "5", "-5m", "1970-13-01", "5 weeks"])
def test_other_text_is_an_error(text: str):
    with pytest.raises(ConfigurationError, match=r"--until: .*2026-11-17T09:30Z"):
        parse_time("--until", text, NOW)
