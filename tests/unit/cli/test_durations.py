"""Durations on the command line."""

from datetime import timedelta

import pytest

from pairbus.cli.durations import parse_optional_duration
from pairbus.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("0", timedelta()),
        ("90", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        ("1d", timedelta(days=1)),
        ("forever", None),
        (" Forever ", None),
    ],
)
def test_duration_has_units_or_is_unlimited(text: str, duration: timedelta | None) -> None:
    assert parse_optional_duration("grace", text, "forever") == duration


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1w"])
def test_error_names_the_option(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--grace must be a duration"):
        parse_optional_duration("grace", text, "forever")
