"""A Service Bus namespace in this process, for tests and for trying things out.

with LocalNamespace("orders") as namespace:
    namespace.create_queue("incoming")
    client = ServiceBusClient.from_connection_string(namespace.connection_string)
"""

import asyncio
import contextlib
import ipaddress
import json
import secrets
import shutil
import socket
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pairbus.emulator.admin.api import AdministrationApi
from pairbus.emulator.admin.control import CONTROL_PREFIX, ControlApi
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.config import NamespaceConfig
from pairbus.emulator.connections.certificates import ensure_certificates
from pairbus.emulator.connections.server import Listener, RequestHandler
from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.emulator.faults import Fault
from pairbus.emulator.filters.rules import Rule
from pairbus.emulator.meter import MeterReading
from pairbus.emulator.port import ReservedPort
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.emulator.storage.lock import StoreLock
from pairbus.emulator.storage.store import Store
from pairbus.errors import ConfigurationError, EntityNotFound, StateError

ROOT_RULE = "RootManageSharedAccessKey"
_STOP_S = 10.0

T = TypeVar("T")


class LocalNamespace:
    """A namespace on a free port of the loopback interface, in a thread of its own.

    What it has accepted is on disk, in `folder`. Without a folder it is a temporary one, which goes
    when the namespace is closed. `stop` and `start` keep data, port and keys. A folder is served by
    one namespace of one process at a time: while it is in use, the constructor and `start` raise
    StateError, and nothing in the folder is changed.

    On a `host` that others can reach only TLS is served, for that name and for `names`, unless
    `plaintext_to_network` says that tokens and messages may cross the network for all to read.
    `rules` are the namespace's shared access rules besides the root's.

    Where the disk fails it (full, or broken), it stops by itself: nothing of what is not on disk is
    confirmed, all clients are cut off, and every use raises StateError, until `start` is called
    again. `failure` says why; `on_failure` is called then, in the namespace's thread.
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
        names: Iterable[str] = (),
        plaintext_to_network: bool = False,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._rules = _checked(rules)
        self._tls_only = not (_is_loopback(host) or plaintext_to_network)
        self._own_folder = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="pairbus-") if folder is None else folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._host = host
        self._port = ReservedPort(host, port)
        self._now_ms = _now_ms if now_ms is None else now_ms
        self._trust_bearer_tokens = trust_bearer_tokens
        self._reached_as = "localhost" if _is_loopback(host) or _is_any(host) else host
        self._database = self.folder / "namespace.db"
        with StoreLock(self._database):  # two first starts at once would make two keys
            self._certificates = ensure_certificates(
                self.folder, (self._reached_as, *names), now=datetime.now(UTC)
            )
            self._key = _key_of(self.folder / "keys.json")
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._core: NamespaceRuntime | None = None
        self._store: Store | None = None
        """The last one: it knows whether it has failed."""
        self._stopping: asyncio.Event | None = None
        self._calls: set[Future[Any]] = set()
        self._on_failure = on_failure

    def __enter__(self) -> "LocalNamespace":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """0 until it is known, where any will do."""
        return self._port.number

    @property
    def connection_string(self) -> str:
        """For AMQP without TLS, where that is served; the administration client takes it as it
        is."""
        return self.connection_string_of(ROOT_RULE, self._key)

    def connection_string_of(self, rule: str, key: str) -> str:
        """The same with a rule of the namespace or of an entity, and its key."""
        plain = "" if self._tls_only else "UseDevelopmentEmulator=true;"
        host = f"[{self._reached_as}]" if ":" in self._reached_as else self._reached_as
        return (
            f"Endpoint=sb://{host}:{self.port}/;SharedAccessKeyName={rule};"
            f"SharedAccessKey={key};{plain}"
        )

    @property
    def ca_file(self) -> str:
        """What `connection_verify` of the SDK takes."""
        return str(self._certificates.ca_file)

    @property
    def failure(self) -> StateError | None:
        """Why the namespace has stopped by itself; None: it has not, since it was started."""
        return None if self._store is None else self._store.failure

    def start(self) -> None:
        """Start serving; returns when connections are accepted. Can be called again. Raises
        StateError where the data cannot be read or written, or another process serves it."""
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
            started.result(timeout=_STOP_S)
        except BaseException:
            self._thread.join(_STOP_S)
            self._thread = None
            raise

    def stop(self) -> None:
        """Hang up on everybody and stop. What was accepted stays. Can be called again."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        assert self._stopping is not None
        with contextlib.suppress(RuntimeError):  # it has stopped by itself: the loop is closed
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(_STOP_S)
        self._loop = self._core = None

    def close(self) -> None:
        """Stop, and remove the folder if it was temporary. Can be called again."""
        self.stop()
        self._port.close()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def reset(self) -> None:
        """Forget all entities, messages and readings."""
        running = self._thread is not None
        self.stop()
        with Store(self._database) as store:
            store.clear()
        if running:
            self.start()

    def ensure(self, config: NamespaceConfig, queues: Iterable[str] = ()) -> None:
        """Make the entities of a configuration that are not there yet; those that are stay."""
        extra = (QueueDescription(name=name) for name in queues)
        self.call(lambda core: _ensure(core, replace(config, queues=(*config.queues, *extra))))

    def create_queue(self, name: str, **settings: Any) -> None:
        self._create(QueueDescription(name=name, **settings))

    def create_topic(self, name: str, **settings: Any) -> None:
        self._create(TopicDescription(name=name, **settings))

    def create_subscription(
        self, topic: str, name: str, *, rule: Rule | None = None, **settings: Any
    ) -> None:
        self._create(SubscriptionDescription(topic=topic, name=name, **settings), rule)

    def _create(self, description: EntityDescription, rule: Rule | None = None) -> None:
        def create(core: NamespaceRuntime) -> None:
            core.entities.create(description, core.now_ms(), rule)

        self.call(create)

    def meter(self) -> dict[tuple[str, str], MeterReading]:
        """What was done so far, by entity and kind."""
        return self.call(lambda core: core.meter.readings())

    def add_fault(self, kind: str, entity: str | None = None, **limits: Any) -> Fault:
        """Let something go wrong: see `pairbus.emulator.faults`. `fired` says how often it did."""
        return self.call(lambda core: core.faults.add(Fault(kind, entity, **limits)))

    def clear_faults(self) -> None:
        self.call(lambda core: core.faults.clear())

    def call(self, work: Callable[[NamespaceRuntime], T]) -> T:
        """Run something in the namespace's own thread, between two turns. Raises StateError where
        it does not run, or stops before that is on disk."""
        loop, core = self._loop, self._core
        if loop is None or core is None or self.failure is not None:
            raise self._not_running()
        result: Future[T] = Future()

        def run() -> None:
            try:
                value = work(core)
                core.turn()
            except BaseException as exc:  # noqa: BLE001  it is raised where it was asked for
                result.set_exception(exc)
            else:
                result.set_result(value)

        self._calls.add(result)
        try:
            loop.call_soon_threadsafe(run)
            return result.result(timeout=_STOP_S)
        except RuntimeError as exc:
            if isinstance(exc, StateError) or not loop.is_closed():
                raise
            raise self._not_running() from exc
        finally:
            self._calls.discard(result)

    def _not_running(self) -> StateError:
        failure = self.failure
        if failure is None:
            return StateError(f"the namespace {self.name!r} is not running")
        error = StateError(f"the namespace {self.name!r} has stopped: {failure}")
        error.__cause__ = failure.__cause__
        return error

    def _run(self, started: "Future[None]") -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as exc:  # noqa: BLE001  it is raised by `start`
            if not started.done():
                started.set_exception(exc)
        for result in tuple(self._calls):  # those that came too late to be carried out
            if not result.done():
                result.set_exception(self._not_running())
        if self.failure is not None and self._on_failure is not None:
            self._on_failure()

    async def _serve(self, started: "Future[None]") -> None:
        with contextlib.ExitStack() as opened:
            # First, so that no client connects before the folder is known to be free.
            store = self._store = opened.enter_context(Store(self._database))
            self._port.reserve()
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            listening = opened.enter_context(
                socket.create_server((self._host, self._port.number), family=family)
            )
            self._port.number = listening.getsockname()[1]
            core = self._core = self._made(store)
            self._stopping = asyncio.Event()
            listener = Listener(
                core,
                listening,
                self._certificates.server_context(),
                self._admin(core),
                tls_only=self._tls_only,
                on_failure=self._stopping.set,
            )
            self._loop = asyncio.get_running_loop()
            listener.start()
            started.set_result(None)
            try:
                await self._stopping.wait()
            finally:
                await listener.stop()

    def _made(self, store: Store) -> NamespaceRuntime:
        rule = SharedAccessRule(name=ROOT_RULE, primary_key=self._key, rights=frozenset(Right))
        return NamespaceRuntime(
            self.name,
            store,
            (rule, *self._rules),
            now_ms=self._now_ms,
            trust_bearer_tokens=self._trust_bearer_tokens,
        )

    def _admin(self, core: NamespaceRuntime) -> RequestHandler:
        admin = AdministrationApi(
            core.entities,
            core.authority,
            namespace=self.name,
            created_ms=int((self.folder / "keys.json").stat().st_mtime * 1000),
            meter=core.meter.add_without_message,
            extensions={CONTROL_PREFIX: ControlApi(core.faults, core.meter).handle},
        )
        return lambda request, scheme: admin.handle(request, core.now_ms(), scheme=scheme)


def _ensure(core: NamespaceRuntime, config: NamespaceConfig) -> None:
    subscriptions = [one for topic in config.topics for one in topic.subscriptions]
    topics: list[EntityDescription] = [topic.description for topic in config.topics]
    todo = [*topics, *config.queues, *(one.description for one in subscriptions)]
    rules = {one.description.path: one.rules for one in subscriptions}
    waiting = [one for one in todo if core.entities.find(one.path) is None]
    while waiting:
        # What forwards to another comes after it.
        later = []
        for description in waiting:
            try:
                first, *others = rules.get(description.path) or (None,)
                core.entities.create(description, core.now_ms(), first)
            except EntityNotFound:
                later.append(description)
            else:
                for rule in others:
                    if rule is not None:
                        core.entities.create_rule(description.path, rule, core.now_ms())
        if len(later) == len(waiting):
            raise ConfigurationError(f"{later[0].path!r} forwards to what is not there")
        waiting = later


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_any(host: str) -> bool:
    """Whether it stands for every interface."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def _checked(rules: Iterable[SharedAccessRule]) -> tuple[SharedAccessRule, ...]:
    given = tuple(rules)
    names = [ROOT_RULE, *(rule.name for rule in given)]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"two rules of the namespace have one name: {', '.join(names)}")
    return given


def _key_of(path: Path) -> str:
    """The namespace's key, made once and kept."""
    if path.exists():
        return str(json.loads(path.read_text())[ROOT_RULE])
    key = b64encode(secrets.token_bytes(32)).decode()
    path.touch(mode=0o600)
    path.write_text(json.dumps({ROOT_RULE: key}))
    return key
