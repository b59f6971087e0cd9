"""Every AMQP section and type of a message is delivered unchanged, with both SDKs, except for
decimals among the application properties."""

import uuid
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.decode import decode_whole
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Decimal128, Symbol
from tests.integration.sdk_flavours import (
    SDK_MARKS,
    Flavour,
    take,
    take_one,
)
from tests.interop.sdk_cases import (
    FROM_THE_SDK,
    NESTED_FROM_THE_SDK,
    NESTED_TO_THE_SDK,
    TO_THE_SDK,
    exactly,
)

pytestmark = SDK_MARKS

ADDED = {
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-message-state",
    "x-opt-enqueue-sequence-number",
    "x-opt-partition-key",
}
"""Annotations that the emulator adds to a message."""


def raw_client(bench: Flavour) -> Client:
    """A message of our own codec, which has all AMQP types."""
    return Client(ClientOptions.from_connection_string(bench.namespace.connection_string))


async def test_message_of_the_sdk_is_delivered_with_all_its_types(sdk: Flavour) -> None:
    queue = sdk.queue()
    cases = FROM_THE_SDK + NESTED_FROM_THE_SDK
    await sdk.sender(queue).send_messages(
        AmqpAnnotatedMessage(
            value_body=[value for _, value, _ in cases],
            annotations={name: value for name, value, _ in cases},
            delivery_annotations={name: value for name, value, _ in cases},
            footer={name: value for name, value, _ in cases},
            application_properties={name: value for name, value, _ in FROM_THE_SDK},
        )
    )

    with raw_client(sdk) as client:
        (delivery,) = Receiver(client, queue).receive(1)
    arrived = Message.parse(bytes(delivery.payload))

    expected = exactly({Symbol(name): value for name, _, value in cases})
    annotations = arrived.read_message_annotations()
    kept = {name: value for name, value in annotations.items() if str(name) not in ADDED}
    assert exactly(kept) == expected
    delivery_annotations = decode_whole(arrived.delivery_annotations).value
    assert type(delivery_annotations.pop("x-opt-lock-token")) is uuid.UUID
    assert exactly(delivery_annotations) == expected
    assert exactly(decode_whole(arrived.footer).value) == expected
    properties = {name: value for name, _, value in FROM_THE_SDK}
    # Encoded again, as by the service.
    properties["decimal"] = Decimal128(bytes.fromhex("0c3e000000000000000000000000000f"))
    assert exactly(arrived.read_application_properties()) == exactly(properties)
    assert exactly(arrived.read_body()[1]) == exactly([[value for _, _, value in cases]])


async def test_values_of_all_types_are_read_by_the_sdk(sdk: Flavour) -> None:
    queue = sdk.queue()
    cases = TO_THE_SDK + NESTED_TO_THE_SDK
    made = Message.build(
        message_annotations={Symbol(name): value for name, value, _ in cases},
        application_properties={name: value for name, value, _ in TO_THE_SDK},
        value=[value for _, value, _ in cases],
    )
    with raw_client(sdk) as client:
        Sender(client, queue).send(made.encode())

    message = await take_one(sdk.receiver(queue))

    assert exactly(message.application_properties) == exactly(
        {name.encode(): value for name, _, value in TO_THE_SDK}
    )
    annotations = message.raw_amqp_message.annotations
    kept = {name: value for name, value in annotations.items() if name.decode() not in ADDED}
    assert exactly(kept) == exactly({name.encode(): value for name, _, value in cases})
    assert exactly(message.body) == exactly([value for _, _, value in cases])


PROPERTIES: dict[str, Any] = {
    "message_id": uuid.UUID(int=7),
    "user_id": b"me",
    "to": "there",
    "subject": "what",
    "reply_to": "here",
    "correlation_id": b"\x00\x01",
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "absolute_expiry_time": 4_000_000_000_000,
    "creation_time": 1_700_000_000_000,
    "group_id": "group",
    "group_sequence": 3,
    "reply_to_group_id": "other",
}


HEADER = {"durable": True, "priority": 7, "first_acquirer": True}
APPLICATION_PROPERTIES = {b"text": "ž".encode(), b"number": 12, b"real": 0.5, b"yes": True}
"""The application properties of such a message, as the SDK returns them."""


def annotated(time_to_live: int | None = None, **body: Any) -> AmqpAnnotatedMessage:
    """Return a message with something in every section.

    With a time-to-live, the SDK overwrites the creation and expiry times in the properties.
    """
    return AmqpAnnotatedMessage(
        header=AmqpMessageHeader(time_to_live=time_to_live, **HEADER),
        delivery_annotations={"x-delivery": "d"},
        annotations={"x-mine": "a", "x-number": 5},
        properties=AmqpMessageProperties(**PROPERTIES),
        application_properties={"text": "ž", "number": 12, "real": 0.5, "yes": True},
        footer={"x-footer": "f"},
        **body,
    )


async def test_every_section_and_body_is_delivered_to_the_sdk(sdk: Flavour) -> None:
    queue = sdk.queue()
    sender, receiver = await sdk.pair(queue, prefetch_count=5)
    cases = [
        ("data_body", [b"one", b"two"], [b"one", b"two"], AmqpMessageBodyType.DATA),
        ("data_body", b"", [b""], AmqpMessageBodyType.DATA),
        ("value_body", {"a": [1, None, "b"]}, {b"a": [1, None, b"b"]}, AmqpMessageBodyType.VALUE),
        ("value_body", None, None, AmqpMessageBodyType.VALUE),
        ("sequence_body", [[1, 2], ["x"]], [[1, 2], [b"x"]], AmqpMessageBodyType.SEQUENCE),
    ]
    await sender.send_messages([annotated(**{kind: body}) for kind, body, _, _ in cases])

    for message, (_, _, body, body_type) in zip(await take(receiver, 5), cases, strict=True):
        raw = message.raw_amqp_message
        assert raw.body_type == body_type
        assert (raw.body if body_type == AmqpMessageBodyType.VALUE else list(raw.body)) == body
        assert {name: getattr(raw.header, name) for name in HEADER} == HEADER
        assert raw.header.delivery_count == 0
        assert raw.delivery_annotations == {
            b"x-delivery": b"d",
            b"x-opt-lock-token": message.lock_token,
        }
        assert (raw.annotations[b"x-mine"], raw.annotations[b"x-number"]) == (b"a", 5)
        assert raw.application_properties == APPLICATION_PROPERTIES
        assert raw.footer == {b"x-footer": b"f"}
        for name, value in PROPERTIES.items():
            written = value.encode() if isinstance(value, str) else value
            assert getattr(raw.properties, name) == written, name


async def test_received_message_can_be_sent_again(sdk: Flavour) -> None:
    """The raw AMQP message that the SDK returns is sent to the next queue."""
    first, second = sdk.queue(), sdk.queue()
    sender, receiver, forwarder, last = await sdk.open(
        sdk.sender(first), sdk.receiver(first), sdk.sender(second), sdk.receiver(second)
    )
    await sender.send_messages(annotated(60_000, value_body={"a": [1, None]}))
    received = await take_one(receiver)
    await forwarder.send_messages(received.raw_amqp_message)
    again = (await take_one(last)).raw_amqp_message
    assert again.header.time_to_live == received.raw_amqp_message.header.time_to_live == 60_000
    assert again.body == received.raw_amqp_message.body
    assert again.footer == received.raw_amqp_message.footer
    assert again.application_properties == APPLICATION_PROPERTIES
    assert again.annotations[b"x-mine"] == b"a"


async def test_large_messages_are_delivered_completely(sdk: Flavour) -> None:
    queue = sdk.queue()
    sender, receiver = await sdk.pair(queue)
    body = bytes(range(256)) * 1000  # just below the size limit
    await sender.send_messages(ServiceBusMessage(body))
    assert b"".join((await take_one(receiver)).body) == body


async def test_payload_is_delivered_unchanged(sdk: Flavour) -> None:
    """A message of the SDK, read and sent again by our client, is unchanged."""
    queue, other = sdk.queue(), sdk.queue()
    await sdk.sender(queue).send_messages(annotated(60_000, value_body={"a": [1, None, "b"]}))
    client = sdk.raw()
    first = Message.parse(receive_raw(client, queue))
    Sender(client, other).send(first.encode())
    second = Message.parse(receive_raw(client, other))
    first_annotations = decode_whole(first.delivery_annotations).value
    second_annotations = decode_whole(second.delivery_annotations).value
    token = "x-opt-lock-token"
    assert second_annotations.pop(token) != first_annotations.pop(token)
    assert second_annotations == first_annotations != {}
    assert second.properties == first.properties != b""
    assert second.application_properties == first.application_properties != b""
    assert second.body == first.body != b""
    assert second.footer == first.footer != b""
    assert second.header == first.header != b""
    ours = ("x-opt-enqueued-time", "x-opt-locked-until")
    assert without(second.read_message_annotations(), ours) == without(
        first.read_message_annotations(), ours
    )


def receive_raw(client: Any, path: str) -> bytes:
    (delivery,) = Receiver(client, path).receive(1)
    return bytes(delivery.payload)


def without(values: Any, keys: tuple[str, ...]) -> dict[Any, Any]:
    return {key: value for key, value in values.items() if key not in keys}
