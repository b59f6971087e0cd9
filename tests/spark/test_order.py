"""Order within sessions across an outage: paired sender, backlog, syphon, and failures."""

import time
from collections import defaultdict
from random import Random

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import SparkSession

from pairbus import PairedClient, PathStatus, SendAvailabilityOptions, pair_namespace
from pairbus.amqp.client import ClientOptions
from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import Message
from pairbus.emulator.namespace import LocalNamespace
from pairbus.events import Event, StateChanged
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.query import Syphon
from tests.integration.pairs import OPTIONS, QUICK, SECOND, stored_payloads
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore::ResourceWarning")]
NAME = "primary"
BACKLOG = backlog_paths(NAME, 3)
QUEUE = "orders"
SESSIONS = ("a", "b", "c", "d")
KINDS = ("throttle", "detach", "internal-error", "lose-answer")
HEALTHY, FAILOVER, DRAINING = PathStatus.HEALTHY, PathStatus.FAILOVER, PathStatus.DRAINING


def options_for(primary: LocalNamespace, secondary: LocalNamespace) -> SyphonOptions:
    clients = [
        ClientOptions.from_connection_string(namespace.connection_string, operation_timeout_s=20)
        for namespace in (primary, secondary)
    ]
    return SyphonOptions(
        primary=clients[0], secondary=clients[1], primary_name=NAME, backlog_queue_count=3
    )


def pairing_options(secondary: ServiceBusClient, events: list[Event]) -> SendAvailabilityOptions:
    changes = {"failback": "after-drain", "ping_primary_interval": SECOND}
    return SendAvailabilityOptions(
        secondary=secondary,
        primary_name=NAME,
        failback_hold=2 * SECOND,
        on_event=events.append,
        **(OPTIONS | changes),
    )


def state(bus: PairedClient) -> PathStatus:
    return bus.status().paths[QUEUE].status


def in_backlog(secondary: LocalNamespace) -> int:
    """Return the number of messages in the backlog."""
    return sum(len(stored_payloads(secondary, queue)) for queue in BACKLOG)


@pytest.mark.rule("S12", "X1", "X2")
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 3))])
def test_sessions_arrive_in_order_across_an_outage_with_failures_during_the_drain(
    session: SparkSession, seed: int
) -> None:
    random = Random(seed)
    sent: dict[str, list[str]] = defaultdict(list)
    events: list[Event] = []
    with (
        LocalNamespace("primary") as primary,
        LocalNamespace("secondary") as secondary,
        ServiceBusClient.from_connection_string(primary.connection_string, **QUICK) as client,
        ServiceBusClient.from_connection_string(secondary.connection_string, **QUICK) as other,
        pair_namespace(client, pairing_options(other, events)) as bus,
        Syphon(options_for(primary, secondary), spark=session) as syphon,
    ):
        # After a lost answer the syphon sends again, and duplicate detection removes the copy.
        primary.create_queue(QUEUE, requires_session=True, requires_duplicate_detection=True)
        with bus.get_queue_sender(QUEUE) as sender:

            def send(count: int = 1) -> None:
                for _ in range(count):
                    name = random.choice(SESSIONS)
                    id = f"{name}-{len(sent[name])}"
                    sender.send_messages(ServiceBusMessage(id, message_id=id, session_id=name))
                    sent[name].append(id)

            send(10)
            primary.stop()
            send(30)
            assert state(bus) is FAILOVER
            assert in_backlog(secondary) == 30
            primary.start()
            wait_until(lambda: state(bus) is DRAINING, "a ping to succeed")
            # From here on only the syphon sends to the primary.
            kinds = random.sample(KINDS, 3)
            faults = [primary.add_fault(kind, QUEUE, count=random.randint(1, 2)) for kind in kinds]

            def all_happened() -> bool:
                send()
                return all(fault.spent for fault in faults)

            wait_until(all_happened, "all failures to happen during the drain")
            send(random.randint(1, 20))
            if seed % 2:
                primary.stop()
                send(10)
                primary.start()

            def is_healthy() -> bool:
                send()
                time.sleep(random.uniform(0, 0.5))  # otherwise the backlog would grow without end
                return state(bus) is HEALTHY

            wait_until(is_healthy, "the end of the drain")
            send(10)
        wait_until(lambda: in_backlog(secondary) == 0, "the backlog to be empty")
        assert syphon.status().dead_lettered.total() == 0
        arrived = [
            read_fields(Message.parse(payload).properties, (0,))[0]
            for payload in stored_payloads(primary, QUEUE)
        ]
        changes = [
            (one.from_state, one.to_state) for one in events if isinstance(one, StateChanged)
        ]
        assert changes[:2] == [(HEALTHY, FAILOVER), (FAILOVER, DRAINING)]
    for name in SESSIONS:
        assert [id for id in arrived if id.startswith(name)] == sent[name]
    assert len(arrived) == sum(map(len, sent.values()))
