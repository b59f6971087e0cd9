"""RabbitMQ's Shovel: one for each pair of queues, on-confirm, with a prefetch of 1000 messages.

The queues are filled and counted over AMQP 0-9-1, RabbitMQ's native protocol. The client here has
only what the benchmark needs: it sends prepared frames as fast as the broker accepts them.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from struct import pack, unpack

from benchmarks.rabbitmq import Node, durable, node

PREFETCH = 1000
PLUGINS = ("rabbitmq_shovel",)
FRAMES_PER_WRITE = 200
METHOD, HEADER, BODY, END = 1, 2, 3, b"\xce"
TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Shovels:
    """Two nodes. Shovels move messages from queues of the first to queues of either."""

    source: Node
    target: Node

    def destination_node(self, two_nodes: bool) -> Node:
        """Return the node of the destination queues."""
        return self.target if two_nodes else self.source

    def start(self, pairs: list[tuple[str, str]], two_nodes: bool) -> None:
        """Start a shovel for each pair of queues. Within one broker it uses no socket."""
        target = self.destination_node(two_nodes)
        uri = f"amqp://guest:guest@127.0.0.1:{target.port}" if two_nodes else "amqp://"
        parameters = [
            {
                "component": "shovel",
                "vhost": "/",
                "name": f"{source} to {destination}",
                "value": {
                    "src-protocol": "amqp091",
                    "src-uri": "amqp://",
                    "src-queue": source,
                    "src-prefetch-count": PREFETCH,
                    "dest-protocol": "amqp091",
                    "dest-uri": uri,
                    "dest-queue": destination,
                    "ack-mode": "on-confirm",
                },
            }
            for source, destination in pairs
        ]
        # The same as `rabbitmqctl set_parameter shovel` for each of them, in one call.
        self.source.define({"parameters": parameters})

    def create_queues(self, sources: list[str], destinations: list[str]) -> None:
        """Create the queues of one run."""
        self.source.define({"queues": [durable(name) for name in (*sources, *destinations)]})
        self.target.define({"queues": [durable(name) for name in destinations]})

    def purge_queues(self, sources: list[str], destinations: list[str]) -> None:
        """Purge the queues. A shovel with an empty queue is idle."""
        for broker, queues in (
            (self.source, (*sources, *destinations)),
            (self.target, destinations),
        ):
            channel = Channel(broker.port)
            for queue in queues:
                channel.purge(queue)
            channel.close()


@contextmanager
def start_shovels() -> Iterator[Shovels]:
    """Start two brokers with the Shovel plugin. Raises NotInstalled."""
    with ExitStack() as stack:
        yield Shovels(*(stack.enter_context(node((), PLUGINS)) for _ in range(2)))


class Channel:
    """A connection to RabbitMQ with one channel."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._input = self._socket.makefile("rb")
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(10, 10)
        login = b"\x00guest\x00guest"
        self._call(0, 10, 11, pack(">I", 0) + _short("PLAIN") + _long(login) + _short("en_US"))
        tune = self._expect(10, 30)
        self._call(0, 10, 31, tune[:6] + pack(">H", 0))  # the limits of the broker, no heartbeats
        self._call(0, 10, 40, _short("/") + b"\x00\x00")
        self._expect(10, 41)
        self._call(1, 20, 10, b"\x00")
        self._expect(20, 11)

    def close(self) -> None:
        self._input.close()
        self._socket.close()

    def publish(self, queue: str, body: bytes, count: int) -> None:
        """Publish persistent messages, and wait until all are confirmed."""
        publish = pack(">HH", 60, 40) + b"\x00\x00" + _short("") + _short(queue) + b"\x00"
        header = pack(">HHQHB", 60, 0, len(body), 0x1000, 2)  # only delivery-mode: persistent
        frames = _frame(METHOD, 1, publish) + _frame(HEADER, 1, header) + _frame(BODY, 1, body)
        self._call(1, 85, 10, b"\x00")  # confirms
        self._expect(85, 11)
        sent = confirmed = 0
        while confirmed < count:
            batch = min(FRAMES_PER_WRITE, count - sent)
            self._socket.sendall(frames * batch)
            sent += batch
            while confirmed < sent - 10 * FRAMES_PER_WRITE or (sent == count and confirmed < count):
                confirmed = unpack(">Q", self._expect(60, 80)[:8])[0]

    def count(self, queue: str) -> int:
        """Return the number of messages in a queue that are ready for delivery."""
        passive = 0b00000001
        self._call(1, 50, 10, b"\x00\x00" + _short(queue) + bytes([passive]) + pack(">I", 0))
        arguments = self._expect(50, 11)
        messages: int = unpack(">I", arguments[1 + arguments[0] :][:4])[0]
        return messages

    def purge(self, queue: str) -> None:
        """Delete the messages of a queue that are ready for delivery."""
        self._call(1, 50, 30, b"\x00\x00" + _short(queue) + b"\x00")
        self._expect(50, 31)

    def _call(self, channel: int, cls: int, method: int, arguments: bytes) -> None:
        self._socket.sendall(_frame(METHOD, channel, pack(">HH", cls, method) + arguments))

    def _expect(self, cls: int, method: int) -> bytes:
        """Return the arguments of the next method frame, which must be of this method."""
        kind, _, size = unpack(">BHI", self._input.read(7))
        payload = self._input.read(size + 1)[:-1]
        assert kind == METHOD, f"unexpected frame of type {kind}"
        assert unpack(">HH", payload[:4]) == (cls, method), payload
        return payload[4:]


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + END


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return pack(">I", len(data)) + data


def fill_queues(broker: Node, queues: list[str], body: int, count: int) -> None:
    """Publish the same number of messages to each queue."""
    for queue in queues:
        channel = Channel(broker.port)
        try:
            channel.publish(queue, b"x" * body, count // len(queues))
        finally:
            channel.close()
