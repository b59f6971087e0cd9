"""`pairbus cost forecast` as a command, and its arithmetic compared with emulator meters."""

import json
import re
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pairbus.amqp.client import Receiver, Sender
from pairbus.cost import (
    MessageGroup,
    NamespaceRole,
    Outage,
    PairingProfile,
    Traffic,
    TrafficCounts,
    Usage,
    calculate_usage,
    forecast,
    group_by_size,
)
from pairbus.emulator.namespace import LocalNamespace
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.ping import make_ping
from pairbus.pairing.sdk import encode
from pairbus.transfer import from_backlog, to_backlog
from tests.commands import Terminal, run, run_here
from tests.integration.emulator_clients import client_of
from tests.integration.encoded_messages import sized
from tests.unit.cost.price_list import PRICE_LIST

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "explanation" / "cost.md"
EXAMPLE = "--backlog-queues 10 --clients 4 --entities 3 --rate 100 --size 1024 --outage 2h"


def forecast_command(arguments: str) -> tuple[str, ...]:
    return "cost", "forecast", *shlex.split(arguments)


def table_rows(text: str, title: str) -> dict[str, list[str]]:
    """Return the cells of a printed table by the first cell of each row."""
    table = text.partition(f"{title}\n")[2].partition("\n\n")[0].splitlines()[1:]
    cells = (re.split(r" {2,}", line.strip()) for line in table)
    return {first: rest for first, *rest in cells}


@pytest.mark.rule("C2", "C3")
def test_tables_show_known_numbers() -> None:
    process = run(*forecast_command(EXAMPLE))

    assert (process.returncode, process.stderr) == (0, "")
    idle = table_rows(process.stdout, "Idle: long polls of the syphons")
    assert {name: cells[0] for name, cells in idle.items()} == {
        "hour": "40",
        "day": "960",
        "30 days": "28,800",
    }
    assert table_rows(process.stdout, "One message through the backlog") == {
        "2 sends, 2 receives": ["4"],
        "with the 2 completes of peek-lock": ["6"],
    }
    outage = table_rows(process.stdout, "Outage by purpose")
    assert list(outage)[:5] == ["pings", "backlog", "drain", "delivery", "total"]
    assert outage["total"][:2] == ["4,285,428", "4,285,428"]


@pytest.mark.rule("C3")
def test_json_has_the_same_numbers() -> None:
    process = run(*forecast_command(f"{EXAMPLE} --json"))
    data = json.loads(process.stdout)

    assert (process.returncode, process.stderr) == (0, "")
    assert {name: bill["total"]["operations"] for name, bill in data["idle"].items()} == {
        "hour": 40,
        "day": 960,
        "30 days": 28_800,
    }
    assert data["message_through_backlog"] == {
        "units": 4,
        "units_with_completes": 6,
        "bytes": 4176,
    }
    assert data["outage"]["total"]["units"] == 4_285_428
    assert data["outage"]["extra_cost"] == "1.10210652384"
    expected = forecast(
        pairing=PairingProfile(options=SendAvailabilityOptions(), clients=4),
        traffic=Traffic(rate=100, size=1024, entities=3),
        outage=Outage(length=timedelta(hours=2)),
    ).outage_bill.by_purpose
    assert {name: item["units"] for name, item in data["outage"]["by_purpose"].items()} == {
        str(purpose): item.usage.units for purpose, item in expected.items()
    }


@pytest.mark.parametrize(
    ("options", "through_backlog"),
    [
        ("--outage 2h", 7_140),
        ("--outage 7200", 7_140),
        ("--outage 1h30m", 5_340),
        ("--outage 1d12h", 129_540),
        ("--outage 2h --failover-interval 0", 7_200),
        ("--outage 2h --failover-interval 30.5s --ping-interval 2m", 7_200),
    ],
)
def test_durations_have_units(options: str, through_backlog: int) -> None:
    result = run_here(*forecast_command(f"--rate 1 {options} --json"))

    assert json.loads(result.stdout)["outage"]["messages_through_backlog"] == through_backlog


@pytest.mark.rule("C3")
def test_price_list_of_the_user_is_used_and_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(PRICE_LIST)

    process = run(*forecast_command(f"--rate 1000 --prices {file}"))

    assert process.returncode == 0
    first, second, *_ = process.stdout.splitlines()
    assert first == f"Prices of 2026-01-02 in EUR: standard, West Europe ({file}), from"
    assert second == "a contract"
    idle = table_rows(process.stdout, "Idle: long polls of the syphons")
    assert idle["30 days"] == ["28,800", "0.0288"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--tier gold", "Unknown tier 'gold'. Choose one of basic, standard, premium."),
        ("--outage soon", "--outage must be a duration such as 90s, 15m, 2h or 1d12h, not 'soon'"),
        ("--outage ''", "--outage must be a duration such as 90s, 15m, 2h or 1d12h, not ''"),
        ("--poll 9999999999999d", "--poll: the duration '9999999999999d' is too long"),
        ("--outage 31d", "the outage length must be 0:00:00 to 30 days"),
        ("--rate=-1", "rate must be a number"),
        ("--backlog-queues 0", "--backlog-queues must be"),
        ("--clients 0", "clients must be an integer of at least 1, not 0"),
        ("--failback never", "'never'"),
        ("--share 2", "share must be a number from 0 to 1, not 2"),
        ("--prices nothing.toml", "nothing.toml: the price list cannot be read"),
    ],
)
def test_invalid_option_is_one_line_and_status_2(arguments: str, error: str) -> None:
    result = run_here(*forecast_command(arguments))

    assert result.exit_code == 2
    assert result.stdout == ""
    assert error in result.stderr
    assert result.stderr.count("\n") == 1


def test_invalid_price_is_one_line_that_names_file_and_field(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(PRICE_LIST.replace("per_gb = 0.5", "per_gb = -0.5"))

    process = run(*forecast_command(f"--prices {file}"))

    assert process.returncode == 2
    assert process.stderr == (f"{file}: bandwidth.per_gb must be a price of at least 0, not -0.5\n")


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_a_terminal_and_nothing_is_cut(columns: int) -> None:
    with Terminal(columns, *forecast_command(EXAMPLE)) as terminal:
        assert terminal.exit_status() == 0

    assert terminal.raw != terminal.text  # there are colours
    assert "───" in terminal.text
    assert max(map(len, terminal.text.splitlines())) <= columns
    assert "…" not in terminal.text


def test_large_numbers_are_never_cut() -> None:
    large = "--rate 250000 --size 200000 --outage 20d --clients 300 --entities 50"
    arguments = f"{large} --failback after-drain --drain-rate 450000"
    with Terminal(80, *forecast_command(arguments)) as terminal:
        assert terminal.exit_status() == 0

    assert "17,504,465,295,000" in terminal.text
    assert "…" not in terminal.text


def test_examples_of_the_docs_print_what_the_docs_show() -> None:
    text = DOCS.read_text()
    [(command, printed)] = re.findall(
        r"```console\n\$ pairbus cost forecast (.*)\n((?s:.)*?)```", text
    )
    program, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False
    )

    assert [
        line.rstrip() for line in run(*forecast_command(command)).stdout.splitlines()
    ] == printed.splitlines()
    assert process.stdout == "4285428 1.10210652384\n", process.stderr


@pytest.mark.rule("C1", "C2", "C5")
def test_usage_agrees_with_the_meters_of_both_namespaces() -> None:
    """Move messages through a backlog, some of them above 64 KB, with pings and empty polls."""
    payloads = [sized(size) for size in (2_000, 2_000, 65_536, 65_537, 130_000)]
    ping = encode(make_ping())
    with LocalNamespace("one") as primary, LocalNamespace("two") as secondary:
        primary.create_queue("orders")
        secondary.create_queue("backlog")
        with client_of(primary) as primary_client, client_of(secondary) as secondary_client:
            stored = [to_backlog(payload, "orders") for payload in payloads]
            sender, consumer = Sender(primary_client, "orders"), Receiver(primary_client, "orders")
            backlog_sender = Sender(secondary_client, "backlog")
            backlog_receiver = Receiver(secondary_client, "backlog")
            backlog_sender.send_batch(stored[:2])
            for payload in stored[2:]:
                backlog_sender.send(payload)
            restored = []
            for _ in stored:
                [delivery] = backlog_receiver.receive(1)
                restored.append(from_backlog(delivery.payload).payload)
                sender.send(restored[-1])
                backlog_receiver.settle([delivery])
            for _ in range(3):
                sender.send(ping)
            for _ in range(2):
                backlog_receiver.grant_credit(1)
                assert backlog_receiver.drain() == []
            for _ in payloads:
                consumer.settle(consumer.receive(1))
            sender.send(payloads[0])  # A direct send, which is not received.
        metered = {
            NamespaceRole.PRIMARY: primary.meter(),
            NamespaceRole.SECONDARY: secondary.meter(),
        }

    assert restored == payloads
    usage = calculate_usage(
        TrafficCounts(
            direct_sends=(MessageGroup(1, len(payloads[0])),),
            backlog_sends=group_by_size(map(len, stored)),
            backlog_receives=group_by_size(map(len, stored)),
            backlog_completes=len(stored),
            drain_sends=group_by_size(map(len, restored)),
            primary_receives=group_by_size(map(len, restored)),
            primary_completes=len(restored),
            pings=3,
            ping_size=len(ping),
            empty_polls=2,
        )
    )
    for role, readings in metered.items():
        assert _usage_of_readings(readings) == {
            str(kind): amount for kind, amount in usage.by_kind(role, metered=True).items()
        }
    assert [len(payload) for payload in payloads].count(65_536) == 1
    # 65 536 bytes are one unit at the primary, and two in the backlog because of the aliases.
    assert usage.by_kind(NamespaceRole.SECONDARY)["send"].units == 2 * 1 + 2 + 2 + 2
    assert usage.by_kind(NamespaceRole.PRIMARY)["receive"].units == 2 * 1 + 1 + 2 + 2


def _usage_of_readings(readings: dict[tuple[str, str], Any]) -> dict[str, Usage]:
    return {
        kind: Usage(reading.operations, reading.units, reading.bytes)
        for (_, kind), reading in readings.items()
    }
