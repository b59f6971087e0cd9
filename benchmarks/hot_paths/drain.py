"""The hot path of a drain: a backlog message is restored, and forwarded in a batch."""

from typing import Any, cast

from benchmarks.hot_paths.path import HotPath
from pairbus.amqp.client.sender import PendingDelivery
from pairbus.amqp.sections import Header, Message, Properties
from pairbus.spark.connections import Batching
from pairbus.spark.destination_sender import DestinationSender
from pairbus.spark.messages import ReceivedMessage, RestoredMessage
from pairbus.syphon.restore import restore
from pairbus.transfer import to_backlog

MESSAGES = 1000
LOCKED_UNTIL = 1_900_000_000_000


def restore_and_forward() -> HotPath:
    received = [_received(number) for number in range(MESSAGES)]

    def work() -> None:
        recorder = Recorder()
        sender = DestinationSender(
            "orders",
            cast(Any, Destination()),
            Batching(),
            cast(Any, recorder),
            min_locked_until=lambda: 0,
            hold_if_missing=True,
        )
        for message in received:
            sender.add(restore(message, None), 0)
        sender.flush()
        sender.wait()
        assert recorder.messages == MESSAGES

    return HotPath("drain: restore and forward", work, MESSAGES)


def _received(number: int) -> ReceivedMessage:
    message = Message.build(
        header=Header(ttl=60_000),
        properties=Properties(message_id=f"{number:032}"),
        application_properties={"tenant": "contoso", "priority": 3},
        data=bytes(200),
    )
    payload = to_backlog(message.encode(), "orders")
    return ReceivedMessage("backlog", payload, number.to_bytes(16, "big"), LOCKED_UNTIL)


class Destination:
    """A sender that accepts everything."""

    max_message_size = max_batch_size = 256 * 1024

    def open(self) -> None:
        """Do nothing."""

    def post(self, payload: bytes, *, message_format: int) -> PendingDelivery:
        return PendingDelivery(sent_at=0.0, done=True)

    def wait(self, deliveries: list[PendingDelivery]) -> None:
        """Do nothing: all deliveries are accepted."""


class Recorder:
    """Counts the messages that were delivered."""

    messages = 0

    def delivered(self, path: str, messages: list[RestoredMessage]) -> None:
        self.messages += len(messages)
