"""One namespace at run time: what happens between two commits, and what waits for the next.

A turn: links have brought messages and settlements; now receivers get what there is, everything is
committed, and only then are answers given. The server calls `turn` after every round of its event
loop in which something happened, and `tick` now and then. Where the store fails, nothing of the
turn is answered, and there is no other turn.
"""

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pairbus.emulator.auth import Authority, SharedAccessRule
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.registry import EntityRegistry
from pairbus.emulator.faults import Faults
from pairbus.emulator.meter import Meter
from pairbus.emulator.storage.store import Store, StoreFailed

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pairbus.emulator.connections.links import IncomingLink, OutgoingLink


class NamespaceRuntime:
    """A namespace without its sockets."""

    def __init__(
        self,
        name: str,
        store: Store,
        rules: tuple[SharedAccessRule, ...],
        *,
        now_ms: Callable[[], int],
        trust_bearer_tokens: bool = False,
    ) -> None:
        self.name = name
        self.store = store
        self.now_ms = now_ms
        self.wake: Callable[[], None] = _nothing
        """Asks for a turn."""
        self._ready: dict[int, MessageQueue] = {}
        self._outlets: dict[int, list[OutgoingLink]] = {}
        self.inlets: set[IncomingLink] = set()
        """Those that are attached."""
        self._answers: list[Callable[[], object]] = []
        self.meter = Meter(store)
        self.faults = Faults()
        self.new_token = partial(os.urandom, 16)
        self.entities = EntityRegistry(
            store, self.new_token, on_available=self.arrived, on_deleted=self._on_gone
        )
        self.authority = Authority(
            rules,
            entity_rules=self._entity_rules,
            trust_bearer_tokens=trust_bearer_tokens,
        )

    def _entity_rules(self, path: str) -> tuple[SharedAccessRule, ...]:
        entity = self.entities.find(path)
        return () if entity is None else getattr(entity.description, "authorization_rules", ())

    # Receivers.

    def arrived(self, queue: MessageQueue) -> None:
        """Something can be taken from a queue."""
        self._ready[queue.id] = queue
        self.wake()

    def add_outlet(self, outlet: "OutgoingLink") -> None:
        self._outlets.setdefault(outlet.queue.id, []).append(outlet)

    def remove_outlet(self, outlet: "OutgoingLink") -> None:
        outlets = self._outlets.get(outlet.queue.id, [])
        if outlet in outlets:
            outlets.remove(outlet)

    def _on_gone(self, entity: Entity) -> None:
        for queue in entity.queues:
            for outlet in self._outlets.pop(queue.id, []):
                outlet.on_entity_gone()
            self._ready.pop(queue.id, None)

    # Turns.

    def after_commit(self, answer: Callable[[], object]) -> None:
        """Say something once all that was done so far is on disk."""
        self._answers.append(answer)
        self.wake()

    def turn(self) -> None:
        """Hand out, commit, answer. Raises StoreFailed, and answers nothing then."""
        ready, self._ready = self._ready, {}
        for queue_id in ready:
            outlets = self._outlets.get(queue_id)
            if outlets:
                # Whoever was first this time is last the next.
                outlets.append(outlets.pop(0))
                for outlet in tuple(outlets):
                    self._guard(outlet, outlet.pump)
        self.meter.save()
        self.store.commit()
        answers, self._answers = self._answers, []
        for answer in answers:
            try:
                answer()
            except Exception:  # the others want theirs
                logger.exception("an answer could not be given")

    def _guard(self, outlet: "OutgoingLink", work: Callable[[], None]) -> None:
        """What goes wrong for one receiver costs it its connection, and nobody else anything."""
        try:
            work()
        except StoreFailed:
            raise
        except Exception:
            logger.exception("a receiver of %s failed", outlet.path)
            outlet.peer.fail()

    def tick(self) -> None:
        """Let time pass: locks, messages and sessions expire, schedules come due. Raises
        StoreFailed."""
        now_ms = self.now_ms()
        for inlet in self.inlets:
            self.entities.touch(inlet.entity, now_ms)
        for outlets in self._outlets.values():
            for outlet in outlets:
                self.entities.touch(outlet.entity, now_ms)
        while self.entities.tick(now_ms):
            pass
        for outlets in list(self._outlets.values()):
            for outlet in tuple(outlets):
                self._guard(outlet, partial(outlet.tick, now_ms))
        if self.store.dirty:
            self.wake()


def _nothing() -> None:
    pass
