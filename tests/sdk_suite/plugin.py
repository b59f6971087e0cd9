"""A pytest plugin that runs the SDK's tests against the emulator.

Each worker process has its own emulator. Tests that use no namespace are deselected; tests that do
not apply are skipped with the reason that `not_applicable.toml` has for them.
"""

import os
import re
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.sdk_suite import state
from tests.sdk_suite.namespaces import Namespaces
from tests.sdk_suite.redirection import TRANSPORTS, resolve_to, trust, use_transport

LIST = Path(__file__).parent / "not_applicable.toml"
SLOW = re.compile(
    "schedule|keep_conn_alive|w_sleep|link_timeout|issue_6178|idempotent|release_messages"
    "|autolockrenew|timeout_value|renew_|expiry|send_twice|session_pool|prefetch"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--transport", choices=TRANSPORTS, default="tls")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None):
        return  # the workers run the tests
    state.namespaces = Namespaces(os.environ.get("PYTEST_XDIST_WORKER", "main"))
    folder = tempfile.TemporaryDirectory(prefix="sdk-suite-")
    config.add_cleanup(folder.cleanup)
    config.add_cleanup(state.namespaces.close)
    trust((namespace.ca_file for namespace in state.namespaces), Path(folder.name) / "ca.pem")
    resolve_to(state.namespaces)
    use_transport(config.getoption("transport"))


@pytest.fixture(autouse=True)
def restore_transports() -> Iterator[None]:
    """Undo what a test changes in the transport classes of the SDK. Some do, and do not undo it
    themselves."""
    from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
    from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync

    saved = [(kind, dict(vars(kind))) for kind in (PyamqpTransport, PyamqpTransportAsync)]
    yield
    for kind, before in saved:
        for name in set(vars(kind)) - set(before):
            delattr(kind, name)
        for name, value in before.items():
            if vars(kind)[name] is not value:
                setattr(kind, name, value)


def reasons() -> dict[str, str]:
    """Return the reason of each test that does not apply, by its name."""
    groups = tomllib.loads(LIST.read_text(encoding="utf-8")).get("group", [])
    return {name: group["reason"] for group in groups for name in group["tests"]}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    not_applicable = reasons()
    selected = [item for item in items if needs_namespace(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(selected)])
    for item in selected:
        if reason := not_applicable.get(item.originalname):
            item.add_marker(pytest.mark.skip(reason=reason))
    items[:] = sorted(selected, key=is_short)


def needs_namespace(item: pytest.Item) -> bool:
    return hasattr(item.function, "prepared") or item.get_closest_marker("liveTest") is not None


def is_short(item: pytest.Item) -> bool:
    """Return False for tests that wait for minutes. They come first, so that none is left alone at
    the end."""
    return SLOW.search(item.name) is None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tests that do not apply by their reason, and the totals."""
    stats = terminalreporter.stats
    skipped: dict[str, list[str]] = {}
    for report in stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        skipped.setdefault(reason, []).append(report.nodeid.split("::")[-1])
    terminalreporter.section("SDK suite")
    for reason, names in sorted(skipped.items()):
        terminalreporter.line(f"not applicable ({len(names)}): {reason}")
        terminalreporter.line(f"    {', '.join(sorted(names))}")
    passed, failed = len(stats.get("passed", [])), _count(stats, ("failed", "error"))
    terminalreporter.line(
        f"{terminalreporter.config.getoption('transport')}: {passed} passed, {failed} failed, "
        f"{sum(map(len, skipped.values()))} not applicable"
    )


def _count(stats: dict[str, list[object]], outcomes: Iterable[str]) -> int:
    return sum(len(stats.get(outcome, [])) for outcome in outcomes)
