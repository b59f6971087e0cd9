"""One namespace without its sockets: entities, rights, faults, meter, and the turns that commit.

Links accept messages and settlements at any time. A turn then delivers messages to receivers,
commits everything in one transaction, and only after the commit sends the replies. A turn runs
after each round of the event loop in which something happened. If the store fails, the replies of
that turn are not sent, and there are no further turns.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from pairbus.emulator.auth import Authority, Claims, SharedAccessRule
from pairbus.emulator.clock import NamespaceClock
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.registry import EntityRegistry
from pairbus.emulator.entities.timeline import skip_time
from pairbus.emulator.faults import Faults
from pairbus.emulator.meter import Meter
from pairbus.emulator.storage.database import StoreFailed
from pairbus.emulator.storage.store import Store
from pairbus.emulator.tiers import UNLIMITED, NamespaceTier, Throttle

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pairbus.emulator.connections.incoming_links import IncomingLink
    from pairbus.emulator.connections.outgoing_links import OutgoingLink
    from pairbus.emulator.connections.request_links import RequestLink, ResponseLink


class Flushable(Protocol):
    """A connection with output that is written at the end of the turn."""

    def flush(self) -> None: ...


def random_tokens() -> Iterator[bytes]:
    """Generate lock tokens of 16 bytes. A system call for each would take longer than the rest of
    the work for a lock."""
    while True:
        block = os.urandom(4096)
        for start in range(0, len(block), 16):
            yield block[start : start + 16]


class NamespaceRuntime:
    """The state of a namespace. Used by one thread, that of its event loop."""

    def __init__(
        self,
        name: str,
        store: Store,
        rules: tuple[SharedAccessRule, ...],
        *,
        now_ms: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        trust_bearer_tokens: bool = False,
        accepts_host: Callable[[str], bool] = lambda _: True,
        verify_bearer: Callable[[str, float], Claims] | None = None,
        local_authentication: bool = True,
        tier: NamespaceTier = UNLIMITED,
    ) -> None:
        """`now_ms` returns the time of this machine. `call_soon` schedules a callback for the next
        round of the event loop. The four arguments before `tier` are those of `Authority`."""
        self.name = name
        self.store = store
        self.clock = NamespaceClock(now_ms, store.clock_offset_ms())
        self.now_ms = self.clock.now_ms
        self.new_token = random_tokens().__next__
        self.incoming_links: set[IncomingLink] = set()
        self.outgoing_links: dict[int, list[OutgoingLink]] = {}
        """Attached receivers by the id of their queue."""
        self._request_links: dict[RequestLink | ResponseLink, None] = {}
        self.tier = tier
        self.throttle = Throttle(name, tier, self.now_ms) if tier.is_throttled else None
        self.meter = Meter(store, None if self.throttle is None else self.throttle.count)
        self.faults = Faults()
        self.entities = EntityRegistry(
            store,
            self.new_token,
            on_available=self.messages_available,
            on_deleted=self._detach_links,
            complete=tier.complete,
        )
        self.authority = Authority(
            rules,
            entity_rules=self._entity_rules,
            trust_bearer_tokens=trust_bearer_tokens,
            accepts_host=accepts_host,
            verify_bearer=verify_bearer,
            local_authentication=local_authentication,
        )
        self._call_soon = call_soon
        self._turn_scheduled = False
        self._queues_to_deliver: dict[int, MessageQueue] = {}
        self._queues_to_retry: dict[int, MessageQueue] = {}
        self._replies: list[Callable[[], object]] = []
        self._unflushed: dict[Flushable, None] = {}

    def _entity_rules(self, path: str) -> tuple[SharedAccessRule, ...]:
        entity = self.entities.find(path)
        return () if entity is None else getattr(entity.description, "authorization_rules", ())

    # Receivers.

    def messages_available(self, queue: MessageQueue) -> None:
        """Deliver messages of a queue in the next turn."""
        self._queues_to_deliver[queue.id] = queue
        self.schedule_turn()

    def deliver_later(self, queue: MessageQueue) -> None:
        """Deliver messages of a queue after the next tick."""
        self._queues_to_retry[queue.id] = queue

    def add_receiver(self, link: "OutgoingLink") -> None:
        self.outgoing_links.setdefault(link.queue.id, []).append(link)

    def remove_receiver(self, link: "OutgoingLink") -> None:
        links = self.outgoing_links.get(link.queue.id, [])
        if link in links:
            links.remove(link)

    # Links that end with their entity. Those of senders stay; what they send is rejected.

    def add_request_link(self, link: "RequestLink | ResponseLink") -> None:
        self._request_links[link] = None

    def remove_request_link(self, link: "RequestLink | ResponseLink") -> None:
        self._request_links.pop(link, None)

    def _detach_links(self, entity: Entity) -> None:
        for queue in entity.queues:
            for receiver in self.outgoing_links.pop(queue.id, []):
                receiver.on_entity_deleted()
            self._queues_to_deliver.pop(queue.id, None)
        for link in [link for link in self._request_links if link.node.entity is entity]:
            link.on_entity_deleted()

    # Turns.

    def schedule_turn(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            # After all sockets that are readable now: their messages share one commit.
            self._call_soon(self._run_scheduled_turn)

    def after_commit(self, reply: Callable[[], object]) -> None:
        """Call `reply` as soon as everything done so far is on disk."""
        self._replies.append(reply)
        self.schedule_turn()

    def flush_after_turn(self, connection: Flushable) -> None:
        self._unflushed[connection] = None
        self.schedule_turn()

    def forget(self, connection: Flushable) -> None:
        """Do not flush a connection that was lost."""
        self._unflushed.pop(connection, None)

    def turn(self) -> None:
        """Deliver, commit and reply. Raises StoreFailed, and then has sent no reply."""
        queues, self._queues_to_deliver = self._queues_to_deliver, {}
        for queue_id in queues:
            links = self.outgoing_links.get(queue_id)
            if links:
                # Rotate, so that every receiver gets its turn.
                links.append(links.pop(0))
                for link in tuple(links):
                    self._isolate(link, link.deliver)
        self.meter.save()
        self.store.commit()
        replies, self._replies = self._replies, []
        for reply in replies:
            try:
                reply()
            except Exception:  # the other replies must still be sent
                logger.exception("A reply could not be sent.")

    def _run_scheduled_turn(self) -> None:
        self._turn_scheduled = False
        try:
            self.turn()
        except StoreFailed:
            return
        connections, self._unflushed = self._unflushed, {}
        for connection in connections:
            connection.flush()

    def tick(self) -> None:
        """Let time pass: locks, messages and sessions expire, scheduled messages become active.
        Raises StoreFailed."""
        now_ms = self.now_ms()
        self._touch_linked_entities(now_ms)
        while self.entities.tick(now_ms):
            pass
        for links in list(self.outgoing_links.values()):
            for link in tuple(links):
                self._isolate(link, link.tick)
        queues, self._queues_to_retry = self._queues_to_retry, {}
        for queue in queues.values():
            self.messages_available(queue)
        if self.store.is_dirty:
            self.schedule_turn()

    def _touch_linked_entities(self, now_ms: int) -> None:
        for incoming in self.incoming_links:
            self.entities.touch(incoming.entity, now_ms)
        for links in self.outgoing_links.values():
            for link in links:
                self.entities.touch(link.entity, now_ms)

    def advance(self, span: timedelta) -> None:
        """Move the clock forward. What becomes due by then happens before this returns, and no
        client receives or sends anything meanwhile.

        Raises ConfigurationError for a negative or too long span, and StoreFailed.
        """
        start_ms = self.now_ms()
        end_ms = start_ms + self.clock.advance(span)
        self.store.set_clock_offset_ms(self.clock.offset_ms)
        self._touch_linked_entities(end_ms)  # their links are open all the time
        skip_time(self.entities, start_ms, end_ms)
        self.tick()

    def _isolate(self, link: "OutgoingLink", work: Callable[[], None]) -> None:
        """Close the connection of a receiver that raises, and leave all others untouched."""
        try:
            work()
        except StoreFailed:
            raise
        except Exception:  # a defect of the emulator costs this connection, and no other
            logger.exception("A receiver of %s failed.", link.path)
            link.connection.fail()

    def close(self) -> None:
        """Run a last turn, and close the store. Does not raise if the store fails."""
        # Receives that ended with their connections are metered too.
        self._run_scheduled_turn()
        self._turn_scheduled = True
        with contextlib.suppress(StoreFailed):
            self.store.close()
