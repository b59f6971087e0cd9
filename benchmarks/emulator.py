"""The emulator beside RabbitMQ 3.10 and its AMQP 1.0 plugin, and the memory that it takes.

The same client of ours on both; each broker in processes of its own; durable queues, durable
messages. RabbitMQ has no batches of Service Bus: there only single deliveries are compared.
"""

import subprocess
import sys
import tempfile
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
class Emulator:
    """Where an emulator is, and how it spells its queues."""

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
    rounds = min(rounds, ROUNDS)  # each is seconds long
    notes = {}
    with ExitStack() as stack:
        emulators = {OURS: stack.enter_context(our_emulator())}
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
            emulators[RABBITMQ] = Emulator(options, prefix="/amq/queue/")
        result = []
        for body in BODIES:
            result.append(accept_single(emulators, body, rounds, notes))
            result.append(accept_batched(emulators[OURS], body, rounds))
            result.append(deliver(emulators, body, rounds, notes))
    return [*result, memory(10_000), memory(1_000_000)]


@contextmanager
def our_emulator() -> Iterator[Emulator]:
    with (
        tempfile.TemporaryDirectory("-pairbus") as folder,
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.emulator_process", folder, *QUEUES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        text = process.stdout.readline().strip()
        options = ClientOptions.from_connection_string(text, operation_timeout_s=TIMEOUT_S)
        yield Emulator(options, pid=process.pid)
        process.stdin.close()


def message(body: int) -> bytes:
    """An encoded durable message with an id and a body of so many bytes."""
    return Message.build(
        header=Header(durable=True),
        properties=Properties(message_id="0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
        data=b"x" * body,
    ).encode()


def send(sender: Sender, payload: bytes, count: int, window: int, message_format: int = 0) -> None:
    """Send so many deliveries, and wait until each is accepted."""
    client, sent, posted = sender.client, 0, []
    deadline = client.deadline(TIMEOUT_S)
    while sent < count or sender.in_flight:
        while sent < count and sender.in_flight < window:
            posted.append(sender.enqueue(payload, message_format, deadline))
            sent += 1
        client.step(deadline)
        assert client.now() < deadline, f"only {sent - sender.in_flight} of {count} were accepted"
    assert all(one.done and one.error is None for one in posted)


def take(emulator: Emulator, queue: str, count: int) -> int:
    """Receive and settle so many messages. The detach comes back when all that is settled."""
    taken = 0
    with emulator.client() as client, emulator.receiver(client, queue) as receiver:
        while taken < count:
            # RabbitMQ 3.10 miscounts credit that it is given while messages are under way.
            granted = min(CREDIT, count - taken)
            while granted:
                some = receiver.receive(granted)
                assert some, f"only {taken} of {count} came"
                receiver.settle(some)
                taken += len(some)
                granted -= len(some)
    return taken


def accept_single(
    emulators: dict[str, Emulator], body: int, rounds: int, notes: dict[str, str]
) -> Figure:
    """From a payload to its acceptance, one message a delivery."""
    payload = message(body)

    def case(emulator: Emulator) -> Timed:
        with emulator.client() as client, emulator.sender(client, "single") as sender:

            def work() -> int:
                send(sender, payload, SINGLE, WINDOW)
                return SINGLE

            result = timed(work)
        take(emulator, "single", SINGLE)
        return result

    return compare(
        f"accepted, single, {body} bytes",
        {name: lambda emulator=emulator: case(emulator) for name, emulator in emulators.items()},
        rounds=rounds,
        unit=RATE,
        aim=1,
        notes=notes,
    )


def accept_batched(emulator: Emulator, body: int, rounds: int) -> Figure:
    """The same with a hundred messages a delivery."""
    payload = make_batch([message(body)] * BATCH)

    def case() -> Timed:
        with emulator.client() as client, emulator.sender(client, "batched") as sender:

            def work() -> int:
                send(sender, payload, BATCHED // BATCH, BATCHES_IN_FLIGHT, BATCH_FORMAT)
                return BATCHED

            result = timed(work)
        take(emulator, "batched", BATCHED)
        return result

    return compare(
        f"accepted, batched, {body} bytes",
        {OURS: case},
        rounds=rounds,
        unit=RATE,
        notes={RABBITMQ: "cannot"},
    )


def deliver(
    emulators: dict[str, Emulator], body: int, rounds: int, notes: dict[str, str]
) -> Figure:
    """From a stored message to its settlement, with credit for many."""
    payload = message(body)

    def case(emulator: Emulator) -> Timed:
        with emulator.client() as client, emulator.sender(client, "received") as sender:
            send(sender, payload, SINGLE, WINDOW)
        return timed(lambda: take(emulator, "received", SINGLE))

    return compare(
        f"delivered and settled, {body} bytes",
        {name: lambda emulator=emulator: case(emulator) for name, emulator in emulators.items()},
        rounds=rounds,
        unit=RATE,
        aim=1,
        notes=notes,
    )


def memory(count: int) -> Figure:
    """What an emulator holds in memory that has taken in so many messages."""
    payload = make_batch([message(200)] * BATCH)
    with our_emulator() as emulator:
        with emulator.client() as client, emulator.sender(client, "memory") as sender:
            send(sender, payload, count // BATCH, BATCHES_IN_FLIGHT, BATCH_FORMAT)
        resident = resident_mb(emulator.pid)
    return Figure(f"resident with {count:,} messages stored", {OURS: resident}, MEGABYTES)


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kilobytes) / 1024
