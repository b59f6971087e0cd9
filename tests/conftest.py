"""What all tests share.

Hypothesis tries the same examples in every run, so that CI fails for a reason;
`HYPOTHESIS_PROFILE=wide pytest tests/property` looks for new ones.
"""

import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "wide",
    database=None,
    deadline=None,
    max_examples=3000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

SPARK = Path(__file__).with_name("spark")
EARLY = 0.7
"""By which part of a run all tests on Spark have begun: they work while others wait."""

UNCLOSED = ("unclosed <s", "unclosed transport", "loop is closed")
"""Warnings about sockets that the SDK does not close when a connection fails."""


def pytest_configure() -> None:
    # A shell starts what runs in its background deaf to Ctrl-C, and so are all children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Every Spark of a test is soon over: code that is compiled quickly is better than quick code.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "flavour" in getattr(item, "fixturenames", ()):
            for warning in UNCLOSED:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{warning}:ResourceWarning"))
    spread_spark(items)


def spread_spark(items: list[pytest.Item]) -> None:
    """Spread the files with tests on Spark evenly among the others."""
    files = list(dict.fromkeys(item.path for item in items))
    place: dict[Path, float] = {}
    for some, until in (
        ([file for file in files if file.parent == SPARK], EARLY),
        ([file for file in files if file.parent != SPARK], 1.0),
    ):
        place |= {file: until * number / len(some) for number, file in enumerate(some)}
    items.sort(key=lambda item: place[item.path])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the interoperability tests do not test, because a peer cannot do it."""
    reports = (report for some in terminalreporter.stats.values() for report in some)
    if any(getattr(report, "nodeid", "").startswith("tests/interop/") for report in reports):
        limitations = importlib.import_module("tests.interop.limitations")
        terminalreporter.section("not tested, because the AMQP peer cannot do it")
        for line in limitations.summary():
            terminalreporter.line(line)


@pytest.fixture(scope="module", params=["sync", "aio"])
def flavour(request: pytest.FixtureRequest) -> str:
    """The sync and the async SDK in turn."""
    return str(request.param)


@pytest.fixture(scope="module", autouse=True)
def _nothing_stays_paired() -> Iterator[None]:
    """What one file leaves behind, another would trip over."""
    yield
    if (module := sys.modules.get("pairbus.pairing.namespaces")) is not None:
        assert len(module.registry) == 0, "a pairing was not ended"


@pytest.fixture(scope="session", autouse=True)
def _state_of_commands() -> Iterator[None]:
    """Commands keep their ledgers here, not in somebody's home."""
    with tempfile.TemporaryDirectory(prefix="pairbus-state-", ignore_cleanup_errors=True) as folder:
        before = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = folder
        yield
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before
