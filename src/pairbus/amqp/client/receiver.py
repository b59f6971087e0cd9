"""The receiver: credit, waiting for messages, drain and settlement."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pairbus.amqp.client.client import Client
from pairbus.amqp.client.error_translation import translate_error
from pairbus.amqp.client.link_endpoint import LinkEndpoint
from pairbus.amqp.events import Delivery
from pairbus.amqp.link import ReceiverLink
from pairbus.amqp.performatives import (
    SETTLE_FIRST,
    SETTLE_SECOND,
    SETTLE_SETTLED,
    SETTLE_UNSETTLED,
    Accepted,
    Rejected,
    Source,
)
from pairbus.amqp.serial import contiguous_ranges
from pairbus.amqp.session import Session, exception_from
from pairbus.amqp.types import Described, Symbol, UInt
from pairbus.errors import AmqpError, LockLost, OperationTimeout, StateError
from pairbus.servicebus import links

SESSION_FILTER = Symbol(links.SESSION_FILTER)
FIRST_WINDOW, MAX_WINDOW = 500, 4000
"""The credit that `receive_available` grants first, and at most at a time."""
DRAIN_AFTER_S = 0.02
"""Credit is drained when nothing has arrived for this long. The Azure SDKs never grant credit and
drain it at once, so it is not known whether the service then delivers anything."""


class AnySession:
    """Marks the next available session: any session with messages that no receiver has locked."""


class Receiver(LinkEndpoint[ReceiverLink]):
    """Receives messages from an entity path.

    Messages are locked until they are settled (peek-lock), or with `settled=True` settled when they
    are sent (receive-and-delete). `session_id` is the id of a session to accept, or `AnySession`
    for the next available one. With `confirm=False`, `settle` does not wait for the namespace to
    confirm.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        settled: bool = False,
        session_id: str | type[AnySession] | None = None,
        confirm: bool = True,
        authorize: bool = True,
    ) -> None:
        super().__init__(client, path, authorize=authorize)
        self._settled = settled
        self._session_id = session_id
        self._confirm = confirm and not settled
        self.empty_receives = 0
        """The number of grants of credit by `receive_available` that ended without a message. Each
        is billed as one operation."""
        self.failed_receives = 0
        """The number of such grants that ended with an error, so that it is not known whether they
        are billed."""
        self._arrived: deque[Delivery] = deque()
        self._settling: set[int] = set()
        self._settle_errors: list[AmqpError] = []

    @property
    def session_id(self) -> str | None:
        """The id of the accepted session, or None."""
        remote = None if self._link is None else self._link.remote
        if remote is None or not isinstance(remote.source, Source):
            return None
        filters = remote.source.filter
        value = filters.get(SESSION_FILTER) if filters else None
        value = value.value if isinstance(value, Described) else value
        return value if isinstance(value, str) else None

    @property
    def credit(self) -> int:
        """The number of messages that the namespace may still send."""
        return 0 if self._link is None else self._link.credit

    def receive(self, count: int = 1, *, timeout_s: float | None = None) -> list[Delivery]:
        """Wait for a message, and return up to `count` messages; none at the timeout.

        Fewer than `count` messages do not mean that the queue is empty. Unused credit remains: a
        message that arrives later is returned by the next call. `drain` takes the credit back.
        """
        deadline = self.client.deadline(timeout_s)
        link = self.ensure_attached(deadline)
        missing = count - len(self._arrived)
        if missing > link.credit:
            link.flow(missing)
        try:
            self._wait_for_message(deadline)
            while len(self._arrived) < count and self.error is None:
                now = self.client.now()
                if now >= deadline or not self.client.step(now):  # Read what has already arrived.
                    break
        except OperationTimeout:
            pass
        if self.error is not None and not self._arrived:
            raise self.error
        return [self._arrived.popleft() for _ in range(min(count, len(self._arrived)))]

    def _wait_for_message(self, deadline: float) -> None:
        """Wait for a message or the end of the link. Raises OperationTimeout."""
        while True:
            renewal = self.client.token_renewal(self.path)
            try:
                self.client.run_until(
                    lambda: bool(self._arrived) or self.error is not None,
                    min(deadline, renewal),
                    "a message",
                    may_be_silent=True,
                )
                return
            except OperationTimeout:
                if renewal >= deadline:
                    raise
                self.client.renew_token(self.path)

    def grant_credit(self, count: int, *, timeout_s: float | None = None) -> None:
        """Set the credit without waiting. Get the messages with `take_received`."""
        self.ensure_attached(self.client.deadline(timeout_s)).flow(count)

    def take_received(self) -> list[Delivery]:
        """Return the messages that have arrived. Raises the error of a link that ended."""
        if self.error is not None and not self._arrived:
            raise self.error
        arrived = list(self._arrived)
        self._arrived.clear()
        return arrived

    def receive_available(
        self,
        count: int,
        *,
        timeout_s: float | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[list[Delivery]]:
        """Receive up to `count` available messages, and yield them as they arrive.

        Credit is granted a part at a time, when the last part is used up, so that a slow caller has
        few messages waiting under their locks. When no more messages arrive, the rest of the credit
        is drained: the namespace answers when there are no more. No credit remains afterwards.
        `timeout_s` is the timeout of each wait. No more credit is granted when `stop` returns True.
        """
        window = FIRST_WINDOW
        while count > 0 and not stop():
            granted = min(window, count)
            received = 0
            link = self.ensure_attached(self.client.deadline(timeout_s))
            try:
                for deliveries in self._receive_window(link, granted, timeout_s):
                    received += len(deliveries)
                    yield deliveries
            except AmqpError:
                if received == 0:
                    self.failed_receives += 1
                raise
            if received == 0:
                self.empty_receives += 1
            if received < granted:  # The rest of the credit was given back.
                return
            count -= granted
            window = min(2 * window, MAX_WINDOW)

    def _receive_window(
        self, link: ReceiverLink, credit: int, timeout_s: float | None
    ) -> Iterator[list[Delivery]]:
        link.flow(credit)
        while not link.drained and self.error is None:
            if not link.drain and not self.client.step(self.client.now() + DRAIN_AFTER_S):
                link.flow(link.credit, drain=True)
            if link.drain:
                self.client.run_until(
                    lambda: bool(self._arrived) or link.drained or self.error is not None,
                    self.client.deadline(timeout_s),
                    f"messages of {self.path!r}",
                )
            if self._arrived:
                yield self.take_received()
        if self._arrived or self.error is not None:
            yield self.take_received()

    def drain(self, *, timeout_s: float | None = None) -> list[Delivery]:
        """Take back all credit, and return the messages that arrived before it was gone."""
        link = self._link
        if link is not None and link.alive and not link.drained:
            if link.credit > 0:
                link.flow(link.credit, drain=True)
            self.client.run_until(
                lambda: link.drained or self.error is not None,
                self.client.deadline(timeout_s),
                f"{self.path!r} to answer a drain",
            )
        arrived = list(self._arrived)
        self._arrived.clear()
        return arrived

    def settle(
        self,
        deliveries: Iterable[Delivery],
        state: Any | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Settle deliveries of this link, by default as Accepted, and wait for confirmation.

        Raises LockLost if the link ended, or the first error of the namespace.
        """
        state = Accepted() if state is None else state
        unsettled = [delivery for delivery in deliveries if not delivery.settled]
        if not unsettled:
            return
        link = self._link
        if link is None or not link.alive or any(d.link is not link for d in unsettled):
            raise LockLost(f"the link to {self.path!r} that held the locks ended") from self.error
        for delivery in unsettled:
            if delivery.id not in link.session.incoming.unsettled:  # There would be no answer.
                raise StateError(f"{delivery} is already settled")
        self._settle_errors.clear()
        self._settling = {delivery.id for delivery in unsettled}
        for first, last in contiguous_ranges(sorted(self._settling)):
            link.session.settle(first, last, state, settled=not self._confirm)
        if not self._confirm:
            self._settling.clear()
            self.client.step(self.client.now())
            return
        self.client.run_until(
            lambda: not self._settling or self.error is not None,
            self.client.deadline(timeout_s),
            f"{self.path!r} to confirm a settlement",
        )
        if self._settling and self.error is not None:
            raise self.error
        if self._settle_errors:
            raise self._settle_errors[0]

    @property
    def attach_may_wait(self) -> bool:
        """True for the next session: the namespace answers when there is one."""
        return self._session_id is AnySession

    def attach_link(self, session: Session) -> ReceiverLink:
        filters: dict[Any, Any] | None = None
        if self._session_id is not None:
            # The Azure SDKs do not describe the value, although AMQP requires it.
            filters = {SESSION_FILTER: None if self._session_id is AnySession else self._session_id}
        if not self._settled:  # The locks of these messages are lost.
            self._arrived.clear()
        milliseconds = int(self.client.options.operation_timeout_s * 1000)
        return session.attach_receiver(
            self.client.link_name("receiver"),
            source=Source(self.path, filter=filters),
            snd_settle_mode=SETTLE_SETTLED if self._settled else SETTLE_UNSETTLED,
            rcv_settle_mode=SETTLE_SECOND if self._confirm else SETTLE_FIRST,
            properties={Symbol(links.TIMEOUT): UInt(milliseconds)},
        )

    def on_delivery(self, delivery: Delivery) -> None:
        self._arrived.append(delivery)

    def on_settled(self, delivery: Delivery, state: Any, settled: bool) -> None:
        if not settled or delivery.id not in self._settling:
            return
        self._settling.discard(delivery.id)
        # A confirmation repeats the state that we sent. Rejected with an error means failure.
        if isinstance(state, Rejected) and state.error is not None:
            self._settle_errors.append(
                translate_error(
                    exception_from(state.error), f"{self.path!r} did not settle a message"
                )
            )
