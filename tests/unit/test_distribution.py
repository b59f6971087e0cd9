"""The distribution of test files to workers, and the garbage collection in them."""

import gc
from types import SimpleNamespace
from typing import Any

from tests.distribution import SPARK_WORKERS, Distribution

WORKERS = SPARK_WORKERS + 2
SPARK = [f"tests/spark/test_{number}.py" for number in range(10 * SPARK_WORKERS)]
OTHERS = [f"tests/unit/test_{number}.py" for number in range(60)]


class Worker:
    """A worker that records the files of its tests."""

    gateway = SimpleNamespace(id="gw")
    shutting_down = False
    shutdown = staticmethod(lambda: None)

    def __init__(self, tests: list[str]) -> None:
        self._tests = tests
        self.files: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.files += [self._tests[index].partition("::")[0] for index in indices]


def run(files: list[str], seconds: dict[str, int]) -> list[Worker]:
    """Distribute files with one test each, which take some seconds, and return the workers."""
    tests = [f"{file}::test" for file in files]
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(option=option, getvalue=lambda _: [f"{WORKERS}*popen"])
    distribution = Distribution(config)
    workers = [Worker(tests) for _ in range(WORKERS)]
    for worker in workers:
        distribution.add_node(worker)
        distribution.add_node_collection(worker, tests)
    distribution.schedule()
    ends = dict.fromkeys(workers, 0)
    done = dict.fromkeys(workers, 0)
    while running := [worker for worker in workers if done[worker] < len(worker.files)]:
        worker = min(running, key=lambda worker: ends[worker])
        file = worker.files[done[worker]]
        done[worker] += 1
        ends[worker] += seconds[file]
        distribution.mark_test_complete(worker, files.index(file))
    return workers


def test_few_workers_run_the_tests_on_spark_and_run_them_first() -> None:
    workers = run(OTHERS + SPARK, dict.fromkeys(SPARK, 2) | dict.fromkeys(OTHERS, 3))

    assert sorted(file for worker in workers for file in worker.files) == sorted(OTHERS + SPARK)
    with_spark = [worker for worker in workers if set(worker.files) & set(SPARK)]
    assert len(with_spark) == SPARK_WORKERS
    for worker in with_spark:
        on_spark = [file in SPARK for file in worker.files]
        assert on_spark == sorted(on_spark, reverse=True)


def test_all_workers_run_tests_on_spark_if_no_others_are_left() -> None:
    workers = run(OTHERS + SPARK, dict.fromkeys(SPARK, 100) | dict.fromkeys(OTHERS, 1))

    assert all(set(worker.files) & set(SPARK) for worker in workers)


def test_tests_are_excluded_from_garbage_collection() -> None:
    assert gc.get_freeze_count() > 0
    assert gc.isenabled()
