"""Send and receive with the unmodified azure-servicebus SDK and a server on `pairbus.amqp`.

The script prints the exchanged frames. It exits with status 0 only if every message was received
as it was sent.
"""

import sys
from collections.abc import Iterator
from itertools import groupby

import azure.servicebus
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from frame_log import Frame, FrameLog
from memory_server import MemoryServer

from pairbus.amqp.batch import BATCH_FORMAT

QUEUE = "orders"
SINGLES = [f"order {n}" for n in range(3)]
BATCH = [f"order {n} of a batch" for n in range(100)]
LARGE = "a large order " * 15_000
SUMMARY = f"{len(SINGLES)} messages, a batch of {len(BATCH)}, one of {len(LARGE) // 1000} kB"


def send(client: ServiceBusClient) -> None:
    with client.get_queue_sender(QUEUE) as sender:
        for body in SINGLES:
            sender.send_messages(ServiceBusMessage(body))
        batch = sender.create_message_batch()
        for body in BATCH:
            batch.add_message(ServiceBusMessage(body))
        sender.send_messages(batch)
        sender.send_messages(ServiceBusMessage(LARGE))


def receive(client: ServiceBusClient, count: int) -> list[str]:
    bodies: list[str] = []
    with client.get_queue_receiver(QUEUE, prefetch_count=count) as receiver:
        while len(bodies) < count:
            messages = receiver.receive_messages(count - len(bodies), max_wait_time=10)
            if not messages:
                break
            for message in messages:
                receiver.complete_message(message)
                bodies.append(str(message))
    return bodies


def deliveries(frames: list[Frame]) -> Iterator[str]:
    """Yield a line for each delivery with its message format, frames and size."""
    sizes: list[int] = []
    message_format = 0
    for frame in frames:
        transfer = frame.performative
        message_format = message_format if sizes else transfer.message_format or 0
        sizes.append(frame.size)
        if not transfer.more:
            kind = ", a Service Bus batch" if message_format == BATCH_FORMAT else ""
            count = "1 frame" if len(sizes) == 1 else f"{len(sizes)} frames"
            yield f"message format {message_format:#x}{kind}: {count}, {sum(sizes)} bytes"
            sizes = []


def conversation(frames: list[Frame]) -> Iterator[str]:
    """Yield the names of frames, with consecutive frames of one side in one line."""
    for direction, group in groupby(frames, lambda frame: frame.direction):
        names = []
        for name, same in groupby(frame.name for frame in group):
            count = len(list(same))
            names.append(name if count == 1 else f"{count} {name}s")
        yield f"{'SDK:   ' if direction == 'in' else 'engine:'} {', '.join(names)}"


def main() -> int:
    expected = [*SINGLES, *BATCH, LARGE]
    log = FrameLog()
    with MemoryServer(split_batches=True, max_frame_size=16_384) as server:
        server.on_data = log
        print(f"Server: pairbus.amqp on 127.0.0.1:{server.port}, queues in memory.")
        print(f"Client: azure-servicebus {azure.servicebus.__version__}, unmodified.\n")
        connection_string = (
            f"Endpoint=sb://127.0.0.1:{server.port}/;SharedAccessKeyName=demo;"
            "SharedAccessKey=demo;UseDevelopmentEmulator=true;"
        )
        with ServiceBusClient.from_connection_string(connection_string) as client:
            send(client)
            received = receive(client, len(expected))
        server.wait_for(lambda: not server.connections)

    complete = received == expected and len(server.settlements) == len(expected)
    print(f"sent      {SUMMARY}")
    print(f"received  {len(received)} messages, {len(server.settlements)} of them settled")
    print(f"in order and unchanged: {'yes' if received == expected else 'NO'}\n")

    sender = [frame for frame in log.frames if frame.connection == 0]
    print("First frames of the sender's connection, and its deliveries:")
    for line in list(conversation(sender))[:8]:
        print(f"  {line}")
    # The first transfer is the token for CBS.
    orders = [frame for frame in sender if frame.direction == "in" and frame.name == "transfer"][1:]
    for line in deliveries(orders):
        print(f"  transfer, {line}")
    if server.violations or server.failures:
        print(f"\nErrors: {server.violations or server.failures}")
        complete = False
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
