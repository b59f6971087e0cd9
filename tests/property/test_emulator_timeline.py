"""Time that is skipped and time that passes, with random operations, have the same effects.

Two namespaces get the same operations. In one, time passes in ticks of 50 milliseconds, as with a
real clock; in the other, the clock is moved forward. All times are multiples of 50 milliseconds, so
that both clocks see every event at its time.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.emulator.entities.timeline import STEP_MS, skip_time
from pairbus.errors import LockLost
from tests.unit.emulator.entities.harness import EntityHarness, body, message, properties

SHARED_MEMORY = Path("/dev/shm")  # where commits need not wait for a disk
QUEUES = ("forwards", "expires", "sessions", "t/Subscriptions/s")
SESSION = "a"


def milliseconds(steps: int) -> timedelta:
    return timedelta(milliseconds=steps * STEP_MS)


class Namespace:
    """Entities with short times, and operations on them."""

    def __init__(self, file: Path) -> None:
        self.harness = harness = EntityHarness(file)
        harness.add_queue(
            "expires",
            lock_duration=milliseconds(4),
            max_delivery_count=2,
            default_message_time_to_live=milliseconds(22),
            dead_lettering_on_message_expiration=True,
        )
        harness.add_queue("forwards", forward_to="expires")
        harness.add_queue("sessions", lock_duration=milliseconds(5), requires_session=True)
        harness.add_topic(default_message_time_to_live=milliseconds(20))
        harness.add_subscription(
            lock_duration=milliseconds(3),
            dead_lettering_on_message_expiration=True,
            forward_dead_lettered_messages_to="expires",
        )
        self.numbers = iter(range(1_000_000))

    def send(self, path: str, ttl: int | None, delay: int | None, now: int) -> None:
        text = str(next(self.numbers))
        at = None if delay is None else now + delay * STEP_MS
        ttl_ms = None if ttl is None else ttl * STEP_MS
        target = path.split("/", maxsplit=1)[0]
        self.harness.send(target, message(text, ttl=ttl_ms, at=at, session=SESSION), now=now)

    def lock(self, path: str, limit: int, now: int) -> list[str]:
        queue = self.harness.queue(path)
        if queue.sessions is not None:
            queue.sessions.accept(None, self, now)
        received = queue.receive(limit, now, locked=True, session=SESSION)
        return [body(stored) for stored, _ in received]

    def state(self) -> dict[str, Any]:
        return {
            queue.path: [
                (
                    body(stored),
                    stored.sequence,
                    stored.state,
                    stored.enqueued_ms,
                    stored.expires_ms,
                    stored.due_ms,
                    stored.deliveries,
                    properties(stored).get("DeadLetterReason"),
                )
                for stored in queue.peek(0, 1000)
            ]
            for entity in self.harness.entities.all()
            for queue in entity.queues
        }


@contextmanager
def namespaces() -> Iterator[tuple[Namespace, Namespace]]:
    with ExitStack() as stack:
        folder = stack.enter_context(
            TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.exists() else None)
        )
        passing, skipping = (Namespace(Path(folder) / name) for name in ("passing", "skipping"))
        stack.enter_context(closing(passing.harness))
        stack.enter_context(closing(skipping.harness))
        yield passing, skipping


def outcome(operation: Any, *arguments: Any) -> Any:
    """Return the result of an operation, or the type of its error."""
    try:
        return operation(*arguments)
    except LockLost as exc:
        return type(exc)


steps = st.integers(0, 25)
paths = st.sampled_from(QUEUES)
operations = st.one_of(
    st.tuples(st.just("send"), paths, st.none() | st.integers(1, 30), st.none() | steps),
    st.tuples(st.just("lock"), paths, st.integers(1, 3)),
    st.tuples(st.just("wait"), steps),
)


@pytest.mark.rule("N4")
@given(operations=st.lists(operations, max_size=25))
@settings(max_examples=30)
def test_skipped_time_has_the_effects_of_time_that_passes(
    operations: list[tuple[Any, ...]],
) -> None:
    now = 0
    with namespaces() as (passing, skipping):
        for name, *arguments in [*operations, ("wait", 60)]:
            if name == "wait":
                start, now = now, now + arguments[0] * STEP_MS
                for tick in range(start, now + 1, STEP_MS):
                    passing.harness.tick(tick)
                skip_time(skipping.harness.entities, start, now)
            else:
                results = [
                    outcome(getattr(namespace, name), *arguments, now)
                    for namespace in (passing, skipping)
                ]
                assert results[0] == results[1]
            assert passing.state() == skipping.state()
