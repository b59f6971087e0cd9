"""Errors about fields of options objects, in terms of the command line."""

import pytest

from pairbus.cli.option_errors import with_option
from pairbus.errors import ConfigurationError


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("ttl must be one of restore, deduct.", "--ttl must be one of restore, deduct."),
        ("archive_format must be parquet.", "--archive-format must be parquet."),
        ("backlog_queue_count must be at least 1.", "--backlog-queues must be at least 1."),
        ("where is not a valid condition: foo", "--where is not a valid condition: foo"),
        ("--poll must be a duration.", "--poll must be a duration."),
        ("An outage of 1 s must be longer.", "An outage of 1 s must be longer."),
        ("the outage length must be shorter.", "the outage length must be shorter."),
    ],
)
def test_name_of_a_field_becomes_the_name_of_its_option(message: str, shown: str) -> None:
    assert with_option(ConfigurationError(message)) == shown
