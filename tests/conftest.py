"""Fixtures and hooks of all tests.

Hypothesis uses the same examples in every run, so that failures in CI are reproducible.
`make soak` generates more and new examples (`HYPOTHESIS_PROFILE=wide pytest tests/property`).
"""

import gc
import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.proxies import ProxyProcess

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "wide",
    database=None,
    deadline=None,
    max_examples=1000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

SPARK_CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""An archive of Spark's classes, which shortens its start. `scripts/setup test` makes it."""

UNCLOSED = ("unclosed <s", "unclosed transport", "loop is closed")
"""Warnings about sockets that the SDK does not close when a connection fails."""


def pytest_configure() -> None:
    # A shell ignores SIGINT in background processes, and child processes inherit this.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Spark runs only briefly in each test, so fast compilation matters more than fast code.
    java_options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    if SPARK_CLASSES.exists():
        # Java ignores an archive that does not fit. Without the last option it prints so.
        java_options += [f"-XX:SharedArchiveFile={SPARK_CLASSES}", "-Xlog:disable"]
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(java_options))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "flavour" in getattr(item, "fixturenames", ()):
            for warning in UNCLOSED:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{warning}:ResourceWarning"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude all modules and tests from garbage collection: many tests collect the garbage of the
    SDK, which would take 0.4 seconds each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    return importlib.import_module("tests.distribution").Distribution(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the cases that the interoperability tests leave out, because a peer cannot run them."""
    reports = (report for group in terminalreporter.stats.values() for report in group)
    if any(getattr(report, "nodeid", "").startswith("tests/interop/") for report in reports):
        limitations = importlib.import_module("tests.interop.limitations")
        terminalreporter.section("not tested, because the AMQP peer does not support it")
        for line in limitations.summary():
            terminalreporter.line(line)


@pytest.fixture(scope="module", params=["sync", "aio"])
def flavour(request: pytest.FixtureRequest) -> str:
    """The flavour of the SDK: sync or async. Tests run with both."""
    return str(request.param)


@pytest.fixture
def start_proxy(tmp_path: Path) -> Iterator[Callable[..., ProxyProcess]]:
    """Start HTTP proxies, with the arguments of `ProxyProcess` except for the folder."""
    with ExitStack() as stack:

        def start(**options: Any) -> ProxyProcess:
            return stack.enter_context(closing(ProxyProcess(tmp_path, **options)))

        yield start


@pytest.fixture(scope="module", autouse=True)
def _pairings_are_closed() -> Iterator[None]:
    """Check that a test file has closed its pairings, which could affect other files."""
    yield
    if (module := sys.modules.get("pairbus.pairing.namespaces")) is not None:
        assert len(module.registry) == 0, "a pairing was not closed"


@pytest.fixture(scope="session", autouse=True)
def _state_directory() -> Iterator[None]:
    """Redirect the ledgers of commands to a temporary folder instead of the home directory."""
    with tempfile.TemporaryDirectory(prefix="pairbus-state-", ignore_cleanup_errors=True) as folder:
        before = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = folder
        yield
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before
