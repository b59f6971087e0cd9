"""`pairbus drill`, on this machine and on namespaces that somebody else runs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode
from pyspark.sql import SparkSession

from pairbus.drill.environments import ExistingEnvironment, LocalEnvironment
from pairbus.drill.plan import DrillOptions
from pairbus.drill.run import Drill
from pairbus.emulator.namespace import LocalNamespace
from tests.faults.syphon_kit import all_processes
from tests.spark.kit import wait_until

pytestmark = pytest.mark.timeout(600)
SHORT = DrillOptions(senders=3, rate=60, before=timedelta(seconds=1), outage=timedelta(seconds=5))
PATIENCE_S = 300


def command(*options: str) -> list[str]:
    return [sys.executable, "-u", "-m", "pairbus", "drill", *options]


@pytest.fixture
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with LocalNamespace("mine") as primary, LocalNamespace("other") as secondary:
        yield primary, secondary


def paths(namespace: LocalNamespace) -> set[str]:
    return namespace.call(lambda core: {entity.path for entity in core.entities.all()})


@pytest.mark.rule("X1", "X2", "S12")
def test_the_command_proves_that_nothing_was_lost(tmp_path: Path) -> None:
    options = ("--rate", "90", "--outage", "6", "--folder", str(tmp_path / "kept"), "--json")
    done = subprocess.run(
        command(*options), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )

    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert "kill -9" in done.stderr
    assert "healthy → suspect" in done.stderr
    assert "draining → healthy" in done.stderr
    assert result["passed"]
    assert result["sent"] == result["delivered"] > 500
    assert result["through_backlog"] > 200
    assert result["lost"] == result["duplicated"] == result["out_of_order"] == 0
    assert result["in_backlog"] == result["dead_lettered"] == 0
    assert list(result["paths"]) == ["news", "orders", "payments"]
    assert result["pings"] >= 3
    parts = {one["part"]: one for one in result["cost"]["parts"]}
    assert parts["backlog"]["operations"] >= result["through_backlog"]
    assert parts["backlog"]["forecast_operations"] > 0
    assert (tmp_path / "kept" / "ledger").is_dir()


class Thief(LocalEnvironment):
    """Somebody takes two messages out of the primary, and says nothing."""

    taken = 0

    def break_down(self) -> str:
        with (
            ServiceBusClient.from_connection_string(self.primary) as client,
            client.get_queue_receiver("orders") as receiver,
        ):
            wait_until(lambda: bool(receiver.peek_messages(1)), "something to take")
        return super().break_down()

    def bring_back(self) -> str:
        said = super().bring_back()
        with (
            ServiceBusClient.from_connection_string(self.primary) as client,
            client.get_queue_receiver(
                "orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            ) as receiver,
        ):
            self.taken = len(receiver.receive_messages(2, max_wait_time=10))
        return said


@pytest.mark.rule("X1")
def test_a_message_that_is_gone_is_missed(session: SparkSession, tmp_path: Path) -> None:
    site = Thief(tmp_path)
    told: list[str] = []

    result = Drill(site, SHORT, tmp_path, told.append).run()

    assert site.taken > 0
    assert len(result.reckoning.lost) == site.taken, told
    assert {key.path for key in result.reckoning.lost} == {"orders"}
    assert not result.passed
    assert result.plain()["lost"] == site.taken


def test_on_namespaces_of_ones_own_it_removes_what_it_made(
    session: SparkSession, namespaces: tuple[LocalNamespace, LocalNamespace], tmp_path: Path
) -> None:
    primary, secondary = namespaces
    primary.create_queue("orders")
    site = ExistingEnvironment(primary.connection_string, secondary.connection_string)
    made: set[str] = set()
    told: list[str] = []

    def tell(what: str) -> None:
        made.update(paths(primary), paths(secondary))
        told.append(what)

    result = Drill(site, SHORT, tmp_path, tell).run()

    assert result.passed, told
    assert result.through_backlog > 0
    assert any("disabled" in what for what in told)
    assert {f"{site.primary_name}/orders", f"{site.primary_name}/payments"} < made
    assert f"{site.primary_name}/x-servicebus-transfer/3" in made
    assert paths(primary) == {"orders"}
    assert paths(secondary) == set()


def test_it_asks_before_it_uses_namespaces_of_ones_own(
    namespaces: tuple[LocalNamespace, LocalNamespace],
) -> None:
    primary, secondary = namespaces
    done = subprocess.run(
        command(),
        env={
            **os.environ,
            "PAIRBUS_DRILL_PRIMARY": primary.connection_string,
            "PAIRBUS_DRILL_SECONDARY": secondary.connection_string,
        },
        input="n\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert done.returncode == 4
    assert "which is billed" in done.stderr
    assert paths(primary) == paths(secondary) == set()


def test_ctrl_c_ends_it_and_its_namespaces(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("--folder", str(tmp_path / "kept")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    seen = ""
    while "senders send" not in seen:
        line = process.stdout.readline()
        assert line, seen
        seen += line
    served = [one.pid for one in all_processes() if str(tmp_path) in " ".join(one.arguments)]
    assert len(served) == 3  # itself, and two namespaces
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 4, errors
    assert "Stopped" in errors

    def is_gone() -> bool:
        return not {one.pid for one in all_processes() if one.state not in "XZ"} & set(served)

    wait_until(is_gone, "its namespaces to end")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--senders", "1"), "senders is 3 to 64, not 1"),
        (("--outage", "1"), "not longer than the failover interval"),
        (("--failback", "never"), "failback is one of immediate, after-drain"),
        (
            ("--primary", "Endpoint=sb://a.example/;SharedAccessKeyName=n;SharedAccessKey=k"),
            "together",
        ),
        (("--primary", "nonsense", "--secondary", "nonsense"), "connection string"),
    ],
)
def test_a_wrong_option_is_a_sentence(options: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        command(*options), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
