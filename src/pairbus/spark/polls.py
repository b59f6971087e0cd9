"""Waiting for messages: one long poll for each queue, whatever Spark does.

Spark asks a source again and again whether there is something; each answer must be cheap. So a
thread of the driver holds one credit on each queue. The message that comes is not given back: it is
the first of the next micro-batch.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from time import monotonic
from uuid import UUID

from pairbus.amqp.client import Client, ClientOptions, Management, Receiver
from pairbus.amqp.events import Delivery
from pairbus.errors import AmqpError, EntityNotFound, LinkLost, LockLost
from pairbus.spark.columns import ReceivedMessage, destination_of
from pairbus.syphon.usage import SyphonUsage
from pairbus.usage.operations import OperationKind, Part

logger = logging.getLogger(__name__)

LOOK_S = 0.2
KNOWN_S = 0.5
"""A credit that was not used for so long: there is nothing."""
ABSENT_S = 60.0
MAX_PAUSE_S = 30.0
RENEW_S = 20.0
"""A message that waits so long to be taken has its lock renewed."""


class _Line:
    """One queue."""

    def __init__(self, client: Client, queue: str) -> None:
        self.receiver = Receiver(client, queue, confirm=False)
        self.management = Management(client, queue)
        self.granted_at: float | None = None
        """Since when there is a credit."""
        self.found: ReceivedMessage | None = None
        self.locked_at = 0.0
        self.taken = False
        """Somebody reads the queue: a message that came here would be passed by others."""
        self.not_before = 0.0
        """It is not there: look again then."""


class Poll:
    """Long polls on some queues, until `stop`."""

    def __init__(
        self,
        options: ClientOptions,
        queues: Iterable[str],
        *,
        poll_s: float,
        books: SyphonUsage | None = None,
        may_be_absent: bool = False,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._books = books or None
        self._client = Client(options)
        self._poll_s = poll_s
        self._may_be_absent = may_be_absent
        self._now = now
        self._lines = {queue: _Line(self._client, queue) for queue in queues}
        self._changed = threading.Condition()
        self._stopped = False
        self.error: AmqpError | None = None
        """Why the namespace cannot be polled now."""
        self._thread = threading.Thread(target=self._run, name="pairbus polls", daemon=True)
        self._thread.start()

    def wait_until_known(self, seconds: float) -> bool:
        """Wait until each queue has shown whether there is something in it; whether they have."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(map(self._known, self._lines.values())), seconds
            )

    def _known(self, line: _Line) -> bool:
        now = self._now()
        waited = line.granted_at is not None and now - line.granted_at >= KNOWN_S
        return line.found is not None or waited or now < line.not_before

    def wait_until_found(self, seconds: float) -> None:
        """Wait until a message arrives, the namespace cannot be polled, or the time is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.error is not None
                    or any(line.found is not None for line in self._lines.values())
                ),
                seconds,
            )

    def found(self) -> list[ReceivedMessage]:
        """The messages that came and were not taken yet."""
        with self._changed:
            return [line.found for line in self._lines.values() if line.found is not None]

    def take(self) -> dict[str, ReceivedMessage]:
        """The messages that came, by queue. These queues are not polled until `resume`."""
        with self._changed:
            taken = {q: line.found for q, line in self._lines.items() if line.found is not None}
            for queue in taken:
                self._lines[queue].found = None
                self._lines[queue].taken = True
            return taken

    def resume(self) -> None:
        """Poll all queues again."""
        with self._changed:
            for line in self._lines.values():
                line.taken = False
            self._changed.notify_all()

    def stop(self) -> None:
        """End the polls. What was found and not taken is free again when its lock expires."""
        self._stopped = True
        with self._changed:
            self._changed.notify_all()
        self._thread.join(10)

    def _run(self) -> None:
        pause_s = 1.0
        while not self._stopped:
            try:
                self._turn()
                self.error, pause_s = None, 1.0
            except AmqpError as exc:
                if self.error is None:
                    logger.warning("%s cannot be polled: %s", self._client.options.host, exc)
                self.error = exc
                with self._changed:
                    for line in self._lines.values():
                        if line.granted_at is not None and line.receiver.error is not None:
                            # Where the namespace took the link away, it counts the poll as over.
                            self._note(line, answered=isinstance(line.receiver.error, LinkLost))
                        line.granted_at = None
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._stopped, pause_s)
                pause_s = min(pause_s * 2, MAX_PAUSE_S)
        self._client.close()
        if self._books is not None:
            self._books.flush()

    def _turn(self) -> None:
        """Grant what is to be granted, and look what came."""
        for line in self._lines.values():
            self._grant(line)
            self._renew(line)
        if any(line.granted_at is not None for line in self._lines.values()):
            self._client.step(self._now() + LOOK_S)
        else:
            with self._changed:
                self._changed.wait(LOOK_S)
        with self._changed:
            for line in self._lines.values():
                if line.granted_at is not None:
                    self._keep(line, line.receiver.take_received())
            self._changed.notify_all()

    def _grant(self, line: _Line) -> None:
        now = self._now()
        if line.granted_at is not None and now - line.granted_at >= self._poll_s:
            arrived = line.receiver.drain()
            line.granted_at = None
            if not arrived:
                self._note(line)
            with self._changed:
                self._keep(line, arrived)
        if line.taken or line.found is not None or now < line.not_before:
            return
        if line.granted_at is None:
            try:
                line.receiver.grant_credit(1)
            except EntityNotFound:
                if not self._may_be_absent:
                    raise
                line.not_before = now + ABSENT_S
            else:
                line.granted_at = self._now()

    def _keep(self, line: _Line, arrived: list[Delivery]) -> None:
        for delivery in arrived:
            if self._books is not None:
                path = destination_of(delivery.payload) or ""
                self._books.add(OperationKind.RECEIVE, path, [len(delivery.payload)])
                self._books.flush()
            line.found = ReceivedMessage(line.receiver.path, delivery.payload, delivery.tag)
            line.granted_at, line.locked_at = None, self._now()
            # The lock is settled by its token: nothing need be remembered here.
            delivery.link.session.incoming.unsettled.pop(delivery.id, None)

    def _note(self, line: _Line, *, answered: bool = True) -> None:
        """A poll has ended without a message."""
        if self._books is not None:
            self._books.add(
                OperationKind.POLL, line.receiver.path, part=Part.IDLE, answered=answered
            )
            self._books.flush()

    def _renew(self, line: _Line) -> None:
        """A message that nobody takes for a while keeps its lock, and so its place."""
        found = line.found
        if found is None or found.token is None or self._now() < line.locked_at + RENEW_S:
            return
        try:
            line.management.renew_locks([UUID(bytes_le=found.token)])
            line.locked_at = self._now()
            if self._books is not None:
                self._books.settled(OperationKind.RENEW, [destination_of(found.payload) or ""])
                self._books.flush()
        except LockLost:
            with self._changed:
                if line.found is found:
                    line.found = None
