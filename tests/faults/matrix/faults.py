"""The faults themselves: each asserts that it happened, and is over when its block ends."""

import contextlib
from collections.abc import Callable, Iterator

from tests.faults.matrix.processes import frozen
from tests.faults.matrix.wires import Connection, Wire
from tests.faults.matrix.world import World
from tests.faults.pairing_kit import Namespace
from tests.faults.syphon_kit import is_gone, kill, wait_until


def happening(world: World, component: str, kind: str) -> contextlib.AbstractContextManager[None]:
    """The component is down, or hangs, or is cut off, within the block."""
    match component, kind:
        case "sender", "kill":
            return _killed_sender(world)
        case "driver", "kill":
            return _killed_driver(world)
        case "worker", "kill":
            return _killed_worker(world)
        case (("primary" | "secondary"), "kill"):
            return _killed(_namespace(world, component))
        case (("primary" | "secondary"), "freeze"):
            return _namespace(world, component).frozen()
        case _, "freeze":
            return _frozen(world, component)
        case _, "cut":
            return _cut_off(world, component)
    raise ValueError(f"no such fault: {component}/{kind}")


def _namespace(world: World, component: str) -> Namespace:
    return world.primary if component == "primary" else world.secondary


@contextlib.contextmanager
def _killed(namespace: Namespace) -> Iterator[None]:
    namespace.kill()
    try:
        yield
    finally:
        namespace.start()


@contextlib.contextmanager
def _killed_sender(world: World) -> Iterator[None]:
    assert world.sender is not None
    world.sender.kill()
    world.sender = None
    yield
    world.start_sender()


@contextlib.contextmanager
def _killed_driver(world: World) -> Iterator[None]:
    """The JVM and the Python processes beside it. The workers are not killed, but end when they
    find nobody to work for; on the way they may send and complete what they have."""
    syphon = world.syphon
    assert syphon is not None
    kill(*world.driver())
    world.syphon = None
    assert not syphon.runs
    wait_until(lambda: all(is_gone(one.pid) for one in syphon.processes()), "the workers to end")
    yield
    world.start_syphon()


@contextlib.contextmanager
def _killed_worker(world: World) -> Iterator[None]:
    doomed = _workers(world)
    kill(*doomed)
    yield
    # Spark has others by then, or when there is work again.
    assert world.workers().isdisjoint(doomed)


def _frozen(world: World, component: str) -> contextlib.AbstractContextManager[None]:
    if component == "sender":
        assert world.sender is not None
        return frozen([world.sender.pid])
    return frozen(_workers(world) if component == "worker" else world.driver())


def _workers(world: World) -> set[int]:
    """Those that there are, or the next."""
    wait_until(lambda: bool(world.workers()), "a worker")
    return world.workers()


@contextlib.contextmanager
def _cut_off(world: World, component: str) -> Iterator[None]:
    wires, selects = _ways(world, component)
    cut = world.cut(*wires, selects=selects)
    try:
        yield
        assert cut.silenced, f"{component} has no connection that could be cut"
    finally:
        cut.heal()


def _ways(
    world: World, component: str
) -> tuple[tuple[Wire, ...], Callable[[Connection], bool] | None]:
    match component:
        case "sender":
            return (world.sender_primary, world.sender_secondary), None
        case "primary":
            return (world.sender_primary, world.syphon_primary), None
        case "secondary":
            return (world.sender_secondary, world.syphon_secondary), None
        case "worker":
            _workers(world)
            pids = world.workers
        case _:
            pids = world.driver
    return (world.syphon_primary, world.syphon_secondary), world.held_by(pids)


class Outage:
    """What the stages are about: the primary is killed, or cut off."""

    def __init__(self, world: World, kind: str) -> None:
        self._world = world
        self._kind = kind
        self._under_way = contextlib.ExitStack()

    def begin(self) -> None:
        self._under_way.enter_context(happening(self._world, "primary", self._kind))

    def end(self) -> None:
        self._under_way.close()

    close = end

    @contextlib.contextmanager
    def interrupted(self, kind: str) -> Iterator[None]:
        """A fault of a primary that is down already. What was killed comes back, and is killed
        again, or hangs, or is cut off at once, and then goes down as before. What was cut off is
        killed or hangs where nobody sees it; or it is there for a moment, and is cut off again."""
        if self._kind == "kill" or kind == "cut":
            self.end()
            with happening(self._world, "primary", kind):
                yield
            self.begin()
        else:
            with happening(self._world, "primary", kind):
                yield
