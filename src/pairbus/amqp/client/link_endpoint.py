"""What senders, receivers and requests have in common: a link, attached when it is needed."""

import contextlib
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from pairbus.amqp.client.client import CLOSE_TIMEOUT_S, Client
from pairbus.amqp.events import Delivery, OutgoingDelivery
from pairbus.amqp.link import Link, SenderLink
from pairbus.amqp.session import Session
from pairbus.errors import AmqpError, NotAuthorized, StateError

AnyLink = TypeVar("AnyLink", bound=Link)


class LinkEndpoint(Generic[AnyLink]):
    """One link, by the path of its entity. Attached by the first call that needs it, and again
    after it was lost."""

    def __init__(self, client: Client, path: str, *, authorize: bool = True) -> None:
        self.client = client
        self.path = path
        self.error: AmqpError | None = None
        """Why the link is gone."""
        self._authorize = authorize
        self._link: AnyLink | None = None
        self._closed = False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open(self, timeout_s: float | None = None) -> None:
        """Attach the link now. Raises what the namespace says against it."""
        self.ensure_attached(self.client.deadline(timeout_s))

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Detach, if there is something to detach. Can be called again."""
        self._closed = True
        link = self._link
        if link is None or not link.alive:
            return
        link.detach()
        with contextlib.suppress(AmqpError):  # closing promises no more than to have tried
            self.client.run_until(
                lambda: self.error is not None,
                self.client.deadline(timeout_s),
                f"the link to {self.path!r} to detach",
            )

    def ensure_attached(self, deadline: float) -> AnyLink:
        """The link, attached and authorized."""
        if self._closed:
            raise StateError(f"{type(self).__name__.lower()} of {self.path!r} is closed")
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
                lambda: link.alive or self.error is not None, deadline, f"a link to {self.path!r}"
            )
        except BaseException:
            link.detach()
            raise
        if self.error is not None:
            raise self.error
        return link

    def attach_link(self, session: Session) -> AnyLink:
        """Ask for the link."""
        raise NotImplementedError

    def on_delivery(self, delivery: Delivery) -> None:
        """A message has come."""

    def on_outcome(self, sent: OutgoingDelivery, state: Any, settled: bool) -> None:
        """The peer says how a delivery of ours fared."""

    def on_settled(self, delivery: Delivery, state: Any, settled: bool) -> None:
        """The peer answers our settlement."""

    def on_drain(self, link: SenderLink) -> None:
        """The peer wants its credit used or back; there is nothing to send."""
        link.drained()

    def on_lost(self, link: Link, error: AmqpError) -> None:
        """A link of ours is gone: the present one, or one that was given up before."""
        if link is self._link and self.error is None:
            self.error = error
            if isinstance(error, NotAuthorized):
                self.client.forget_token(self.path)
