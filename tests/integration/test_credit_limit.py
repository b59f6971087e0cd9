"""The tier of the backlog's namespace decides how a drain starts."""

from dataclasses import replace
from pathlib import Path

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.emulator import LocalNamespace
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.servicebus.tokens import SharedAccessKey
from pairbus.spark.usage import NO_USAGE, UsageRecorder
from pairbus.syphon.credit_limit import CreditLimit
from pairbus.usage.operations import OperationKind
from pairbus.usage.records import read_operations

pytestmark = pytest.mark.rule("Y9")
LISTEN = SharedAccessRule(name="listens", primary_key="k", rights=frozenset({Right.LISTEN}))


@pytest.mark.parametrize(
    ("tier", "applies"), [("standard", True), ("premium", False), ("unlimited", False)]
)
def test_only_the_standard_tier_has_credits(tier: str, applies: bool, tmp_path: Path) -> None:
    with LocalNamespace("orders", tier=tier) as namespace:
        options = ClientOptions.from_connection_string(namespace.connection_string)
        usage = UsageRecorder.create(str(tmp_path), options, options)
        assert CreditLimit(options, usage).applies() is applies
        metered = namespace.meter()
    (record,) = read_operations(tmp_path)
    assert (record["kind"], record["answered"]) == (OperationKind.MANAGEMENT.value, True)
    assert sum(reading.operations for reading in metered.values()) == 1


def test_without_the_manage_right_no_limit_is_assumed() -> None:
    with LocalNamespace("orders", tier="standard", rules=[LISTEN]) as namespace:
        options = replace(
            ClientOptions.from_connection_string(namespace.connection_string),
            tokens=SharedAccessKey(LISTEN.name, LISTEN.primary_key),
        )
        assert CreditLimit(options, NO_USAGE).applies() is False


def test_without_an_answer_no_limit_is_assumed() -> None:
    with LocalNamespace("orders", tier="standard") as namespace:
        options = ClientOptions.from_connection_string(namespace.connection_string)
    assert CreditLimit(options, NO_USAGE).applies() is False
