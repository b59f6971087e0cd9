"""The base of senders and receivers: a link that is attached when it is needed."""

import contextlib
from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

from pairbus.amqp.client.client import CLOSE_TIMEOUT_S, Client
from pairbus.amqp.events import Delivery, OutgoingDelivery
from pairbus.amqp.link import Link, SenderLink
from pairbus.amqp.session import Session
from pairbus.errors import AmqpError, NotAuthorized, StateError

AnyLink = TypeVar("AnyLink", bound=Link)


class LinkEndpoint(ABC, Generic[AnyLink]):
    """A link to an entity path, attached by the first call that needs it and after its loss."""

    def __init__(self, client: Client, path: str, *, authorize: bool = True) -> None:
        self.client = client
        self.path = path
        self.error: AmqpError | None = None
        """The error that ended the link, or None."""
        self._authorize = authorize
        self._link: AnyLink | None = None
        self._closed = False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def open(self, timeout_s: float | None = None) -> None:
        """Attach the link now. Raises the error of the namespace if it refuses the link."""
        self.ensure_attached(self.client.deadline(timeout_s))

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Detach the link if it is attached. Idempotent."""
        self._closed = True
        self.detach(timeout_s)

    def detach(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Detach the link if it is attached. The next call that needs a link attaches a new one."""
        link = self._link
        if link is None or not link.alive:
            return
        link.detach()
        with contextlib.suppress(AmqpError):  # The link is closed even if the peer does not answer.
            self.client.run_until(
                lambda: self.error is not None,
                self.client.deadline(timeout_s),
                f"the detach of the link to {self.path!r}",
            )

    def ensure_attached(self, deadline: float) -> AnyLink:
        """Return the link, after authorizing and attaching it if necessary."""
        if self._closed:
            raise StateError(f"the {type(self).__name__.lower()} of {self.path!r} is closed")
        client = self.client
        client.connect(min(deadline - client.now(), client.options.connect_timeout_s))
        if self._authorize:
            client.authorize(self.path, deadline)
        link = self._link
        return link if link is not None and link.alive else self._attach(deadline)

    def _attach(self, deadline: float) -> AnyLink:
        session = self.client.session(deadline)
        self.error = None
        link = self._link = self.attach_link(session)
        link.context = self
        try:
            self.client.run_until(
                lambda: link.alive or self.error is not None,
                deadline,
                f"the attach of a link to {self.path!r}",
                may_be_silent=self.attach_may_wait,
            )
        except BaseException:
            link.detach()
            raise
        if self.error is not None:
            raise self.error
        return link

    @property
    def attach_may_wait(self) -> bool:
        """True if the namespace may leave an attach without an answer."""
        return False

    @abstractmethod
    def attach_link(self, session: Session) -> AnyLink:
        """Send the attach of the link."""

    def on_delivery(self, delivery: Delivery) -> None:
        """Called when a message arrived."""

    def on_outcome(self, delivery: OutgoingDelivery, state: Any, settled: bool) -> None:
        """Called when the peer reported the state of a delivery that we sent."""

    def on_settled(self, delivery: Delivery, state: Any, settled: bool) -> None:
        """Called when the peer answered our settlement of a delivery."""

    def on_drain(self, link: SenderLink) -> None:
        """Called when the peer drains the link. There is nothing to send, so give credit back."""
        link.drained()

    def on_lost(self, link: Link, error: AmqpError) -> None:
        """Called when a link of this endpoint ended: the current one, or one that it replaced."""
        if link is self._link and self.error is None:
            self.error = error
            if isinstance(error, NotAuthorized):
                self.client.forget_token(self.path)
