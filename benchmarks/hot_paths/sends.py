"""Hot paths of senders: single sends of the plain SDK, of a paired sender, and in failover.

The links are opened to namespaces in other processes. Then each connection gets a peer in this
process that accepts every transfer, so that neither a network nor another process has a part in the
count.
"""

import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from azure.servicebus import ServiceBusMessage

from benchmarks.hot_paths.path import HotPath
from benchmarks.pairing import FAST, namespace, paired
from benchmarks.send_blocks import BODY, PROPERTIES
from pairbus.amqp.composite import encode_composite
from pairbus.amqp.performatives import RECEIVER, Accepted, Disposition

SENDS = 40
PLAIN = "plain SDK: send"
_TRANSFER = b"\x00\x53\x14"
_FRAME_HEADER = struct.Struct(">IBBH")


@contextmanager
def send_paths() -> Iterator[list[HotPath]]:
    """Provide the paths. Each sends the same messages."""
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        plain = stack.enter_context(primary.client(**FAST)).get_queue_sender("orders")
        client = stack.enter_context(paired(primary, secondary, **FAST))
        healthy = client.get_queue_sender("orders")
        failed_over = client.get_queue_sender("other")
        for sender in (plain, healthy):
            sender.send_messages(ServiceBusMessage(BODY))
        primary.emulator.kill()
        failed_over.send_messages(ServiceBusMessage(BODY))  # starts the failover of `other`
        (backlog,) = failed_over._links._backlog.values()
        for sdk_sender in (plain, healthy._links.primary_sender(), backlog):
            accept_everything(sdk_sender)
        yield [
            HotPath(PLAIN, lambda: send(plain), SENDS),
            HotPath("pairing: healthy send", lambda: send(healthy), SENDS, PLAIN),
            HotPath("pairing: send in failover", lambda: send(failed_over), SENDS),
        ]


def send(sender: Any) -> None:
    for number in range(SENDS):
        sender.send_messages(
            ServiceBusMessage(BODY, message_id=f"{number:032}", application_properties=PROPERTIES)
        )


def accept_everything(sdk_sender: Any) -> None:
    """Replace the socket of an open sender of the SDK by a peer in this process."""
    handler = sdk_sender._handler
    transport = handler._connection._transport
    transport.sock = AcceptingPeer(transport.sock, handler._session)


class AcceptingPeer:
    """A socket whose peer accepts every transfer at once."""

    def __init__(self, sock: Any, session: Any) -> None:
        self._socket = sock
        self._session = session
        endpoints = session._connection._incoming_endpoints
        self._channel = next(channel for channel in endpoints if endpoints[channel] is session)
        self._answer = b""

    def send(self, data: bytes) -> int:
        if data[8:11] == _TRANSFER:
            accepted = Disposition(
                RECEIVER, self._session.next_outgoing_id, settled=True, state=Accepted()
            )
            body = encode_composite(accepted)
            self._answer += _FRAME_HEADER.pack(len(body) + 8, 2, 0, self._channel) + body
        return len(data)

    def recv_into(self, buffer: memoryview) -> int:
        size = min(len(buffer), len(self._answer))
        if size == 0:
            raise TimeoutError
        buffer[:size], self._answer = self._answer[:size], self._answer[size:]
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)
