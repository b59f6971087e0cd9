"""The JavaScript SDK of Service Bus (@azure/service-bus) with the emulator.

The checks are in tests/peers/service_bus, one file for each group. A group runs in one Node.js
process.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.interop.rhea_process import PEERS
from tests.proxies import PASSWORD, USERNAME, ProxyProcess

TIMEOUT_S = 120.0
BODY = "x" * 150_000
StartProxy = Callable[..., ProxyProcess]


@pytest.fixture
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace() as namespace:
        namespace.create_queue("orders")
        yield namespace


def run_node(
    arguments: list[str], settings: dict[str, str | None], environment: dict[str, str] | None = None
) -> Any:
    """Run a script of tests/peers, and return its output, which is JSON."""
    node = shutil.which("node")
    if node is None:
        pytest.fail("node is missing. Install Node.js 18 or newer, with npm.")
    if not (PEERS / "node_modules" / "@azure" / "service-bus" / "package.json").exists():
        pytest.fail("@azure/service-bus is missing. Run `npm ci` in tests/peers.")
    variables = {name: value for name, value in os.environ.items() if name != "DEBUG"}
    result = subprocess.run(
        [node, *arguments],
        cwd=PEERS,
        input=json.dumps(settings),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=variables | (environment or {}),
    )
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def round_trip(namespace: LocalNamespace, *, tls: bool, proxy: str | None = None) -> None:
    """Send and receive a message in a Node.js process."""
    text = namespace.connection_string
    settings = {
        "connectionString": text.replace("UseDevelopmentEmulator=true;", "") if tls else text,
        "endpoint": f"sb://localhost:{namespace.port}",
        "queue": "orders",
        "body": BODY,
        "caFile": namespace.ca_file,
        "proxy": proxy,
    }
    assert run_node(["service_bus_websocket.js"], settings) == BODY
    stored = namespace.call(lambda core: len(core.entities.get("orders").queues[0]))
    assert stored == 0


@pytest.mark.rule("N2")
@pytest.mark.parametrize("tls", [False, True], ids=["ws", "wss"])
def test_message_is_sent_received_and_completed(namespace: LocalNamespace, tls: bool) -> None:
    round_trip(namespace, tls=tls)


def test_message_passes_through_a_proxy(namespace: LocalNamespace, start_proxy: StartProxy) -> None:
    process = start_proxy(protected=True)

    round_trip(namespace, tls=True, proxy=f"http://{USERNAME}:{PASSWORD}@127.0.0.1:{process.port}")

    assert f"localhost:{namespace.port}" in process.targets


@pytest.mark.parametrize(
    ("group", "transport"),
    [
        ("messages", "tcp"),
        ("messages", "websocket"),
        ("sessions", "tls"),
        ("topics", "tcp"),
        ("errors", "tls"),
        ("administration", "tcp"),
    ],
)
def test_sdk_works_as_with_the_service(group: str, transport: str) -> None:
    with LocalNamespace("javascript") as namespace:
        settings = {
            "connectionString": namespace.connection_string,
            "endpoint": f"sb://localhost:{namespace.port}",
            "namespace": namespace.name,
            "caFile": namespace.ca_file,
            "transport": transport,
        }
        environment = {"NODE_EXTRA_CA_CERTS": namespace.ca_file}
        results = run_node(["service_bus/suite.js", group], settings, environment)

    assert len(results) > 4
    failed = [f"{result['name']}: {result['error']}" for result in results if result["error"]]
    assert not failed, "\n".join(failed)
