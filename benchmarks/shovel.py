"""RabbitMQ's Shovel: one for each pair of queues, on-confirm, 1000 messages ahead.

The queues are filled and looked at in AMQP 0-9-1, RabbitMQ's own protocol. Only the little that a
benchmark needs is spoken: prepared frames go out as fast as the broker takes them.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from struct import pack, unpack

from benchmarks.rabbitmq import Node, durable, node

PREFETCH = 1000
PLUGINS = ("rabbitmq_shovel",)
AT_ONCE = 200
METHOD, HEADER, BODY, END = 1, 2, 3, b"\xce"
TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Shovels:
    """Two nodes: messages go from queues of the first to queues of either."""

    source: Node
    target: Node

    def node_of(self, two_nodes: bool) -> Node:
        return self.target if two_nodes else self.source

    def dig(self, pairs: list[tuple[str, str]], two_nodes: bool) -> None:
        """Start a shovel for each pair. A broker's own queues are reached without a socket."""
        target = self.node_of(two_nodes)
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
        # In one call: what `rabbitmqctl set_parameter shovel` does, for all of them at once.
        self.source.define({"parameters": parameters})

    def make(self, sources: list[str], destinations: list[str]) -> None:
        """Queues for one run, at either end."""
        self.source.define({"queues": [durable(name) for name in (*sources, *destinations)]})
        self.target.define({"queues": [durable(name) for name in destinations]})

    def empty(self, sources: list[str], destinations: list[str]) -> None:
        """Purge them. A shovel with an empty queue has nothing to do."""
        for broker, queues in (
            (self.source, (*sources, *destinations)),
            (self.target, destinations),
        ):
            channel = Channel(broker.port)
            for queue in queues:
                channel.purge(queue)
            channel.close()


@contextmanager
def shovels() -> Iterator[Shovels]:
    """Raises NotInstalled."""
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
        self._ask(0, 10, 11, pack(">I", 0) + _short("PLAIN") + _long(login) + _short("en_US"))
        tune = self._expect(10, 30)
        self._ask(0, 10, 31, tune[:6] + pack(">H", 0))  # its limits, and no heartbeats
        self._ask(0, 10, 40, _short("/") + b"\x00\x00")
        self._expect(10, 41)
        self._ask(1, 20, 10, b"\x00")
        self._expect(20, 11)

    def close(self) -> None:
        self._input.close()
        self._socket.close()

    def publish(self, queue: str, body: bytes, count: int) -> None:
        """Publish persistent messages; they are in the queue when this returns."""
        publish = pack(">HH", 60, 40) + b"\x00\x00" + _short("") + _short(queue) + b"\x00"
        header = pack(">HHQHB", 60, 0, len(body), 0x1000, 2)  # delivery-mode alone: persistent
        frames = _frame(METHOD, 1, publish) + _frame(HEADER, 1, header) + _frame(BODY, 1, body)
        self._ask(1, 85, 10, b"\x00")  # confirms
        self._expect(85, 11)
        sent = confirmed = 0
        while confirmed < count:
            some = min(AT_ONCE, count - sent)
            self._socket.sendall(frames * some)
            sent += some
            while confirmed < sent - 10 * AT_ONCE or (sent == count and confirmed < count):
                confirmed = unpack(">Q", self._expect(60, 80)[:8])[0]

    def count(self, queue: str) -> int:
        """Messages in a queue that are ready to be delivered."""
        passive = 0b00000001
        self._ask(1, 50, 10, b"\x00\x00" + _short(queue) + bytes([passive]) + pack(">I", 0))
        answer = self._expect(50, 11)
        messages: int = unpack(">I", answer[1 + answer[0] :][:4])[0]
        return messages

    def purge(self, queue: str) -> None:
        """Drop what is ready in a queue."""
        self._ask(1, 50, 30, b"\x00\x00" + _short(queue) + b"\x00")
        self._expect(50, 31)

    def _ask(self, channel: int, cls: int, method: int, arguments: bytes) -> None:
        self._socket.sendall(_frame(METHOD, channel, pack(">HH", cls, method) + arguments))

    def _expect(self, cls: int, method: int) -> bytes:
        """The arguments of the next method, which must be this one."""
        kind, _, size = unpack(">BHI", self._input.read(7))
        payload = self._input.read(size + 1)[:-1]
        assert kind == METHOD, f"a frame of kind {kind}"
        assert unpack(">HH", payload[:4]) == (cls, method), payload
        return payload[4:]


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + END


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return pack(">I", len(data)) + data


def fill_queues(broker: Node, queues: list[str], body: int, count: int) -> None:
    """The same number of messages in each of the queues."""
    for queue in queues:
        channel = Channel(broker.port)
        try:
            channel.publish(queue, b"x" * body, count // len(queues))
        finally:
            channel.close()
