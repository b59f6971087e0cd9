"""Where a drill takes place: on two namespaces of this machine, or on two of the user's own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import EntityStatus

from pairbus.drill.plan import SUBSCRIPTION, DrillEntity, Shape, entities
from pairbus.emulator.port import ReservedPort
from pairbus.errors import StateError
from pairbus.pairing.administration import administration_of

STOP_S = 20.0
HISTORY = timedelta(minutes=10)
"""How long the entities know the ids of messages that were sent twice."""


class Environment(Protocol):
    """Two namespaces, and a way to make an outage of the primary."""

    primary_name: str
    entities: tuple[DrillEntity, ...]

    @property
    def primary(self) -> str:
        """A connection string."""

    @property
    def secondary(self) -> str: ...

    def open(self) -> str:
        """Prepare it; a sentence that says what was done."""

    def break_down(self) -> str:
        """Make the primary unavailable."""

    def bring_back(self) -> str:
        """Make it available again."""

    def close(self, backlog_queues: tuple[str, ...]) -> list[str]:
        """Remove what the drill has made; what could not be removed. Raises nothing."""


class EmulatorProcess:
    """A namespace as a process: `pairbus emulator` on a folder, always on the same port. It ends
    with this process, whatever ends that."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder
        self._port = ReservedPort("127.0.0.1")
        self.connection_string = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        """Raises StateError where it does not serve."""
        self._port.reserve()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-u", "-m", "pairbus", "emulator", "--while-input"),
                *("--namespace", self._name, "--folder", str(self._folder)),
                *("--port", str(self._port.number)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for us: we stop it when we are done
        )
        assert self._process.stdout is not None
        said = ""
        while "Ctrl-C" not in said:
            line = self._process.stdout.readline()
            if not line:
                raise StateError(f"the namespace {self._name} did not start: {said.strip()}")
            said += line
        self.connection_string = re.findall(r"Endpoint=\S+", said)[0]
        self._port.number = int(re.findall(r"port (\d+)", said)[0])

    def kill(self) -> int:
        """Kill it with -9; its process id. Raises StateError where it ended otherwise."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGKILL)
        status = self._process.wait(STOP_S)
        self._let_go(self._process)
        if status != -signal.SIGKILL:
            raise StateError(f"the namespace {self._name} ended by itself, with status {status}")
        return self.pid

    def close(self) -> None:
        self._port.close()
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()  # it stops when its input ends
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
        self._let_go(self._process)

    @staticmethod
    def _let_go(process: "subprocess.Popen[str]") -> None:
        for end in (process.stdin, process.stdout):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.close()


class LocalEnvironment:
    """Two namespaces on this machine, each a process with its data on disk. The outage: the
    primary's process is killed."""

    primary_name = "primary"

    def __init__(self, folder: Path) -> None:
        self._primary = EmulatorProcess("primary", folder / "primary")
        self._secondary = EmulatorProcess("secondary", folder / "secondary")
        self.entities = entities()

    @property
    def primary(self) -> str:
        return self._primary.connection_string

    @property
    def secondary(self) -> str:
        return self._secondary.connection_string

    def open(self) -> str:
        for one in (self._primary, self._secondary):
            one.start()
        make_entities(self.primary, self.entities)
        return (
            f"Two namespaces serve on this machine, as processes {self._primary.pid} and "
            f"{self._secondary.pid}: primary and secondary."
        )

    def break_down(self) -> str:
        return f"The primary is killed: kill -9 {self._primary.kill()}."

    def bring_back(self) -> str:
        self._primary.start()
        return f"The primary is started again, as process {self._primary.pid}."

    def close(self, backlog_queues: tuple[str, ...]) -> list[str]:
        for one in (self._primary, self._secondary):
            one.close()
        return []


class ExistingEnvironment:
    """Two namespaces of the user's own, on entities that the drill makes and removes. The outage:
    these entities are disabled for sending, which fails as an outage does."""

    def __init__(self, primary: str, secondary: str) -> None:
        self.primary = primary
        self.secondary = secondary
        self.primary_name = f"pairbus-drill-{uuid4().hex[:8]}"
        self.entities = entities(f"{self.primary_name}/")
        self._made = False

    def open(self) -> str:
        with administration(self.primary) as admin:
            next(iter(admin.list_queues()), None)  # whoever has no right has made nothing
        self._made = True
        make_entities(self.primary, self.entities)
        return f"Made in the primary: {', '.join(one.path for one in self.entities)}."

    def break_down(self) -> str:
        self._set(EntityStatus.SEND_DISABLED)
        return "The drill's entities in the primary are disabled for sending."

    def bring_back(self) -> str:
        self._set(EntityStatus.ACTIVE)
        return "The drill's entities in the primary are enabled again."

    def close(self, backlog_queues: tuple[str, ...]) -> list[str]:
        left: list[str] = []
        mine = self.entities if self._made else ()
        with administration(self.primary) as admin:
            for entity in mine:
                remove = admin.delete_topic if entity.shape is Shape.TOPIC else admin.delete_queue
                left += _not_removed(remove, entity.path)
        with administration(self.secondary) as admin:
            for queue in backlog_queues:
                left += _not_removed(admin.delete_queue, queue)
        return left

    def _set(self, status: EntityStatus) -> None:
        with administration(self.primary) as admin:
            for entity in self.entities:
                if entity.shape is Shape.TOPIC:
                    topic = admin.get_topic(entity.path)
                    topic.status = status
                    admin.update_topic(topic)
                else:
                    queue = admin.get_queue(entity.path)
                    queue.status = status
                    admin.update_queue(queue)


def _not_removed(remove: Callable[[str], object], path: str) -> list[str]:
    try:
        remove(path)
    except ResourceNotFoundError:
        return []
    except AzureError:
        return [path]
    return []


def make_entities(primary: str, wanted: tuple[DrillEntity, ...]) -> None:
    """All of them remove duplicates."""
    detects: dict[str, Any] = {
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": HISTORY,
    }
    with administration(primary) as admin:
        for entity in wanted:
            if entity.shape is Shape.TOPIC:
                admin.create_topic(entity.path, **detects)
                admin.create_subscription(entity.path, SUBSCRIPTION)
            else:
                sessions = entity.shape is Shape.SESSIONS
                admin.create_queue(entity.path, requires_session=sessions, **detects)


@contextmanager
def administration(connection_string: str) -> Iterator[Any]:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        administration_of(client) as admin,
    ):
        yield admin
