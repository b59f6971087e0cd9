"""The options that redrive and purge share."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.backlog import DeadLetterSource, RedriveOutcome, RedrivePlan, purge, redrive
from pairbus.backlog.redrive_on_spark import redrive_on_spark
from pairbus.backlog.redrive_options import RedriveOptions, RedriveSettings
from pairbus.errors import ConfigurationError

SOURCE = DeadLetterSource(namespace=ClientOptions(host="one"), entities=("orders",))


def on_spark(source: DeadLetterSource, plan: RedrivePlan, **options: Any) -> RedriveOutcome:
    return redrive_on_spark(None, source, plan, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("run", [redrive, purge, on_spark])
def test_rate_that_is_not_above_0_is_refused_before_anything_is_read(
    run: Callable[..., RedriveOutcome],
) -> None:
    with pytest.raises(ConfigurationError, match="above 0 messages a second, not 0"):
        run(SOURCE, RedrivePlan(0, {}), max_rate=0)


def test_keyword_arguments_are_those_of_the_settings() -> None:
    assert list(RedriveOptions.__annotations__) == [field.name for field in fields(RedriveSettings)]
