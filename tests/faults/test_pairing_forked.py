"""A pairing that is made before a fork, as with `gunicorn --preload`.

The children get a clear error at their first call, whatever the threads of the parent were doing at
the moment of the fork, and the parent goes on unharmed. The application is a process of its own,
which forks while it sends.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

import pairbus
from pairbus.emulator.namespace import LocalNamespace
from pairbus.usage.records import read_header
from tests.faults.forking_application import CHILDREN, SENDERS, Application
from tests.faults.namespace_process import backlog_path
from tests.messages import id_of, peek_all

ROOT = Path(__file__).resolve().parents[2]
HEALTHY, FAILING = "healthy", "failing"
NAME = "forked"
DEADLINE_S = 280.0


@pytest.fixture
def two_namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        for queue in (HEALTHY, FAILING):
            primary.create_queue(queue)
        yield primary, secondary


def host(namespace: LocalNamespace) -> dict[str, Any]:
    return {
        "connection_string": namespace.connection_string,
        "port": namespace.port,
        "ca_file": namespace.ca_file,
    }


def ids_in(namespace: LocalNamespace, queue: str) -> Counter[str]:
    return Counter(id_of(payload) for payload in peek_all(namespace.connection_string, queue))


@pytest.mark.rule("S2a", "X1")
@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize("flavour", ["sync", "aio"])
def test_forked_children_get_an_error_and_the_parent_loses_nothing(
    two_namespaces: tuple[LocalNamespace, LocalNamespace], flavour: str, tls: bool, tmp_path: Path
) -> None:
    primary, secondary = two_namespaces
    fault = primary.add_fault("disable", FAILING)
    application = Application(
        flavour=flavour,
        tls=tls,
        healthy=HEALTHY,
        failing=FAILING,
        primary=host(primary),
        secondary=host(secondary),
        name=NAME,
        ledger=str(tmp_path),
    )

    process = subprocess.run(
        [sys.executable, "-m", "tests.faults.forking_application", json.dumps(asdict(application))],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        timeout=DEADLINE_S,
        check=True,
    )

    assert fault.fired
    report = json.loads(process.stdout)
    assert len(report["children"]) == CHILDREN
    for child in report["children"]:
        assert child["exit"] == 0, child  # a child that hangs is killed
        results = child["results"]
        assert len(results["errors"]) > 10
        for name, error in results["errors"].items():
            assert error.startswith("PairingForked: "), (name, error)
            assert f"process {report['pid']}" in error
            assert "post_fork" in error
        assert results["paths"] == sorted((HEALTHY, FAILING))
        assert results["closing"] == []
        assert results["own pairing"] == ""

    # The parent got no error, and each message arrived once. It was not even sent again.
    assert report["errors"] == []
    acknowledged: dict[str, Counter[str]] = {HEALTHY: Counter(), FAILING: Counter()}
    assert len(report["acknowledged"]) == 2 * SENDERS
    for sender, ids in report["acknowledged"].items():
        acknowledged[sender.split()[0]].update(ids)
    children = Counter(f"child-{child['pid']}" for child in report["children"])
    assert ids_in(primary, HEALTHY) == acknowledged[HEALTHY] + children
    stored = [ids_in(secondary, backlog_path(NAME, index)) for index in (0, 1)]
    assert stored[0] + stored[1] == acknowledged[FAILING]
    assert ids_in(primary, FAILING) == Counter()
    # The ledger of the parent is complete, too.
    assert sends_in(tmp_path, report["pid"]) == sum(
        counter.total() for counter in acknowledged.values()
    )


def sends_in(folder: Path, pid: int) -> int:
    """Return the number of answered sends in the ledger files of a process."""
    records = [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        if read_header(path.read_bytes()).pid == pid
        for line in path.read_bytes().splitlines()[1:]
    ]
    return sum(
        record["messages"]
        for record in records
        if record.get("kind") == "send" and record["answered"]
    )


def gunicorn_configuration() -> str:
    """Return the example of a gunicorn configuration in the docs."""
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(# gunicorn\.conf\.py\n.+?)```", page, re.DOTALL)
    return str(example)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_gunicorn_configuration_of_the_docs_pairs_in_each_worker(
    two_namespaces: tuple[LocalNamespace, LocalNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, secondary = two_namespaces
    settings = SimpleNamespace(
        PRIMARY=primary.connection_string, SECONDARY=secondary.connection_string
    )
    monkeypatch.setitem(sys.modules, "orders", SimpleNamespace(settings=settings))
    # A host without a name needs one more option.
    options = partial(pairbus.SendAvailabilityOptions, primary_name=NAME)
    monkeypatch.setattr(pairbus, "SendAvailabilityOptions", options, raising=False)
    configuration: dict[str, Any] = {}
    exec(gunicorn_configuration(), configuration)
    assert configuration["preload_app"] is True

    def run_worker() -> None:
        configuration["post_fork"](None, None)
        with settings.bus.get_queue_sender(HEALTHY) as sender:
            sender.send_messages(ServiceBusMessage("x", message_id=f"worker-{os.getpid()}"))
        configuration["worker_exit"](None, None)

    workers = [fork(run_worker) for _ in range(2)]
    exit_codes = [wait_for_exit(pid) for pid in workers]

    assert exit_codes == [0, 0]
    assert ids_in(primary, HEALTHY) == Counter(f"worker-{pid}" for pid in workers)


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def wait_for_exit(pid: int) -> int:
    """Return the exit code of a child; a child that hangs is killed."""
    timer = threading.Timer(DEADLINE_S / 4, os.kill, (pid, signal.SIGKILL))
    timer.start()
    _, status = os.waitpid(pid, 0)
    timer.cancel()
    return os.waitstatus_to_exitcode(status)
