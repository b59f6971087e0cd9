"""The parts of a paired client that do not depend on threads or an event loop."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, TypeVar, Unpack
from weakref import WeakSet

import azure.servicebus.aio
from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
)

from pairbus.events import PathStatus
from pairbus.pairing.client_state import ClientState
from pairbus.pairing.close_hooks import CloseHook
from pairbus.pairing.duplicates import check_duplicate_detection
from pairbus.pairing.effects import Operation, StopBackground, WaitForChange
from pairbus.pairing.embedded_syphon import EmbeddedSyphon, Fault
from pairbus.pairing.link_factory import LinkFactory
from pairbus.pairing.metrics import PairingMetrics
from pairbus.pairing.plan import PairingPlan
from pairbus.pairing.recovery import recover
from pairbus.pairing.secondary_probe import probe_secondary
from pairbus.pairing.sender_links import SenderLinks, close_links
from pairbus.pairing.snapshots import PairingStatus
from pairbus.pairing.standby_links import open_standby_links
from pairbus.pairing.state import PairingState, PathState

if TYPE_CHECKING:
    from pairbus.syphon.query import Syphon

__all__ = ["NamespaceClient", "ReceiverOptions", "SenderOptions", "SessionListOptions"]

logger = logging.getLogger("pairbus.pairing")

R = TypeVar("R")
"""None in `pairbus`, an awaitable of None in `pairbus.aio`."""
SenderT = TypeVar("SenderT")
ReceiverT = TypeVar("ReceiverT")
SessionsT = TypeVar("SessionsT")


class SenderOptions(TypedDict, total=False):
    """The options of a sender, as in the SDK."""

    client_identifier: str | None
    socket_timeout: float | None


class ReceiverOptions(TypedDict, total=False):
    """The options of a receiver, as in the SDK."""

    client_identifier: str | None
    socket_timeout: float | None
    session_id: str | ServiceBusSessionFilter | None
    sub_queue: ServiceBusSubQueue | str | None
    receive_mode: ServiceBusReceiveMode | str
    max_wait_time: float | None
    auto_lock_renewer: AutoLockRenewer | azure.servicebus.aio.AutoLockRenewer | None
    prefetch_count: int


class SessionListOptions(TypedDict, total=False):
    """The options of a list of sessions, as in the SDK."""

    state_updated_after: datetime | None
    timeout: float | None


class NamespaceClient(Generic[R]):
    """The client of one of the two namespaces of a pairing. Each can be closed or faulted
    separately; an embedded syphon faults the other one 5 seconds later.

    In `pairbus.aio` the results of `close` and `fault` must be awaited.
    """

    def __init__(self, state: ClientState, close: Callable[[], R]) -> None:
        self._state = state
        self._close = close

    @property
    def fully_qualified_namespace(self) -> str:
        """The host of the namespace."""
        return self._state.name

    @property
    def closed(self) -> bool:
        """True after the client was closed."""
        return self._state.closed

    @property
    def cause(self) -> BaseException | None:
        """The reason why the client is faulted; None if it is not."""
        return self._state.fault

    def close(self) -> R:
        """Close the client and everything that depends on it. Can be called repeatedly."""
        return self._close()

    def fault(self, cause: BaseException) -> R:
        """Fault the client: every later call raises PairingFaulted with this cause."""
        if self._state.set_fault(cause):
            logger.error("The client of %s was faulted: %s", self._state.name, cause)
        return self._close()


class Driver(Protocol):
    """The part of a driver that does not depend on threads or an event loop."""

    interruptible: bool
    """TLS handshakes are interrupted from another thread."""

    def start(self, operation: Operation[None], name: str) -> None: ...

    def wake(self) -> None: ...

    def call_handler(self, function: Callable[[], None]) -> None: ...


class PairedClientBase(ABC, Generic[R, SenderT, ReceiverT, SessionsT]):
    """A paired client without its I/O."""

    def __init__(self, plan: PairingPlan, queues: tuple[str, ...], driver: Driver) -> None:
        self.fully_qualified_namespace: str = plan.primary.fully_qualified_namespace
        self._plan = plan
        self._driver = driver
        self._factory = LinkFactory(
            plan.primary,
            plan.secondary,
            plan.usage,
            interruptible=driver.interruptible,
            telemetry=plan.telemetry,
        )
        for queue, size in plan.message_limits.items():
            self._factory.note_message_limit(queue, size)
        self._pairing = PairingState(
            plan.options,
            primary=str(plan.primary_id),
            secondary=str(plan.secondary_id),
            queues=queues,
            on_change=driver.wake,
            start_recovery=self._start_recovery,
            start_probes=self._start_probes,
            record_change=None if plan.usage is None else plan.usage.add_change,
            call_handler=driver.call_handler,
            observe=None if plan.console is None else plan.console.observe,
            on_telemetry=None if plan.telemetry is None else plan.telemetry.on_event,
            now=plan.now,
            random=plan.random,
        )
        if plan.telemetry is not None:
            plan.telemetry.observe(
                PairingMetrics(self._pairing, plan.telemetry.primary, plan.telemetry.secondary)
            )
        self.primary: NamespaceClient[R] = NamespaceClient(
            self._pairing.primary, self._close_primary
        )
        self.secondary: NamespaceClient[R] = NamespaceClient(
            self._pairing.secondary, self._close_secondary
        )
        self._open_links: WeakSet[SenderLinks] = WeakSet()
        self._checked_paths: set[str] = set()
        self._primary_hook = CloseHook(plan.primary, self._on_primary_closing)
        self._secondary_hook = CloseHook(plan.secondary, self._on_secondary_closing)
        logger.info(
            "%s is paired with %s, with %d of %d backlog queues",
            plan.primary_id,
            plan.secondary_id,
            len(queues),
            plan.options.backlog_queue_count,
        )
        self._pairing.backlog.report_mismatches(plan.mismatches)
        self._embedded_syphon: EmbeddedSyphon | None = None
        if plan.syphon is not None:
            self._embedded_syphon = EmbeddedSyphon(
                plan.syphon,
                self._pairing,
                fault_primary=self._fault_from_thread(self.primary),
                fault_secondary=self._fault_from_thread(self.secondary),
            )
        if plan.console is not None:
            plan.console.start(self._pairing, driver.call_handler)

    def get_queue_sender(self, queue_name: str, **options: Unpack[SenderOptions]) -> SenderT:
        """Return a protected sender of a queue."""
        return self._get_sender(queue_name, self._plan.primary.get_queue_sender, options)

    def get_topic_sender(self, topic_name: str, **options: Unpack[SenderOptions]) -> SenderT:
        """Return a protected sender of a topic."""
        return self._get_sender(topic_name, self._plan.primary.get_topic_sender, options)

    def get_queue_receiver(self, queue_name: str, **options: Unpack[ReceiverOptions]) -> ReceiverT:
        """Return the SDK's receiver of a queue of the primary."""
        receiver: ReceiverT = self._open_primary().get_queue_receiver(queue_name, **options)
        return receiver

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Unpack[ReceiverOptions]
    ) -> ReceiverT:
        """Return the SDK's receiver of a subscription of the primary."""
        receiver: ReceiverT = self._open_primary().get_subscription_receiver(
            topic_name, subscription_name, **options
        )
        return receiver

    def list_queue_sessions(
        self, queue_name: str, **options: Unpack[SessionListOptions]
    ) -> SessionsT:
        """Return the ids of the sessions of a queue of the primary, as the SDK does."""
        sessions: SessionsT = self._open_primary().list_queue_sessions(queue_name, **options)
        return sessions

    def list_subscription_sessions(
        self, topic_name: str, subscription_name: str, **options: Unpack[SessionListOptions]
    ) -> SessionsT:
        """Return the ids of the sessions of a subscription of the primary, as the SDK does."""
        sessions: SessionsT = self._open_primary().list_subscription_sessions(
            topic_name, subscription_name, **options
        )
        return sessions

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        """The paths of the backlog queues that are in use."""
        return self._pairing.rotation.queues

    @property
    def syphon(self) -> "Syphon | None":
        """The embedded syphon, while it runs."""
        return None if self._embedded_syphon is None else self._embedded_syphon.syphon

    def status(self) -> PairingStatus:
        """Return the state of each path and of each backlog queue."""
        return self._pairing.status()

    def mark_path_healthy(self, path: str) -> None:
        """End the failover of a path."""
        self._pairing.check_open()
        self._pairing.mark_healthy(self._pairing.path(path))

    @abstractmethod
    def _create_sender(
        self, path: str, create: Callable[[], Any], identifier: str | None
    ) -> SenderT:
        """Return a paired sender. `create` creates its SDK sender of the primary."""

    @abstractmethod
    def _close_primary(self) -> R:
        """Close everything that depends on the client of the primary."""

    @abstractmethod
    def _close_secondary(self) -> R:
        """Close everything that depends on the client of the secondary."""

    @abstractmethod
    def _fault_from_thread(self, client: NamespaceClient[R]) -> Fault:
        """Return a function that faults a client from another thread."""

    def _on_primary_closing(self) -> R:
        """Close the client of the primary before the application closes its SDK client."""
        _log_closing(self._pairing.primary)
        return self.primary.close()

    def _on_secondary_closing(self) -> R:
        """Close the client of the secondary before the application closes its SDK client."""
        _log_closing(self._pairing.secondary)
        return self.secondary.close()

    def _open_primary(self) -> Any:
        """Return the SDK client of the primary. Raises StateError."""
        self._pairing.check_open()
        return self._plan.primary

    def _get_sender(self, path: str, create: Callable[..., Any], options: SenderOptions) -> SenderT:
        self._pairing.check_open()
        sender = self._create_sender(
            path, lambda: create(path, **options), options.get("client_identifier")
        )
        self._check_duplicate_detection(path)
        return sender

    def _create_links(self, path: str, create: Callable[[], Any], lock: Any) -> SenderLinks:
        state = self._pairing.path(path)
        links = SenderLinks(self._pairing, state, path, self._factory, create, lock)
        with self._pairing.lock:
            self._open_links.add(links)
        return links

    def _check_duplicate_detection(self, path: str) -> None:
        """Check in the background, once for each path, whether duplicate detection is enabled."""
        name = path.casefold()
        if self._plan.options.check_duplicate_detection and name not in self._checked_paths:
            self._checked_paths.add(name)
            check = check_duplicate_detection(self._plan.open_administration, path)
            self._driver.start(check, f"duplicate detection check of {path}")

    def _start_recovery(self, path: PathState) -> None:
        # Not a method: a client that the application has forgotten is not kept by its threads.
        senders = partial(_senders_of, self._pairing, self._open_links, path)
        recovery = recover(self._pairing, self._factory, path, senders)
        self._driver.start(recovery, f"recovery of {path.name}")
        if path.health.status is PathStatus.SUSPECT:
            opening = open_standby_links(self._pairing, path, senders)
            with suppress(RuntimeError):  # no thread can be started; a send opens its link itself
                self._driver.start(opening, f"standby links of {path.name}")

    def _start_probes(self) -> None:
        probes = probe_secondary(self._pairing, self._factory)
        self._driver.start(probes, "probes of the secondary")

    @property
    def _is_forked(self) -> bool:
        """True in a child process, where nothing can be closed: connections, locks and threads are
        those of the parent."""
        return self._pairing.primary.forked

    def _close_primary_operation(self) -> Operation[None]:
        if self._is_forked or not self._pairing.mark_closed(self._pairing.primary):
            return
        console = self._plan.console
        if console is not None:
            console.stop()
        try:
            yield from close_links(list(self._open_links))
            if console is not None:
                yield WaitForChange(console.has_ended, console.close_timeout_s)
            yield StopBackground()
        finally:
            self._primary_hook.remove()
            self._plan.release()

    def _close_secondary_operation(self) -> Operation[None]:
        if not self._is_forked and self._pairing.mark_closed(self._pairing.secondary):
            self._secondary_hook.remove()
            yield from self._plan.close_secondary()


def _senders_of(
    pairing: PairingState, open_links: WeakSet[SenderLinks], path: PathState
) -> list[SenderLinks]:
    with pairing.lock:
        return [links for links in open_links if links.path is path]


def _log_closing(client: ClientState) -> None:
    if client.set_closed_by_application():
        logger.warning(
            "The application closes its client of %s, which a pairing still uses", client.name
        )
