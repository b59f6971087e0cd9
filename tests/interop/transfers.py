"""The messages that our client and a server exchanged, as a test compares them."""

import contextlib

from examples.engine.memory_server import MemoryServer
from pairbus.amqp.client import Receiver
from pairbus.amqp.events import Delivery
from pairbus.errors import AmqpError
from tests.interop.messages import PeerMessage, text
from tests.interop.peers import PeerServer


def payload(body: str = "a") -> bytes:
    return text(body).encode()


def received_texts(peer: PeerServer, count: int) -> list[str]:
    """Wait for messages that a peer received, and return their texts."""
    return [message.text for message in peer.receive(count)]


def received_by(server: MemoryServer) -> list[PeerMessage]:
    """Return the messages that our server received so far."""
    return [PeerMessage.parse(each.payload) for each in server.received]


def texts_received_by(server: MemoryServer) -> list[str]:
    return [message.text for message in received_by(server)]


def texts_of(deliveries: list[Delivery]) -> list[str]:
    return [PeerMessage.parse(delivery.payload).text for delivery in deliveries]


def receive(receiver: Receiver, count: int) -> list[Delivery]:
    """Receive this many messages, in as many calls as needed."""
    deliveries: list[Delivery] = []
    while len(deliveries) < count:
        some = receiver.receive(count - len(deliveries))
        assert some, f"only {len(deliveries)} of {count} messages arrived"
        deliveries += some
    return deliveries


def wait_for_loss(receiver: Receiver) -> AmqpError:
    """Wait until the link of a receiver is lost, and return its error."""
    client = receiver.client
    with contextlib.suppress(AmqpError):
        client.run_until(
            lambda: receiver.error is not None, client.deadline(None), "the loss of the link"
        )
    assert receiver.error is not None
    return receiver.error
