"""The asynchronous half of the azure-servicebus SDK, as it comes, against a server on our engine.

It has an implementation of its own for connection, session, links and transport, so every kind of
talk is held here once; the cases in depth are in test_sdk_sync.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, TransportType
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageLockLostError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from examples.engine.frame_log import FrameLog
from examples.engine.memory_server import MemoryServer, Request, Response
from pairbus.amqp.batch import BATCH_FORMAT, split_batch
from pairbus.amqp.performatives import Accepted, Error, Modified, Rejected
from pairbus.amqp.sections import DATA, VALUE, Message
from pairbus.amqp.types import Array, Symbol, Timestamp
from pairbus.errors import ConnectionLost, LinkLost, LockLost, QuotaExceeded
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

# The SDK forgets to close its transport when a connection fails. That the server closes its own is
# seen in test_sdk_sync, where this is not ignored.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]

StartServer = Callable[..., MemoryServer]
Watch = Callable[[MemoryServer], FrameLog]


@pytest.fixture(scope="module", autouse=True)
def _collect_sockets() -> Iterator[None]:
    """Let no socket of the SDK be found by the tests of another module, which do not ignore it."""
    yield
    gc.collect()


def connect(server: MemoryServer, **options: Any) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(connection_string(server), **(PATIENT | options))


def open_sender(client: ServiceBusClient) -> ServiceBusSender:
    return client.get_queue_sender("orders", **BRISK)


def open_receiver(client: ServiceBusClient, **options: Any) -> ServiceBusReceiver:
    return client.get_queue_receiver("orders", **(BRISK | options))


async def send(server: MemoryServer, *messages: Any, **options: Any) -> None:
    async with connect(server, **options) as client, open_sender(client) as sender:
        for message in messages:
            await sender.send_messages(message)


async def receive(server: MemoryServer, count: int) -> list[Any]:
    """Receive and complete so many messages, in as many calls as it takes."""
    messages: list[Any] = []
    async with (
        connect(server) as client,
        open_receiver(client, prefetch_count=count) as receiver,
    ):
        while len(messages) < count:
            some = await receiver.receive_messages(count - len(messages), max_wait_time=10)
            assert some, f"only {len(messages)} of {count} messages came"
            for message in some:
                await receiver.complete_message(message)
            messages += some
    return messages


class TestMessages:
    async def test_messages_come_back_in_order_and_are_gone(self, server: MemoryServer) -> None:
        sizes = [0, 1, 255, 256, 65_000, 70_000]

        await send(server, *[ServiceBusMessage(b"x" * size) for size in sizes])

        assert bodies(await receive(server, len(sizes))) == [b"x" * size for size in sizes]
        assert [settlement.state for settlement in server.settlements] == [Accepted()] * len(sizes)
        assert not server.queues["orders"]

    async def test_a_batch_is_one_delivery_of_the_messages_that_were_added(
        self, start_server: StartServer
    ) -> None:
        server = start_server(split_batches=True)
        async with connect(server) as client, open_sender(client) as sender:
            batch = await sender.create_message_batch()
            for n in range(20):
                batch.add_message(ServiceBusMessage(f"{n}"))
            await sender.send_messages(batch)
            await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])

        assert [received.message_format for received in server.received] == [BATCH_FORMAT] * 2
        members = [split_batch(received.payload) for received in server.received]
        assert [[Message.parse(m).read_body() for m in each] for each in members] == [
            [(DATA, [b"%d" % n]) for n in range(20)],
            [(DATA, [b"a"]), (DATA, [b"b"])],
        ]
        expected = [*[b"%d" % n for n in range(20)], b"a", b"b"]
        assert bodies(await receive(server, 22)) == expected

    async def test_large_messages_go_both_ways_over_many_frames(
        self, start_server: StartServer, watch: Watch
    ) -> None:
        server = start_server(max_frame_size=512, outgoing_frame_size=512, incoming_window=10)
        frames = watch(server)
        body = bytes(range(256)) * 400

        await send(server, ServiceBusMessage(body), ServiceBusMessage("end"))
        messages = await receive(server, 2)

        assert bodies(messages) == [body, b"end"]
        for direction in ("in", "out"):
            sizes = [frame.size for frame in frames.transfers(direction)]
            assert len(sizes) > len(body) // 512
            assert max(sizes) <= 512

    async def test_values_of_all_types_arrive_with_their_types(self, server: MemoryServer) -> None:
        cases = FROM_THE_SDK + NESTED_FROM_THE_SDK
        message = AmqpAnnotatedMessage(
            value_body=[value for _, value, _ in cases],
            annotations={name: value for name, value, _ in cases},
            application_properties={name: value for name, value, _ in FROM_THE_SDK},
        )

        await send(server, message)

        arrived = Message.parse(server.received[0].payload)
        assert exactly(arrived.read_application_properties()) == exactly(
            {name: value for name, _, value in FROM_THE_SDK}
        )
        assert exactly(arrived.read_message_annotations()) == exactly(
            {Symbol(name): value for name, _, value in cases}
        )
        assert exactly(arrived.read_body()) == exactly((VALUE, [[read for _, _, read in cases]]))

    async def test_values_of_all_types_are_read_by_the_sdk(self, server: MemoryServer) -> None:
        cases = TO_THE_SDK + NESTED_TO_THE_SDK
        made = Message.build(
            message_annotations={Symbol(name): value for name, value, _ in cases},
            application_properties={name: value for name, value, _ in TO_THE_SDK},
            value=[value for _, value, _ in cases],
        )
        server.put("orders", made.encode())

        [message] = await receive(server, 1)

        assert exactly(message.application_properties) == exactly(
            {name.encode(): value for name, _, value in TO_THE_SDK}
        )
        assert exactly(message.raw_amqp_message.annotations) == exactly(
            {name.encode(): value for name, _, value in cases}
        )
        assert exactly(message.body) == exactly([value for _, _, value in cases])


class TestFlow:
    async def test_an_empty_queue_gives_nothing_and_later_messages_still_come(
        self, server: MemoryServer
    ) -> None:
        async with connect(server) as client:
            async with open_receiver(client) as receiver:
                assert await receiver.receive_messages(5, max_wait_time=0.3) == []
                server.put("orders", text(b"a"))
                [message] = await receiver.receive_messages(1, max_wait_time=10)
                await receiver.complete_message(message)
                assert await receiver.receive_messages(5, max_wait_time=0.3) == []
            await asyncio.to_thread(server.wait_for, lambda: server.drains == 1)

            server.put("orders", text(b"b"))
            assert len(server.queues["orders"]) == 1  # the drained credit is gone

        assert bodies([message]) == [b"a"]
        assert bodies(await receive(server, 1)) == [b"b"]

    async def test_a_receiver_iterates_over_messages_as_they_come(
        self, server: MemoryServer
    ) -> None:
        seen: list[bytes] = []
        async with (
            connect(server) as client,
            open_receiver(client, prefetch_count=2) as receiver,
        ):
            putting = [asyncio.to_thread(server.put, "orders", text(b"%d" % n)) for n in range(5)]
            await asyncio.gather(*putting)
            async for message in receiver:
                await receiver.complete_message(message)
                seen += bodies([message])
                if len(seen) == 5:
                    break

        assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4"]


class TestSettling:
    async def test_each_way_to_settle_has_its_outcome(self, server: MemoryServer) -> None:
        words = [b"complete", b"abandon", b"defer", b"dead-letter"]
        server.put("orders", *map(text, words), text(b"one that was not asked for"))
        async with connect(server) as client, open_receiver(client) as receiver:
            messages = await receiver.receive_messages(4, max_wait_time=10)
            assert len(server.queues["orders"]) == 1
            complete, abandon, defer, dead_letter = messages
            await receiver.complete_message(complete)
            await receiver.abandon_message(abandon)
            await receiver.defer_message(defer)
            await receiver.dead_letter_message(dead_letter, reason="why", error_description="what")

        info = {"DeadLetterReason": "why", "DeadLetterErrorDescription": "what"}
        assert [(settlement.payload, settlement.state) for settlement in server.settlements] == [
            (text(b"complete"), Accepted()),
            (text(b"abandon"), Modified(delivery_failed=True)),
            (text(b"defer"), Modified(delivery_failed=True, undeliverable_here=True)),
            (text(b"dead-letter"), Rejected(Error("com.microsoft:dead-letter", "what", info))),
        ]

    async def test_a_message_that_is_received_and_deleted_is_settled_when_it_is_sent(
        self, server: MemoryServer, watch: Watch
    ) -> None:
        server.put("orders", text(b"a"), text(b"b"))
        frames = watch(server)
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        async with connect(server) as client, open_receiver(client, receive_mode=mode) as receiver:
            messages = await receiver.receive_messages(2, max_wait_time=10)

        assert bodies(messages) == [b"a", b"b"]
        assert [frame.performative.settled for frame in frames.transfers("out")[-2:]] == [True] * 2
        assert server.settlements == []
        assert not server.queues["orders"]

    async def test_a_settlement_that_we_deny_raises(self, server: MemoryServer) -> None:
        server.put("orders", text(b"body"))
        set_knob(server, "settlement_errors", {"orders": LockLost("the lock has expired")})
        async with (
            connect(server) as client,
            open_receiver(client, prefetch_count=1) as receiver,
        ):
            [message] = await receiver.receive_messages(1, max_wait_time=10)

            with pytest.raises(MessageLockLostError, match="the lock has expired"):
                await receiver.complete_message(message)
        assert len(server.settlements) == 1


class TestRefusals:
    async def raised_at(self, attempt: Callable[[str], Any]) -> dict[str, tuple[type, bool]]:
        """By address: what the attempt raised, and whether it says what the server said."""

        async def outcome(address: str) -> tuple[type, bool]:
            with pytest.raises(ServiceBusError) as raised:
                await attempt(address)
            return type(raised.value), REFUSALS[address][0].description in str(raised.value)

        outcomes = await asyncio.gather(*map(outcome, REFUSALS))
        return dict(zip(REFUSALS, outcomes, strict=True))

    async def test_a_refused_link_raises_what_the_refusal_says(self, server: MemoryServer) -> None:
        set_knob(
            server, "attach_errors", {name: refusal for name, (refusal, _) in REFUSALS.items()}
        )

        async def attempt_to_send(address: str) -> None:
            async with (
                connect(server, **IMPATIENT) as client,
                client.get_queue_sender(address, **BRISK) as sender,
            ):
                await sender.send_messages(ServiceBusMessage("body"))

        async def attempt_to_receive(address: str) -> None:
            async with (
                connect(server, **IMPATIENT) as client,
                client.get_queue_receiver(address, prefetch_count=1, **BRISK) as receiver,
            ):
                await receiver.receive_messages(1, max_wait_time=10)

        expected = {name: (error, True) for name, (_, error) in REFUSALS.items()}
        assert await self.raised_at(attempt_to_send) == expected
        assert await self.raised_at(attempt_to_receive) == expected
        assert server.received == []

    async def test_a_rejected_message_raises_what_the_rejection_says(
        self, server: MemoryServer
    ) -> None:
        set_knob(server, "rejections", {name: refusal for name, (refusal, _) in REFUSALS.items()})

        async def attempt(address: str) -> None:
            async with (
                connect(server, **IMPATIENT) as client,
                client.get_queue_sender(address, **BRISK) as sender,
            ):
                await sender.send_messages(ServiceBusMessage("body"))

        expected = {name: (error, True) for name, (_, error) in REFUSALS.items()}
        assert await self.raised_at(attempt) == expected
        assert sorted(received.address for received in server.received) == sorted(REFUSALS)

    async def test_a_sender_goes_on_after_a_rejection(self, server: MemoryServer) -> None:
        async with connect(server, **IMPATIENT) as client, open_sender(client) as sender:
            set_knob(server, "rejections", {"orders": QuotaExceeded("full")})
            with pytest.raises(ServiceBusQuotaExceededError):
                await sender.send_messages(ServiceBusMessage("body"))
            set_knob(server, "rejections", {})
            await sender.send_messages(ServiceBusMessage("body"))

        assert len(server.queues["orders"]) == 1

    async def test_a_refused_token_raises(self, server: MemoryServer) -> None:
        set_knob(server, "handlers", {"$cbs": lambda request: Response(401, "no")})

        with pytest.raises(ServiceBusAuthenticationError):
            await send(server, ServiceBusMessage("body"), **IMPATIENT)

        assert [request.operation for request in server.requests] == ["put-token"]


class TestIdleTimeouts:
    async def test_a_waiting_receiver_keeps_its_connection_alive(
        self, start_server: StartServer, watch: Watch
    ) -> None:
        server = start_server(idle_timeout_s=3.0)
        frames = watch(server)
        async with connect(server) as client, open_receiver(client) as receiver:
            receiving = asyncio.create_task(receiver.receive_messages(1, max_wait_time=30))
            # The SDK writes one each 0.75 s: five take longer than we wait for the first.
            await asyncio.to_thread(server.wait_for, lambda: frames.names("in").count("empty") >= 5)
            server.put("orders", text(b"body"))

            assert bodies(await receiving) == [b"body"]

        assert len(server.opens) == 1

    async def test_a_sender_that_lies_idle_is_closed_and_comes_again(
        self, start_server: StartServer
    ) -> None:
        server = start_server(idle_timeout_s=3.0)
        async with connect(server) as client, open_sender(client) as sender:
            await sender.send_messages(ServiceBusMessage("a"))
            await asyncio.to_thread(server.wait_for, lambda: server.violations)
            assert "sent nothing" in server.violations[0].description
            await sender.send_messages(ServiceBusMessage("b"))

        assert len(server.opens) == 2
        assert len(server.queues["orders"]) == 2
        server.violations.clear()


class TestReconnecting:
    async def test_a_send_that_is_cut_off_is_sent_again(self, server: MemoryServer) -> None:
        async with connect(server) as client, open_sender(client) as sender:
            await sender.send_messages(ServiceBusMessage("a"))
            set_knob(server, "cut_after", 1)
            await sender.send_messages(ServiceBusMessage("b"))
            await sender.send_messages(ServiceBusMessage("c"))

        assert server.cuts == 1
        assert len(server.opens) == 2
        assert len(server.received) == 4  # b arrived twice, and was taken once
        assert [Message.parse(entry.payload).read_body() for entry in server.queues["orders"]] == [
            (DATA, [b"a"]),
            (DATA, [b"b"]),
            (DATA, [b"c"]),
        ]

    async def test_a_receiver_that_is_cut_off_receives_again(self, server: MemoryServer) -> None:
        async with connect(server) as client, open_receiver(client) as receiver:
            server.put("orders", text(b"a"))
            [first] = await receiver.receive_messages(1, max_wait_time=10)
            await receiver.complete_message(first)
            server.put("orders", text(b"b"))
            set_knob(server, "cut_after", 1)

            [second] = await receiver.receive_messages(1, max_wait_time=20)
            await receiver.complete_message(second)

        assert server.cuts == 1
        assert bodies([first, second]) == [b"a", b"b"]

    async def test_a_sender_comes_again_when_its_link_or_connection_is_closed(
        self, server: MemoryServer
    ) -> None:
        link_lost, connection_lost = LinkLost("moved"), ConnectionLost("the node is updated")
        async with connect(server) as client, open_sender(client) as sender:
            await sender.send_messages(ServiceBusMessage("a"))
            ends = [end for end in server.endpoints if end.address == "orders"]
            server.call(lambda: [end.link.detach(link_lost) for end in ends])
            await sender.send_messages(ServiceBusMessage("b"))
            server.call(lambda: [peer.engine.close(connection_lost) for peer in server.connections])
            await sender.send_messages(ServiceBusMessage("c"))

        assert len(ends) == 1
        assert len(server.opens) >= 2
        assert len([a for a in server.attaches if "orders" in str(a.target)]) == 3
        assert len(server.queues["orders"]) == 3

    async def test_a_server_that_is_gone_raises(self, start_server: StartServer) -> None:
        server = start_server()
        async with connect(server, **IMPATIENT) as client, open_sender(client) as sender:
            await sender.send_messages(ServiceBusMessage("a"))
            server.close()

            with pytest.raises(ServiceBusConnectionError):
                await sender.send_messages(ServiceBusMessage("b"))


class TestTls:
    async def test_messages_go_both_ways_over_tls(
        self, start_server: StartServer, tls_files: TlsFiles
    ) -> None:
        server = start_server(tls=tls_files.server_context())
        body = b"x" * 300_000
        async with ServiceBusClient.from_connection_string(
            connection_string(server, tls=True),
            custom_endpoint_address=f"sb://localhost:{server.port}",
            transport_type=TransportType.Amqp,
            connection_verify=str(tls_files.ca),
            **PATIENT,
        ) as client:
            async with open_sender(client) as sender:
                await sender.send_messages(ServiceBusMessage(body))
            async with open_receiver(client, prefetch_count=1) as receiver:
                [message] = await receiver.receive_messages(1, max_wait_time=10)
                await receiver.complete_message(message)

        assert bodies([message]) == [body]
        assert [settlement.state for settlement in server.settlements] == [Accepted()]


class TestManagement:
    async def test_requests_are_answered(self, server: MemoryServer) -> None:
        peeked = Message.build(data=b"peeked").encode()
        answers = {
            "com.microsoft:schedule-message": {"sequence-numbers": Array(int, (4711,))},
            "com.microsoft:peek-message": {"messages": [{"message": peeked}]},
            "com.microsoft:renew-lock": {
                "expirations": Array(Timestamp, (Timestamp.from_datetime(NOON),))
            },
        }

        def handle(request: Request) -> Response:
            return Response(200, "OK", answers[request.operation])

        server.call(lambda: server.handlers.update({"$management": handle}))
        server.put("orders", text(b"body"))
        async with (
            connect(server) as client,
            open_sender(client) as sender,
            open_receiver(client, prefetch_count=1) as receiver,
        ):
            scheduled = await sender.schedule_messages(ServiceBusMessage("a"), NOON)
            messages = await receiver.peek_messages(1)
            [locked] = await receiver.receive_messages(1, max_wait_time=10)
            renewed = await receiver.renew_message_lock(locked)

        assert scheduled == [4711]
        assert bodies(messages) == [b"peeked"]
        assert renewed == NOON
        asked = [r.operation for r in server.requests if r.address == "orders/$management"]
        assert asked == list(answers)

    async def test_an_operation_that_is_not_implemented_raises(self, server: MemoryServer) -> None:
        async with (
            connect(server, **IMPATIENT) as client,
            open_receiver(client, prefetch_count=1) as receiver,
        ):
            with pytest.raises(ServiceBusError, match="peek-message is not implemented"):
                await receiver.peek_messages(1)
        assert [request.address for request in server.requests] == ["$cbs", "orders/$management"]
