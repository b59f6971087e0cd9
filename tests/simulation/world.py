"""A simulated world: a scheduler, a network, and the code that reaches them."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pairbus.amqp.client.client
from tests.simulation import standard_library
from tests.simulation.client_transport import transport_factory
from tests.simulation.network import Network
from tests.simulation.scheduler import Machine, Process, Scheduler

MAX_STEPS = 400_000


class World:
    """Everything that exists in one simulation. Use `open_world`."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed, keep_trace=keep_trace)
        self.random = self.scheduler.random
        self.network = Network(self.scheduler)
        self.processes: dict[Process, None] = {}

    def process(self, name: str, machine: Machine | None = None) -> Process:
        """Start a process, on a machine of its own if none is given."""
        process = Process(self.scheduler, name, Machine(name) if machine is None else machine)
        self.processes[process] = None
        return process

    def kill(self, process: Process, *, silent: bool = False) -> None:
        """Kill a process. With `silent` its machine dies, and its peers are not told."""
        if process.alive:
            self.scheduler.trace(process.name, "killed" + (", silently" if silent else ""))
            self.network.process_died(process, silent=silent)
            process.kill()
        self.processes.pop(process, None)

    def run(self, until: Callable[[], bool], *, limit_s: float) -> bool:
        """Let time pass until a condition is met, or until the limit, which returns False."""
        return self.scheduler.run(until, limit_s=limit_s, max_steps=MAX_STEPS)

    def run_for(self, seconds: float) -> None:
        self.run(lambda: False, limit_s=self.scheduler.now + seconds)

    def trace(self, who: str, text: str) -> None:
        self.scheduler.trace(who, text)


@contextmanager
def open_world(seed: int, *, keep_trace: bool = False) -> Iterator[World]:
    """Open a world. The garbage collector works between simulations only: it would end objects at
    times that depend on the simulations before."""
    world = World(seed, keep_trace=keep_trace)
    standard_library.set_scheduler(world.scheduler, seed)
    pairbus.amqp.client.client.open_transport = transport_factory(world.network)  # type: ignore[assignment]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield world
    finally:
        for process in list(world.processes):
            process.kill()
        standard_library.set_scheduler(Scheduler(0), 0)
        if was_enabled:
            gc.enable()
