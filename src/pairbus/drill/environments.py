"""Where a drill takes place: on two namespaces of this machine, or on two of the user's own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import EntityStatus

from pairbus.drill.plan import SUBSCRIPTION, DrillEntity, EntityType, entities
from pairbus.emulator.process import EmulatorProcess
from pairbus.pairing.administration import administration_of

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


class LocalEnvironment:
    """Two namespaces on this machine, each a process with its data on disk. The outage: the
    primary's process is killed."""

    primary_name = "primary"

    def __init__(self, folder: Path) -> None:
        self._primary = EmulatorProcess("primary", folder=folder)
        self._secondary = EmulatorProcess("secondary", folder=folder)
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
        self._primary.kill()
        return f"The primary is killed: kill -9 {self._primary.pid}."

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
                remove = (
                    admin.delete_topic if entity.shape is EntityType.TOPIC else admin.delete_queue
                )
                left += _not_removed(remove, entity.path)
        with administration(self.secondary) as admin:
            for queue in backlog_queues:
                left += _not_removed(admin.delete_queue, queue)
        return left

    def _set(self, status: EntityStatus) -> None:
        with administration(self.primary) as admin:
            for entity in self.entities:
                if entity.shape is EntityType.TOPIC:
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
            if entity.shape is EntityType.TOPIC:
                admin.create_topic(entity.path, **detects)
                admin.create_subscription(entity.path, SUBSCRIPTION)
            else:
                sessions = entity.shape is EntityType.SESSIONS
                admin.create_queue(entity.path, requires_session=sessions, **detects)


@contextmanager
def administration(connection_string: str) -> Iterator[Any]:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        administration_of(client) as admin,
    ):
        yield admin
