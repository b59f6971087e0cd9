"""A large redrive whose process is killed again and again loses nothing and takes nothing else."""

import os
import random
import signal
import time
from collections import Counter, defaultdict
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Short, Timestamp
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.transfer import to_backlog
from tests.commands import started
from tests.dead_letters import DeadLetters
from tests.messages import id_of, message
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

QUEUES = 10
MESSAGES = int(os.environ.get("PAIRBUS_REDRIVE_MESSAGES", "200000"))
KILLS = 6
LOCK = timedelta(seconds=30)


def typed_message(number: int) -> bytes:
    """Return a message with typed properties. Every second one has a session."""
    return Message.build(
        properties=Properties(
            message_id=f"m-{number}",
            group_id=f"s-{number % 20}" if number % 2 else None,
            subject="s",
        ),
        application_properties={
            "int": number,
            "short": Short(number % 100),
            "time": Timestamp(1_700_000_000_000 + number),
            "uuid": UUID(int=number),
            "binary": number.to_bytes(4, "big"),
        },
        data=number.to_bytes(4, "big") * 10,
    ).encode()


@pytest.mark.rule("R2", "R3", "R4")
@pytest.mark.parametrize("engine", ["--no-spark", "--spark"])
def test_killed_redrives_lose_nothing_and_take_no_later_dead_letter(
    engine: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        primary.create_queue("orders")
        sent = {f"m-{number}": typed_message(number) for number in range(MESSAGES)}
        payloads = list(sent.values())
        queues = [
            DeadLetters(_with_queue(secondary, path), path)
            for path in backlog_paths("soak", QUEUES)
        ]
        for index, letters in enumerate(queues):
            part = [to_backlog(payload, "orders") for payload in payloads[index::QUEUES]]
            for start in range(0, len(part), 5000):  # within the lock duration
                letters.put(part[start : start + 5000], "EntityNotFound")
        command = ("dead-letters", "redrive", "--primary-name", "soak", engine)
        variables = {
            "PAIRBUS_PRIMARY": primary.connection_string,
            "PAIRBUS_SECONDARY": secondary.connection_string,
            "XDG_STATE_HOME": str(tmp_path),
        }
        late: set[str] = set()
        arrived = 0
        began = time.monotonic()
        for kill in range(KILLS):
            goal = arrived + chance.randrange(MESSAGES // (4 * KILLS), MESSAGES // (2 * KILLS))
            with started(*command, **variables) as running:
                wait_until(
                    lambda goal=goal, process=running.process: (
                        _count(primary) >= goal or process.poll() is not None
                    ),
                    "messages are moved",
                    deadline_s=900,
                )
                assert running.process.poll() is None
                os.killpg(running.process.pid, signal.SIGKILL)
                running.process.wait()
            arrived = _count(primary)
            assert arrived < MESSAGES
            print(f"{time.monotonic() - began:.0f} s: killed after {arrived:,} arrived")
            late.add(f"late-{kill}")
            letters = chance.choice(queues)
            letters.put([to_backlog(message(f"late-{kill}"), "orders")], "EntityNotFound")
        with started(*command, **variables) as running:
            process = running.process
            wait_until(lambda: process.poll() is not None, "the end", deadline_s=900)
            status, out, err = running.wait()
        seconds = time.monotonic() - began
        assert status == 0, out + err

        stored = queues[0].stored("soak/x-servicebus-transfer/0")
        assert stored == []
        left = {id for letters in queues for id in letters.ids()}
        moved = DeadLetters(primary, "orders").stored("orders")
        ids = Counter(map(id_of, moved))
        assert left == late
        assert ids.keys() == sent.keys()
        assert all(sent[id_of(payload)] == payload for payload in moved)
        assert _out_of_order(moved) == []
        duplicates = ids.total() - len(ids)
        print(
            f"{MESSAGES:,} dead letters with {KILLS} kills ({engine}): {seconds:.0f} s, "
            f"{MESSAGES / seconds:,.0f} messages a second, {duplicates:,} duplicates"
        )


def _with_queue(namespace: LocalNamespace, path: str) -> LocalNamespace:
    namespace.create_queue(path, lock_duration=LOCK, max_delivery_count=2147483647)
    return namespace


def _count(namespace: LocalNamespace) -> int:
    return namespace.call(lambda core: len(core.entities.get("orders").queues[0]))


def _out_of_order(moved: list[bytes]) -> list[str]:
    """Return messages that first arrived before an earlier message of their session and queue."""
    first: dict[str, int] = {}
    sessions: dict[tuple[int, int], list[int]] = defaultdict(list)
    for payload in moved:
        id_ = id_of(payload)
        if id_ not in first:
            number = first[id_] = int(id_.removeprefix("m-"))
            if number % 2:
                sessions[number % QUEUES, number % 20].append(number)
    return [
        f"m-{number}"
        for numbers in sessions.values()
        for before, number in pairwise(numbers)
        if number < before
    ]
