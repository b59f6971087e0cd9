"""The emulator compared with RabbitMQ 3.10 and its AMQP 1.0 plugin, and the memory it uses.

Both are measured with the client of `pairbus.amqp`, each server in its own processes, with durable
queues and durable messages. RabbitMQ does not support the batches of Service Bus, so only single
deliveries are compared.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import MEGABYTES, OURS, RATE, Figure, Timed, compare, timed
from benchmarks.rabbitmq import NotInstalled, rabbitmq
from pairbus.amqp.batch import BATCH_FORMAT, make_batch
from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.sections import Header, Message, Properties
from pairbus.emulator import EmulatorProcess

RABBITMQ = "RabbitMQ"
BODIES = (200, 1024)
QUEUES = ("single", "batched", "received", "memory")
WINDOW = 200
"""Deliveries in flight."""
SINGLE, BATCHED, BATCH = 10_000, 40_000, 100
BATCHES_IN_FLIGHT = 4
CREDIT = 2000
ROUNDS = 3
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class AmqpServer:
    """The address of a server, and the prefix of its queue names."""

    options: ClientOptions
    prefix: str = ""
    pid: int = 0

    def client(self) -> Client:
        return Client(self.options)

    def sender(self, client: Client, queue: str) -> Sender:
        return Sender(client, self.prefix + queue)

    def receiver(self, client: Client, queue: str) -> Receiver:
        return Receiver(client, self.prefix + queue, confirm=False)


def figures(rounds: int) -> list[Figure]:
    rounds = min(rounds, ROUNDS)  # a round takes several seconds
    notes = {}
    with ExitStack() as stack:
        servers = {OURS: stack.enter_context(our_emulator())}
        try:
            port = stack.enter_context(rabbitmq(QUEUES))
        except NotInstalled as exc:
            print(exc)
            notes[RABBITMQ] = "not installed"
        else:
            options = ClientOptions(
                host="127.0.0.1",
                port=port,
                tls=False,
                sasl=SaslClient.plain("guest", "guest"),
                operation_timeout_s=TIMEOUT_S,
            )
            servers[RABBITMQ] = AmqpServer(options, prefix="/amq/queue/")
        result = []
        for body in BODIES:
            result.append(accept_single(servers, body, rounds, notes))
            result.append(accept_batched(servers[OURS], body, rounds))
            result.append(deliver(servers, body, rounds, notes))
    return [*result, memory(10_000), memory(1_000_000)]


@contextmanager
def our_emulator() -> Iterator[AmqpServer]:
    with EmulatorProcess("bench", queues=QUEUES) as emulator:
        options = ClientOptions.from_connection_string(
            emulator.connection_string, operation_timeout_s=TIMEOUT_S
        )
        yield AmqpServer(options, pid=emulator.pid)


def message(body: int) -> bytes:
    """Return an encoded durable message with an id and a body of this size."""
    return Message.build(
        header=Header(durable=True),
        properties=Properties(message_id="0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
        data=b"x" * body,
    ).encode()


def send(sender: Sender, payload: bytes, count: int, window: int, message_format: int = 0) -> None:
    """Send `count` deliveries, and wait until each is accepted."""
    client, sent, pending = sender.client, 0, []
    deadline = client.deadline(TIMEOUT_S)
    while sent < count or sender.in_flight:
        while sent < count and sender.in_flight < window:
            pending.append(sender.enqueue(payload, message_format, deadline))
            sent += 1
        client.step(deadline)
        assert client.now() < deadline, f"only {sent - sender.in_flight} of {count} were accepted"
    assert all(delivery.done and delivery.error is None for delivery in pending)


def drain(server: AmqpServer, queue: str, count: int) -> int:
    """Receive and settle `count` messages.

    The link is detached at the end: the reply proves that every settlement was processed.
    """
    received = 0
    with server.client() as client, server.receiver(client, queue) as receiver:
        while received < count:
            # RabbitMQ 3.10 miscounts credit that is granted while messages are in transit.
            granted = min(CREDIT, count - received)
            while granted:
                deliveries = receiver.receive(granted)
                assert deliveries, f"only {received} of {count} were delivered"
                receiver.settle(deliveries)
                received += len(deliveries)
                granted -= len(deliveries)
    return received


def accept_single(
    servers: dict[str, AmqpServer], body: int, rounds: int, notes: dict[str, str]
) -> Figure:
    """Measure from the payload to its acceptance, with one message per delivery."""
    payload = message(body)

    def case(server: AmqpServer) -> Timed:
        with server.client() as client, server.sender(client, "single") as sender:

            def work() -> int:
                send(sender, payload, SINGLE, WINDOW)
                return SINGLE

            result = timed(work)
        drain(server, "single", SINGLE)
        return result

    return compare(
        f"accepted, single, {body} bytes",
        {name: lambda server=server: case(server) for name, server in servers.items()},
        rounds=rounds,
        unit=RATE,
        aim=1,
        notes=notes,
    )


def accept_batched(server: AmqpServer, body: int, rounds: int) -> Figure:
    """Measure from the payload to its acceptance, with a hundred messages per delivery."""
    payload = make_batch([message(body)] * BATCH)

    def case() -> Timed:
        with server.client() as client, server.sender(client, "batched") as sender:

            def work() -> int:
                send(sender, payload, BATCHED // BATCH, BATCHES_IN_FLIGHT, BATCH_FORMAT)
                return BATCHED

            result = timed(work)
        drain(server, "batched", BATCHED)
        return result

    return compare(
        f"accepted, batched, {body} bytes",
        {OURS: case},
        rounds=rounds,
        unit=RATE,
        notes={RABBITMQ: "not supported"},
    )


def deliver(
    servers: dict[str, AmqpServer], body: int, rounds: int, notes: dict[str, str]
) -> Figure:
    """Measure from the stored message to its settlement, with credit for many."""
    payload = message(body)

    def case(server: AmqpServer) -> Timed:
        with server.client() as client, server.sender(client, "received") as sender:
            send(sender, payload, SINGLE, WINDOW)
        return timed(lambda: drain(server, "received", SINGLE))

    return compare(
        f"delivered and settled, {body} bytes",
        {name: lambda server=server: case(server) for name, server in servers.items()},
        rounds=rounds,
        unit=RATE,
        aim=1,
        notes=notes,
    )


def memory(count: int) -> Figure:
    """Measure the memory of an emulator that has accepted `count` messages."""
    payload = make_batch([message(200)] * BATCH)
    with our_emulator() as emulator:
        with emulator.client() as client, emulator.sender(client, "memory") as sender:
            send(sender, payload, count // BATCH, BATCHES_IN_FLIGHT, BATCH_FORMAT)
        resident = resident_mb(emulator.pid)
    return Figure(f"resident memory, {count:,} messages stored", {OURS: resident}, MEGABYTES)


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kilobytes) / 1024
