"""An outage on this machine: the primary stops while an application sends, and sends continue.

The exit status is 0 only if every message is in the primary or in the backlog.
"""

import logging
import sys
import time
from datetime import timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from pairbus import PairedClient, PathStatus, SendAvailabilityOptions, pair_namespace
from pairbus.emulator import LocalNamespace
from pairbus.events import Event, Pinged, StateChanged

QUEUE = "orders"
DEADLINE_S = 30.0


def show(label: str, *details: object) -> None:
    print(f"  {label:<32}", *details, flush=True)


def on_event(event: Event) -> None:
    """Print an event. An application would count events, or raise an alert."""
    match event:
        case StateChanged():
            show("event: state changed", f"{event.from_state.value} → {event.to_state.value}")
        case Pinged():
            show("event: pinged", "the primary is back" if event.error is None else "still down")


def bodies(connection_string: str, queue: str) -> set[str]:
    """Receive and delete all messages of a queue, and return their bodies."""
    received: set[str] = set()
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        while messages := receiver.receive_messages(100, max_wait_time=1):
            received |= {str(message) for message in messages}
    return received


def wait_until_healthy(client: PairedClient) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while client.status().paths[QUEUE].status is not PathStatus.HEALTHY:
        if time.monotonic() > deadline:
            sys.exit("the primary is back, but the path did not become healthy")
        time.sleep(0.05)


def main() -> int:
    logging.getLogger("pairbus").setLevel(logging.CRITICAL)  # the events show the same
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        primary.create_queue(QUEUE, requires_duplicate_detection=True)
        options = SendAvailabilityOptions(
            secondary=secondary.connection_string,
            primary_name="primary",  # localhost does not name a namespace
            backlog_queue_count=2,
            failover_interval=timedelta(),  # the first failed send goes to the backlog
            ping_primary_interval=timedelta(seconds=1),
            on_event=on_event,
        )
        # Few retries of the SDK, for a quick failover: by default they take 11 to 20 seconds.
        primary_client = ServiceBusClient.from_connection_string(
            primary.connection_string, retry_total=1, retry_backoff_factor=0.1
        )
        with (
            primary_client,
            pair_namespace(primary_client, options) as client,
            client.get_queue_sender(QUEUE) as sender,
        ):
            print("The primary is up:")
            sender.send_messages(ServiceBusMessage("1"))
            show("sent", 1)
            print("The primary goes down:")
            primary.stop()
            for number in ("2", "3"):
                sender.send_messages(ServiceBusMessage(number))
                show("sent", number)
            sender.send_messages([ServiceBusMessage("4"), ServiceBusMessage("5")])
            show("sent", "4 and 5, as a batch")
            print("The primary comes back:")
            primary.start()
            wait_until_healthy(client)
            sender.send_messages(ServiceBusMessage("6"))
            show("sent", 6)
        in_primary = bodies(primary.connection_string, QUEUE)
        queues = [bodies(secondary.connection_string, queue) for queue in client.backlog_queues]
        in_backlog = set().union(*queues)
        print("The messages are:")
        show("in the primary", ", ".join(sorted(in_primary)))
        show("in the backlog", ", ".join(sorted(in_backlog)))
    complete = in_primary | in_backlog == {"1", "2", "3", "4", "5", "6"}
    print("Nothing was lost." if complete else "Something is missing.")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
