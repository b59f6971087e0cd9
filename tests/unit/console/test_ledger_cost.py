"""The cost of an outage from the ledger."""

from pathlib import Path

import pytest

from pairbus.console.ledger_cost import LedgerTail, OutagePrice
from pairbus.cost.prices import Tier, read_prices
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Purpose

pytestmark = pytest.mark.rule("O2")

NOW = 6_000_000.0


def add(ledger: Ledger, purpose: Purpose, count: int, namespace: str = "one") -> None:
    ledger.add(
        namespace=namespace,
        entity="orders",
        kind=OperationKind.SEND,
        purpose=purpose,
        messages=count,
        bytes=count * 100,
    )
    ledger.flush()


def test_operations_of_the_outage_are_summed_as_the_ledger_grows(tmp_path: Path):
    time = [NOW]
    tail = LedgerTail(tmp_path, frozenset({"one", "two"}), now=lambda: NOW)
    with Ledger(tmp_path, writer="test", now=lambda: time[0]) as ledger:
        add(ledger, Purpose.BACKLOG, 3)
        tail.read()
        assert tail.usage_since(NOW) == (3, 300)
        time[0] = NOW + 120
        add(ledger, Purpose.DRAIN, 4, "two")
        add(ledger, Purpose.TRAFFIC, 50)
        add(ledger, Purpose.DRAIN, 50, "of another pairing")
        tail.read()
        tail.read()

    assert tail.usage_since(NOW) == (7, 700)
    assert tail.usage_since(NOW + 120) == (4, 400)
    assert tail.usage_since(NOW + 180) == (0, 0)


def test_line_that_is_not_complete_is_read_later(tmp_path: Path):
    tail = LedgerTail(tmp_path, frozenset({"one"}), now=lambda: NOW)
    with Ledger(tmp_path, writer="test", now=lambda: NOW) as ledger:
        add(ledger, Purpose.BACKLOG, 3)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])

    tail.read()
    assert tail.usage_since(0) == (0, 0)
    with path.open("ab") as file:
        file.write(whole[-5:])
    tail.read()
    assert tail.usage_since(0) == (3, 300)


def test_folder_that_does_not_exist_costs_nothing(tmp_path: Path):
    tail = LedgerTail(tmp_path / "none", frozenset(), now=lambda: NOW)
    tail.read()

    assert tail.usage_since(0) == (0, 0)


def test_forecast_adds_the_messages_that_wait():
    price = OutagePrice(read_prices(), Tier.STANDARD)

    cost = price.to_json(1_000_000, 0, 1_000_000)

    assert cost == {"currency": "USD", "so_far": 0.8, "forecast": 3.2}
    assert OutagePrice(read_prices(), Tier.PREMIUM).money(1_000_000) == 0.0
