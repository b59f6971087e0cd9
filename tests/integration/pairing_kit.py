"""What the tests of pairing share: two local namespaces, a paired client, waiting."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from azure.servicebus import ServiceBusClient

from pairbus import PairedClient, SendAvailabilityOptions, pair_namespace
from pairbus.amqp.sections import Message
from pairbus.broker.namespace import LocalNamespace
from pairbus.events import Event, PathState, StateChanged
from tests.integration.broker_kit import wait_until

QUICK: dict[str, Any] = {"retry_total": 0, "retry_backoff_factor": 0.02, "retry_backoff_max": 1}
"""Options of an SDK client that gives up soon."""
NAME = "primary"
SECOND = timedelta(seconds=1)
QUICKLY: dict[str, Any] = {
    "primary_name": NAME,
    "backlog_queue_count": 3,
    "failover_interval": timedelta(),
    "ping_primary_interval": SECOND,
    "operation_timeout": timedelta(seconds=20),
    "check_duplicate_detection": False,
}
"""Options of a pairing that fails over at once."""


@contextmanager
def paired(
    primary: LocalNamespace, secondary: LocalNamespace, *, sdk: Any = QUICK, **options: Any
) -> Iterator[PairedClient]:
    """A paired client. Its events are in `events_of`."""
    events: list[Event] = []
    given = {**QUICKLY, "on_event": events.append, **options}
    with (
        ServiceBusClient.from_connection_string(primary.connection_string, **sdk) as client,
        ServiceBusClient.from_connection_string(secondary.connection_string, **sdk) as other,
        pair_namespace(client, SendAvailabilityOptions(secondary=other, **given)) as bus,
    ):
        bus.seen = events  # type: ignore[attr-defined]
        yield bus


def events_of(bus: PairedClient) -> list[Event]:
    return bus.seen  # type: ignore[attr-defined,no-any-return]


def changes(bus: PairedClient) -> list[tuple[PathState, PathState]]:
    """The changes of state, in their order."""
    return [
        (one.from_state, one.to_state) for one in events_of(bus) if isinstance(one, StateChanged)
    ]


def state(bus: Any, path: str) -> PathState:
    return bus.status().paths[path].state


def wait_for_state(bus: Any, path: str, wanted: PathState) -> None:
    wait_until(lambda: state(bus, path) is wanted, f"{path} to be {wanted.value}")


def backlog_messages(secondary: LocalNamespace, count: int = 3) -> list[Message]:
    """Everything that lies in the backlog queues, as it is stored, queue by queue."""
    return [
        Message.parse(payload)
        for index in range(count)
        for payload in stored_payloads(secondary, f"{NAME}/x-servicebus-transfer/{index}")
    ]


def stored_payloads(namespace: LocalNamespace, path: str) -> list[bytes]:
    """The messages of a queue as they came in, but for the order of their sections."""
    from pairbus.broker.envelope import restore

    return namespace.call(
        lambda core: [restore(one) for one in core.entities.get(path).queue.peek(0, 100_000)]
    )


def body_of(message: Message) -> bytes:
    return b"".join(message.read_body()[1])
