"""What the sync and the async shell have in common: all that does not wait."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from pairbus.errors import StateError
from pairbus.events import PathStatus
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.health import PeekResult
from pairbus.pairing.hosting import EmbeddedSyphon
from pairbus.pairing.operations import ManagementUsage, SenderCall
from pairbus.pairing.plan import PairingPlan
from pairbus.pairing.sdk import PairedBatch, size_of
from pairbus.pairing.sides import Side
from pairbus.pairing.state import PairingState, PairingStatus, PathState
from pairbus.servicebus.limits import MAX_MESSAGE_SIZE_STANDARD
from pairbus.usage.operations import OperationKind, Purpose

logger = logging.getLogger("pairbus.pairing")

PING_S = 10.0
"""How long a ping waits for its answer at most."""
CLOSE_S = 10.0
"""How long something is waited for that is closed."""


class NamespaceClient:
    """One of the two clients of a pairing. Each can be closed or faulted by itself; a syphon that
    the application hosts faults the other if it is not down within 5 seconds."""

    def __init__(self, side: Side, shut: Callable[[], Any]) -> None:
        self._side = side
        self._shut = shut

    @property
    def fully_qualified_namespace(self) -> str:
        return self._side.name

    @property
    def closed(self) -> bool:
        return self._side.closed

    @property
    def cause(self) -> BaseException | None:
        """Why it is faulted, if it is."""
        return self._side.fault

    def close(self) -> Any:
        """Close it, and what depends on it. To be awaited in `pairbus.aio`. Can be called again."""
        return self._shut()

    def fault(self, cause: BaseException) -> Any:
        """Give it up: every later call raises PairingFaulted with this cause. To be awaited in
        `pairbus.aio`."""
        if self._side.give_up(cause):
            logger.error("%s is given up: %s", self._side.name, cause)
        return self._shut()


class PairedClientBase:
    """A paired client, but for its I/O."""

    def _shut_primary(self) -> Any:
        raise NotImplementedError

    def _shut_secondary(self) -> Any:
        raise NotImplementedError

    def __init__(
        self,
        plan: PairingPlan,
        options: SendAvailabilityOptions,
        queues: tuple[str, ...],
        *,
        now: Callable[[], float],
        random: Random | None,
    ) -> None:
        self.fully_qualified_namespace: str = plan.primary.fully_qualified_namespace
        self._plan = plan
        self._primary = plan.primary
        self._looked_at: set[str] = set()
        self.pairing = PairingState(
            options,
            primary=str(plan.primary_id),
            secondary=str(plan.secondary_id),
            queues=queues,
            now=now,
            random=random,
        )
        self.ping_s = min(PING_S, self.pairing.operation_timeout_s)
        self.primary = NamespaceClient(self.pairing.primary, self._shut_primary)
        self.secondary = NamespaceClient(self.pairing.secondary, self._shut_secondary)
        self._host: EmbeddedSyphon | None = None
        self.books = plan.books
        if self.books is not None:
            self.pairing.note_change = self.books.changed
        logger.info(
            "%s is paired with %s: %d of %d backlog queues",
            plan.primary_id,
            plan.secondary_id,
            len(queues),
            options.backlog_queue_count,
        )

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> Any:
        """A receiver of the primary, the SDK's own."""
        self.pairing.check_open()
        return self._primary.get_queue_receiver(queue_name, **kwargs)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **kwargs: Any
    ) -> Any:
        """A receiver of the primary, the SDK's own."""
        self.pairing.check_open()
        return self._primary.get_subscription_receiver(topic_name, subscription_name, **kwargs)

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        """The backlog queues that there really are."""
        return self.pairing.rotation.queues

    @property
    def syphon(self) -> Any:
        """The `pairbus.syphon.Syphon` that runs here, once it has started; None: there is none."""
        return None if self._host is None else self._host.syphon

    def status(self) -> PairingStatus:
        """The state of each path and of each backlog queue."""
        return self.pairing.status()

    def mark_path_healthy(self, path: str) -> None:
        """End the failover of a path by hand."""
        self.pairing.check_open()
        self.pairing.mark_healthy(self.pairing.path(path))

    def watched(self, sender: Any) -> Any:
        """A sender of the SDK, whose sends are counted where there is a ledger."""
        return sender if self.books is None else self.books.watch(sender)

    def count(
        self,
        sender: Any,
        path: str,
        purpose: Purpose,
        *,
        answered: bool,
        charge: ManagementUsage | None = None,
    ) -> None:
        """A call of a sender has ended."""
        if self.books is not None:
            if charge is not None:
                self.books.add(path, charge.kind, purpose, charge.sizes(), answered=answered)
            self.books.sent(sender, path, purpose, answered=answered)

    def peeked(self, path: str, messages: list[Any]) -> PeekResult:
        """A backlog queue was looked at, for a path that drains."""
        if self.books is not None:
            sizes = [size_of(message) for message in messages]
            self.books.add(path, OperationKind.PEEK, Purpose.DRAIN, sizes)
        if not messages:
            return PeekResult(0)
        first = messages[0]
        age_s = (datetime.now(UTC) - first.enqueued_time_utc).total_seconds()
        return PeekResult(len(messages), first.sequence_number, age_s)

    def _wants_a_look(self, path: str) -> bool:
        """Whether nobody has looked yet if this entity removes duplicates."""
        name = path.casefold()
        wanted = self.pairing.options.check_duplicate_detection and name not in self._looked_at
        self._looked_at.add(name)
        return wanted


class PairedSenderBase:
    """A paired sender, but for its I/O."""

    def __init__(
        self, pairing: PairingState, path: str, connect: Callable[[], Any], identifier: str | None
    ) -> None:
        self._pairing = pairing
        self._path: PathState = pairing.path(path)
        self._connect = connect
        self._primary: Any = connect()
        self._identifier = identifier or self._primary.client_identifier
        self._backlog: dict[str, Any] = {}
        """Senders of the backlog queues that were used."""
        self._closed = False
        self.entity_name = path
        self.fully_qualified_namespace: str = self._primary.fully_qualified_namespace

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    @property
    def client_identifier(self) -> str:
        return str(self._identifier)

    def _goes_straight(self, message: Any) -> bool:
        """Whether there is nothing to decide before the primary is asked. It is so for nearly every
        message, and what is decided for the others should cost these nothing."""
        return (
            type(message) is ServiceBusMessage
            and self._path.health.state is PathStatus.HEALTHY
            and not self._closed
            and not self._pairing.primary.down
            and not self._pairing.options.check_backlog_size
            and not message.application_properties
            and message.message_id is not None
        )

    def _call(self, timeout: float | None = None, began: float | None = None) -> SenderCall:
        if self._pairing.primary.fault is not None:
            self._pairing.check_open()  # it has closed the senders, and says why
        if self._closed:
            # The words of the SDK.
            raise ValueError(
                "The handler has already been shutdown. Please use ServiceBusClient to create a "
                "new instance."
            )
        return SenderCall.of(self._pairing, self._path, self, timeout, self.entity_name, began)

    def _check_not_closed(self) -> None:
        """Raises for a call that has waited for its turn until the sender was closed."""
        if self._closed:
            self._pairing.check_open()
            raise StateError("the sender was closed before this call had its turn")


def paired_batch(made: ServiceBusMessageBatch | None, asked: int | None) -> PairedBatch:
    """A batch by the limits of one that was made; None: nobody answers, so by a limit that is safe
    anywhere."""
    if made is None:
        return PairedBatch(max_size_in_bytes=MAX_MESSAGE_SIZE_STANDARD if asked is None else asked)
    return PairedBatch.like(made)
