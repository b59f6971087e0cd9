"""The report at the end of a drill."""

from decimal import Decimal
from io import StringIO

import pytest
from rich.console import Console

from pairbus.cli.drill_report import print_result
from pairbus.cost.prices import read_prices
from pairbus.drill.costs import PURPOSES, DrillCost
from pairbus.drill.reconciliation import MessageKey, SentMessage, reconcile
from pairbus.drill.result import DrillResult
from pairbus.usage.operations import Purpose, Usage
from tests.commands import CODES


def result() -> DrillResult:
    keys = [MessageKey(path, "1") for path in ("orders", "payments", "news")]
    usage: dict[Purpose, Usage] = {purpose: Usage(10, 10, 10_000) for purpose in PURPOSES}
    return DrillResult(
        reconciliation=reconcile([SentMessage(key, None, 1) for key in keys], delivered=keys),
        dead_letter_reasons={},
        through_backlog=0,
        errors=0,
        pings=0,
        times={},
        cost=DrillCost(
            forecast=usage,
            ledger=usage,
            unanswered=usage,
            money=Decimal(1),
            forecast_money=Decimal(1),
            prices=read_prices(),
        ),
        problem=None,
    )


def report(*, is_terminal: bool = True, console_operations: int = 0) -> str:
    text = StringIO()
    out = Console(file=text, width=80, force_terminal=is_terminal, soft_wrap=True)
    print_result(out, result(), console_operations=console_operations)
    return CODES.sub("", text.getvalue())


@pytest.mark.parametrize("is_terminal", [True, False])
def test_every_path_is_named_on_80_columns(is_terminal: bool) -> None:
    words = report(is_terminal=is_terminal).split()

    assert {"orders", "payments", "news", "total"} <= set(words)


def test_operations_of_a_console_are_named_apart() -> None:
    assert "The console needed 1,234 more operations" in report(console_operations=1234)
    assert "console" not in report()
