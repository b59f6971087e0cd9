"""Namespaces in emulator processes, and waiting."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pairbus.amqp.client import Client, ClientOptions
from pairbus.amqp.client.management import Management
from pairbus.amqp.sections import Message
from pairbus.emulator import EmulatorProcess
from tests.tiers import TEST_TIER, when_admitted

DEADLINE_S = 60.0
"""The longest time to wait for anything."""


def wait_until(done: Callable[[], Any], event: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, f"timed out waiting for {event}"
        time.sleep(0.02)


class Namespace(EmulatorProcess):
    """A namespace in an emulator process that counts its kills."""

    def __init__(self, name: str, folder: Path, *queues: str, tier: str = TEST_TIER.name) -> None:
        super().__init__(name, folder=folder, queues=queues, tier=tier)
        self.kills = 0
        self.start()

    def set_tier(self, tier: str) -> None:
        """Restart the process with another tier, unless it has this one."""
        position = self._options.index("--tier") + 1
        if self._options[position] != tier:
            self._options[position] = tier
            super().kill()
            self.start()

    def kill(self) -> None:
        super().kill()
        self.kills += 1

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Pause the process, and resume it at the end."""
        with self.paused():
            yield
            assert self.is_paused

    def ids(self, path: str) -> list[str]:
        """Return the ids of all messages in a queue, scheduled ones included, by a peek."""
        ids: list[str] = []
        options = ClientOptions.from_connection_string(
            self.connection_string, operation_timeout_s=DEADLINE_S
        )
        with Client(options) as client, Management(client, path) as management:
            number = 1
            while page := [
                Message.parse(data) for data in when_admitted(partial(management.peek, number, 200))
            ]:
                ids += [str(message.read_properties().message_id) for message in page]
                number = page[-1].read_message_annotations()["x-opt-sequence-number"] + 1
        return ids


def backlog_path(name: str, index: int) -> str:
    return f"{name}/x-servicebus-transfer/{index}"
