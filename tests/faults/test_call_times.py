"""Every call ends, whatever the hosts do: the matrix of `tests.faults.call_times`.

No time is measured. The faults do not end, and a call that does not return fails the test at its
deadline.
"""

import gc
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pairbus.errors import SendUnavailable
from tests.faults.bounded_calls import pairbus_threads
from tests.faults.call_times import (
    FAULTS,
    PLACES,
    CellRun,
    Faults,
    all_cells,
    environment,
    run_cells,
)
from tests.faults.namespace_process import Namespace, wait_until

pytestmark = [
    # The SDK does not close its socket when a connection fails.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
    pytest.mark.timeout(600),
]

PATIENT = timedelta(seconds=24)
"""Half of this timeout is enough to reach the backlog on a machine that runs all other tests."""
TIMEOUT = timedelta(seconds=14)
"""Half of this timeout is enough to begin a call of the secondary on such a machine. The tests wait
without using the CPU."""

Hosts = tuple[Faults, Namespace, Namespace]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with environment(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts
    gc.collect()
    wait_until(lambda: not pairbus_threads(), f"threads to end: {pairbus_threads()}")


def connections(host: Any) -> int:
    """Return the number of open connections of a relay; 0 for other hosts."""
    return int(getattr(host, "open", 0))


def check(run: CellRun) -> None:
    """Check one cell before it is closed."""
    assert run.faults_happened(), run.cell
    host = run.bus.status().secondary_host
    if run.cell.place == "primary":
        (call,) = run.calls
        assert call.error is None, run.cell
        assert host.reachable, run.cell
        return
    for call in run.calls:
        assert type(call.error) is SendUnavailable, run.cell
        assert call.error.primary_error is not None, run.cell
        assert call.error.backlog_error is not None, run.cell
    assert not host.reachable, run.cell
    # One operation makes the probes, one at a time.
    driver = run.bus._driver
    names = [thread.name for thread in tuple(getattr(driver, "_threads", ()))]
    names += [task.get_name() for task in tuple(getattr(driver, "_tasks", ()))]
    assert names.count("pairbus probes of the secondary") == 1, (run.cell, names)
    # After the links of the first call are closed, one connection is in use.
    wait_until(lambda: connections(run.secondary) <= 1, f"the links of {run.cell} to be closed")


@pytest.mark.rule("S2a", "S5")
@pytest.mark.parametrize(
    ("fault", "places"),
    [
        pytest.param(fault, places, id=f"{fault}-{places[0]}" if len(places) == 1 else fault)
        for fault in FAULTS
        # Frozen processes fail for all cells, so those of one place run at a time.
        for places in ([(place,) for place in PLACES] if fault == "frozen" else [PLACES])
    ],
)
async def test_every_call_ends(fault: str, places: tuple[str, ...], hosts: Hosts) -> None:
    cells = [cell for cell in all_cells() if cell.fault == fault and cell.place in places]
    checked = 0
    async for run in run_cells(cells, *hosts, call_timeout=TIMEOUT, backlog_timeout=PATIENT):
        check(run)
        checked += 1
    assert checked == len(cells) >= 6 * len(places)
