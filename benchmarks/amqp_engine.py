"""The AMQP engine compared with proton's Python classes and with the codec of the Azure SDK.

All three process the same bytes, if they support the operation. The SDK's codec only encodes and
decodes. It keeps no windows, credit or delivery state, unlike proton and pairbus.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import proton
from azure.servicebus._pyamqp import _decode as sdk_decode
from azure.servicebus._pyamqp import _encode as sdk_encode
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus._pyamqp.message import Message as SdkMessage
from azure.servicebus._pyamqp.performatives import TransferFrame
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes

from benchmarks.harness import OURS, Figure, Timed, compare, timed
from pairbus.amqp.batch import BATCH_FORMAT, make_batch, split_batch
from pairbus.amqp.composite import encode_composite
from pairbus.amqp.connection import Connection
from pairbus.amqp.events import AttachReceived, Delivery, OutgoingDeliveriesUpdated
from pairbus.amqp.link import ReceiverLink, SenderLink
from pairbus.amqp.performatives import Accepted, Disposition, Target
from pairbus.amqp.sections import Header, Message, Properties
from pairbus.amqp.settings import ConnectionSettings
from pairbus.amqp.types import Symbol, Timestamp, UInt
from pairbus.transfer import from_backlog, to_backlog

PROTON, SDK = "proton", "SDK codec"
COUNT = 5000
BATCH = 500
CHUNK = 65536
TAG = bytes(range(16))


def figures(rounds: int) -> list[Figure]:
    message = Message.build(
        properties=Properties(message_id="0f1e2d3c4b5a69788796a5b4c3d2e1f0"), data=b"x" * 255
    ).encode()
    assert len(message) == 300, len(message)
    return [
        receive(message, rounds),
        send(message, rounds),
        write_batch(message, rounds),
        read_batch(message, rounds),
        dispose(message, rounds),
        restore(rounds),
    ]


def linked() -> tuple[Connection, SenderLink, Connection, ReceiverLink]:
    """Return two engines with a link that has credit for all messages."""
    window = {"incoming_window": 4 * COUNT, "outgoing_window": 4 * COUNT}
    a = Connection(ConnectionSettings(container_id="a", **window), client=True, now=0.0)
    b = Connection(ConnectionSettings(container_id="b", **window), client=False, now=0.0)
    pump(a, b)
    sender = a.begin().attach_sender("bench", target=Target("queue"))
    link = next(event.link for event in pump(a, b) if isinstance(event, AttachReceived))
    link.accept(max_message_size=1024 * 1024)
    assert isinstance(link, ReceiverLink)
    link.flow(2 * COUNT)
    pump(a, b)
    assert sender.credit == 2 * COUNT
    return a, sender, b, link


def pump(a: Connection, b: Connection) -> list[object]:
    events: list[object] = []
    while a.has_data_to_send or b.has_data_to_send:
        events += b.receive(a.data_to_send(), 0.0)
        events += a.receive(b.data_to_send(), 0.0)
    return events


def chunks(data: bytes) -> list[bytes]:
    return [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]


@contextmanager
def proton_linked() -> Iterator[
    tuple[proton.Transport, proton.Sender, proton.Transport, proton.Receiver]
]:
    """Provide two proton connections in memory with a link."""
    ends = []
    for name, mode in (("a", proton.Transport.CLIENT), ("b", proton.Transport.SERVER)):
        connection = proton.Connection()
        connection.container = name
        transport = proton.Transport(mode)
        transport.bind(connection)
        connection.open()
        ends.append((connection, transport))
    (a, at), (b, bt) = ends
    session = a.session()
    session.open()
    sender = session.sender("bench")
    sender.target.address = "queue"
    sender.open()
    proton_pump(at, bt)
    other = b.session_head(proton.Endpoint.REMOTE_ACTIVE)
    other.open()
    receiver = b.link_head(proton.Endpoint.REMOTE_ACTIVE)
    receiver.target.copy(receiver.remote_target)
    receiver.open()
    receiver.flow(2 * COUNT)
    proton_pump(at, bt)
    assert sender.credit == 2 * COUNT
    yield at, sender, bt, receiver
    at.unbind()
    bt.unbind()


def proton_output(transport: proton.Transport) -> bytes:
    parts = []
    while transport.pending() > 0:
        data = transport.peek(transport.pending())
        parts.append(data)
        transport.pop(len(data))
    return b"".join(parts)


def proton_input(transport: proton.Transport, data: bytes) -> None:
    while data:
        capacity = transport.capacity()
        transport.push(data[:capacity])
        data = data[capacity:]


def proton_pump(a: proton.Transport, b: proton.Transport) -> None:
    while a.pending() > 0 or b.pending() > 0:
        proton_input(b, proton_output(a))
        proton_input(a, proton_output(b))


def receive(message: bytes, rounds: int) -> Figure:
    """Measure from the data of the socket to a delivery with its payload."""

    def ours() -> Timed:
        a, sender, b, _ = linked()
        for _ in range(COUNT):
            sender.send(message, tag=TAG)
        pieces = chunks(a.data_to_send())

        def work() -> int:
            count = 0
            for piece in pieces:
                for event in b.receive(piece, 0.0):
                    if type(event) is Delivery and len(event.payload) == 300:
                        count += 1
            assert count == COUNT
            return count

        return timed(work)

    def by_proton() -> Timed:
        with proton_linked() as (at, sender, bt, receiver):
            for number in range(COUNT):
                sender.delivery(number.to_bytes(16, "big"))
                sender.send(message)
                sender.advance()
            pieces = chunks(proton_output(at))

            def work() -> int:
                count = 0
                for piece in pieces:
                    proton_input(bt, piece)
                    while (delivery := receiver.current) is not None and not delivery.partial:
                        if not delivery.readable or len(receiver.recv(delivery.pending)) != 300:
                            break
                        receiver.advance()
                        count += 1
                assert count == COUNT, count
                return count

            return timed(work)

    def by_sdk() -> Timed:
        a, sender, _, _ = linked()
        for _ in range(COUNT):
            sender.send(message, tag=TAG)
        data = a.data_to_send()

        def work() -> int:
            count = pos = 0
            while pos < len(data):
                size = int.from_bytes(data[pos : pos + 4], "big")
                _, fields = sdk_decode.decode_frame(memoryview(data)[pos + 8 : pos + size])
                if len(bytes(fields[11])) == 300:
                    count += 1
                pos += size
            assert count == COUNT
            return count

        return timed(work)

    return compare(
        "receive a transfer",
        {OURS: ours, PROTON: by_proton, SDK: by_sdk},
        rounds=rounds,
        aim=3,
        aim_is_value=True,
    )


def send(message: bytes, rounds: int) -> Figure:
    """Measure from a payload to the data for the socket."""

    def ours() -> Timed:
        a, sender, _, _ = linked()

        def work() -> int:
            for _ in range(COUNT):
                sender.send(message, tag=TAG)
            assert len(a.data_to_send()) > COUNT * 300
            return COUNT

        return timed(work)

    def by_proton() -> Timed:
        with proton_linked() as (at, sender, _, _):

            def work() -> int:
                for number in range(COUNT):
                    sender.delivery(number.to_bytes(16, "big"))
                    sender.send(message)
                    sender.advance()
                assert len(proton_output(at)) > COUNT * 300
                return COUNT

            return timed(work)

    def by_sdk() -> Timed:
        def work() -> int:
            size = 0
            for number in range(COUNT):
                transfer = TransferFrame(
                    payload=message,
                    handle=0,
                    delivery_id=number,
                    delivery_tag=TAG,
                    message_format=0,
                    settled=False,
                    more=False,
                )
                header, body = sdk_encode.encode_frame(transfer)
                size += len(header + body)
            assert size > COUNT * 300
            return COUNT

        return timed(work)

    return compare("send a transfer", {OURS: ours, PROTON: by_proton, SDK: by_sdk}, rounds=rounds)


def write_batch(message: bytes, rounds: int) -> Figure:
    """Measure from 500 encoded messages to the data of a batch for the socket."""
    messages = [message] * BATCH

    def ours() -> Timed:
        a, sender, _, _ = linked()

        def work() -> int:
            for _ in range(10):
                sender.send(make_batch(messages), message_format=BATCH_FORMAT)
            assert len(a.data_to_send()) > 10 * BATCH * 300
            return 10 * BATCH

        return timed(work)

    def by_sdk() -> Timed:
        def work() -> int:
            for _ in range(10):
                batch = BatchMessage(data=messages)
                assert len(sdk_encode.encode_payload(bytearray(), batch)) > BATCH * 300
            return 10 * BATCH

        return timed(work)

    return compare(
        "write a batch of 500",
        {OURS: ours, SDK: by_sdk},
        rounds=rounds,
        aim=1,
        aim_is_value=True,
        notes={PROTON: "not supported"},
    )


def read_batch(message: bytes, rounds: int) -> Figure:
    """Measure from the data of the socket to the 500 encoded messages of a batch."""

    def ours() -> Timed:
        a, sender, b, _ = linked()
        for _ in range(10):
            sender.send(make_batch([message] * BATCH), message_format=BATCH_FORMAT)
        pieces = chunks(a.data_to_send())

        def work() -> int:
            count = 0
            for piece in pieces:
                for event in b.receive(piece, 0.0):
                    if type(event) is Delivery and event.message_format == BATCH_FORMAT:
                        count += len(split_batch(event.payload))
            assert count == 10 * BATCH
            return count

        return timed(work)

    payload = make_batch([message] * BATCH)

    def by_sdk() -> Timed:
        def work() -> int:
            count = 0
            for _ in range(10):
                count += len(list(sdk_decode.decode_payload(memoryview(payload)).data))
            assert count == 10 * BATCH
            return count

        return timed(work)

    return compare(
        "read a batch of 500",
        {OURS: ours, SDK: by_sdk},
        rounds=rounds,
        aim=1,
        aim_is_value=True,
        notes={PROTON: "not supported"},
    )


def dispose(message: bytes, rounds: int) -> Figure:
    """Measure from the data of the socket to 500 accepted deliveries."""

    def ours() -> Timed:
        a, sender, b, _ = linked()
        for _ in range(COUNT):
            sender.send(message, tag=TAG)
        deliveries = [e for e in b.receive(a.data_to_send(), 0.0) if type(e) is Delivery]
        session = deliveries[0].link.session
        for first in range(0, COUNT, BATCH):
            session.settle(first, first + BATCH - 1, Accepted())
        data = b.data_to_send()

        def work() -> int:
            count = 0
            for event in a.receive(data, 0.0):
                if isinstance(event, OutgoingDeliveriesUpdated) and isinstance(
                    event.state, Accepted
                ):
                    count += len(event.deliveries)
            assert count == COUNT
            return count

        return timed(work)

    def by_proton() -> Timed:
        with proton_linked() as (at, sender, bt, receiver):
            sent = []
            for number in range(COUNT):
                sent.append(sender.delivery(number.to_bytes(16, "big")))
                sender.send(message)
                sender.advance()
            proton_input(bt, proton_output(at))
            while (delivery := receiver.current) is not None and delivery.readable:
                receiver.recv(delivery.pending)
                receiver.advance()
                delivery.update(proton.Delivery.ACCEPTED)
                delivery.settle()
            data = proton_output(bt)

            def work() -> int:
                proton_input(at, data)
                count = 0
                for delivery in sent:
                    if delivery.remote_state == proton.Delivery.ACCEPTED:
                        delivery.settle()
                        count += 1
                assert count == COUNT, count
                return count

            return timed(work)

    frames = sdk_dispositions()

    def by_sdk() -> Timed:
        def work() -> int:
            count = 0
            for body in frames:
                _, fields = sdk_decode.decode_frame(memoryview(body))
                count += fields[2] - fields[1] + 1
            assert count == COUNT
            return count

        return timed(work)

    return compare(
        "receive a disposition of 500",
        {OURS: ours, PROTON: by_proton, SDK: by_sdk},
        rounds=rounds,
        remark="the SDK's codec only decodes the frame; pairbus and proton look up each delivery",
    )


def sdk_dispositions() -> list[bytes]:
    """Return disposition frames for COUNT deliveries, for a codec without delivery state."""
    return [
        encode_composite(Disposition(True, first, first + BATCH - 1, True, Accepted()))
        for first in range(0, COUNT, BATCH)
    ]


def restore(rounds: int) -> Figure:
    """Measure the restore of a backlog message: remove four aliases, set three properties."""
    backlog_payload = backlog_message()
    names = ("x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc")
    schedule = Symbol("x-opt-scheduled-enqueue-time")

    def ours() -> Timed:
        def work() -> int:
            for _ in range(COUNT):
                result = from_backlog(backlog_payload).payload
            assert Message.parse(result).read_properties().group_id == "session-17"
            return COUNT

        return timed(work)

    def by_proton() -> Timed:
        def work() -> int:
            for _ in range(COUNT // 10):
                message = proton.Message()
                message.decode(backlog_payload)
                aliases = [message.properties.pop(name) for name in names]
                message.group_id = aliases[1]
                message.ttl = aliases[2] / 1000
                message.annotations[proton.symbol(schedule)] = aliases[3]
                result = message.encode()
            assert Message.parse(result).read_properties().group_id == "session-17"
            return COUNT // 10

        return timed(work)

    def by_sdk() -> Timed:
        raw = [name.encode() for name in names]

        def work() -> int:
            for _ in range(COUNT // 10):
                message = sdk_decode.decode_payload(memoryview(backlog_payload))
                application_properties = dict(message.application_properties)
                aliases = [application_properties.pop(key) for key in raw]
                changed = SdkMessage(
                    header=message.header._replace(ttl=aliases[2]),
                    message_annotations={
                        **(message.message_annotations or {}),
                        schedule.encode(): {TYPE: AMQPTypes.timestamp, VALUE: aliases[3]},
                    },
                    properties=message.properties._replace(group_id=aliases[1]),
                    application_properties=application_properties,
                    data=message.data,
                )
                result = sdk_encode.encode_payload(bytearray(), changed)
            assert Message.parse(bytes(result)).read_properties().group_id == "session-17"
            return COUNT // 10

        return timed(work)

    return compare(
        "restore a backlog message, 1 KB",
        {OURS: ours, PROTON: by_proton, SDK: by_sdk},
        rounds=rounds,
        aim=12,
        aim_is_value=True,
    )


def backlog_message() -> bytes:
    """Return a backlog message with a body of 1 KB."""
    sent = Message.build(
        header=Header(durable=True, ttl=UInt(86_400_000)),
        message_annotations={
            Symbol("x-opt-partition-key"): "partition-4",
            Symbol("x-opt-scheduled-enqueue-time"): Timestamp(1_800_000_000_000),
        },
        properties=Properties(
            message_id="0f1e2d3c4b5a69788796a5b4c3d2e1f0",
            subject="order",
            correlation_id="order-4711",
            content_type="application/json",
            group_id="session-17",
        ),
        application_properties={"tenant": "north", "attempt": 1},
        data=b"x" * 1024,
    )
    return to_backlog(sent.encode(), "orders/incoming")
