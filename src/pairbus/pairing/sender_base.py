"""The parts of a paired sender that do not depend on threads or an event loop."""

from typing import Any, Generic, NamedTuple, TypeVar

from pairbus.events import PathStatus
from pairbus.pairing.payloads import Payloads, check_backlog_size, fits_directly, prepare
from pairbus.pairing.sdk import is_tracing_enabled
from pairbus.pairing.sender_links import SenderLinks
from pairbus.pairing.state import PairingState, PathState

DriverT = TypeVar("DriverT")

# Module constants for the hot path: Python 3.11 is slow to look up members of an enum.
_HEALTHY, _FAILOVER = PathStatus.HEALTHY, PathStatus.FAILOVER


class SenderCall(NamedTuple):
    """One call of a paired sender: the state that it depends on, and its deadline."""

    pairing: PairingState
    path: PathState
    links: SenderLinks
    deadline: float
    messages: int = 0
    """The number of messages to send."""

    @property
    def left_s(self) -> float:
        """The time that is left for the call."""
        return max(0.0, self.deadline - self.pairing.now())

    def of(self, messages: int) -> "SenderCall":
        """Return this call with a number of messages."""
        return SenderCall(self.pairing, self.path, self.links, self.deadline, messages)

    def until(self, deadline: float) -> "SenderCall":
        """Return this call with a deadline that is not later than this one."""
        return self if deadline >= self.deadline else self._replace(deadline=deadline)


class DirectBatch(NamedTuple):
    """Encoded messages that one delivery stores in a backlog queue."""

    queue: str
    payloads: list[bytes]


class PairedSenderBase(Generic[DriverT]):
    """A paired sender without its I/O."""

    def __init__(self, links: SenderLinks, driver: DriverT, identifier: str | None) -> None:
        self._links = links
        self._sent = links.sent
        self._driver = driver
        self._pairing = links.pairing
        self._path = links.path
        self._health = links.path.health
        sender = links.primary_sender()
        self._identifier = str(identifier or sender.client_identifier)
        self.entity_name = links.entity
        self.fully_qualified_namespace: str = sender.fully_qualified_namespace

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    @property
    def client_identifier(self) -> str:
        """The identifier of the sender, as in the SDK."""
        return self._identifier

    def _is_healthy(self) -> bool:
        """Return whether the SDK sender of the primary can be called directly."""
        return self._health.status is _HEALTHY and not self._links.closed

    def _prepare(self, messages: Any, timeout: float | None) -> Any:
        """Check the arguments of `send_messages`, and return the prepared messages."""
        self._check_usable(timeout)
        prepared = prepare(messages)
        if self._pairing.options.check_backlog_size:
            check_backlog_size(
                prepared, self.entity_name, self._links.factory.backlog_message_limit
            )
        return prepared

    def _check_usable(self, timeout: float | None) -> None:
        if self._links.closed or self._pairing.primary.down:
            primary = self._pairing.primary
            if primary.fault is not None or primary.closed_by_application or not self._links.closed:
                self._pairing.check_open()
            # The error of the SDK.
            raise ValueError(
                "The handler has already been shutdown. Please use ServiceBusClient to create a "
                "new instance."
            )
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")

    def _direct_batch(self, messages: Any) -> DirectBatch | None:
        """Return prepared messages for the backlog, if one delivery over an open link can store
        them and nothing has to be decided. None: the operation decides."""
        links = self._links
        if self._health.status is not _FAILOVER or not links.stores_directly:
            return None
        queue = self._pairing.backlog.undisturbed_queue(self._path, links)
        limits = None if queue is None else links.backlog_limits(queue)
        if queue is None or limits is None or is_tracing_enabled():
            return None
        try:
            payloads = Payloads(messages).for_backlog(links.entity)
        except Exception:  # noqa: BLE001  the operation reports it
            return None
        return DirectBatch(queue, payloads) if fits_directly(payloads, limits) else None

    def _backlog_timeout_s(self, timeout: float | None) -> float:
        """Return the time that a call may spend on one backlog queue. Half of it is kept for other
        queues to try."""
        timeout_s = self._pairing.operation_timeout_s if timeout is None else timeout
        return timeout_s if len(self._pairing.rotation.queues) == 1 else timeout_s / 2

    def _stored_directly(self, batch: DirectBatch) -> None:
        self._pairing.backlog.restore(batch.queue)
        self._pairing.recorder.stored(self._path, len(batch.payloads))

    def _begin_call(self, timeout: float | None = None) -> SenderCall:
        self._check_usable(timeout)
        return self._call_since(self._pairing.now(), timeout)

    def _primary_timeout_s(self, timeout: float | None) -> float:
        """Return the time that a call may spend on the primary."""
        timeout_s = self._pairing.operation_timeout_s if timeout is None else timeout
        return timeout_s * self._pairing.primary_share

    def _call_since(self, started_at: float, timeout: float | None) -> SenderCall:
        timeout_s = self._pairing.operation_timeout_s if timeout is None else timeout
        return SenderCall(self._pairing, self._path, self._links, started_at + timeout_s)
