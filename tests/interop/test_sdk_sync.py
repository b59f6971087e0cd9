"""The azure-servicebus SDK, as it comes, against a server on our engine, over real sockets."""

import datetime
import gc
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
    TransportType,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from examples.engine.frame_log import FrameLog
from examples.engine.memory_server import MemoryServer, Received, Request, Response, offer
from pairbus.amqp.batch import BATCH_FORMAT, split_batch
from pairbus.amqp.connection import Connection, ConnectionSettings
from pairbus.amqp.performatives import (
    SETTLE_FIRST,
    SETTLE_SECOND,
    SETTLE_SETTLED,
    SETTLE_UNSETTLED,
    Accepted,
    Close,
    Error,
    Modified,
    Rejected,
    Released,
)
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.sections import DATA, SEQUENCE, VALUE, Header, Message, Properties
from pairbus.amqp.types import Array, Int32, Symbol, Timestamp, UInt
from pairbus.errors import (
    ConnectionLost,
    LinkLost,
    LockLost,
    QuotaExceeded,
)
from tests.interop.conftest import TlsFiles
from tests.interop.sdk_cases import (
    BRISK,
    FROM_THE_SDK,
    IMPATIENT,
    NESTED_FROM_THE_SDK,
    NESTED_TO_THE_SDK,
    NOON,
    PATIENT,
    REFUSALS,
    TO_THE_SDK,
    bodies,
    connection_string,
    exactly,
    set_knob,
    text,
)

# The SDK forgets to close its socket when a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

StartServer = Callable[..., MemoryServer]
Watch = Callable[[MemoryServer], FrameLog]


def connect(server: MemoryServer, **options: Any) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(connection_string(server), **(PATIENT | options))


def open_sender(client: ServiceBusClient) -> ServiceBusSender:
    return client.get_queue_sender("orders", **BRISK)


def open_receiver(client: ServiceBusClient, **options: Any) -> ServiceBusReceiver:
    return client.get_queue_receiver("orders", **(BRISK | options))


def send(server: MemoryServer, *messages: Any, **options: Any) -> None:
    with connect(server, **options) as client, open_sender(client) as sender:
        for message in messages:
            sender.send_messages(message)


def receive(server: MemoryServer, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive and complete so many messages, in as many calls as it takes."""
    messages: list[ServiceBusReceivedMessage] = []
    with connect(server) as client, open_receiver(client, prefetch_count=count) as receiver:
        while len(messages) < count:
            some = receiver.receive_messages(count - len(messages), max_wait_time=10)
            assert some, f"only {len(messages)} of {count} messages came"
            for message in some:
                receiver.complete_message(message)
            messages += some
    return messages


@pytest.fixture(scope="module", autouse=True)
def _collect_sockets() -> Iterator[None]:
    """Let no socket of the SDK be found by the tests of another module, which do not ignore it."""
    yield
    gc.collect()


@pytest.fixture
def background() -> Iterator[Callable[..., Future[Any]]]:
    """Runs a call of the SDK beside the test."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


class Orders:
    """A sender that stays open, for many small cases."""

    def __init__(self, server: MemoryServer, sender: ServiceBusSender) -> None:
        self.sender = sender
        self._server = server

    def send(self, message: Any) -> Received:
        """Send a message, a list or a batch; what arrived."""
        before = len(self._server.received)
        self.sender.send_messages(message)
        [received] = self._server.received[before:]
        return received


@pytest.fixture(scope="module")
def orders() -> Iterator[Orders]:
    with (
        MemoryServer() as server,
        connect(server) as client,
        open_sender(client) as sender,
    ):
        yield Orders(server, sender)
    assert server.failures == []
    assert server.violations == []


class TestMessages:
    def test_a_message_arrives_as_it_was_sent(self, orders: Orders) -> None:
        message = ServiceBusMessage(
            b"\x00body\xff",
            message_id="id-1",
            session_id="group",
            subject="subject",
            to="to",
            reply_to="reply",
            reply_to_session_id="reply group",
            correlation_id="correlation",
            content_type="text/plain",
            partition_key="group",
            time_to_live=datetime.timedelta(seconds=30),
            scheduled_enqueue_time_utc=NOON,
            application_properties={"colour": "blue"},
        )

        received = orders.send(message)

        assert (received.address, received.message_format, received.settled) == ("orders", 0, False)
        arrived = Message.parse(received.payload)
        properties = arrived.read_properties()
        assert properties.absolute_expiry_time is not None
        assert properties.creation_time is not None
        assert properties.absolute_expiry_time - properties.creation_time == 30_000
        assert properties == Properties(
            message_id="id-1",
            group_id="group",
            subject="subject",
            to="to",
            reply_to="reply",
            reply_to_group_id="reply group",
            correlation_id="correlation",
            content_type="text/plain",
            creation_time=properties.creation_time,
            absolute_expiry_time=properties.absolute_expiry_time,
        )
        assert arrived.read_header() == Header(ttl=30_000)
        assert exactly(arrived.read_message_annotations()) == exactly(
            {
                Symbol("x-opt-scheduled-enqueue-time"): Timestamp.from_datetime(NOON),
                Symbol("x-opt-partition-key"): "group",
            }
        )
        assert arrived.read_application_properties() == {"colour": "blue"}
        assert arrived.read_body() == (DATA, [b"\x00body\xff"])

    def test_a_message_that_we_made_is_read_by_the_sdk(self, server: MemoryServer) -> None:
        made = Message.build(
            header=Header(durable=True, priority=7, ttl=60_000, delivery_count=2),
            message_annotations={
                Symbol("x-opt-sequence-number"): 4711,
                Symbol("x-opt-enqueued-time"): Timestamp.from_datetime(NOON),
                Symbol("x-opt-partition-key"): "key",
            },
            properties=Properties(message_id="id-1", group_id="group", subject="subject"),
            application_properties={"colour": "blue"},
            data=b"body",
        )
        server.put("orders", made.encode())

        [message] = receive(server, 1)

        assert message.message_id == "id-1"
        assert message.session_id == "group"
        assert message.subject == "subject"
        assert message.partition_key == "key"
        assert message.sequence_number == 4711
        assert message.enqueued_time_utc == NOON
        assert message.time_to_live == datetime.timedelta(seconds=60)
        assert message.delivery_count == 2
        assert message.application_properties == {b"colour": b"blue"}
        assert bodies([message]) == [b"body"]

    def test_bodies_of_all_sizes_come_back_in_order_and_are_gone(
        self, server: MemoryServer
    ) -> None:
        sizes = [0, 1, 255, 256, 65_000, 70_000]

        send(server, *[ServiceBusMessage(b"x" * size) for size in sizes])

        assert bodies(receive(server, len(sizes))) == [b"x" * size for size in sizes]
        assert [settlement.state for settlement in server.settlements] == [Accepted()] * len(sizes)
        assert not server.queues["orders"]


class TestBatches:
    def test_a_batch_is_one_delivery_of_the_messages_that_were_added(self, orders: Orders) -> None:
        added = [
            ServiceBusMessage(f"body {n}", message_id=f"id-{n}", application_properties={"n": n})
            for n in range(50)
        ]
        batch = orders.sender.create_message_batch()
        for message in added:
            batch.add_message(message)
        received = orders.send(batch)

        assert received.message_format == BATCH_FORMAT
        members = [Message.parse(member) for member in split_batch(received.payload)]
        assert [member.read_body() for member in members] == [
            (DATA, [b"body %d" % n]) for n in range(50)
        ]
        assert [member.read_properties().message_id for member in members] == [
            message.message_id for message in added
        ]
        assert [exactly(member.read_application_properties()) for member in members] == [
            exactly({"n": Int32(n)}) for n in range(50)
        ]
        # The batch itself says whose it is: what its first message has.
        assert Message.parse(received.payload).read_properties().message_id == "id-0"

    def test_a_list_is_sent_as_a_batch(self, orders: Orders) -> None:
        received = orders.send([ServiceBusMessage("a"), ServiceBusMessage("b")])

        assert received.message_format == BATCH_FORMAT
        members = [Message.parse(member).read_body() for member in split_batch(received.payload)]
        assert members == [(DATA, [b"a"]), (DATA, [b"b"])]

    def test_the_members_of_a_batch_are_received_one_by_one(
        self, start_server: StartServer
    ) -> None:
        server = start_server(split_batches=True)

        send(server, [ServiceBusMessage(f"{n}" * 300) for n in range(5)])

        assert bodies(receive(server, 5)) == [b"%d" % n * 300 for n in range(5)]

    def test_a_batch_fills_up_to_the_size_that_our_link_allows(
        self, start_server: StartServer
    ) -> None:
        server = start_server(max_message_size=2_000)
        with connect(server) as client, open_sender(client) as sender:
            batch = sender.create_message_batch()
            for _ in range(10):
                batch.add_message(ServiceBusMessage("x" * 100))
            with pytest.raises(MessageSizeExceededError):
                batch.add_message(ServiceBusMessage("x" * 2_000))
            sender.send_messages(batch)

        [received] = server.received
        assert len(split_batch(received.payload)) == 10

    def test_a_batch_with_large_members_comes_over_many_frames(
        self, start_server: StartServer, watch: Watch
    ) -> None:
        server = start_server(max_frame_size=4096)
        frames = watch(server)

        send(server, [ServiceBusMessage(bytes([n]) * 10_000) for n in range(5)])

        assert len(frames.transfers("in")) > 10
        [received] = server.received
        assert received.message_format == BATCH_FORMAT
        assert [Message.parse(m).read_body() for m in split_batch(received.payload)] == [
            (DATA, [bytes([n]) * 10_000]) for n in range(5)
        ]


class TestFrames:
    @pytest.mark.parametrize("frame_size", [512, 4096])
    def test_a_large_message_comes_over_many_frames(
        self, start_server: StartServer, watch: Watch, frame_size: int
    ) -> None:
        server = start_server(max_frame_size=frame_size)
        frames = watch(server)
        body = bytes(range(256)) * 400

        send(server, ServiceBusMessage("small"), ServiceBusMessage(body), ServiceBusMessage("end"))

        sizes = [frame.size for frame in frames.transfers("in")]
        assert len(sizes) > len(body) // frame_size
        assert max(sizes) <= frame_size
        assert [Message.parse(received.payload).read_body() for received in server.received] == [
            (DATA, [b"small"]),
            (DATA, [body]),
            (DATA, [b"end"]),
        ]

    @pytest.mark.parametrize("frame_size", [512, 4096])
    def test_a_large_message_goes_out_over_many_frames(
        self, start_server: StartServer, watch: Watch, frame_size: int
    ) -> None:
        server = start_server(outgoing_frame_size=frame_size)
        frames = watch(server)
        body = bytes(range(256)) * 400
        server.put("orders", text(b"small"), text(body), text(b"end"))

        assert bodies(receive(server, 3)) == [b"small", body, b"end"]

        sizes = [frame.size for frame in frames.transfers("out")]
        assert len(sizes) > len(body) // frame_size
        assert max(sizes) <= frame_size

    def test_a_message_of_more_frames_than_our_window_arrives(
        self, start_server: StartServer, watch: Watch
    ) -> None:
        server = start_server(max_frame_size=512, incoming_window=4)
        frames = watch(server)

        send(server, ServiceBusMessage("x" * 20_000), ServiceBusMessage("y" * 20_000))

        assert len(frames.transfers("in")) > 80
        assert [len(received.payload) > 20_000 for received in server.received] == [True, True]

    def test_a_message_larger_than_the_sdk_says_it_takes_is_taken(
        self, start_server: StartServer
    ) -> None:
        server = start_server(ignore_limits=True)
        body = b"x" * 3_000_000
        server.put("orders", text(body))

        assert bodies(receive(server, 1)) == [body]

        limits = [attach.max_message_size for attach in server.attaches if attach.role]
        assert limits[-1] == 1024 * 1024  # the SDK's receivers say so, whatever the entity holds


class TestTypes:
    def test_application_properties_of_all_types_arrive_with_their_types(
        self, orders: Orders
    ) -> None:
        given = {name: value for name, value, _ in FROM_THE_SDK}

        received = orders.send(ServiceBusMessage("body", application_properties=given))

        arrived = Message.parse(received.payload).read_application_properties()
        assert exactly(arrived) == exactly({name: value for name, _, value in FROM_THE_SDK})

    def test_annotations_of_all_types_arrive_with_their_types(self, orders: Orders) -> None:
        cases = FROM_THE_SDK + NESTED_FROM_THE_SDK
        given = {name: value for name, value, _ in cases}

        received = orders.send(
            AmqpAnnotatedMessage(
                data_body=b"body",
                annotations=given,
                delivery_annotations={"x-opt-delivery": 1},
                footer={"x-opt-footer": 2},
            )
        )

        arrived = Message.parse(received.payload)
        assert exactly(arrived.read_message_annotations()) == exactly(
            {Symbol(name): value for name, _, value in cases}
        )
        # The SDK writes the delivery annotations behind the footer; they are found all the same.
        assert arrived.delivery_annotations
        assert received.payload.endswith(arrived.delivery_annotations)
        assert arrived.footer

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({"data_body": [b"one", b"two"]}, (DATA, [b"one", b"two"])),
            ({"sequence_body": [1, "a"]}, (SEQUENCE, [[Int32(1), "a"]])),
            ({"sequence_body": [[1], ["a"]]}, (SEQUENCE, [[Int32(1)], ["a"]])),
            *[
                ({"value_body": [given]}, (VALUE, [[read]]))
                for _, given, read in FROM_THE_SDK + NESTED_FROM_THE_SDK
            ],
        ],
        ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
    )
    def test_bodies_of_all_kinds_arrive(
        self, body: dict[str, Any], expected: tuple[int, list[Any]], orders: Orders
    ) -> None:
        arrived = Message.parse(orders.send(AmqpAnnotatedMessage(**body)).payload)

        assert exactly(arrived.read_body()) == exactly(expected)

    def test_application_properties_of_all_types_are_read_by_the_sdk(
        self, server: MemoryServer
    ) -> None:
        values = {name: value for name, value, _ in TO_THE_SDK}
        server.put("orders", Message.build(application_properties=values, data=b"").encode())

        [message] = receive(server, 1)

        assert exactly(message.application_properties) == exactly(
            {name.encode(): value for name, _, value in TO_THE_SDK}
        )

    def test_annotations_of_all_types_are_read_by_the_sdk(self, server: MemoryServer) -> None:
        cases = TO_THE_SDK + NESTED_TO_THE_SDK
        values = {Symbol(name): value for name, value, _ in cases}
        server.put("orders", Message.build(message_annotations=values, data=b"").encode())

        [message] = receive(server, 1)

        assert exactly(message.raw_amqp_message.annotations) == exactly(
            {name.encode(): value for name, _, value in cases}
        )

    def test_bodies_of_all_kinds_are_read_by_the_sdk(self, server: MemoryServer) -> None:
        cases = TO_THE_SDK + NESTED_TO_THE_SDK
        values = [Message.build(value=value).encode() for _, value, _ in cases]
        server.put("orders", *values, Message.build(sequence=[Int32(1), "a"]).encode())

        *messages, last = receive(server, len(values) + 1)

        assert [exactly(message.body) for message in messages] == [
            exactly(value) for _, _, value in cases
        ]
        assert last.body_type == AmqpMessageBodyType.SEQUENCE
        assert list(last.body) == [[1, b"a"]]


class TestFlow:
    def test_no_more_is_sent_than_the_receiver_asked_for(
        self, server: MemoryServer, watch: Watch
    ) -> None:
        server.put("orders", *[text(b"%d" % n) for n in range(10)])
        frames = watch(server)
        with connect(server) as client, open_receiver(client) as receiver:
            messages = receiver.receive_messages(3, max_wait_time=10)
            for message in messages:
                receiver.complete_message(message)
            assert len(server.queues["orders"]) == 7

        assert bodies(messages) == [b"0", b"1", b"2"]
        # Those of 16 bytes have the tag of a lock; one more was the answer to the token.
        assert len(frames.transfers("out")) == 3 + 1

    def test_an_empty_queue_gives_nothing_and_later_messages_still_come(
        self, server: MemoryServer
    ) -> None:
        with connect(server) as client, open_receiver(client) as receiver:
            assert receiver.receive_messages(5, max_wait_time=0.3) == []

            server.put("orders", text(b"late"))

            assert bodies(receiver.receive_messages(1, max_wait_time=10)) == [b"late"]

    def test_a_receiver_that_closes_drains_its_credit(
        self, server: MemoryServer, watch: Watch
    ) -> None:
        frames = watch(server)
        with connect(server) as client:
            with open_receiver(client) as receiver:
                assert receiver.receive_messages(5, max_wait_time=0.3) == []
            server.wait_for(lambda: server.drains == 1)
            answers = [
                f.performative for f in frames.frames if (f.direction, f.name) == ("out", "flow")
            ]
            assert answers[-1].drain
            assert answers[-1].link_credit == 0

            server.put("orders", text(b"late"))

            assert len(server.queues["orders"]) == 1  # the drained credit is gone
        assert bodies(receive(server, 1)) == [b"late"]

    def test_what_was_prefetched_and_not_read_goes_back_when_the_receiver_closes(
        self, server: MemoryServer
    ) -> None:
        server.put("orders", *[text(b"%d" % n) for n in range(10)])
        with connect(server) as client:
            with open_receiver(client, prefetch_count=10) as receiver:
                [first] = receiver.receive_messages(1, max_wait_time=10)
                receiver.complete_message(first)
                server.wait_for(lambda: not server.queues["orders"])  # all are prefetched
            server.wait_for(lambda: len(server.settlements) == 10)

        states = [settlement.state for settlement in server.settlements]
        assert states == [Accepted(), *[Released()] * 9]
        assert sorted(bodies(receive(server, 9))) == [b"%d" % n for n in range(1, 10)]

    def test_a_receiver_iterates_over_messages_as_they_come(
        self, server: MemoryServer, background: Callable[..., Future[Any]]
    ) -> None:
        seen = []
        with connect(server) as client, open_receiver(client, prefetch_count=1) as receiver:
            for n in range(5):
                background(server.put, "orders", text(b"%d" % n))
            for message in receiver:
                receiver.complete_message(message)
                seen += bodies([message])
                if len(seen) == 5:
                    break

        assert seen == [b"0", b"1", b"2", b"3", b"4"]

    def test_a_sender_goes_on_when_its_first_credit_is_used_up(
        self, start_server: StartServer
    ) -> None:
        server = start_server(credit=4)

        send(server, *[ServiceBusMessage(f"{n}") for n in range(30)])

        assert len(server.queues["orders"]) == 30

    def test_a_sender_that_has_no_credit_sends_all_the_same_and_loses_its_link(
        self, server: MemoryServer
    ) -> None:
        def grant(request: Request) -> Response:
            server.credit = 0  # from now on: the link for tokens has its credit
            return Response(200, "OK")

        set_knob(server, "handlers", {"$cbs": grant})

        with pytest.raises(ServiceBusConnectionError):
            send(server, ServiceBusMessage("body"), **IMPATIENT)

        # It gives itself credit: who would slow the SDK down must answer later, not grant less.
        assert [violation.condition for violation in server.violations] == [
            "amqp:link:transfer-limit-exceeded"
        ]
        server.violations.clear()


class TestSettling:
    def test_a_locked_message_is_settled_in_two_steps(
        self, server: MemoryServer, watch: Watch
    ) -> None:
        server.put("orders", text(b"body"))
        frames = watch(server)

        receive(server, 1)

        attach = server.attaches[-1]
        assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (SETTLE_UNSETTLED, SETTLE_SECOND)
        transfer = frames.transfers("out")[-1].performative
        assert not transfer.settled
        [asked] = [
            f.performative for f in frames.frames if f.name == "disposition" and f.direction == "in"
        ][-1:]
        [confirmed] = [
            f.performative
            for f in frames.frames
            if f.name == "disposition" and f.direction == "out"
        ][-1:]
        assert (asked.first, asked.settled, asked.state) == (
            transfer.delivery_id,
            False,
            Accepted(),
        )
        assert (confirmed.first, confirmed.settled, confirmed.state) == (
            transfer.delivery_id,
            True,
            Accepted(),
        )

    def test_a_message_that_is_received_and_deleted_is_settled_when_it_is_sent(
        self, server: MemoryServer, watch: Watch
    ) -> None:
        server.put("orders", text(b"a"), text(b"b"))
        frames = watch(server)
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with connect(server) as client, open_receiver(client, receive_mode=mode) as receiver:
            messages = receiver.receive_messages(2, max_wait_time=10)

        assert bodies(messages) == [b"a", b"b"]
        attach = server.attaches[-1]
        assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (SETTLE_SETTLED, SETTLE_FIRST)
        assert [frame.performative.settled for frame in frames.transfers("out")[-2:]] == [True] * 2
        assert server.settlements == []
        assert not server.queues["orders"]

    def test_each_way_to_settle_has_its_outcome(self, server: MemoryServer) -> None:
        words = [b"complete", b"abandon", b"defer", b"dead-letter"]
        server.put("orders", *map(text, words))
        with connect(server) as client, open_receiver(client) as receiver:
            messages = receiver.receive_messages(4, max_wait_time=10)
            assert bodies(messages) == words
            complete, abandon, defer, dead_letter = messages
            receiver.complete_message(complete)
            receiver.abandon_message(abandon)
            receiver.defer_message(defer)
            receiver.dead_letter_message(dead_letter, reason="why", error_description="what")

        info = {"DeadLetterReason": "why", "DeadLetterErrorDescription": "what"}
        assert [(settlement.payload, settlement.state) for settlement in server.settlements] == [
            (text(b"complete"), Accepted()),
            (text(b"abandon"), Modified(delivery_failed=True)),
            (text(b"defer"), Modified(delivery_failed=True, undeliverable_here=True)),
            (text(b"dead-letter"), Rejected(Error("com.microsoft:dead-letter", "what", info))),
        ]
        assert [entry.payload for entry in server.queues["orders"]] == [text(b"abandon")]
        assert [entry.payload for entry in server.deferred["orders"]] == [text(b"defer")]
        assert [entry.payload for entry in server.dead_lettered["orders"]] == [text(b"dead-letter")]

    def test_an_abandoned_message_comes_again(self, server: MemoryServer) -> None:
        server.put("orders", text(b"body"))
        with connect(server) as client, open_receiver(client) as receiver:
            [first] = receiver.receive_messages(1, max_wait_time=10)
            tokens = [first.lock_token]
            receiver.abandon_message(first)
            [second] = receiver.receive_messages(1, max_wait_time=10)
            tokens.append(second.lock_token)
            receiver.complete_message(second)

        assert bodies([first, second]) == [b"body", b"body"]
        assert None not in tokens
        assert tokens[0] != tokens[1]

    def test_a_settlement_that_we_deny_raises(self, server: MemoryServer) -> None:
        server.put("orders", text(b"body"))
        set_knob(server, "settlement_errors", {"orders": LockLost("the lock has expired")})
        with connect(server) as client, open_receiver(client, prefetch_count=1) as receiver:
            [message] = receiver.receive_messages(1, max_wait_time=10)

            with pytest.raises(MessageLockLostError, match="the lock has expired"):
                receiver.complete_message(message)
        assert len(server.settlements) == 1

    def test_a_message_in_the_hands_of_a_peer_that_goes_comes_back(
        self, server: MemoryServer
    ) -> None:
        server.put("orders", text(b"body"))
        with connect(server) as client, open_receiver(client) as receiver:
            [message] = receiver.receive_messages(1, max_wait_time=10)
            assert bodies([message]) == [b"body"]
            assert not server.queues["orders"]

        server.wait_for(lambda: len(server.queues["orders"]) == 1)


class TestRefusals:
    def raised_at(self, attempt: Callable[[str], Any]) -> dict[str, tuple[type, bool]]:
        """By address: what the attempt raised, and whether it says what the server said."""

        def outcome(address: str) -> tuple[type, bool]:
            with pytest.raises(ServiceBusError) as raised:
                attempt(address)
            return type(raised.value), REFUSALS[address][0].description in str(raised.value)

        with ThreadPoolExecutor(len(REFUSALS)) as pool:
            return dict(zip(REFUSALS, pool.map(outcome, REFUSALS), strict=True))

    def test_a_refused_sender_raises_what_the_refusal_says(self, server: MemoryServer) -> None:
        set_knob(
            server, "attach_errors", {name: refusal for name, (refusal, _) in REFUSALS.items()}
        )

        def attempt(address: str) -> None:
            with (
                connect(server, **IMPATIENT) as client,
                client.get_queue_sender(address, **BRISK) as sender,
            ):
                sender.send_messages(ServiceBusMessage("body"))

        raised = self.raised_at(attempt)

        assert raised == {name: (error, True) for name, (_, error) in REFUSALS.items()}
        assert server.received == []

    def test_a_refused_receiver_raises_what_the_refusal_says(self, server: MemoryServer) -> None:
        set_knob(
            server, "attach_errors", {name: refusal for name, (refusal, _) in REFUSALS.items()}
        )

        def attempt(address: str) -> None:
            with (
                connect(server, **IMPATIENT) as client,
                client.get_queue_receiver(address, prefetch_count=1, **BRISK) as receiver,
            ):
                receiver.receive_messages(1, max_wait_time=10)

        raised = self.raised_at(attempt)

        assert raised == {name: (error, True) for name, (_, error) in REFUSALS.items()}

    def test_a_rejected_message_raises_what_the_rejection_says(self, server: MemoryServer) -> None:
        set_knob(server, "rejections", {name: refusal for name, (refusal, _) in REFUSALS.items()})

        def attempt(address: str) -> None:
            with (
                connect(server, **IMPATIENT) as client,
                client.get_queue_sender(address, **BRISK) as sender,
            ):
                sender.send_messages(ServiceBusMessage("body"))

        raised = self.raised_at(attempt)

        assert raised == {name: (error, True) for name, (_, error) in REFUSALS.items()}
        assert sorted(received.address for received in server.received) == sorted(REFUSALS)
        assert not any(server.queues.values())

    def test_a_rejection_carries_its_info_and_the_sender_goes_on(
        self, server: MemoryServer
    ) -> None:
        rejection = QuotaExceeded("full", info={Symbol("size"): 5})
        with connect(server, **IMPATIENT) as client, open_sender(client) as sender:
            set_knob(server, "rejections", {"orders": rejection})
            with pytest.raises(ServiceBusQuotaExceededError) as raised:
                sender.send_messages(ServiceBusMessage("body"))
            assert raised.value.inner_exception.info == {b"size": 5}
            set_knob(server, "rejections", {})
            sender.send_messages(ServiceBusMessage("body"))

        assert len(server.queues["orders"]) == 1

    def test_a_message_larger_than_our_link_takes_ends_the_link(
        self, start_server: StartServer
    ) -> None:
        server = start_server(max_message_size=2_000)

        # The SDK forgets why the link was detached; a rejected message would be told apart.
        with pytest.raises(ServiceBusConnectionError):
            send(server, ServiceBusMessage("x" * 3_000), **IMPATIENT)

        assert server.received == []
        assert [violation.condition for violation in server.violations] == [
            "amqp:link:message-size-exceeded"
        ]
        server.violations.clear()

    @pytest.mark.parametrize("status", [401, 404, 500])
    def test_a_refused_token_raises(self, server: MemoryServer, status: int) -> None:
        answer = Response(status, "no token like that")
        set_knob(server, "handlers", {"$cbs": lambda request: answer})

        with pytest.raises(ServiceBusAuthenticationError):
            send(server, ServiceBusMessage("body"), **IMPATIENT)

        assert [request.operation for request in server.requests] == ["put-token"]

    def test_the_token_is_for_the_entity(self, server: MemoryServer) -> None:
        send(server, ServiceBusMessage("body"))

        [request] = server.requests
        assert request.application_properties["name"] == f"sb://127.0.0.1:{server.port}/orders"
        assert request.application_properties["type"] == "jwt"
        assert request.body.startswith("SharedAccessSignature sr=")

    def test_a_server_without_a_mechanism_that_the_sdk_has_raises(
        self, start_server: StartServer
    ) -> None:
        server = start_server(sasl=offer("PLAIN", users={"name": "password"}))

        with pytest.raises(ServiceBusError, match="Unsupported SASL"):
            send(server, ServiceBusMessage("body"), **IMPATIENT)

        assert server.opens == []


class TestIdleTimeouts:
    def test_a_waiting_receiver_keeps_its_connection_alive(
        self,
        start_server: StartServer,
        watch: Watch,
        background: Callable[..., Future[Any]],
    ) -> None:
        server = start_server(idle_timeout_s=3.0)
        frames = watch(server)
        with connect(server) as client, open_receiver(client) as receiver:
            receiving = background(receiver.receive_messages, 1, max_wait_time=30)
            # The SDK writes one each 0.75 s: five take longer than we wait for the first.
            server.wait_for(lambda: frames.names("in").count("empty") >= 5)
            server.put("orders", text(b"body"))

            assert bodies(receiving.result(20)) == [b"body"]

        assert len(server.opens) == 1
        assert [f.performative.idle_time_out for f in frames.frames if f.name == "open"][-1] == 1500

    def test_a_sender_that_lies_idle_is_closed_and_comes_again(
        self, start_server: StartServer
    ) -> None:
        server = start_server(idle_timeout_s=3.0)
        with connect(server) as client, open_sender(client) as sender:
            sender.send_messages(ServiceBusMessage("a"))
            # Between calls the SDK keeps a connection alive every 30 seconds only.
            server.wait_for(lambda: server.violations)
            assert "sent nothing" in server.violations[0].description
            sender.send_messages(ServiceBusMessage("b"))

        assert len(server.opens) == 2
        assert len(server.queues["orders"]) == 2
        server.violations.clear()

    def test_a_peer_that_says_nothing_is_closed_with_the_reason(
        self, start_server: StartServer
    ) -> None:
        server = start_server(idle_timeout_s=2.0)
        engine = Connection(
            ConnectionSettings(container_id="silent"),
            sasl=SaslClient.anonymous(),
            now=time.monotonic(),
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as peer:
            while not engine.closed:
                peer.sendall(engine.data_to_send())
                data = peer.recv(65536)
                assert data
                events = engine.receive(data, time.monotonic())
            assert peer.recv(65536) == b""

        assert len(server.opens) == 1
        assert "sent nothing" in events[-1].error.description
        assert len(server.violations) == 1
        server.violations.clear()


class TestReconnecting:
    def test_a_send_that_is_cut_off_is_sent_again(self, server: MemoryServer) -> None:
        with connect(server) as client, open_sender(client) as sender:
            sender.send_messages(ServiceBusMessage("a"))
            set_knob(server, "cut_after", 1)
            sender.send_messages(ServiceBusMessage("b"))
            sender.send_messages(ServiceBusMessage("c"))

        assert server.cuts == 1
        assert len(server.opens) == 2
        assert len(server.received) == 4  # b arrived twice, and was taken once
        assert bodies(receive(server, 3)) == [b"a", b"b", b"c"]

    def test_a_receiver_that_is_cut_off_receives_again(self, server: MemoryServer) -> None:
        with connect(server) as client, open_receiver(client) as receiver:
            server.put("orders", text(b"a"))
            [first] = receiver.receive_messages(1, max_wait_time=10)
            receiver.complete_message(first)
            server.put("orders", text(b"b"))
            set_knob(server, "cut_after", 1)

            [second] = receiver.receive_messages(1, max_wait_time=20)
            receiver.complete_message(second)

        assert server.cuts == 1
        assert len(server.opens) == 2
        assert bodies([first, second]) == [b"a", b"b"]

    def test_a_sender_finds_a_server_that_was_started_again(
        self, start_server: StartServer
    ) -> None:
        server = start_server()
        with connect(server) as client, open_sender(client) as sender:
            sender.send_messages(ServiceBusMessage("a"))
            server.close()
            again = start_server(port=server.port)
            sender.send_messages(ServiceBusMessage("b"))

        assert len(server.received) == 1
        assert len(again.received) == 1

    def test_a_sender_comes_again_when_its_link_is_taken_away(self, server: MemoryServer) -> None:
        lost = LinkLost("moved")
        with connect(server) as client, open_sender(client) as sender:
            sender.send_messages(ServiceBusMessage("a"))
            server.call(
                lambda: [
                    end.link.detach(lost) for end in server.endpoints if end.address == "orders"
                ]
            )
            sender.send_messages(ServiceBusMessage("b"))

        attached = [a for a in server.attaches if "orders" in str(a.target)]
        assert len(attached) == 2
        assert len(server.queues["orders"]) == 2

    def test_a_sender_comes_again_when_its_connection_is_closed_with_an_error(
        self, server: MemoryServer, watch: Watch
    ) -> None:
        frames = watch(server)
        with connect(server) as client, open_sender(client) as sender:
            sender.send_messages(ServiceBusMessage("a"))
            closing = ConnectionLost("the node is updated", info={Symbol("again"): True})
            server.call(lambda: [peer.engine.close(closing) for peer in server.connections])
            sender.send_messages(ServiceBusMessage("b"))

        closes = [f.performative for f in frames.frames if isinstance(f.performative, Close)]
        assert closes[0].error.condition == "amqp:connection:forced"
        assert len(server.opens) == 2
        assert len(server.queues["orders"]) == 2

    def test_a_server_that_is_gone_raises(self, start_server: StartServer) -> None:
        server = start_server()
        with connect(server, **IMPATIENT) as client, open_sender(client) as sender:
            sender.send_messages(ServiceBusMessage("a"))
            server.close()

            with pytest.raises(ServiceBusConnectionError):
                sender.send_messages(ServiceBusMessage("b"))


class TestTls:
    def options(self, server: MemoryServer, ca: object) -> dict[str, Any]:
        return {
            "custom_endpoint_address": f"sb://localhost:{server.port}",
            "transport_type": TransportType.Amqp,
            "connection_verify": str(ca),
        }

    def test_messages_go_both_ways_over_tls(
        self, start_server: StartServer, tls_files: TlsFiles
    ) -> None:
        server = start_server(tls=tls_files.server_context())
        body = b"x" * 300_000
        with ServiceBusClient.from_connection_string(
            connection_string(server, tls=True), **PATIENT, **self.options(server, tls_files.ca)
        ) as client:
            with open_sender(client) as sender:
                sender.send_messages(ServiceBusMessage(body))
            with open_receiver(client) as receiver:
                [message] = receiver.receive_messages(1, max_wait_time=10)
                receiver.complete_message(message)

        assert bodies([message]) == [body]
        assert [settlement.state for settlement in server.settlements] == [Accepted()]

    def test_a_server_that_the_client_does_not_know_is_not_trusted(
        self, start_server: StartServer, tls_files: TlsFiles
    ) -> None:
        server = start_server(tls=tls_files.server_context())
        unrelated = tls_files.client_certificate
        with (
            ServiceBusClient.from_connection_string(
                connection_string(server, tls=True),
                **IMPATIENT,
                **self.options(server, unrelated),
            ) as client,
            pytest.raises(ServiceBusConnectionError, match="certificate verify failed"),
            open_sender(client),
        ):
            pass

        assert server.opens == []


class TestManagement:
    """Requests to `$management` reach a handler, and its response reaches the caller."""

    def answer(self, server: MemoryServer, response: Response) -> list[Request]:
        """Let all requests to $management be answered so; they go into the list."""
        requests: list[Request] = []

        def handle(request: Request) -> Response:
            requests.append(request)
            return response

        server.call(lambda: server.handlers.update({"$management": handle}))
        return requests

    def test_messages_are_scheduled_and_have_sequence_numbers(self, server: MemoryServer) -> None:
        numbers = {"sequence-numbers": Array(int, (4711, 4712))}
        requests = self.answer(server, Response(200, "OK", numbers))
        with connect(server) as client, open_sender(client) as sender:
            messages = [ServiceBusMessage("a", message_id="1"), ServiceBusMessage("b")]
            assert sender.schedule_messages(messages, NOON) == [4711, 4712]

        [request] = requests
        assert request.address == "orders/$management"
        assert request.operation == "com.microsoft:schedule-message"
        assert type(request.application_properties["com.microsoft:server-timeout"]) is UInt
        scheduled = request.body["messages"]
        assert scheduled[0]["message-id"] == "1"
        inner = [Message.parse(each["message"]) for each in scheduled]
        assert [message.read_body() for message in inner] == [(DATA, [b"a"]), (DATA, [b"b"])]
        when = inner[0].read_message_annotations()["x-opt-scheduled-enqueue-time"]
        assert exactly(when) == exactly(Timestamp.from_datetime(NOON))

    def test_scheduled_messages_are_cancelled_by_number(self, server: MemoryServer) -> None:
        requests = self.answer(server, Response(200, "OK"))
        with connect(server) as client, open_sender(client) as sender:
            sender.cancel_scheduled_messages([4711, 2**40])

        [request] = requests
        assert request.operation == "com.microsoft:cancel-scheduled-message"
        assert exactly(request.body) == exactly({"sequence-numbers": Array(int, (4711, 2**40))})

    def test_messages_are_peeked(self, server: MemoryServer) -> None:
        peeked = Message.build(
            message_annotations={Symbol("x-opt-sequence-number"): 5}, data=b"peeked"
        )
        body = {"messages": [{"message": peeked.encode()}]}
        requests = self.answer(server, Response(200, "OK", body))
        with connect(server) as client, open_receiver(client, prefetch_count=1) as receiver:
            [message] = receiver.peek_messages(10, sequence_number=3)

        assert bodies([message]) == [b"peeked"]
        assert message.sequence_number == 5
        [request] = requests
        assert request.operation == "com.microsoft:peek-message"
        assert request.body["from-sequence-number"] == 3
        assert request.body["message-count"] == 10

    def test_nothing_is_peeked_where_there_is_nothing(self, server: MemoryServer) -> None:
        requests = self.answer(server, Response(204, "No content"))
        with connect(server) as client, open_receiver(client, prefetch_count=1) as receiver:
            assert receiver.peek_messages(10) == []
        assert len(requests) == 1

    def test_a_lock_is_renewed_by_its_token(self, server: MemoryServer) -> None:
        server.put("orders", text(b"body"))
        until = Array(Timestamp, (Timestamp.from_datetime(NOON),))
        requests = self.answer(server, Response(200, "OK", {"expirations": until}))
        with connect(server) as client, open_receiver(client, prefetch_count=1) as receiver:
            [message] = receiver.receive_messages(1, max_wait_time=10)
            assert receiver.renew_message_lock(message) == NOON
            token = message.lock_token

        [request] = requests
        assert request.operation == "com.microsoft:renew-lock"
        assert request.body["lock-tokens"].elements == (token,)

    def test_an_operation_that_is_not_implemented_raises(self, server: MemoryServer) -> None:
        with (
            connect(server, **IMPATIENT) as client,
            open_receiver(client, prefetch_count=1) as receiver,
            pytest.raises(ServiceBusError, match="peek-message is not implemented"),
        ):
            receiver.peek_messages(1)
        assert [request.address for request in server.requests] == ["$cbs", "orders/$management"]

    def test_an_error_condition_in_a_response_becomes_its_exception(
        self, server: MemoryServer
    ) -> None:
        requests = self.answer(
            server, Response(410, "gone", None, "com.microsoft:message-lock-lost")
        )
        server.put("orders", text(b"body"))
        with (
            connect(server, **IMPATIENT) as client,
            open_receiver(client, prefetch_count=1) as receiver,
        ):
            [message] = receiver.receive_messages(1, max_wait_time=10)
            with pytest.raises(MessageLockLostError):
                receiver.renew_message_lock(message)
        assert len(requests) == 1
