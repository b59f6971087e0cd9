"""A Service Bus namespace in this process, for tests and experiments.

with LocalNamespace("orders") as namespace:
    namespace.create_queue("incoming")
    client = ServiceBusClient.from_connection_string(namespace.connection_string)
"""

import asyncio
import contextlib
import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from pairbus.emulator.admin.handler import administration_handler
from pairbus.emulator.admin.identity import IDENTITY_PATH
from pairbus.emulator.auth import SharedAccessRule
from pairbus.emulator.clock import machine_ms
from pairbus.emulator.config import NamespaceConfig
from pairbus.emulator.connections.certificates import ensure_certificates
from pairbus.emulator.connections.server import Listener
from pairbus.emulator.connections.transports import OpenTransports
from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.emulator.faults import Fault
from pairbus.emulator.filters.rules import Rule
from pairbus.emulator.host_names import HostNames, is_loopback, public_host
from pairbus.emulator.meter import MeterReading
from pairbus.emulator.port import ReservedPort
from pairbus.emulator.provisioning import create_missing
from pairbus.emulator.root_key import ROOT_RULE, check_rules, load_key, root_rule
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.emulator.storage.lock import StoreLock
from pairbus.emulator.storage.store import Store
from pairbus.emulator.tiers import UNLIMITED, NamespaceTier, tier_of
from pairbus.emulator.token_issuer import KEY_FILE, EmulatorCredential, Role, TokenIssuer
from pairbus.errors import StateError
from pairbus.servicebus.addresses import format_address
from pairbus.servicebus.entity_paths import check_namespace_name

logger = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
"""Time for the namespace's thread to start, to stop, or to execute a call."""
_ADVANCE_TIMEOUT_S = 300.0

T = TypeVar("T")


class LocalNamespace:
    """A namespace on a port of this machine, served by a thread of this process.

    Data is kept in `folder`: every accepted message is on disk. Without a folder it is kept in a
    temporary one, which `close` removes. `stop` and `start` keep data, port and keys; so does a new
    namespace on the same folder, unless it is created with another port. A folder is
    served by one namespace at a time. While it is in use, the constructor and `start` raise
    StateError, and change nothing in the folder.

    `rules` are shared access rules of the namespace, in addition to the root rule. If `host` is
    reachable from the network, only TLS is served. The certificate is valid for `host` and for
    `host_names`; if `host` is 0.0.0.0, also for the name of this machine. Tokens must be for one of
    these, for a loopback address, or for a host whose first label is `name`. `allow_plaintext` also
    serves connections without TLS, over which anyone on the network can read tokens and messages.

    Bearer tokens are verified by `token_issuer`; by default each namespace has one, with a key in
    its folder. Without `local_authentication`, only bearer tokens are accepted. With
    `trust_bearer_tokens`, every bearer token is accepted, unverified.

    `tier` is `standard`, `premium` or `unlimited`, or a `NamespaceTier` with other limits.

    If the disk fails (it is full or broken), the namespace stops by itself: it confirms nothing
    that is not on disk, closes all connections, and every call raises StateError until `start` is
    called. `failure` has the reason. `on_failure` is called in the namespace's thread.
    """

    def __init__(
        self,
        name: str = "local",
        *,
        folder: Path | str | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        now_ms: Callable[[], int] | None = None,
        trust_bearer_tokens: bool = False,
        rules: Iterable[SharedAccessRule] = (),
        host_names: Iterable[str] = (),
        allow_plaintext: bool = False,
        token_issuer: TokenIssuer | None = None,
        local_authentication: bool = True,
        on_failure: Callable[[], None] | None = None,
        tier: NamespaceTier | str = UNLIMITED,
    ) -> None:
        check_namespace_name(name)
        self.name = name
        self.tier = tier_of(tier)
        self._rules = check_rules(rules)
        self._tls_only = not (is_loopback(host) or allow_plaintext)
        self._folder_is_temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="pairbus-") if folder is None else folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._host = host
        self._port = ReservedPort(host, port, folder=self.folder)
        self._now_ms = machine_ms if now_ms is None else now_ms
        self._trust_bearer_tokens = trust_bearer_tokens
        host_names = tuple(host_names)
        self._public_host = public_host(host, host_names)
        self._host_names = HostNames(name, host, host_names)
        self._database = self.folder / "namespace.db"
        with StoreLock(self._database):  # two first starts at once would create two keys
            self._certificates = ensure_certificates(
                self.folder, self._host_names.certificate_names, now=datetime.now(UTC)
            )
            self._key = load_key(self.folder / "keys.json")
            if token_issuer is None:
                token_issuer = TokenIssuer(self.folder / KEY_FILE, now_ms=self._now_ms)
        self.token_issuer = token_issuer
        """Issues the tokens that this namespace accepts."""
        self._local_authentication = local_authentication
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runtime: NamespaceRuntime | None = None
        self._store: Store | None = None
        """The last store. It knows if it has failed."""
        self._stop_serving: Callable[[], None] = lambda: None
        self._abandon: Callable[[], None] = lambda: None
        self._calls: set[Future[Any]] = set()
        self._on_failure = on_failure

    def __enter__(self) -> "LocalNamespace":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port, or 0 until the first start of a new folder if any free port was asked for."""
        return self._port.number

    @property
    def connection_string(self) -> str:
        """Connection string of the root rule, for the clients of the SDK.

        Clients connect without TLS, unless the namespace serves TLS only.
        """
        return self.connection_string_of(ROOT_RULE, self._key)

    def connection_string_of(self, rule: str, key: str) -> str:
        """Return a connection string with the key of another shared access rule."""
        plaintext = "" if self._tls_only else "UseDevelopmentEmulator=true;"
        address = format_address(self._public_host, self.port)
        return (
            f"Endpoint=sb://{address}/;SharedAccessKeyName={rule};SharedAccessKey={key};{plaintext}"
        )

    def credential(self, *roles: Role | str) -> EmulatorCredential:
        """Return a credential for the SDK, with the role Data Owner if none is given. For the async
        SDK, use `token_issuer.async_credential`."""
        return self.token_issuer.credential(*roles)

    @property
    def identity_endpoint(self) -> str:
        """The URL at which azure-identity gets tokens (IDENTITY_ENDPOINT)."""
        scheme = "https" if self._tls_only else "http"
        return f"{scheme}://{format_address(self._public_host, self.port)}/{IDENTITY_PATH}"

    @property
    def ca_file(self) -> str:
        """The file that verifies the TLS certificate (`connection_verify` of the SDK)."""
        return str(self._certificates.ca_file)

    @property
    def failure(self) -> StateError | None:
        """The error that stopped the namespace since its last start, or None."""
        return None if self._store is None else self._store.failure

    def start(self) -> None:
        """Start serving, and return when connections are accepted. Can be called again.

        Raises StateError if the data cannot be read or written, or the folder or port is in use.
        """
        if self.failure is not None:
            self.stop()
        if self._thread is not None:
            return
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name=f"namespace {self.name}", daemon=True
        )
        self._thread.start()
        try:
            started.result(timeout=_TIMEOUT_S)
        except BaseException:
            self._thread.join(_TIMEOUT_S)
            self._thread = None
            raise

    def stop(self) -> None:
        """Close all connections and stop. Data is kept. Can be called again."""
        self._end(self._stop_serving)

    def kill(self) -> None:
        """Stop as if the process were killed: only what is on disk is kept. Can be called again."""
        self._end(self._abandon)

    def _end(self, end: Callable[[], None]) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: it stopped by itself
            self._loop.call_soon_threadsafe(end)
        thread.join(_TIMEOUT_S)
        self._loop = self._runtime = None

    def close(self) -> None:
        """Stop, release the port, and remove a temporary folder. Can be called again."""
        self.stop()
        self._port.close()
        if self._folder_is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def reset(self) -> None:
        """Delete all entities, messages and meter readings."""
        running = self._thread is not None
        self.stop()
        with Store(self._database) as store:
            store.clear()
        if running:
            self.start()

    def ensure(self, config: NamespaceConfig, queues: Iterable[str] = ()) -> None:
        """Create the entities of a configuration, and these queues. Existing ones are kept."""
        extra = (QueueDescription(name=name) for name in queues)
        wanted = replace(config, queues=(*config.queues, *extra))
        self.call(lambda runtime: create_missing(runtime.entities, wanted, runtime.now_ms()))

    def create_queue(self, name: str, **settings: Any) -> None:
        self._create(QueueDescription(name=name, **settings))

    def create_topic(self, name: str, **settings: Any) -> None:
        self._create(TopicDescription(name=name, **settings))

    def create_subscription(
        self, topic: str, name: str, *, rule: Rule | None = None, **settings: Any
    ) -> None:
        self._create(SubscriptionDescription(topic=topic, name=name, **settings), rule)

    def _create(self, description: EntityDescription, rule: Rule | None = None) -> None:
        def create(runtime: NamespaceRuntime) -> None:
            runtime.entities.create(description, runtime.now_ms(), rule)

        self.call(create)

    def meter(self) -> dict[tuple[str, str], MeterReading]:
        """Return the billable operations so far, by entity and kind of operation."""
        return self.call(lambda runtime: runtime.meter.readings())

    def now(self) -> datetime:
        """Return the time of the namespace, which `advance` moves forward."""
        return self.call(lambda runtime: runtime.clock.now())

    def advance(self, span: timedelta) -> None:
        """Move the clock of the namespace forward. When this returns, everything has happened that
        became due. Tokens stay valid. Raises ConfigurationError for a negative span."""
        self.call(lambda runtime: runtime.advance(span), timeout_s=_ADVANCE_TIMEOUT_S)

    def add_fault(self, kind: str, entity: str | None = None, **limits: Any) -> Fault:
        """Inject a fault (see `pairbus.emulator.faults`). Its `fired` counts how often it did."""
        return self.call(lambda runtime: runtime.faults.add(Fault(kind, entity, **limits)))

    def clear_faults(self) -> None:
        self.call(lambda runtime: runtime.faults.clear())

    def call(self, work: Callable[[NamespaceRuntime], T], *, timeout_s: float = _TIMEOUT_S) -> T:
        """Call `work` in the namespace's thread, and return its result once changes are on disk.

        Raises StateError if the namespace is not running, or stops before.
        """
        loop, runtime = self._loop, self._runtime
        if loop is None or runtime is None or self.failure is not None:
            raise self._not_running()
        result: Future[T] = Future()

        def run() -> None:
            try:
                value = work(runtime)
                runtime.turn()
            except BaseException as exc:  # noqa: BLE001  it is raised in the calling thread
                result.set_exception(exc)
            else:
                result.set_result(value)

        self._calls.add(result)
        try:
            loop.call_soon_threadsafe(run)
            return result.result(timeout=timeout_s)
        except RuntimeError as exc:
            if isinstance(exc, StateError) or not loop.is_closed():
                raise
            raise self._not_running() from exc
        finally:
            self._calls.discard(result)

    def _not_running(self) -> StateError:
        failure = self.failure
        if failure is None:
            return StateError(f"Namespace {self.name!r} is not running. Call start() first.")
        error = StateError(f"Namespace {self.name!r} has stopped: {failure}")
        error.__cause__ = failure.__cause__
        return error

    def _run(self, started: "Future[None]") -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as exc:
            if started.done():
                logger.exception("Namespace %s has stopped.", self.name)
            else:
                started.set_exception(exc)  # it is raised by `start`
        for result in tuple(self._calls):  # calls that were never executed
            if not result.done():
                result.set_exception(self._not_running())
        if self.failure is not None and self._on_failure is not None:
            self._on_failure()

    async def _serve(self, started: "Future[None]") -> None:
        transports = OpenTransports()
        stopping = asyncio.Event()

        def on_store_failure() -> None:
            logger.error(
                "Namespace %s stops: %s. Everything it has confirmed is on disk. Fix the cause"
                " (disk space, permissions, hardware) and start it again.",
                self.name,
                self.failure,
            )
            transports.abort()
            stopping.set()

        def abandon() -> None:
            store.abandon()
            self._store = None
            transports.abort()
            stopping.set()

        with contextlib.ExitStack() as resources:
            # The store comes first, so that no client connects before the folder is locked.
            store = self._store = resources.enter_context(
                Store(self._database, on_failure=on_store_failure)
            )
            listening = resources.enter_context(self._port.listen())
            runtime = self._runtime = self._create_runtime(store)
            created_ms = int((self.folder / "keys.json").stat().st_mtime * 1000)
            listener = Listener(
                runtime,
                listening,
                transports,
                self._certificates.server_context(),
                administration_handler(runtime, created_ms, self.token_issuer),
                tls_only=self._tls_only,
            )
            self._loop = asyncio.get_running_loop()
            self._stop_serving, self._abandon = stopping.set, abandon
            listener.start()
            started.set_result(None)
            try:
                await stopping.wait()
            finally:
                await listener.stop()
                runtime.close()

    def _create_runtime(self, store: Store) -> NamespaceRuntime:
        return NamespaceRuntime(
            self.name,
            store,
            (root_rule(self._key), *self._rules),
            now_ms=self._now_ms,
            call_soon=asyncio.get_running_loop().call_soon,
            trust_bearer_tokens=self._trust_bearer_tokens,
            accepts_host=self._host_names.accepts,
            verify_bearer=self.token_issuer.verify,
            local_authentication=self._local_authentication,
            tier=self.tier,
        )
