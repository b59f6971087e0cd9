"""Delivery to a slow receiver pauses, and resumes when it reads."""

from pairbus.amqp.client import Client, Receiver, Sender
from pairbus.emulator.namespace import LocalNamespace
from tests.integration.encoded_messages import sized
from tests.waiting import wait_until

COUNT = 2000
SIZE = 10_000
"""Together more than socket buffers hold, so that the emulator must wait for the receiver."""


def test_slow_receiver_gets_all_messages_it_granted_credit_for(
    queue_namespace: LocalNamespace, client: Client
) -> None:
    with Sender(client, "q") as sender:
        for _ in range(COUNT // 20):
            sender.send_batch([sized(SIZE)] * 20)
    with Receiver(client, "q", settled=True) as receiver:
        got = len(receiver.receive(COUNT, timeout_s=0))
        wait_until(lambda: delivered_count(queue_namespace) > 0, "the first messages")
        # Credit is granted once for all messages: only reading makes the emulator continue.
        while got < COUNT:
            some = receiver.receive(COUNT - got)
            assert some, f"only {got} messages arrived"
            got += len(some)
    assert got == delivered_count(queue_namespace) == COUNT


def delivered_count(namespace: LocalNamespace) -> int:
    reading = namespace.meter().get(("q", "receive"))
    return 0 if reading is None else reading.messages
