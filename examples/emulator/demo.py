"""A Service Bus namespace on this machine, used by the azure-servicebus SDK as it comes.

It ends with status 0 only if every message came back.
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.emulator import LocalNamespace

QUEUE, TOPIC, SUBSCRIPTION = "shop/orders", "news", "all"
BATCH = 100


def show(what: str, *details: object) -> None:
    print(f"  {what:<42}", *details)


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


def make_entities(namespace: LocalNamespace) -> None:
    print("The SDK's administration client makes entities:")
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
        sender.send_messages(ServiceBusMessage("the same again", message_id="0"))
        sender.send_messages([ServiceBusMessage(f"of a batch, {n}") for n in range(BATCH)])
        soon = datetime.now(UTC) + timedelta(seconds=1)
        [number] = sender.schedule_messages(ServiceBusMessage("scheduled"), soon)
    show("three messages, one of them twice", "duplicate detection drops the second")
    show("a batch of", BATCH)
    show("one to be delivered in a second", f"sequence number {number}")
    with client.get_topic_sender(TOPIC) as sender:
        sender.send_messages(ServiceBusMessage("to whom it may concern"))


def dead_letter(client: ServiceBusClient) -> bool:
    with client.get_subscription_receiver(TOPIC, SUBSCRIPTION) as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=5)
        receiver.dead_letter_message(message, reason="nobody is concerned")
    with client.get_subscription_receiver(
        TOPIC, SUBSCRIPTION, sub_queue=ServiceBusSubQueue.DEAD_LETTER
    ) as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=5)
        receiver.complete_message(message)
    show("dead-lettered, and found there", repr(message.dead_letter_reason))
    return message.dead_letter_reason == "nobody is concerned"


def talk(namespace: LocalNamespace, about: Callable[[ServiceBusClient], object]) -> object:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        return about(client)


def main() -> int:
    with LocalNamespace("demo") as namespace:
        print(f"A namespace serves port {namespace.port}: AMQP, AMQP in TLS, administration.")
        make_entities(namespace)
        talk(namespace, send)
        namespace.stop()
        namespace.start()
        print("The namespace was stopped and started again. The SDK receives:")
        expected = [f"order {n}" for n in range(3)] + [f"of a batch, {n}" for n in range(BATCH)]
        received = talk(namespace, lambda client: receive(client, len(expected) + 1))
        complete = received == [*expected, "scheduled"]
        show("messages, in order" if complete else "NOT what was sent", len(received))
        right = talk(namespace, dead_letter) is True
        print("What it would have cost, by the namespace's meter:")
        for (entity, kind), reading in sorted(namespace.meter().items()):
            if entity == QUEUE:
                show(f"{entity}: {kind}", f"{reading.operations} operations")
    print("Everything came back." if complete and right else "Something is wrong.")
    print("An outage, watched: examples/pairing/demo.py.")
    return 0 if complete and right else 1


if __name__ == "__main__":
    sys.exit(main())
