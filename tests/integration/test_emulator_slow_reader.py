"""Delivery to a slow receiver pauses, and resumes when it reads."""

from collections.abc import Iterator

import pytest

from pairbus.amqp.client import Client, Receiver, Sender
from pairbus.emulator.namespace import LocalNamespace
from tests.integration.emulator_kit import client_of, sized, wait_until

COUNT = 2000
SIZE = 10_000
"""Together more than socket buffers hold, so that the emulator must wait for the receiver."""


@pytest.fixture
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("patient") as namespace:
        namespace.create_queue("q")
        yield namespace


@pytest.fixture
def client(namespace: LocalNamespace) -> Iterator[Client]:
    with client_of(namespace) as client:
        yield client


def test_slow_receiver_gets_all_messages_it_granted_credit_for(
    namespace: LocalNamespace, client: Client
) -> None:
    with Sender(client, "q") as sender:
        for _ in range(COUNT // 20):
            sender.send_batch([sized(SIZE)] * 20)
    with Receiver(client, "q", settled=True) as receiver:
        got = len(receiver.receive(COUNT, timeout_s=0))
        wait_until(lambda: handed_out(namespace) > 0, "the first messages")
        # Credit is granted once for all messages: only reading makes the emulator continue.
        while got < COUNT:
            some = receiver.receive(COUNT - got)
            assert some, f"only {got} came"
            got += len(some)
    assert got == handed_out(namespace) == COUNT


def handed_out(namespace: LocalNamespace) -> int:
    reading = namespace.meter().get(("q", "receive"))
    return 0 if reading is None else reading.messages
