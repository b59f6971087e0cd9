"""Each user of a pairing works with exactly the rights that deploy/azure gives it, and a right less
is a clear error. `tests/spark/test_syphon_rights.py` has the syphon."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthorizationError

from pairbus import (
    BacklogUnavailable,
    PairedClient,
    SendAvailabilityOptions,
    SendUnavailable,
    pair_namespace,
)
from pairbus.emulator import LocalNamespace
from pairbus.emulator.auth import Right
from pairbus.servicebus.backlog_paths import backlog_paths
from tests.azure_roles import BACKLOG_QUEUES, PRIMARY_NAME, AzureDeployment, deployed
from tests.commands import run_here, started
from tests.console_client import ConsoleClient
from tests.dead_letters import DeadLetters
from tests.integration.sdk_flavours import SDK_SOCKETS
from tests.messages import numbered
from tests.waiting import wait_until

pytestmark = SDK_SOCKETS

DONE, FAILED, MESSAGES, UNKNOWN = 0, 1, 3, 4
BACKLOG = backlog_paths(PRIMARY_NAME, BACKLOG_QUEUES)


@pytest.fixture(scope="module")
def running() -> Iterator[AzureDeployment]:
    with deployed() as deployment:
        yield deployment


@pytest.fixture
def deployment(running: AzureDeployment) -> AzureDeployment:
    running.reset()
    return running


def count(namespace: LocalNamespace, *queues: str) -> int:
    return namespace.call(
        lambda core: sum(len(core.entities.get(queue).queues[0]) for queue in queues)
    )


def names(right: Right, output: str) -> bool:
    """Return True if an output names a right that is missing. Azure calls it a claim."""
    return re.search(rf"{right.value}'? (right|claim)", output) is not None


@contextmanager
def paired(primary: str, secondary: str, **options: object) -> Iterator[PairedClient]:
    """Pair with two connection strings, without retries of the SDK."""
    clients = [
        ServiceBusClient.from_connection_string(text, retry_total=0)
        for text in (primary, secondary)
    ]
    settings = SendAvailabilityOptions(
        secondary=clients[1],
        primary_name=PRIMARY_NAME,
        backlog_queue_count=BACKLOG_QUEUES,
        failover_interval=timedelta(),
        **{"create_backlog": False, **options},  # type: ignore[arg-type]
    )
    with clients[0], clients[1], pair_namespace(clients[0], settings) as bus:
        yield bus


class TestSender:
    def send(self, deployment: AzureDeployment, **without: Right) -> None:
        texts = [
            deployment.connection_string("sender", name, without.get(name))
            for name in ("primary", "secondary")
        ]
        with paired(*texts) as bus, bus.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello"))

    def test_sends_to_the_primary_and_in_an_outage_to_the_backlog(
        self, deployment: AzureDeployment
    ) -> None:
        self.send(deployment)
        fault = deployment.primary.add_fault("internal-error", "orders")
        self.send(deployment)

        assert fault.fired >= 1
        assert count(deployment.primary, "orders") == 1
        assert count(deployment.secondary, *BACKLOG) == 1

    def test_needs_the_send_right_in_the_primary(self, deployment: AzureDeployment) -> None:
        with pytest.raises(ServiceBusAuthorizationError, match="Send"):
            self.send(deployment, primary=Right.SEND)

        assert count(deployment.secondary, *BACKLOG) == 0

    def test_needs_the_send_right_in_the_secondary(self, deployment: AzureDeployment) -> None:
        deployment.primary.add_fault("internal-error", "orders")

        with pytest.raises(SendUnavailable) as caught:
            self.send(deployment, secondary=Right.SEND)

        assert isinstance(caught.value.backlog_error, ServiceBusAuthorizationError)
        assert "Send" in str(caught.value.backlog_error)

    def test_needs_the_manage_right_to_create_the_backlog(
        self, deployment: AzureDeployment
    ) -> None:
        texts = [deployment.connection_string("sender", name) for name in ("primary", "secondary")]

        with (
            pytest.raises(BacklogUnavailable, match=r"Manage right.*create_backlog=False"),
            paired(*texts, create_backlog=True),
        ):
            pass

    def test_backlog_of_the_template_is_accepted(self, deployment: AzureDeployment) -> None:
        events: list[object] = []
        texts = (
            deployment.connection_string("sender", "primary"),
            deployment.connection_string("operator", "secondary"),
        )

        with paired(*texts, create_backlog=True, on_event=events.append) as bus:
            assert bus.status().paths == {}

        assert events == []


class TestOperator:
    @pytest.fixture
    def letters(self, deployment: AzureDeployment) -> Iterator[DeadLetters]:
        letters = DeadLetters(deployment.secondary, BACKLOG[0])
        yield letters
        letters.close()

    def test_status_counts_the_backlog(self, deployment: AzureDeployment) -> None:
        result = run_here("status", "--json", **deployment.variables("operator"))

        assert result.exit_code == DONE, result.output

    def test_status_without_the_manage_right_does_not_know_other_queues(
        self, deployment: AzureDeployment
    ) -> None:
        variables = deployment.variables("operator", secondary=Right.MANAGE)
        result = run_here("status", **variables)

        assert result.exit_code == UNKNOWN, result.output
        assert "Manage right" in result.output

    def test_status_needs_the_listen_right(self, deployment: AzureDeployment) -> None:
        variables = deployment.variables("operator", secondary=Right.LISTEN)
        result = run_here("status", **variables)

        assert result.exit_code == FAILED, result.output
        assert names(Right.LISTEN, result.output)

    def redrive(self, deployment: AzureDeployment, folder: Path, **without: Right) -> str:
        result = run_here(
            *("dead-letters", "redrive", "--to", "orders", "--no-spark", "--no-ledger"),
            **deployment.variables("operator", **without),
            XDG_STATE_HOME=str(folder),
        )
        assert (result.exit_code == DONE) is (not without), result.output
        return result.output

    def test_redrive_moves_dead_letters(
        self, deployment: AzureDeployment, letters: DeadLetters, tmp_path: Path
    ) -> None:
        letters.put(numbered(1))

        self.redrive(deployment, tmp_path)

        assert count(deployment.primary, "orders") == 1

    @pytest.mark.parametrize(
        ("namespace", "right"), [("primary", Right.SEND), ("secondary", Right.LISTEN)]
    )
    def test_redrive_needs_each_right(
        self,
        deployment: AzureDeployment,
        letters: DeadLetters,
        tmp_path: Path,
        namespace: str,
        right: Right,
    ) -> None:
        letters.put(numbered(1))

        output = self.redrive(deployment, tmp_path, **{namespace: right})

        assert names(right, output)
        assert count(deployment.primary, "orders") == 0

    @contextmanager
    def console(
        self, deployment: AzureDeployment, folder: Path, **without: Right
    ) -> Iterator[Callable[[], Any]]:
        """Run the console. Yield a function that returns its state."""
        arguments = ("--port", "0", "--folder", str(folder), "--no-ledger", "--json")
        variables = deployment.variables("operator", **without)
        with started("console", *arguments, **variables) as console:
            link = urlsplit(json.loads(console.read_until("{"))["login_url"])
            browser = ConsoleClient(link.port or 0)
            assert browser.login(link.fragment.removeprefix("token=")).status == 200
            yield lambda: browser.get("/api/state").json
            console.interrupt()
            console.wait()

    def test_console_counts_the_backlog(
        self, deployment: AzureDeployment, letters: DeadLetters, tmp_path: Path
    ) -> None:
        letters.put(numbered(1))

        with self.console(deployment, tmp_path) as state:
            wait_until(lambda: state()["backlog"]["dead_letters"] == 1, "a count")

    def test_console_needs_the_listen_right(
        self, deployment: AzureDeployment, tmp_path: Path
    ) -> None:
        with self.console(deployment, tmp_path, secondary=Right.LISTEN) as state:
            wait_until(lambda: names(Right.LISTEN, " ".join(state()["problems"])), "a problem")
            assert state()["backlog"]["known"] is False
