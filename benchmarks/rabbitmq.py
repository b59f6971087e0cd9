"""RabbitMQ, started for a benchmark and stopped after it.

It gets free ports of the loopback interface, and a separate folder, node name, cookie and epmd.
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

BIN = Path("/usr/lib/rabbitmq/bin")
"""Debian's folder of the scripts themselves. Those in PATH are wrappers that change the user."""
START_S = 90


class NotInstalled(Exception):
    """RabbitMQ is not installed on this machine."""


@dataclass(frozen=True, slots=True)
class Node:
    """A running broker."""

    port: int
    pid: int
    folder: Path
    environment: dict[str, str]

    def define(self, definitions: dict[str, object]) -> None:
        """Import definitions of queues, parameters and so on."""
        file = self.folder / "definitions.json"
        file.write_text(json.dumps(definitions))
        _control(self.environment, "import_definitions", str(file))


@contextmanager
def rabbitmq(queues: tuple[str, ...]) -> Iterator[int]:
    """Start a broker with the AMQP 1.0 plugin and durable queues, and provide its port. Raises
    NotInstalled."""
    with node(queues, ("rabbitmq_amqp1_0",)) as broker:
        yield broker.port


@contextmanager
def node(queues: tuple[str, ...], plugins: tuple[str, ...]) -> Iterator[Node]:
    """Start a broker with durable queues and plugins. Raises NotInstalled."""
    if not (BIN / "rabbitmq-server").exists() or shutil.which("erl") is None:
        raise NotInstalled(
            "RabbitMQ is not installed, so it is left out (apt-get install rabbitmq-server)."
        )
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory("-rabbitmq", ignore_cleanup_errors=True)
            )
        )
        port, distribution_port, epmd_port = _free_ports(3)
        environment = _environment(folder, plugins, port, distribution_port, epmd_port)
        log = stack.enter_context((folder / "output").open("wb"))
        server = subprocess.Popen(
            [BIN / "rabbitmq-server"], env=environment, stdout=log, stderr=log, cwd=folder
        )
        stack.callback(_stop, server, environment)
        _wait_for_start(server, environment, folder / "output")
        broker = Node(port, server.pid, folder, environment)
        broker.define({"queues": [durable(name) for name in queues]})
        yield broker


def _environment(
    folder: Path, plugins: tuple[str, ...], port: int, distribution_port: int, epmd_port: int
) -> dict[str, str]:
    (folder / "enabled_plugins").write_text(f"[{','.join(plugins)}].")
    (folder / "rabbitmq.conf").write_text("log.console = false\n")
    return {
        **os.environ,
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"pairbus-bench-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd_port),
    }


def durable(name: str) -> dict[str, object]:
    """Return the definition of a durable queue, for `Node.define`."""
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}


def _wait_for_start(
    server: "subprocess.Popen[bytes]", environment: dict[str, str], output: Path
) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            _control(environment, "await_startup", "--timeout", str(START_S))
            return
        except RuntimeError:  # the node does not respond yet
            if server.poll() is not None or time.monotonic() > deadline:
                print(output.read_text(errors="replace")[-2000:])
                raise


def _control(environment: dict[str, str], *words: str) -> None:
    result = subprocess.run(
        [BIN / "rabbitmqctl", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * START_S,
        check=False,
    )
    if result.returncode:
        raise RuntimeError(
            f"rabbitmqctl {words[0]} failed: {result.stdout[-500:]}{result.stderr[-500:]}"
        )


def _stop(server: "subprocess.Popen[bytes]", environment: dict[str, str]) -> None:
    server.terminate()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    # This ends only the epmd on the port of the environment.
    subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, check=False)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
