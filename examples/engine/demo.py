"""The azure-servicebus SDK, as it comes, talks to a server on pairbus's AMQP engine.

It says what happened on the wire, and ends with status 0 only if every
message came back as it was sent.
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
PLAN = f"{len(SINGLES)} messages, a batch of {len(BATCH)}, one of {len(LARGE) // 1000} kB"


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
    """A line for each delivery: its message format, and the frames that it took."""
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
    """The names of frames, with those of one side in one line; repeated ones are counted."""
    for direction, group in groupby(frames, lambda frame: frame.direction):
        names = []
        for name, same in groupby(frame.name for frame in group):
            count = len(list(same))
            names.append(name if count == 1 else f"{count} {name}s")
        yield f"{'SDK:   ' if direction == 'in' else 'engine:'} {', '.join(names)}"


def main() -> int:
    expected = [*SINGLES, *BATCH, LARGE]
    log = FrameLog()
    with MemoryServer(unbatch=True, max_frame_size=16_384) as server:
        server.tap = log
        print(f"A server on the engine: 127.0.0.1:{server.port}, queues in memory.")
        print(f"Its client: azure-servicebus {azure.servicebus.__version__}, as it comes.\n")
        connection_string = (
            f"Endpoint=sb://127.0.0.1:{server.port}/;SharedAccessKeyName=demo;"
            "SharedAccessKey=demo;UseDevelopmentEmulator=true;"
        )
        with ServiceBusClient.from_connection_string(connection_string) as client:
            send(client)
            received = receive(client, len(expected))
        server.wait_for(lambda: not server.peers)

    complete = received == expected and len(server.settlements) == len(expected)
    print(f"sent      {PLAN}")
    print(f"received  {len(received)} messages, {len(server.settlements)} of them settled")
    print(f"in order and unchanged: {'yes' if received == expected else 'NO'}\n")

    sender = [frame for frame in log.frames if frame.connection == 0]
    print("How the sender's connection began, and what it sent:")
    for line in list(conversation(sender))[:8]:
        print(f"  {line}")
    orders = [f for f in sender if f.direction == "in" and f.name == "transfer"][1:]  # 0: a token
    for line in deliveries(orders):
        print(f"  transfer, {line}")
    if server.violations or server.failures:
        print(f"\nErrors: {server.violations or server.failures}")
        complete = False

    print("\nWhat pairbus has so far: this engine, for clients and servers, and a blocking client.")
    print("Not yet: paired namespaces, the syphon, the emulator, the cost reports.")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
