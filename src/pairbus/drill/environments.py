"""The environments of a drill: two local namespaces, or two existing ones."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from pairbus.drill.connections import DIRECT, NetworkSettings, administration
from pairbus.drill.plan import SUBSCRIPTION, DrillEntity, EntityType, entities
from pairbus.emulator.process import EmulatorProcess
from pairbus.emulator.tiers import tier_of
from pairbus.errors import EntityNotFound, PairbusError
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.limits import CREDITS_PER_SECOND_STANDARD

DUPLICATE_DETECTION_WINDOW = timedelta(minutes=10)
MAX_RECEIVE_RATE = CREDITS_PER_SECOND_STANDARD / 2


class Environment(Protocol):
    """Two namespaces, and a way to cause an outage of the primary. The methods return a sentence
    for the log of the drill."""

    primary_name: str
    entities: tuple[DrillEntity, ...]
    network: NetworkSettings
    max_receive_rate: float | None
    """Messages a second that can be received without being throttled; None: no limit."""
    is_billed: bool
    """Operations cost money."""

    @property
    def primary(self) -> str:
        """The connection string or the host of the primary."""

    @property
    def secondary(self) -> str:
        """The connection string or the host of the secondary."""

    def open(self) -> str:
        """Start the namespaces if necessary, and create the entities."""

    def start_outage(self) -> str:
        """Make the primary unavailable for sending."""

    def end_outage(self) -> str:
        """Make the primary available again."""

    def close(self, backlog_queues: tuple[str, ...]) -> list[str]:
        """Remove everything that the drill has created. Return the paths of entities that could not
        be removed."""


class LocalEnvironment:
    """Two emulator processes with their data on disk. The outage kills the process of the
    primary."""

    primary_name = "primary"
    network = DIRECT
    is_billed = False

    def __init__(self, folder: Path, tier: str | None = None) -> None:
        """Raises ConfigurationError for an unknown tier."""
        self._primary = EmulatorProcess("primary", folder=folder, tier=tier)
        self._secondary = EmulatorProcess("secondary", folder=folder, tier=tier)
        self._tier = "" if tier is None else f" of the tier {tier}"
        self.entities = entities()
        limited = tier is not None and tier_of(tier).is_throttled
        self.max_receive_rate = MAX_RECEIVE_RATE if limited else None

    @property
    def primary(self) -> str:
        return self._primary.connection_string

    @property
    def secondary(self) -> str:
        return self._secondary.connection_string

    def open(self) -> str:
        for emulator in (self._primary, self._secondary):
            emulator.start()
        create_entities(self.primary, self.entities)
        return (
            f"Started two local namespaces{self._tier}: primary (process {self._primary.pid}) and "
            f"secondary (process {self._secondary.pid})."
        )

    def start_outage(self) -> str:
        self._primary.kill()
        return f"OUTAGE: killed the primary (kill -9 {self._primary.pid})."

    def end_outage(self) -> str:
        self._primary.start()
        return f"Restarted the primary (process {self._primary.pid})."

    def close(self, backlog_queues: tuple[str, ...]) -> list[str]:
        for emulator in (self._primary, self._secondary):
            emulator.close()
        return []


class ExistingEnvironment:
    """Two existing namespaces, in which the drill creates its own entities and removes them. The
    outage disables these entities for sending, so that sends fail as in a real outage."""

    max_receive_rate: float | None = MAX_RECEIVE_RATE
    is_billed = True

    def __init__(self, primary: str, secondary: str, network: NetworkSettings = DIRECT) -> None:
        self.primary = primary
        self.secondary = secondary
        self.network = network
        self.primary_name = f"pairbus-drill-{uuid4().hex[:8]}"
        self.entities = entities(f"{self.primary_name}/")
        self._created = False

    def open(self) -> str:
        with administration(self.primary, self.network) as admin:
            admin.list_queues()  # fails without the Manage right, before anything is created
        self._created = True
        create_entities(self.primary, self.entities, self.network)
        return f"Created in the primary: {', '.join(entity.path for entity in self.entities)}."

    def start_outage(self) -> str:
        self._set_status(EntityStatus.SEND_DISABLED)
        return "OUTAGE: disabled the entities of the drill for sending."

    def end_outage(self) -> str:
        self._set_status(EntityStatus.ACTIVE)
        return "Enabled the entities of the drill again."

    def close(self, backlog_queues: tuple[str, ...]) -> list[str]:
        remaining: list[str] = []
        created = self.entities if self._created else ()
        with administration(self.primary, self.network) as admin:
            for entity in created:
                remove = (
                    admin.delete_topic if entity.type is EntityType.TOPIC else admin.delete_queue
                )
                remaining += _remove(remove, entity.path)
        with administration(self.secondary, self.network) as admin:
            for queue in backlog_queues:
                remaining += _remove(admin.delete_queue, queue)
        return remaining

    def _set_status(self, status: EntityStatus) -> None:
        with administration(self.primary, self.network) as admin:
            for entity in self.entities:
                admin.set_status(entity.path, status)


def _remove(remove: Callable[[str], object], path: str) -> list[str]:
    """Remove an entity. Return its path if this failed."""
    try:
        remove(path)
    except EntityNotFound:
        return []
    except PairbusError:
        return [path]
    return []


def create_entities(
    primary: str, drill_entities: tuple[DrillEntity, ...], network: NetworkSettings = DIRECT
) -> None:
    """Create the entities, with duplicate detection."""
    with administration(primary, network) as admin:
        for entity in drill_entities:
            if entity.type is EntityType.TOPIC:
                admin.create_topic(
                    entity.path,
                    requires_duplicate_detection=True,
                    duplicate_detection_history_time_window=DUPLICATE_DETECTION_WINDOW,
                )
                admin.create_subscription(entity.path, SUBSCRIPTION)
            else:
                admin.create_queue(
                    entity.path,
                    requires_duplicate_detection=True,
                    duplicate_detection_history_time_window=DUPLICATE_DETECTION_WINDOW,
                    requires_session=entity.type is EntityType.SESSION_QUEUE,
                )
