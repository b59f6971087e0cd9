"""`pairbus drill`, with local namespaces and with existing ones."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode
from pyspark.sql import SparkSession

from pairbus.drill.connections import NetworkSettings
from pairbus.drill.environments import ExistingEnvironment, LocalEnvironment
from pairbus.drill.plan import DrillOptions
from pairbus.drill.run import Drill
from pairbus.emulator.namespace import LocalNamespace
from tests.commands import run, run_here, started
from tests.processes import all_processes, running
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
SHORT = DrillOptions(senders=3, rate=60, before=timedelta(seconds=1), outage=timedelta(seconds=5))


@pytest.fixture
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with (
        LocalNamespace("mine") as primary,
        LocalNamespace("other", token_issuer=primary.token_issuer) as secondary,
    ):
        yield primary, secondary


def paths(namespace: LocalNamespace) -> set[str]:
    return namespace.call(lambda core: {entity.path for entity in core.entities.all()})


@pytest.mark.rule("X1", "X2", "S12", "N1")
def test_command_proves_that_no_message_was_lost(tmp_path: Path) -> None:
    options = ("--rate", "40", "--outage", "6", "--folder", str(tmp_path / "kept"), "--json")
    completed = run("drill", *options, "--tier", "standard", "--console")

    assert completed.returncode == 0, completed.stderr
    assert "/#token=" in completed.stderr
    result: dict[str, Any] = json.loads(completed.stdout)
    assert "two local namespaces of the tier standard" in completed.stderr
    assert "kill -9" in completed.stderr
    assert "healthy → suspect" in completed.stderr
    assert "draining → healthy" in completed.stderr
    assert result["passed"]
    assert result["sent"] == result["delivered"] > 500
    assert result["through_backlog"] > 200
    assert result["lost"] == result["duplicated"] == result["out_of_order"] == 0
    assert result["in_backlog"] == result["dead_lettered"] == 0
    assert list(result["paths"]) == ["news", "orders", "payments"]
    assert result["pings"] >= 3
    parts = {part["purpose"]: part for part in result["cost"]["purposes"]}
    assert parts["backlog"]["operations"] >= result["through_backlog"]
    assert parts["backlog"]["forecast_operations"] > 0
    assert (tmp_path / "kept" / "ledger").is_dir()


class LossyEnvironment(LocalEnvironment):
    """An environment in which two messages disappear from the primary."""

    removed = 0

    def start_outage(self) -> str:
        with (
            ServiceBusClient.from_connection_string(self.primary) as client,
            client.get_queue_receiver("orders") as receiver,
        ):
            wait_until(lambda: bool(receiver.peek_messages(1)), "a message in the queue")
        return super().start_outage()

    def end_outage(self) -> str:
        event = super().end_outage()
        with (
            ServiceBusClient.from_connection_string(self.primary) as client,
            client.get_queue_receiver(
                "orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            ) as receiver,
        ):
            self.removed = len(receiver.receive_messages(2, max_wait_time=10))
        return event


@pytest.mark.rule("X1")
def test_lost_messages_are_detected(session: SparkSession, tmp_path: Path) -> None:
    environment = LossyEnvironment(tmp_path)
    events: list[str] = []

    result = Drill(environment, SHORT, tmp_path, events.append).run()

    assert environment.removed > 0
    assert len(result.reconciliation.lost) == environment.removed, events
    assert {key.path for key in result.reconciliation.lost} == {"orders"}
    assert not result.passed
    assert result.to_json()["lost"] == environment.removed


@pytest.mark.rule("A1", "A4")
def test_drill_with_hosts_removes_its_entities_from_existing_namespaces(
    session: SparkSession,
    namespaces: tuple[LocalNamespace, LocalNamespace],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    primary, secondary = namespaces
    primary.create_queue("orders")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    monkeypatch.setenv("IDENTITY_ENDPOINT", primary.identity_endpoint)
    monkeypatch.setenv("IDENTITY_HEADER", primary.token_issuer.identity_header)
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text("".join(Path(each.ca_file).read_text() for each in namespaces))
    environment = ExistingEnvironment(
        f"localhost:{primary.port}",
        f"localhost:{secondary.port}",
        NetworkSettings(ca_file=str(ca_file)),
    )
    created: set[str] = set()
    events: list[str] = []

    def report(event: str) -> None:
        created.update(paths(primary), paths(secondary))
        events.append(event)

    result = Drill(environment, SHORT, tmp_path, report).run()

    assert result.passed, events
    assert result.through_backlog > 0
    assert any("disabled" in event for event in events)
    assert {f"{environment.primary_name}/orders", f"{environment.primary_name}/payments"} < created
    assert f"{environment.primary_name}/x-servicebus-transfer/3" in created
    assert paths(primary) == {"orders"}
    assert paths(secondary) == set()


def test_drill_asks_before_it_uses_existing_namespaces(
    namespaces: tuple[LocalNamespace, LocalNamespace],
) -> None:
    primary, secondary = namespaces
    completed = run(
        "drill",
        answer="n\n",
        PAIRBUS_DRILL_PRIMARY=primary.connection_string,
        PAIRBUS_DRILL_SECONDARY=secondary.connection_string,
    )

    assert completed.returncode == 4
    assert "which are billed" in completed.stderr
    assert paths(primary) == paths(secondary) == set()


def test_ctrl_c_stops_the_drill_and_its_namespaces(tmp_path: Path) -> None:
    with started("drill", "--folder", str(tmp_path / "kept")) as drill:
        drill.read_until("senders send")
        pids = [
            process.pid
            for process in all_processes()
            if str(tmp_path) in " ".join(process.arguments)
        ]
        assert len(pids) == 3  # the command and two namespaces
        drill.interrupt()
        status, _, errors = drill.wait()

    assert status == 4, errors
    assert "Stopped" in errors
    wait_until(lambda: not running(pids), "the namespaces to end")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--senders", "1"), "--senders must be between 3 and 64, not 1"),
        (("--outage", "1"), "causes no failover"),
        (("--failback", "never"), "--failback must be one of immediate, after-drain"),
        (
            ("--primary", "Endpoint=sb://a.example/;SharedAccessKeyName=n;SharedAccessKey=k"),
            "together",
        ),
        (("--primary", "nonsense", "--secondary", "nonsense"), "connection string"),
        (("--tier", "basic"), "'basic' is not a tier"),
        (
            ("--primary", "a", "--secondary", "b", "--tier", "standard"),
            "namespaces on this machine",
        ),
    ],
)
def test_invalid_option_is_an_error_with_exit_status_2(
    options: tuple[str, ...], error: str
) -> None:
    completed = run_here("drill", *options)

    assert completed.exit_code == 2
    assert error in completed.stderr
