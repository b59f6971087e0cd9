"""`pairbus cost` as its users run it, and its arithmetic beside the meter of real namespaces."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pairbus.amqp.client import Receiver, Sender
from pairbus.cli.app import app
from pairbus.cost import (
    Amount,
    MessageGroup,
    NamespaceRole,
    Outage,
    PairingProfile,
    Traffic,
    TrafficCounts,
    forecast,
    lots,
    tally,
)
from pairbus.emulator.namespace import LocalNamespace
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.ping import make_ping
from pairbus.pairing.sdk import encode
from pairbus.transfer import from_backlog, to_backlog
from tests.integration.emulator_kit import client_of, sized
from tests.unit.cost.price_text import GOOD

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "cost.md"
EXAMPLE = "--backlog-queues 10 --clients 4 --entities 3 --rate 100 --size 1024 --outage 2h"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def run(arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`pairbus cost forecast`, without a terminal unless the environment says so."""
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", "pairbus", "cost", "forecast", *shlex.split(arguments)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**kept, "PYTHONUTF8": "1", **environment},
    )


def invoked(arguments: str) -> Result:
    """The same in this process: soon done, for what does not depend on one of its own."""
    return CliRunner().invoke(app, ["cost", "forecast", *shlex.split(arguments)])


def rows(text: str, title: str) -> dict[str, list[str]]:
    """The rows of a table, by their first column."""
    table = text.partition(f"{title}\n")[2].partition("\n\n")[0].splitlines()[1:]
    cells = (re.split(r" {2,}", line.strip()) for line in table)
    return {first: rest for first, *rest in cells}


@pytest.mark.rule("C2", "C3")
def test_known_figures_are_on_the_screen() -> None:
    ended = run(EXAMPLE)

    assert (ended.returncode, ended.stderr) == (0, "")
    idle = rows(ended.stdout, "Idle: long polls of the syphons")
    assert {name: cells[0] for name, cells in idle.items()} == {
        "hour": "40",
        "day": "960",
        "30 days": "28,800",
    }
    assert rows(ended.stdout, "One message through the backlog") == {
        "2 sends, 2 receives": ["4"],
        "with the 2 completes of peek-lock": ["6"],
    }
    parts = rows(ended.stdout, "The outage by part")
    assert list(parts)[:5] == ["pings", "backlog", "drain", "delivery", "all"]
    assert parts["all"][:2] == ["4,285,428", "4,285,428"]


@pytest.mark.rule("C3")
def test_json_has_the_same_figures() -> None:
    ended = run(f"{EXAMPLE} --json")
    found = json.loads(ended.stdout)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert {name: one["total"]["operations"] for name, one in found["idle"].items()} == {
        "hour": 40,
        "day": 960,
        "30 days": 28_800,
    }
    assert found["message_through_backlog"] == {
        "units": 4,
        "units_with_completes": 6,
        "bytes": 4176,
    }
    assert found["outage"]["total"]["units"] == 4_285_428
    assert found["outage"]["adds"] == "1.10210652384"
    same = forecast(
        pairing=PairingProfile(options=SendAvailabilityOptions(), clients=4),
        traffic=Traffic(rate=100, size=1024, entities=3),
        outage=Outage(length=timedelta(hours=2)),
    )
    assert {p: c["units"] for p, c in found["outage"]["parts"].items()} == {
        str(part): charge.amount.units for part, charge in same.outage_bill.parts.items()
    }


@pytest.mark.parametrize(
    ("given", "through_backlog"),
    [
        ("--outage 2h", 7_140),
        ("--outage 7200", 7_140),
        ("--outage 1h30m", 5_340),
        ("--outage 1d12h", 129_540),
        ("--outage 2h --failover-interval 0", 7_200),
        ("--outage 2h --failover-interval 30.5s --ping-interval 2m", 7_200),
    ],
)
def test_times_are_written_as_people_write_them(given: str, through_backlog: int) -> None:
    ended = invoked(f"--rate 1 {given} --json")

    assert json.loads(ended.stdout)["outage"]["messages_through_backlog"] == through_backlog


@pytest.mark.rule("C3")
def test_a_users_prices_are_used_and_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)

    ended = run(f"--rate 1000 --prices {file}")

    assert ended.returncode == 0
    assert ended.stdout.startswith(f"Prices of 2026-01-02 in EUR: standard, West Europe ({file})\n")
    assert rows(ended.stdout, "Idle: long polls of the syphons")["30 days"] == ["28,800", "0.0288"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--tier gold", "'gold' is not a tier: it is one of basic, standard, premium"),
        ("--outage soon", "--outage: a time is written 90s, 15m, 2h or 1d12h, not 'soon'"),
        ("--outage ''", "--outage: a time is written 90s, 15m, 2h or 1d12h, not ''"),
        ("--poll 9999999999999d", "--poll: '9999999999999d' is too long"),
        ("--outage 31d", "the length of the outage is 0:00:00 to 30 days"),
        ("--rate=-1", "rate is a number"),
        ("--backlog-queues 0", "backlog_queue_count is at least 1, not 0"),
        ("--clients 0", "clients is a whole number, 1 or more, not 0"),
        ("--failback never", "failback is one of immediate, after-drain, not 'never'"),
        ("--share 2", "share is a number, 0 to 1, not 2"),
        ("--prices nothing.toml", "nothing.toml: the prices cannot be read"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(arguments: str, said: str) -> None:
    ended = invoked(arguments)

    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_wrong_price_is_one_line_that_names_file_and_field(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace("per_gb = 0.5", "per_gb = -0.5"))

    ended = run(f"--prices {file}")

    assert ended.returncode == 2
    assert ended.stderr == f"{file}: bandwidth.per_gb: a price is a number, 0 or more, not -0.5\n"


@pytest.mark.parametrize("columns", [80, 120])
def test_the_tables_fit_a_terminal_and_nothing_is_cut(columns: int) -> None:
    ended = run(EXAMPLE, FORCE_COLOR="1", COLUMNS=str(columns))
    shown = COLOUR.sub("", ended.stdout)

    assert shown != ended.stdout  # it took itself to be on a terminal
    assert "───" in shown
    assert max(map(len, shown.splitlines())) <= columns
    assert "…" not in shown


def test_large_figures_are_never_cut() -> None:
    large = "--rate 5000 --size 200000 --outage 20d --clients 300 --entities 50"
    ended = run(f"{large} --failback after-drain --drain-rate 9000", FORCE_COLOR="1", COLUMNS="80")

    assert ended.returncode == 0
    assert "14,605,845,285,000" in ended.stdout
    assert "…" not in ended.stdout


def test_help_shows_an_example() -> None:
    ended = run("--help")

    assert ended.returncode == 0
    assert "Example: pairbus cost forecast --backlog-queues 10" in ended.stdout


def test_the_examples_of_the_docs_are_what_it_prints() -> None:
    text = DOCS.read_text()
    [(command, printed)] = re.findall(
        r"```console\n\$ pairbus cost forecast (.*)\n((?s:.)*?)```", text
    )
    program, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False
    )

    assert [line.rstrip() for line in run(command).stdout.splitlines()] == printed.splitlines()
    assert ended.stdout == "4285428 1.10210652384\n", ended.stderr


@pytest.mark.rule("C1", "C2", "C5")
def test_the_arithmetic_agrees_with_the_meter_of_both_namespaces() -> None:
    """Messages go through a backlog by hand, some above 64 KB; with pings and empty polls."""
    payloads = [sized(size) for size in (2_000, 2_000, 65_536, 65_537, 130_000)]
    ping = encode(make_ping())
    with LocalNamespace("one") as primary, LocalNamespace("two") as secondary:
        primary.create_queue("orders")
        secondary.create_queue("backlog")
        with client_of(primary) as near, client_of(secondary) as far:
            stored = [to_backlog(one, "orders") for one in payloads]
            home, consumer = Sender(near, "orders"), Receiver(near, "orders")
            backlog, drain = Sender(far, "backlog"), Receiver(far, "backlog")
            backlog.send_batch(stored[:2])
            for one in stored[2:]:
                backlog.send(one)
            returned = []
            for _ in stored:
                [delivery] = drain.receive(1)
                returned.append(from_backlog(delivery.payload).payload)
                home.send(returned[-1])
                drain.settle([delivery])
            for _ in range(3):
                home.send(ping)
            for _ in range(2):
                drain.grant(1)
                assert drain.drain() == []
            for _ in payloads:
                consumer.settle(consumer.receive(1))
            home.send(payloads[0])  # one that goes straight, and is not received
        counted = {
            NamespaceRole.PRIMARY: primary.meter(),
            NamespaceRole.SECONDARY: secondary.meter(),
        }

    assert returned == payloads
    done = tally(
        TrafficCounts(
            direct=(MessageGroup(1, len(payloads[0])),),
            stored=lots(map(len, stored)),
            taken=lots(map(len, stored)),
            settled=len(stored),
            homed=lots(map(len, returned)),
            delivered=lots(map(len, returned)),
            completed=len(returned),
            pings=3,
            ping_size=len(ping),
            polls=2,
        )
    )
    for place, readings in counted.items():
        assert _amounts(readings) == {
            str(kind): amount for kind, amount in done.by_kind(place, metered=True).items()
        }
    sizes = Counter(map(len, payloads))
    assert sizes[65_536] == 1
    # 65 536 bytes are one unit at the primary, and two in the backlog: its aliases are in it.
    assert done.by_kind(NamespaceRole.SECONDARY)["send"].units == 2 * 1 + 2 + 2 + 2
    assert done.by_kind(NamespaceRole.PRIMARY)["receive"].units == 2 * 1 + 1 + 2 + 2


def _amounts(readings: dict[tuple[str, str], Any]) -> dict[str, Amount]:
    return {
        kind: Amount(one.operations, one.units, one.bytes) for (_, kind), one in readings.items()
    }
