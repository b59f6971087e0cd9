"""A syphon that is killed in the middle of its work, and another that goes on."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from pairbus.broker.namespace import LocalNamespace
from tests.spark.kit import Backlog, message, wait_until

pytestmark = pytest.mark.timeout(240)
MESSAGES = 20_000


@contextmanager
def syphon(backlog: Backlog, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """`pairbus syphon`, in a group of its own, so that Spark can be killed with it."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pairbus", "syphon"),
            *("--primary-name", backlog.name, "--backlog-queues", "2", *options),
        ],
        env={
            **os.environ,
            "PAIRBUS_PRIMARY": backlog.primary.connection_string,
            "PAIRBUS_SECONDARY": backlog.secondary.connection_string,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.rule("X1", "X2", "Y2")
def test_a_syphon_that_is_killed_loses_nothing_and_another_goes_on() -> None:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        backlog = Backlog(primary, secondary, name="killed", lock_duration=timedelta(seconds=5))
        path = backlog.path("orders", requires_duplicate_detection=True)
        ids = [f"m-{n}" for n in range(MESSAGES)]
        for queue in (0, 1):
            backlog.put(path, [message(id) for id in ids[queue::2]], queue)

        with syphon(backlog, "--max-rate", "4000") as first:
            wait_until(lambda: 0 < backlog.left() < MESSAGES, "some to be moved")
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
        left = backlog.left()
        assert 0 < left < MESSAGES, "it was killed too late to prove anything"

        with syphon(backlog) as second:
            wait_until(lambda: backlog.left() == 0, "the rest to be moved")
            second.send_signal(signal.SIGTERM)
            said, _ = second.communicate(timeout=60)

        assert second.returncode == 0, said
        # The entity removes duplicates: each arrived, and once.
        assert Counter(backlog.ids(path)) == Counter(ids)


def test_once_on_a_backlog_that_is_empty_says_so_and_ends() -> None:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        backlog = Backlog(primary, secondary, name="empty")

        with syphon(backlog, "--once") as process:
            said, _ = process.communicate(timeout=120)

    assert process.returncode == 0
    assert "0 messages moved, 0 dead-lettered." in said
