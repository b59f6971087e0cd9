"""Use a Service Bus namespace on this machine with the unmodified azure-servicebus SDK.

The exit status is 0 only if every message was received.
"""

import sys
from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.emulator import LocalNamespace

QUEUE, TOPIC, SUBSCRIPTION = "shop/orders", "news", "all"
BATCH = 100


def show(step: str, *details: object) -> None:
    print(f"  {step:<42}", *details)


def receive(client: ServiceBusClient, count: int) -> list[str]:
    """Receive and complete messages of the queue."""
    bodies: list[str] = []
    with client.get_queue_receiver(QUEUE, prefetch_count=count) as receiver:
        while len(bodies) < count:
            messages = receiver.receive_messages(count - len(bodies), max_wait_time=5)
            if not messages:
                break
            for message in messages:
                receiver.complete_message(message)
                bodies.append(str(message))
    return bodies


def create_entities(namespace: LocalNamespace) -> None:
    print("The SDK's administration client creates entities:")
    with ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=namespace.ca_file
    ) as administration:
        administration.create_queue(QUEUE, requires_duplicate_detection=True)
        administration.create_topic(TOPIC)
        administration.create_subscription(TOPIC, SUBSCRIPTION)
        show("queues", *(queue.name for queue in administration.list_queues()))
        show("topics", *(topic.name for topic in administration.list_topics()))


def send(client: ServiceBusClient) -> None:
    print("The SDK sends:")
    with client.get_queue_sender(QUEUE) as sender:
        for number in range(3):
            sender.send_messages(ServiceBusMessage(f"order {number}", message_id=str(number)))
        sender.send_messages(ServiceBusMessage("duplicate", message_id="0"))
        sender.send_messages([ServiceBusMessage(f"batched order {n}") for n in range(BATCH)])
        soon = datetime.now(UTC) + timedelta(seconds=1)
        [number] = sender.schedule_messages(ServiceBusMessage("scheduled"), soon)
    show("3 messages, one of them twice", "duplicate detection drops the second")
    show("a batch of messages", BATCH)
    show("a message scheduled for one second later", f"sequence number {number}")
    with client.get_topic_sender(TOPIC) as sender:
        sender.send_messages(ServiceBusMessage("to all subscribers"))


def dead_letter(client: ServiceBusClient) -> bool:
    with client.get_subscription_receiver(TOPIC, SUBSCRIPTION) as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=5)
        receiver.dead_letter_message(message, reason="unknown customer")
    with client.get_subscription_receiver(
        TOPIC, SUBSCRIPTION, sub_queue=ServiceBusSubQueue.DEAD_LETTER
    ) as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=5)
        receiver.complete_message(message)
    show("dead-lettered, and received from there", repr(message.dead_letter_reason))
    return message.dead_letter_reason == "unknown customer"


def main() -> int:
    with LocalNamespace("demo") as namespace:
        print(f"A namespace listens on port {namespace.port}: AMQP, AMQP over TLS, administration.")
        create_entities(namespace)
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            send(client)
        namespace.stop()
        namespace.start()
        print("The namespace was stopped and started again. The SDK receives:")
        expected = [f"order {n}" for n in range(3)] + [f"batched order {n}" for n in range(BATCH)]
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            received = receive(client, len(expected) + 1)
            complete = received == [*expected, "scheduled"]
            show("messages, in order" if complete else "NOT the messages sent", len(received))
            dead_lettered = dead_letter(client)
        print("Billable operations, counted by the namespace's meter:")
        for (entity, kind), reading in sorted(namespace.meter().items()):
            if entity == QUEUE:
                show(f"{entity}: {kind}", f"{reading.operations} operations")
    succeeded = complete and dead_lettered
    print("Every message was received." if succeeded else "Messages are missing.")
    print("For an outage of a namespace, see examples/pairing/demo.py.")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
