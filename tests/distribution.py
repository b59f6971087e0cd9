"""The distribution of the tests to the workers of pytest-xdist."""

from pathlib import PurePosixPath

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK_WORKERS = 2
"""The number of workers that start Spark. A start, and the first queries of a session, take more
CPU time than most of the tests."""


def is_on_spark(file: str) -> bool:
    """Return True for a file with tests on Spark."""
    return PurePosixPath(file).parts[:2] == ("tests", "spark")


class Distribution(LoadFileScheduling):
    """Gives whole files to the workers, in the order of their collection, and the files with tests
    on Spark to few workers, which run them first. They use the CPU while other tests wait."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._with_spark: set[WorkerController] = set()

    def _assign_work_unit(self, node: WorkerController) -> None:
        on_spark = [file for file in self.workqueue if is_on_spark(file)]
        others = [file for file in self.workqueue if not is_on_spark(file)]
        starts_spark = node in self._with_spark or len(self._with_spark) < SPARK_WORKERS
        if on_spark and (starts_spark or not others):
            self._with_spark.add(node)
            file = on_spark[0]
        else:
            file = others[0]
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)
