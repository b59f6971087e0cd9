"""The faults. Each is a context manager that asserts that its fault happened, and ends it."""

import contextlib
from collections.abc import Callable, Iterator

from tests.faults.matrix.environment import MatrixEnvironment
from tests.faults.matrix.relays import Connection, Relay
from tests.faults.namespace_process import Namespace
from tests.processes import frozen, kill
from tests.waiting import wait_until


def inject(
    environment: MatrixEnvironment, component: str, kind: str
) -> contextlib.AbstractContextManager[None]:
    """Kill, freeze or disconnect a component within the block, or lose what it is answered."""
    match component, kind:
        case "sender", "kill":
            return _killed_sender(environment)
        case "driver", "kill":
            return _killed_driver(environment)
        case "worker", "kill":
            return _killed_worker(environment)
        case "redrive", _:
            return environment.redrive.interrupted(kind)
        case "console", _:
            return environment.console.interrupted(kind)
        case (("primary" | "secondary"), "kill"):
            return _killed(_namespace(environment, component))
        case (("primary" | "secondary"), "freeze"):
            return _namespace(environment, component).frozen()
        case _, "freeze":
            return _frozen(environment, component)
        case _, "cut":
            return _disconnected(environment, component)
        case _, "lose-answers":
            return _disconnected(environment, component, answers_only=True)
    raise ValueError(f"unknown fault: {component}/{kind}")


def _namespace(environment: MatrixEnvironment, component: str) -> Namespace:
    return environment.primary if component == "primary" else environment.secondary


@contextlib.contextmanager
def _killed(namespace: Namespace) -> Iterator[None]:
    namespace.kill()
    try:
        yield
    finally:
        namespace.start()


@contextlib.contextmanager
def _killed_sender(environment: MatrixEnvironment) -> Iterator[None]:
    assert environment.sender is not None
    environment.sender.kill()
    environment.sender = None
    yield
    environment.start_sender()


@contextlib.contextmanager
def _killed_driver(environment: MatrixEnvironment) -> Iterator[None]:
    """Kill the JVM and the Python process of the driver. The workers end when they lose the
    connection; until then they may send and complete the messages that they hold."""
    syphon = environment.syphon
    assert syphon is not None
    kill(*environment.driver())
    environment.syphon = None
    wait_until(lambda: not syphon.runs, "the driver to end")
    wait_until(
        lambda: all(process.has_ended for process in syphon.processes()), "the workers to end"
    )
    yield
    environment.start_syphon()


@contextlib.contextmanager
def _killed_worker(environment: MatrixEnvironment) -> Iterator[None]:
    killed = _workers(environment)
    kill(*killed)
    yield
    # Spark has started others, or will start them when there is work.
    assert environment.workers().isdisjoint(killed)


def _frozen(
    environment: MatrixEnvironment, component: str
) -> contextlib.AbstractContextManager[None]:
    if component == "sender":
        assert environment.sender is not None
        return frozen(environment.sender.pid)
    return frozen(*(_workers(environment) if component == "worker" else environment.driver()))


def _workers(environment: MatrixEnvironment) -> set[int]:
    """Return the workers. Wait for one if there are none."""
    wait_until(lambda: bool(environment.workers()), "a worker")
    return environment.workers()


@contextlib.contextmanager
def _disconnected(
    environment: MatrixEnvironment, component: str, *, answers_only: bool = False
) -> Iterator[None]:
    relays, selects = _connections_of(environment, component)
    cut = environment.cut(*relays, selects=selects, answers_only=answers_only)
    try:
        yield
        # There may be none for a while: during failback senders only ping, every second.
        wait_until(lambda: cut.silenced > 0, f"a connection of the {component} that is cut off")
    finally:
        cut.heal()


def _connections_of(
    environment: MatrixEnvironment, component: str
) -> tuple[tuple[Relay, ...], Callable[[Connection], bool] | None]:
    match component:
        case "sender":
            return (environment.sender_primary, environment.sender_secondary), None
        case "primary":
            return (environment.sender_primary, environment.syphon_primary), None
        case "secondary":
            return (environment.sender_secondary, environment.syphon_secondary), None
        case "worker":
            _workers(environment)
            pids = environment.workers
        case _:
            pids = environment.driver
    return (environment.syphon_primary, environment.syphon_secondary), environment.connections_of(
        pids
    )


class Outage:
    """The outage itself: the primary is killed or disconnected."""

    def __init__(self, environment: MatrixEnvironment, kind: str) -> None:
        self._environment = environment
        self._kind = kind
        self._faults = contextlib.ExitStack()

    def begin(self) -> None:
        self._faults.enter_context(inject(self._environment, "primary", self._kind))

    def end(self) -> None:
        self._faults.close()

    close = end

    @contextlib.contextmanager
    def interrupted(self, kind: str) -> Iterator[None]:
        """Inject a fault into a primary that is already down. A killed primary is started, then
        killed, frozen or disconnected at once, or its answers are lost, and is down again. A
        disconnected primary is killed or frozen while it is unreachable, or connected for a moment
        and disconnected again."""
        if self._kind == "kill" or kind in ("cut", "lose-answers"):
            self.end()
            with inject(self._environment, "primary", kind):
                yield
            self.begin()
        else:
            with inject(self._environment, "primary", kind):
                yield
