"""Checks that nothing is kept which is not needed any more, when nothing is left to do."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pairbus.amqp.connection import Connection
from tests.simulation.journal import Journal
from tests.simulation.namespace import SimulatedNamespace
from tests.simulation.plan import Plan
from tests.simulation.scheduler import Process
from tests.simulation.world import World

MAX_UNSETTLED = 3
"""Deliveries of a client that may be in progress: those of pings and peeks."""
MORE_THREADS = 4
"""Threads of a sender beside one for each call, path and backlog queue."""
OTHERS = ("primary", "secondary", "consumer")
"""Processes that keep deliveries: consumers do not settle all."""


class MemoryChecks:
    """Knows the AMQP connections of all processes."""

    def __init__(self, journal: Journal, world: World) -> None:
        self._journal = journal
        self._world = world
        self._connections: dict[Connection, Process] = {}

    def observe(self) -> Callable[[], None]:
        """Take note of connections, until the returned function is called."""
        connection_class: Any = Connection
        create = connection_class.__init__

        def created(connection: Connection, *arguments: Any, **options: Any) -> None:
            create(connection, *arguments, **options)
            self._connections[connection] = self._world.scheduler.process

        connection_class.__init__ = created

        def restore() -> None:
            connection_class.__init__ = create

        return restore

    def check_clients(self) -> None:
        """Check that senders and syphons keep no deliveries."""
        for process, count in self._kept().items():
            self._journal.violate("memory", f"{process.name} keeps {count} deliveries")

    def keeps_none(self) -> bool:
        """Return whether senders and syphons keep no deliveries."""
        return not self._kept()

    def _kept(self) -> dict[Process, int]:
        kept: Counter[Process] = Counter()
        for connection, process in self._connections.items():
            if process.alive and process.name not in OTHERS and not connection.closed:
                for session in connection.sessions:
                    kept[process] += len(session.incoming.unsettled)
                    kept[process] += len(session.outgoing.unsettled)
        return {process: count for process, count in kept.items() if count > MAX_UNSETTLED}

    def check_locks(self, namespace: SimulatedNamespace, paths: Sequence[str]) -> None:
        """Check that queues keep no locks without messages."""
        for path in paths:
            entity = namespace.runtime.entities.find(path)
            if entity is not None and len(entity.queue._locks) > len(entity.queue):
                self._journal.violate("memory", f"{path} has more locks than messages")

    def check_threads(self, process: Process, plan: Plan) -> None:
        """Check that a sender has no threads that have nothing to do."""
        limit = plan.callers + plan.paths + plan.backlog_queues + MORE_THREADS
        if len(process.tasks) > limit:
            self._journal.violate("memory", f"{process.name} has {len(process.tasks)} threads")
