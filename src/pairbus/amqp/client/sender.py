"""The sender: single messages, batches, and several deliveries in flight."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.batch import BATCH_FORMAT, batch_envelope, make_batch
from pairbus.amqp.client.client import Client
from pairbus.amqp.client.error_translation import translate_error
from pairbus.amqp.client.link_endpoint import LinkEndpoint
from pairbus.amqp.events import OutgoingDelivery
from pairbus.amqp.link import Link, SenderLink
from pairbus.amqp.performatives import Accepted, Modified, Rejected, Released, Target
from pairbus.amqp.session import Session, exception_from
from pairbus.amqp.types import Symbol, UInt
from pairbus.errors import AmqpError, MessageTooLarge, OperationTimeout, Unavailable
from pairbus.servicebus import links


@dataclass(slots=True, eq=False)
class PendingDelivery:
    """A delivery in flight. `done` is set when its outcome is known, `error` if it failed.

    A delivery that fails with ConnectionLost, LinkLost or OperationTimeout may have arrived.
    """

    done: bool = False
    error: AmqpError | None = None
    sent_at: float = field(default_factory=time.time)
    """Seconds since 1970."""
    rejected: bool = False
    """The namespace rejected this delivery. False with an error: the delivery was not answered, or
    was released."""


class Sender(LinkEndpoint[SenderLink]):
    """Sends encoded messages to an entity path. A send succeeds when the namespace accepts it."""

    def __init__(self, client: Client, path: str, *, authorize: bool = True) -> None:
        super().__init__(client, path, authorize=authorize)
        self._in_flight: set[PendingDelivery] = set()
        self._needs_credit = False

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def max_message_size(self) -> int | None:
        """The largest delivery that the namespace accepts, or None without a limit."""
        return None if self._link is None else self._link.remote_max_message_size

    @property
    def max_batch_size(self) -> int | None:
        """The largest batch that the namespace accepts, or None without a limit. Service Bus has a
        separate limit for batches. A larger batch ends the link."""
        return None if self._link is None else _max_batch_size(self._link)

    def send(
        self, payload: bytes, *, message_format: int = 0, timeout_s: float | None = None
    ) -> None:
        """Send one delivery, and wait until it is accepted. Raises its error if it is not."""
        deadline = self.client.deadline(timeout_s)
        pending = self.enqueue(payload, message_format, deadline)
        self._wait([pending], deadline)
        if pending.error is not None:
            raise pending.error

    def send_batch(self, messages: Iterable[bytes], *, timeout_s: float | None = None) -> None:
        """Send encoded messages as one delivery: all of them are accepted, or none."""
        members = list(messages)
        if members:
            payload = make_batch(members, batch_envelope(members[0]))
            self.send(payload, message_format=BATCH_FORMAT, timeout_s=timeout_s)

    def post(
        self, payload: bytes, *, message_format: int = 0, timeout_s: float | None = None
    ) -> PendingDelivery:
        """Send one delivery without waiting for its outcome. Waits for credit if necessary."""
        pending = self.enqueue(payload, message_format, self.client.deadline(timeout_s))
        self.client.step(self.client.now())  # Write it now, not during the next call.
        return pending

    def wait(
        self, deliveries: Iterable[PendingDelivery], *, timeout_s: float | None = None
    ) -> None:
        """Wait until all deliveries are done. Those that time out fail with OperationTimeout."""
        self._wait(list(deliveries), self.client.deadline(timeout_s))

    def enqueue(self, payload: bytes, message_format: int, deadline: float) -> PendingDelivery:
        """Wait for credit and queue one delivery. The next exchange of frames writes it."""
        link = self.ensure_attached(deadline)
        is_batch = message_format == BATCH_FORMAT
        limit = _max_batch_size(link) if is_batch else link.remote_max_message_size
        if limit is not None and len(payload) > limit:
            raise MessageTooLarge(
                f"a {'batch' if is_batch else 'message'} of {len(payload)} bytes is too large for "
                f"{self.path!r}, which accepts at most {limit}"
            )
        if link.credit <= 0:
            self._needs_credit = True
            try:
                self.client.run_until(
                    lambda: link.credit > 0 or self.error is not None,
                    deadline,
                    f"credit to send to {self.path!r}",
                    may_be_silent=True,
                )
            finally:
                self._needs_credit = False
            if self.error is not None:
                raise self.error
        pending = PendingDelivery()
        link.send(payload, message_format=message_format).context = pending
        self._in_flight.add(pending)
        if link.drain:
            link.drained()
        return pending

    def _wait(self, deliveries: list[PendingDelivery], deadline: float) -> None:
        try:
            self.client.run_until(
                lambda: all(delivery.done for delivery in deliveries),
                deadline,
                f"{self.path!r} to accept a message",
            )
        except OperationTimeout as exc:
            for delivery in deliveries:
                if not delivery.done:
                    delivery.done, delivery.error = True, exc
                    self._in_flight.discard(delivery)

    def attach_link(self, session: Session) -> SenderLink:
        milliseconds = int(self.client.options.operation_timeout_s * 1000)
        return session.attach_sender(
            self.client.link_name("sender"),
            target=Target(self.path),
            properties={Symbol(links.TIMEOUT): UInt(milliseconds)},
        )

    def on_outcome(self, delivery: OutgoingDelivery, state: Any, settled: bool) -> None:
        if not settled and not isinstance(state, Accepted | Rejected | Released | Modified):
            return
        if not settled and delivery.id is not None:  # The peer waits for us to settle.
            delivery.link.session.confirm(delivery.id, delivery.id, state)
        pending = delivery.context
        if pending not in self._in_flight:
            return
        self._in_flight.discard(pending)
        pending.done = True
        if isinstance(state, Rejected):
            pending.rejected = True
            pending.error = translate_error(
                exception_from(state.error) or AmqpError("no reason was given"),
                f"{self.path!r} rejected a message",
            )
        elif not isinstance(state, Accepted):
            outcome = "no outcome" if state is None else type(state).__name__.lower()
            pending.error = Unavailable(f"{self.path!r} did not accept a message ({outcome})")

    def on_drain(self, link: SenderLink) -> None:
        if not self._needs_credit:  # Otherwise a message waits for this credit.
            link.drained()

    def on_lost(self, link: Link, error: AmqpError) -> None:
        super().on_lost(link, error)
        if link is not self._link:
            return
        for pending in self._in_flight:
            pending.done, pending.error = True, error
        self._in_flight.clear()


def _max_batch_size(link: SenderLink) -> int | None:
    properties = (link.remote.properties if link.remote is not None else None) or {}
    limit = properties.get(Symbol(links.MAX_MESSAGE_BATCH_SIZE))
    if isinstance(limit, int) and limit > 0:
        return limit
    return link.remote_max_message_size
