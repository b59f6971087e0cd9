"""The syphon on a cluster whose executors are removed when they are idle."""

from pathlib import Path

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.cluster.standalone import Cluster
from tests.faults.backlog_messages import BacklogMessages
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]
SETTINGS = """
spark.dynamicAllocation.enabled                  true
spark.dynamicAllocation.shuffleTracking.enabled  true
spark.dynamicAllocation.executorIdleTimeout      5s
"""


@pytest.mark.rule("Y1")
def test_executors_are_removed_when_idle_and_come_back(
    cluster: Cluster, namespaces: tuple[LocalNamespace, LocalNamespace], tmp_path: Path
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(SETTINGS)
    backlog = Backlog(*namespaces)
    messages = BacklogMessages(backlog)
    # Executors fetch broadcasts from each other, also from those that are removed soon.
    cluster.networks[0].connect(cluster.networks[1])
    cluster.start_worker(0)
    cluster.start_worker(1)

    def executors() -> list[int]:
        return [pid for index in cluster.workers for pid in cluster.executors(index)]

    with cluster.start_syphon(
        "syphon", *backlog.arguments, **backlog.variables, SPARK_CONF_DIR=str(tmp_path)
    ) as syphon:
        removed: set[int] = set()
        for _ in range(2):
            messages.put(500)
            current = set(wait_until(executors, "executors"))
            assert not removed & current
            messages.wait_until_drained()
            wait_until(lambda: not executors(), "idle executors to be removed")
            removed |= current
        assert syphon.runs
        syphon.stop()
    messages.check()
