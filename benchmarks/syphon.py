"""The syphon beside a loop of the plain SDK: receive, send as a batch, complete.

Two namespaces in processes of their own, durable queues. The syphon runs embedded; what it takes to
start is a figure of its own, and is not in its rate.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from azure.servicebus import ServiceBusClient

from benchmarks.harness import OURS, RATE, SECONDS, Figure
from benchmarks.pairing import Namespace, namespace
from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message, Properties
from pairbus.names import backlog_paths
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.syphon import Syphon
from pairbus.transfer import to_backlog

SDK_LOOP = "SDK loop"
NAME = "bench"
QUEUES = 4
BODIES = (200, 1024)
MESSAGES, BY_SDK = 200_000, 3_000
WARM = 2_000
LOOK_S = 0.02


@contextmanager
def world() -> Iterator[tuple[Namespace, Namespace]]:
    with ExitStack() as stack:
        primary = stack.enter_context(namespace("orders"))
        secondary = stack.enter_context(namespace(*backlog_paths(NAME, QUEUES)))
        yield primary, secondary


def fill(secondary: Namespace, count: int, body: int) -> None:
    """Put messages into the backlog, the same number into each queue."""
    payload = Message.build(
        properties=Properties(message_id="0f1e2d3c4b5a69788796a5b4c3d2e1f0"), data=b"x" * body
    ).encode()
    batch = [to_backlog(payload, "orders")] * 200
    with Client(ClientOptions.from_connection_string(secondary.connection_string)) as client:
        for queue in backlog_paths(NAME, QUEUES):
            with Sender(client, queue) as sender:
                left = count // QUEUES
                while left > 0:
                    sender.send_batch(batch[:left])
                    left -= len(batch)


def by_sdk(primary: Namespace, secondary: Namespace, count: int) -> float:
    """Messages a second of a loop of the SDK over one queue."""
    moved = 0
    with (
        ServiceBusClient.from_connection_string(secondary.connection_string) as source,
        ServiceBusClient.from_connection_string(primary.connection_string) as target,
        source.get_queue_receiver(backlog_paths(NAME, 1)[0]) as receiver,
        target.get_queue_sender("orders") as sender,
    ):
        start = time.perf_counter()
        while moved < count:
            messages: list[Any] = receiver.receive_messages(200, max_wait_time=5)
            assert messages, f"only {moved} of {count} came"
            sender.send_messages(messages)
            for message in messages:
                receiver.complete_message(message)
            moved += len(messages)
        return moved / (time.perf_counter() - start)


def by_syphon(primary: Namespace, secondary: Namespace, body: int) -> tuple[float, float]:
    """Seconds from the start to the first messages home, and messages a second from then on."""
    fill(secondary, WARM, body)
    options = SyphonOptions(
        primary=primary.connection_string,  # type: ignore[arg-type]
        secondary=secondary.connection_string,  # type: ignore[arg-type]
        primary_name=NAME,
        backlog_queue_count=QUEUES,
        max_messages_per_trigger=100_000,
    )
    start = time.perf_counter()
    with Syphon(options) as syphon:
        wait(syphon, WARM)
        home = time.perf_counter() - start
        syphon.stop()
    fill(secondary, MESSAGES, body)
    with Syphon(options) as syphon:
        moved = wait(syphon, 1)
        start = time.perf_counter()
        wait(syphon, MESSAGES)
        return home, (MESSAGES - moved) / (time.perf_counter() - start)


def wait(syphon: Syphon, count: int) -> int:
    while (moved := sum(syphon.status().moved.values())) < count:
        assert syphon.status().running, syphon.status().failure
        time.sleep(LOOK_S)
    return moved


def figures(rounds: int) -> list[Figure]:
    result = []
    homes = {}
    for body in BODIES:
        with world() as (primary, secondary):
            fill(secondary, QUEUES * BY_SDK, body)
            loop = by_sdk(primary, secondary, BY_SDK)
        with world() as (primary, secondary):
            homes[body], ours = by_syphon(primary, secondary, body)
        result.append(Figure(f"moved, {body} bytes", {OURS: ours, SDK_LOOP: loop}, RATE, aim=15))
    home = Figure("start of the embedded syphon to messages home", {OURS: homes[200]}, SECONDS)
    return [*result, home]
