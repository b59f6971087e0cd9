"""Sending: one at a time, in batches, several in flight."""

from collections.abc import Iterable
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


class PendingDelivery:
    """A delivery that is on its way: `done` once it was answered, `error` if it was not accepted.

    A delivery that ends with ConnectionLost, LinkLost or OperationTimeout may have arrived.
    """

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: AmqpError | None = None


class Sender(LinkEndpoint[SenderLink]):
    """Sends encoded messages to a path. Nothing counts as sent before the namespace accepted it."""

    def __init__(self, client: Client, path: str, *, authorize: bool = True) -> None:
        super().__init__(client, path, authorize=authorize)
        self._in_flight: set[PendingDelivery] = set()
        self._needs_credit = False

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def max_message_size(self) -> int | None:
        """What the namespace takes in one delivery; None where it set no limit."""
        return None if self._link is None else self._link.remote_max_message_size

    def send(
        self, payload: bytes, *, message_format: int = 0, timeout_s: float | None = None
    ) -> None:
        """Send one delivery and wait until it is accepted. Raises why it was not."""
        deadline = self.client.deadline(timeout_s)
        posted = self.enqueue(payload, message_format, deadline)
        self._wait([posted], deadline)
        if posted.error is not None:
            raise posted.error

    def send_batch(self, messages: Iterable[bytes], *, timeout_s: float | None = None) -> None:
        """Send encoded messages as one delivery: all are accepted, or none is."""
        members = list(messages)
        if members:  # without messages there is nothing that could be delivered
            payload = make_batch(members, batch_envelope(members[0]))
            self.send(payload, message_format=BATCH_FORMAT, timeout_s=timeout_s)

    def post(
        self, payload: bytes, *, message_format: int = 0, timeout_s: float | None = None
    ) -> PendingDelivery:
        """Send one delivery without waiting for its answer; waits for credit if there is none."""
        posted = self.enqueue(payload, message_format, self.client.deadline(timeout_s))
        self.client.step(self.client.now())  # on its way now, not when somebody waits
        return posted

    def wait(self, posted: Iterable[PendingDelivery], *, timeout_s: float | None = None) -> None:
        """Wait until each is done; look at its `error` then. What has no answer in time is done,
        with OperationTimeout as its error."""
        self._wait(list(posted), self.client.deadline(timeout_s))

    def enqueue(self, payload: bytes, message_format: int, deadline: float) -> PendingDelivery:
        """Have a delivery written with whatever is exchanged next, as soon as there is credit."""
        link = self.ensure_attached(deadline)
        limit = link.remote_max_message_size
        if limit is not None and len(payload) > limit:
            raise MessageTooLarge(
                f"{len(payload)} bytes for {self.path!r}, which takes {limit} at most"
            )
        if link.credit <= 0:
            self._needs_credit = True
            try:
                self.client.run_until(
                    lambda: link.credit > 0 or self.error is not None,
                    deadline,
                    f"credit to send to {self.path!r}",
                )
            finally:
                self._needs_credit = False
            if self.error is not None:
                raise self.error
        posted = PendingDelivery()
        link.send(payload, message_format=message_format).context = posted
        self._in_flight.add(posted)
        if link.drain:
            link.drained()
        return posted

    def _wait(self, posted: list[PendingDelivery], deadline: float) -> None:
        try:
            self.client.run_until(
                lambda: all(one.done for one in posted), deadline, f"{self.path!r} to accept"
            )
        except OperationTimeout as exc:
            self._give_up(posted, exc)

    def _give_up(self, posted: list[PendingDelivery], error: AmqpError) -> None:
        for one in posted:
            if not one.done:
                one.done, one.error = True, error
                self._in_flight.discard(one)

    def attach_link(self, session: Session) -> SenderLink:
        milliseconds = int(self.client.options.operation_timeout_s * 1000)
        return session.attach_sender(
            self.client.link_name("sender"),
            target=Target(self.path),
            properties={Symbol(links.TIMEOUT): UInt(milliseconds)},
        )

    def on_outcome(self, sent: OutgoingDelivery, state: Any, settled: bool) -> None:
        if not settled and not isinstance(state, Accepted | Rejected | Released | Modified):
            return
        if not settled and sent.id is not None:  # the peer waits for us to settle
            sent.link.session.confirm(sent.id, sent.id, state)
        posted = sent.context
        if posted not in self._in_flight:
            return
        self._in_flight.discard(posted)
        posted.done = True
        if isinstance(state, Rejected):
            posted.error = translate_error(
                exception_from(state.error) or AmqpError("no reason was given"),
                f"{self.path!r} rejected a message",
            )
        elif not isinstance(state, Accepted):
            how = "without an outcome" if state is None else type(state).__name__.lower()
            posted.error = Unavailable(f"{self.path!r} gave a message back ({how})")

    def on_drain(self, link: SenderLink) -> None:
        if not self._needs_credit:  # else there is a message for it
            link.drained()

    def on_lost(self, link: Link, error: AmqpError) -> None:
        super().on_lost(link, error)
        if link is not self._link:
            return
        for posted in self._in_flight:
            posted.done, posted.error = True, error
        self._in_flight.clear()
