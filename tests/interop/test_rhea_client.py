"""rhea (npm) as a client, against a server on our engine, over sockets."""

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from examples.engine.memory_server import MemoryServer, offer
from pairbus.amqp.batch import BATCH_FORMAT, make_batch, split_batch
from pairbus.amqp.encode import encode
from pairbus.amqp.events import AttachReceived, Delivery, FlowReceived, IncomingDeliveriesUpdated
from pairbus.amqp.performatives import (
    SETTLE_SECOND,
    SETTLE_SETTLED,
    SETTLE_UNSETTLED,
    Accepted,
    Error,
    Modified,
    Open,
    Rejected,
    Released,
)
from pairbus.amqp.sections import DATA, SEQUENCE, VALUE, Header, Message, Properties
from pairbus.amqp.types import Array, Symbol, Timestamp, UInt, ULong
from pairbus.errors import AmqpError, DecodeError, EntityNotFound, NotAuthorized, QuotaExceeded
from tests.interop.bare_engine import BareEngine
from tests.interop.conftest import TlsFiles
from tests.interop.rhea_peer import RheaPeer, error, tag, tag_all, untag
from tests.interop.rhea_types import EVERYTHING, ID, SIMPLE

StartServer = Callable[..., MemoryServer]


@pytest.fixture
def rhea() -> Iterator[RheaPeer]:
    """A client that has not connected yet."""
    with RheaPeer("rhea_client.js") as peer:
        yield peer


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Where a bare engine waits for rhea."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def connect(rhea: RheaPeer, port: int, **options: Any) -> dict[str, Any]:
    dial(rhea, port, **options)
    return rhea.next("connection_open")


def dial(rhea: RheaPeer, port: int, **options: Any) -> None:
    where = {"host": "127.0.0.1", "port": port, "username": "anonymous", "reconnect": False}
    rhea.do("connect", options=where | options)


def open_sender(rhea: RheaPeer, address: str, name: str = "sender", **options: Any) -> None:
    """Attach, and wait for credit."""
    rhea.do("sender", name=name, options={"target": address} | options)
    rhea.next("sendable", link=name)


def open_receiver(rhea: RheaPeer, address: str, name: str = "receiver", **options: Any) -> None:
    """Attach; nothing is accepted and no credit is given unless the options say so."""
    given = {"source": address, "credit_window": 0, "autoaccept": False} | options
    rhea.do("receiver", name=name, options=given)
    rhea.next("receiver_open", link=name)


def text(body: str) -> bytes:
    return Message.build(value=body).encode()


def texts(payloads: Any) -> list[Any]:
    return [Message.parse(payload).read_value() for payload in payloads]


def send_text(rhea: RheaPeer, body: str, name: str = "sender") -> int:
    return rhea.do("send", link=name, message={"body": tag(body)})["id"]


def is_body(event: dict[str, Any], body: str) -> bool:
    return event["sections"][str(VALUE)] == [tag(body)]


class TestMessages:
    def test_a_message_arrives_with_all_its_sections_and_comes_back_byte_for_byte(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port)
        open_sender(rhea, "q")
        message = {
            "durable": tag(True),
            "priority": tag(UInt(7)),
            "ttl": tag(UInt(60_000)),
            "message_id": tag(ID),
            "user_id": tag(b"me"),
            "to": tag("there"),
            "subject": tag("žluťoučký"),
            "reply_to": tag("here"),
            "correlation_id": tag(ULong(2**64 - 1)),
            "content_type": tag("text/plain"),
            "creation_time": tag(Timestamp(1_709_208_000_250)),
            "group_id": tag("group"),
            "group_sequence": tag(UInt(9)),
            "delivery_annotations": tag_all({"hop": UInt(1)}),
            "message_annotations": tag_all({"x-opt-seen": True}),
            "application_properties": tag_all({"colour": "red"}),
            "data": [b"the body".hex()],
        }

        sent = rhea.do("send", link="sender", message=message)["id"]

        assert untag(rhea.next("accepted", id=sent)["state"]) == Accepted()
        [received] = server.wait_for(lambda: server.received)
        assert (received.address, received.message_format) == ("q", 0)
        parsed = Message.parse(received.payload)
        assert parsed.read_header() == Header(durable=True, priority=7, ttl=60_000)
        assert parsed.read_properties() == Properties(
            message_id=ID,
            user_id=b"me",
            to="there",
            subject="žluťoučký",
            reply_to="here",
            correlation_id=ULong(2**64 - 1),
            content_type="text/plain",
            creation_time=Timestamp(1_709_208_000_250),
            group_id="group",
            group_sequence=9,
        )
        assert tag(parsed.read_message_annotations()) == tag({Symbol("x-opt-seen"): True})
        assert tag(parsed.read_application_properties()) == tag({"colour": "red"})
        assert parsed.read_body() == (DATA, [b"the body"])
        assert parsed.delivery_annotations

        open_receiver(rhea, "q", credit_window=10, autoaccept=True)

        assert rhea.next("message")["payload"] == received.payload.hex()
        [settlement] = server.wait_for(lambda: server.settlements)
        assert settlement.state == Accepted()

    def test_bodies_of_several_sections_arrive(self, rhea: RheaPeer, server: MemoryServer) -> None:
        connect(rhea, server.port)
        open_sender(rhea, "q")
        rhea.do("send", link="sender", message={"data": ["00", "", "ff" * 300]})
        rhea.do("send", link="sender", message={"sequence": tag([UInt(1), "two"])})
        server.wait_for(lambda: len(server.received) == 2)

        bodies = [Message.parse(received.payload).read_body() for received in server.received]

        assert bodies == [(DATA, [b"\x00", b"", b"\xff" * 300]), (SEQUENCE, [[UInt(1), "two"]])]

    def test_a_footer_arrives_at_rhea(self, rhea: RheaPeer, server: MemoryServer) -> None:
        message = Message.build(value="a")
        message.footer = b"\x00\x53\x78" + encode({Symbol("sum"): b"\x01"})
        server.put("q", message.encode())
        connect(rhea, server.port)

        open_receiver(rhea, "q", credit_window=1)

        assert rhea.next("message")["sections"]["120"] == [tag({Symbol("sum"): b"\x01"})]

    def test_a_footer_that_rhea_writes_before_the_body_is_an_error(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port)
        open_sender(rhea, "q")

        message = {"footer": tag_all({"sum": b"\x01"}), "body": tag("a")}
        rhea.do("send", link="sender", message=message)

        [received] = server.wait_for(lambda: server.received)
        with pytest.raises(DecodeError, match="section 0x77 must not follow 0x78"):
            Message.parse(received.payload)

    def test_a_batch_that_rhea_made_is_split_into_what_rhea_put_into_it(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        server = start_server(split_batches=True)
        connect(rhea, server.port)
        members = [
            rhea.do("encode", message={"body": tag("m" * size)})["payload"] for size in (0, 9, 999)
        ]
        envelope = {"message_id": tag("batch"), "data": members}
        batch = rhea.do("encode", message=envelope)["payload"]
        open_sender(rhea, "q")

        sent = rhea.do("send", link="sender", payload=batch, format=BATCH_FORMAT)["id"]

        rhea.next("accepted", id=sent)
        [received] = server.received
        assert (received.message_format, received.payload.hex()) == (BATCH_FORMAT, batch)
        assert [member.hex() for member in split_batch(received.payload)] == members
        open_receiver(rhea, "q", credit_window=10)
        arrived = rhea.take("message", 3)
        assert [(event["payload"], event["format"]) for event in arrived] == [
            (member, 0) for member in members
        ]

    def test_a_batch_that_we_made_is_split_by_rhea_into_what_we_put_into_it(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        members = [text("m" * size) for size in (0, 9, 250, 999)]
        batch = make_batch(members, Message.build(properties=Properties(to="q")).properties)
        server.put("q", batch, message_format=BATCH_FORMAT)
        connect(rhea, server.port)

        open_receiver(rhea, "q", credit_window=10)

        event = rhea.next("message")
        assert (event["format"], event["payload"]) == (BATCH_FORMAT, batch.hex())
        sections = rhea.do("decode", payload=event["payload"])["sections"]
        assert [untag(section) for section in sections[str(DATA)]] == members

    def test_a_megabyte_arrives_in_frames_of_512_bytes_through_a_window_of_50(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        server = start_server(max_frame_size=512, incoming_window=50)
        connect(rhea, server.port)
        open_sender(rhea, "q")
        body = hashlib.shake_256(b"up").digest(1 << 20)

        sent = rhea.do("send", link="sender", message={"data": [body.hex()]})["id"]

        rhea.next("accepted", id=sent)
        counts = rhea.do("counts")
        assert counts["largest_out"] <= 512
        assert counts["frames_out"] > 2048
        [received] = server.received
        assert Message.parse(received.payload).read_body() == (DATA, [body])

    def test_a_megabyte_is_sent_in_frames_of_1024_bytes(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        payload = Message.build(data=hashlib.shake_256(b"down").digest(1 << 20)).encode()
        server.put("q", payload)
        connect(rhea, server.port, max_frame_size=1024)

        open_receiver(rhea, "q", credit_window=10)

        assert rhea.next("message")["payload"] == payload.hex()
        counts = rhea.do("counts")
        assert counts["largest_in"] <= 1024
        assert counts["frames_in"] > 1024

    def test_large_messages_on_two_links_may_take_turns(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        server = start_server(max_frame_size=512, incoming_window=8)
        connect(rhea, server.port)
        bodies = {name: hashlib.shake_256(name.encode()).digest(50_000) for name in ("a", "b", "c")}
        for name in bodies:
            rhea.do("begin", name=name)
            rhea.do("sender", name=name, session=name, options={"target": name})
        for name, body in bodies.items():
            rhea.do("send", link=name, message={"data": [body.hex()]})

        for name in bodies:
            rhea.next("accepted", link=name)

        arrived = {one.address: Message.parse(one.payload).read_body() for one in server.received}
        assert arrived == {name: (DATA, [body]) for name, body in bodies.items()}


class TestTypes:
    def test_application_properties_from_rhea_keep_their_types(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port)
        open_sender(rhea, "q")

        rhea.do("send", link="sender", message={"application_properties": tag_all(SIMPLE)})

        [received] = server.wait_for(lambda: server.received)
        assert tag(Message.parse(received.payload).read_application_properties()) == tag(SIMPLE)

    def test_annotations_from_rhea_keep_their_types(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port)
        open_sender(rhea, "q")

        rhea.do("send", link="sender", message={"message_annotations": tag_all(EVERYTHING)})

        [received] = server.wait_for(lambda: server.received)
        annotations = Message.parse(received.payload).read_message_annotations()
        assert tag(annotations) == tag({Symbol(name): value for name, value in EVERYTHING.items()})

    def test_bodies_from_rhea_keep_their_types(self, rhea: RheaPeer, server: MemoryServer) -> None:
        connect(rhea, server.port)
        open_sender(rhea, "q")

        for value in EVERYTHING.values():
            # In a list: rhea cannot write a described value as the body itself.
            rhea.do("send", link="sender", message={"body": tag([value])})

        server.wait_for(lambda: len(server.received) == len(EVERYTHING))
        bodies = texts(received.payload for received in server.received)
        for (name, value), body in zip(EVERYTHING.items(), bodies, strict=True):
            assert tag(body) == tag([value]), name

    def test_application_properties_for_rhea_keep_their_types(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        server.put("q", Message.build(application_properties=SIMPLE).encode())
        connect(rhea, server.port)

        open_receiver(rhea, "q", credit_window=1)

        [section] = rhea.next("message")["sections"]["116"]
        assert section == tag(SIMPLE)

    def test_annotations_for_rhea_keep_their_types(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        annotations = {Symbol(name): value for name, value in EVERYTHING.items()}
        annotations[Symbol("array of arrays")] = Array(
            Array, (Array(UInt, (UInt(1), UInt(2))), Array(UInt, ()))
        )
        server.put("q", Message.build(message_annotations=annotations).encode())
        connect(rhea, server.port)

        open_receiver(rhea, "q", credit_window=1)

        [section] = rhea.next("message")["sections"]["114"]
        assert section == tag(annotations)

    def test_bodies_for_rhea_keep_their_types(self, rhea: RheaPeer, server: MemoryServer) -> None:
        server.put("q", *(Message.build(value=[value]).encode() for value in EVERYTHING.values()))
        connect(rhea, server.port)

        open_receiver(rhea, "q", credit_window=100, autoaccept=True)

        for name, value in EVERYTHING.items():
            assert rhea.next("message")["sections"][str(VALUE)] == [tag([value])], name

    def test_the_properties_of_a_connection_keep_their_types(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        server = start_server(properties={Symbol("product"): "pairbus", Symbol("n"): UInt(1)})

        opened = connect(rhea, server.port, container_id="me", hostname="host", max_frame_size=4096)

        remote = untag(opened["open"])
        assert isinstance(remote, Open)
        assert remote.container_id == "memory-server"
        assert tag(remote.properties) == tag({Symbol("product"): "pairbus", Symbol("n"): UInt(1)})
        [theirs] = server.opens
        assert (theirs.container_id, theirs.hostname, theirs.max_frame_size) == ("me", "host", 4096)
        assert theirs.channel_max == 65535
        assert theirs.idle_time_out is None


class TestFlow:
    def test_rhea_gets_as_many_messages_as_it_gives_credit_for(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        server.put("q", *(text(str(n)) for n in range(10)))
        connect(rhea, server.port)
        open_receiver(rhea, "q")

        rhea.do("credit", link="receiver", credit=3)
        rhea.take("message", 3)
        rhea.do("credit", link="receiver", credit=4)
        rhea.take("message", 4)

        # A drain is answered behind everything that was sent.
        rhea.do("drain", link="receiver")
        rhea.next("receiver_flow")
        assert not rhea.has("message")
        assert len(server.queues["q"]) == 3

    def test_rhea_sends_as_many_messages_as_we_give_credit_for(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        server = start_server(credit=0)
        connect(rhea, server.port)
        rhea.do("sender", name="sender", options={"target": "q"})
        rhea.next("sender_open")
        for n in range(5):
            send_text(rhea, str(n))
        [end] = server.endpoints

        server.call(lambda: end.link.flow(2))
        rhea.take("accepted", 2)
        assert len(server.received) == 2
        server.call(lambda: end.link.flow(3))
        rhea.take("accepted", 3)

        assert texts(one.payload for one in server.received) == ["0", "1", "2", "3", "4"]

    def test_many_messages_flow_through_little_credit_and_a_small_window(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        server = start_server(credit=4, incoming_window=3)
        connect(rhea, server.port)
        open_sender(rhea, "q")
        for n in range(100):
            send_text(rhea, str(n))
        rhea.take("accepted", 100)

        open_receiver(rhea, "q", credit_window=4, autoaccept=True)

        assert all(is_body(rhea.next("message"), str(n)) for n in range(100))
        server.wait_for(lambda: len(server.settlements) == 100)

    def test_rhea_drains_what_is_there_and_gets_its_credit_back(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        server.put("q", text("a"), text("b"))
        connect(rhea, server.port)
        open_receiver(rhea, "q")

        rhea.do("credit", link="receiver", credit=10)
        rhea.do("drain", link="receiver")

        drained = rhea.next("receiver_drained")
        assert drained["credit"] == 0
        assert server.drains > 0
        assert is_body(rhea.next("message"), "a")
        assert is_body(rhea.next("message"), "b")
        server.put("q", text("c"))
        assert [entry.payload for entry in server.queues["q"]] == [text("c")]
        rhea.do("credit", link="receiver", credit=1)
        assert is_body(rhea.next("message"), "c")

    def test_an_empty_queue_is_drained_at_once(self, rhea: RheaPeer, server: MemoryServer) -> None:
        connect(rhea, server.port)
        open_receiver(rhea, "q")
        rhea.do("credit", link="receiver", credit=10)

        rhea.do("drain", link="receiver")

        assert rhea.next("receiver_drained")["credit"] == 0
        assert server.drains > 0

    def test_a_drain_is_answered_behind_messages_that_wait_for_the_window(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        server.put("q", *(text(str(n)) for n in range(20)))
        connect(rhea, server.port, session_buffer_size=8)
        open_receiver(rhea, "q", autoaccept=True)

        rhea.do("credit", link="receiver", credit=30)
        rhea.do("drain", link="receiver")

        rhea.next("receiver_drained")
        assert [is_body(event, str(n)) for n, event in enumerate(rhea.take_all("message"))] == [
            True
        ] * 20

    def test_rhea_answers_when_we_drain_it(self, rhea: RheaPeer, listener: socket.socket) -> None:
        dial(rhea, listener.getsockname()[1])
        with BareEngine.accept(listener) as engine:
            rhea.do("sender", name="sender", options={"target": "q"})
            link = engine.next(AttachReceived).link
            link.accept()
            link.flow(5)
            engine.flush()
            rhea.next("sendable")
            send_text(rhea, "last")
            engine.next(Delivery)

            link.flow(4, drain=True)
            engine.flush()
            rhea.next("sender_draining")

            engine.next(FlowReceived, lambda flowed: flowed.link is link)
            assert link.credit == 0


class TestSettlement:
    def test_what_rhea_sends_settled_arrives_settled_and_is_not_answered(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port)
        open_sender(rhea, "q", "settled", snd_settle_mode=SETTLE_SETTLED)
        open_sender(rhea, "q", "unsettled", snd_settle_mode=SETTLE_UNSETTLED)

        send_text(rhea, "settled", "settled")
        send_text(rhea, "unsettled", "unsettled")

        rhea.next("settled", link="unsettled")
        assert [received.settled for received in server.received] == [True, False]
        assert not rhea.has("settled", link="settled")
        assert not rhea.has("accepted", link="settled")

    def test_what_we_send_settled_arrives_settled(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        server.put("q", text("a"), text("b"))
        connect(rhea, server.port)

        open_receiver(rhea, "q", "settled", snd_settle_mode=SETTLE_SETTLED)
        rhea.do("credit", link="settled", credit=1)
        open_receiver(rhea, "q", "unsettled", snd_settle_mode=SETTLE_UNSETTLED)
        rhea.do("credit", link="unsettled", credit=1)

        assert rhea.next("message", link="settled")["settled"] is True
        assert rhea.next("message", link="unsettled")["settled"] is False

    def test_a_receiver_that_settles_first_is_done_at_once(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        server.put("q", text("a"))
        connect(rhea, server.port)
        open_receiver(rhea, "q", credit_window=1)
        message = rhea.next("message")

        rhea.do("settle", link="receiver", id=message["id"], outcome="accepted")

        [settlement] = server.wait_for(lambda: server.settlements)
        assert (settlement.state, settlement.settled) == (Accepted(), True)

    def test_a_receiver_that_settles_second_hears_from_us(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        server.put("q", text("a"))
        connect(rhea, server.port)
        open_receiver(rhea, "q", credit_window=1, rcv_settle_mode=SETTLE_SECOND)
        message = rhea.next("message")

        rhea.do("settle", link="receiver", id=message["id"], outcome="accepted")

        assert untag(rhea.next("settled")["state"]) == Accepted()
        [settlement] = server.settlements
        assert (settlement.state, settlement.settled) == (Accepted(), False)
        [end] = server.endpoints
        assert end.link.session.outgoing.unsettled == {}

    def test_when_we_settle_second_rhea_settles_what_it_sent(
        self, rhea: RheaPeer, listener: socket.socket
    ) -> None:
        dial(rhea, listener.getsockname()[1])
        with BareEngine.accept(listener) as engine:
            options = {"target": "q", "rcv_settle_mode": SETTLE_SECOND}
            rhea.do("sender", name="sender", options=options)
            link = engine.next(AttachReceived).link
            assert link.remote.rcv_settle_mode == SETTLE_SECOND
            link.accept()
            link.flow(1)
            engine.flush()
            rhea.next("sendable")
            sent = send_text(rhea, "a")
            delivery = engine.next(Delivery)
            session = link.session

            session.settle(delivery.id, delivery.id, Accepted(), settled=False)
            engine.flush()
            assert rhea.next("accepted")["settled"] is False
            assert list(session.incoming.unsettled) == [delivery.id]
            rhea.do("confirm", link="sender", id=sent)

            resolved = engine.next(IncomingDeliveriesUpdated)
            assert (resolved.deliveries, resolved.state) == ([delivery], Accepted())
            assert resolved.settled
            assert session.incoming.unsettled == {}

    def test_a_range_of_deliveries_is_settled_by_one_disposition(
        self, rhea: RheaPeer, listener: socket.socket
    ) -> None:
        dial(rhea, listener.getsockname()[1])
        with BareEngine.accept(listener) as engine:
            rhea.do("sender", name="sender", options={"target": "q"})
            link = engine.next(AttachReceived).link
            link.accept()
            link.flow(10)
            engine.flush()
            rhea.next("sendable")
            for n in range(10):
                send_text(rhea, str(n))
            deliveries = [engine.next(Delivery) for _ in range(10)]

            link.session.settle(deliveries[2].id, deliveries[7].id, Accepted())
            engine.flush()

            assert [event["id"] for event in rhea.take("settled", 6)] == [2, 3, 4, 5, 6, 7]
            link.session.settle(deliveries[0].id, deliveries[9].id, Released())
            engine.flush()
            assert [event["id"] for event in rhea.take("released", 4)] == [0, 1, 8, 9]


WHY = Error("pairbus:why", "because", {Symbol("colour"): "red", Symbol("n"): UInt(3)})

OUTCOMES: list[tuple[str, dict[str, Any], Any]] = [
    # how rhea calls it, what rhea is given, what it is
    ("accepted", {}, Accepted()),
    ("released", {}, Released()),
    ("rejected", {}, Rejected()),
    ("rejected", {"error": error("pairbus:why", "because", colour="red")}, None),
    ("modified", {"fields": {"delivery_failed": True}}, Modified(delivery_failed=True)),
    ("modified", {"fields": {"undeliverable_here": True}}, Modified(undeliverable_here=True)),
    (
        "modified",
        {
            "fields": {
                "delivery_failed": True,
                "undeliverable_here": True,
                "message_annotations": tag_all({"seen": UInt(1)}),
            }
        },
        Modified(True, True, {Symbol("seen"): UInt(1)}),
    ),
]


class TestOutcomes:
    def test_we_hear_each_outcome_from_rhea(self, rhea: RheaPeer, server: MemoryServer) -> None:
        connect(rhea, server.port)
        for n, (outcome, arguments, _) in enumerate(OUTCOMES):
            address = f"q{n}"
            server.put(address, text(str(n)))
            open_receiver(rhea, address, address)
            rhea.do("credit", link=address, credit=1)
            message = rhea.next("message", link=address)
            rhea.do("settle", link=address, id=message["id"], outcome=outcome, **arguments)
            server.wait_for(lambda n=n: len(server.settlements) > n)

        states = [settlement.state for settlement in server.settlements]
        for n, (_, _, expected) in enumerate(OUTCOMES):
            if expected is None:
                expected = Rejected(Error("pairbus:why", "because", {"colour": "red"}))
            assert states[n] == expected
        assert tag(states[-1].message_annotations) == tag({Symbol("seen"): UInt(1)})
        assert [entry.attempts for entry in server.queues["q4"]] == [1]
        assert (
            len(server.dead_lettered["q2"])
            == len(server.dead_lettered["q3"])
            == len(server.deferred["q6"])
            == 1
        )

    def test_rhea_hears_each_outcome_from_us(self, rhea: RheaPeer, listener: socket.socket) -> None:
        states = [
            Accepted(),
            Released(),
            Rejected(),
            Rejected(WHY),
            Modified(),
            Modified(delivery_failed=True),
            Modified(True, True, {Symbol("seen"): UInt(1)}),
        ]
        dial(rhea, listener.getsockname()[1])
        with BareEngine.accept(listener) as engine:
            options = {"target": "q", "treat_modified_as_released": False}
            rhea.do("sender", name="sender", options=options)
            link = engine.next(AttachReceived).link
            link.accept()
            link.flow(len(states))
            engine.flush()
            rhea.next("sendable")

            for state in states:
                sent = send_text(rhea, "a")
                delivery = engine.next(Delivery)
                link.session.settle(delivery.id, delivery.id, state)
                engine.flush()

                event = rhea.next(type(state).__name__.lower(), id=sent)
                assert untag(event["state"]) == state
                assert rhea.next("settled", id=sent)["settled"] is True

    def test_a_message_that_was_released_comes_again(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        server.put("q", text("a"))
        connect(rhea, server.port)
        open_receiver(rhea, "q")
        rhea.do("credit", link="receiver", credit=2)
        first = rhea.next("message")

        rhea.do("settle", link="receiver", id=first["id"], outcome="released")

        again = rhea.next("message")
        assert again["payload"] == first["payload"]
        assert again["id"] != first["id"]


class TestRefusals:
    @pytest.mark.parametrize("kind", ["sender", "receiver"])
    def test_a_refused_link_gets_the_reason_and_the_connection_goes_on(
        self, rhea: RheaPeer, server: MemoryServer, kind: str
    ) -> None:
        info = {Symbol("tracking"): "id-1", Symbol("n"): UInt(1)}
        refusal = EntityNotFound("there is no queue 'none'", info=info)
        server.call(lambda: server.attach_errors.update(none=refusal))
        connect(rhea, server.port)

        terminus = "target" if kind == "sender" else "source"
        rhea.do(kind, name="refused", options={terminus: "none"})

        opened = rhea.next(f"{kind}_open")
        assert opened[terminus] is None
        refused = untag(rhea.next(f"{kind}_error")["error"])
        assert refused == Error("amqp:not-found", "there is no queue 'none'", info)
        assert tag(refused.info) == tag(info)
        rhea.next(f"{kind}_close")
        server.wait_for(lambda: not any(peer_links(server)))
        open_sender(rhea, "some")
        send_text(rhea, "a")
        rhea.next("accepted", link="sender")

    def test_a_link_is_taken_away_with_the_reason(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port)
        open_sender(rhea, "q")
        [end] = server.endpoints

        server.call(lambda: end.link.detach(NotAuthorized("the token has expired")))

        taken = untag(rhea.next("sender_error")["error"])
        assert (taken.condition, taken.description) == (
            "amqp:unauthorized-access",
            "the token has expired",
        )
        server.wait_for(lambda: not any(peer_links(server)))

    def test_a_message_is_rejected_with_the_reason(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        full = QuotaExceeded("the queue is full", info={Symbol("limit"): UInt(1)})
        server.call(lambda: server.rejections.update(q=full))
        connect(rhea, server.port)
        open_sender(rhea, "q")

        send_text(rhea, "a")

        assert untag(rhea.next("rejected")["state"]) == Rejected(
            Error("amqp:resource-limit-exceeded", "the queue is full", {"limit": UInt(1)})
        )

    def test_a_message_that_is_too_large_costs_the_link(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        server = start_server(max_message_size=1000)
        connect(rhea, server.port)
        open_sender(rhea, "q")

        rhea.do("send", link="sender", message={"data": ["00" * 2000]})  # rhea does not look

        taken = untag(rhea.next("sender_error")["error"])
        assert taken.condition == "amqp:link:message-size-exceeded"
        [violation] = server.violations
        assert violation.condition == "amqp:link:message-size-exceeded"
        server.violations.clear()
        assert server.received == []

    def test_a_session_and_a_connection_are_ended_with_the_reason(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port)
        open_sender(rhea, "q")
        [end] = server.endpoints
        why = {"condition": "pairbus:why", "info": {Symbol("n"): UInt(1)}}

        server.call(lambda: end.link.session.end(AmqpError("a session", **why)))
        ended = untag(rhea.next("session_error")["error"])
        server.call(lambda: end.connection.engine.close(AmqpError("a connection", **why)))
        closed = untag(rhea.next("connection_error")["error"])
        server.wait_for(lambda: not server.connections)

        assert ended == Error("pairbus:why", "a session", {"n": UInt(1)})
        assert closed == Error("pairbus:why", "a connection", {"n": UInt(1)})

    def test_rhea_ends_links_sessions_and_the_connection_with_its_reasons(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port)
        open_sender(rhea, "q")
        open_receiver(rhea, "q")

        rhea.do("close_link", link="sender", error=error("pairbus:link", "a link", n=UInt(1)))
        rhea.next("sender_close")
        rhea.do("end_session", link="receiver", error=error("pairbus:session", "a session"))
        rhea.next("session_close")
        rhea.do("close", error=error("pairbus:connection", "a connection", n=UInt(3)))
        rhea.next("connection_close")

        server.wait_for(lambda: not server.connections)
        said = [(one.condition, one.description, dict(one.info)) for one in server.errors]
        assert said == [
            ("pairbus:link", "a link", {"n": UInt(1)}),
            ("pairbus:session", "a session", {}),
            ("pairbus:connection", "a connection", {"n": UInt(3)}),
        ]


def peer_links(server: MemoryServer) -> Iterator[Any]:
    """The links of all connections, as the engine knows them."""
    for peer in server.connections:
        for session in peer.engine._sessions.values():
            yield from session.links


class TestIdleness:
    def test_heartbeats_keep_an_idle_connection_alive(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        # Each gives up after four seconds of silence, and sends once a second.
        server = start_server(idle_timeout_s=4)
        opened = connect(rhea, server.port, idle_time_out=2000)
        assert untag(opened["open"]).idle_time_out == 2000
        assert server.opens[0].idle_time_out == 2000

        until_heartbeats(rhea, 5)

        assert not rhea.has("disconnected")
        open_sender(rhea, "q")
        send_text(rhea, "a")
        rhea.next("accepted")
        assert len(server.opens) == 1

    def test_a_frozen_client_is_given_up_and_comes_back_when_it_thaws(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        server = start_server(idle_timeout_s=3)
        connect(rhea, server.port, reconnect=True, all_errors_non_fatal=True)
        open_receiver(rhea, "q", credit_window=10, autoaccept=True)

        rhea.freeze()

        assert rhea.frozen
        [violation] = server.wait_for(lambda: server.violations)
        assert violation.condition == "amqp:resource-limit-exceeded"
        assert "sent nothing for 3 seconds" in violation.description
        server.violations.clear()
        server.wait_for(lambda: not server.connections)
        assert not server.endpoints
        rhea.thaw()
        said = untag(rhea.next("connection_error")["error"])
        assert said.condition == "amqp:resource-limit-exceeded"
        rhea.next("connection_open")
        server.put("q", text("welcome back"))
        assert is_body(rhea.next("message"), "welcome back")

    def test_a_frozen_server_is_given_up_by_rhea_which_comes_back_when_it_thaws(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port, idle_time_out=1500, reconnect=True)
        open_sender(rhea, "q")
        thaw = threading.Event()
        frozen = threading.Thread(target=server.call, args=(lambda: thaw.wait(15),))
        frozen.start()
        try:
            assert rhea.next("disconnected")["reconnecting"] is True
            assert len(server.opens) == 1
        finally:
            thaw.set()
            frozen.join()

        rhea.next("connection_open")
        rhea.next("sendable")
        send_text(rhea, "a")
        rhea.next("accepted")
        server.wait_for(lambda: server.errors)
        assert {one.condition for one in server.errors} >= {"amqp:resource-limit-exceeded"}


def until_heartbeats(rhea: RheaPeer, number: int) -> None:
    """Wait until so many empty frames have gone each way."""
    enough = threading.Event()
    for _ in range(200):
        counts = rhea.do("counts")
        if min(counts["empty_in"], counts["empty_out"]) >= number:
            return
        enough.wait(0.1)
    pytest.fail(f"too few heartbeats: {counts}")


class TestReconnecting:
    def test_rhea_goes_on_sending_after_a_cut(self, rhea: RheaPeer, server: MemoryServer) -> None:
        server.call(lambda: setattr(server, "cut_after", 3))
        connect(rhea, server.port, reconnect=True)
        open_sender(rhea, "q")

        for n in range(2):
            send_text(rhea, str(n))
        # Before the third: what comes together may be cut off together.
        assert [event["id"] for event in rhea.take("accepted", 2)] == [0, 1]
        send_text(rhea, "2")
        assert rhea.next("disconnected")["reconnecting"] is True
        assert server.cuts == 1
        rhea.next("connection_open")
        rhea.next("sendable")
        for n in range(2, 5):  # the third was not answered: it is ours to send again
            send_text(rhea, str(n))
        rhea.take("accepted", 3)

        assert texts(entry.payload for entry in server.queues["q"]) == ["0", "1", "2", "3", "4"]
        assert len(server.opens) == 2

    def test_rhea_goes_on_receiving_after_a_cut(self, rhea: RheaPeer, server: MemoryServer) -> None:
        server.put("q", *(text(str(n)) for n in range(6)))
        server.call(lambda: setattr(server, "cut_after", 4))
        connect(rhea, server.port, reconnect=True)

        open_receiver(rhea, "q", credit_window=1, autoaccept=True)

        assert all(is_body(rhea.next("message"), str(n)) for n in range(3))
        assert rhea.next("disconnected")["reconnecting"] is True
        assert server.cuts == 1
        rhea.next("connection_open")
        assert all(is_body(rhea.next("message"), str(n)) for n in range(3, 6))
        server.wait_for(lambda: len(server.settlements) == 6)

    def test_rhea_comes_back_to_a_server_that_was_started_again(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        first = start_server()
        connect(rhea, first.port, reconnect=True)
        open_sender(rhea, "q")

        first.close()
        assert rhea.next("disconnected")["reconnecting"] is True
        second = start_server(port=first.port)

        rhea.next("connection_open")
        rhea.next("sendable")
        send_text(rhea, "a")
        rhea.next("accepted")
        assert texts(one.payload for one in second.received) == ["a"]

    def test_a_cut_by_rhea_returns_what_it_had_not_settled(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        server.put("q", text("a"), text("b"))
        connect(rhea, server.port)
        open_receiver(rhea, "q")
        rhea.do("credit", link="receiver", credit=2)
        rhea.take("message", 2)
        assert not server.queues["q"]

        rhea.do("cut")

        rhea.next("disconnected")
        server.wait_for(lambda: not server.connections)
        assert texts(entry.payload for entry in server.queues["q"]) == ["a", "b"]


class TestSecurity:
    def test_without_sasl(self, rhea: RheaPeer, start_server: StartServer) -> None:
        server = start_server(sasl=None)

        connect(rhea, server.port, username=None)

        assert server.authenticated == []
        open_sender(rhea, "q")

    def test_sasl_anonymous(self, rhea: RheaPeer, server: MemoryServer) -> None:
        connect(rhea, server.port)

        [authenticated] = server.authenticated
        assert authenticated.mechanism == "ANONYMOUS"

    def test_sasl_plain(self, rhea: RheaPeer, start_server: StartServer) -> None:
        server = start_server(sasl=offer("PLAIN", users={"me": "secret"}))

        connect(rhea, server.port, username="me", password="secret")

        [authenticated] = server.authenticated
        assert (authenticated.mechanism, authenticated.identity) == ("PLAIN", "me")
        open_sender(rhea, "q")

    def test_sasl_plain_with_a_wrong_password(
        self, rhea: RheaPeer, start_server: StartServer
    ) -> None:
        server = start_server(sasl=offer("PLAIN", users={"me": "secret"}))

        dial(rhea, server.port, username="me", password="wrong")

        refused = rhea.next("connection_error")["error"]
        assert refused["condition"] == "amqp:unauthorized-access"
        [violation] = server.wait_for(lambda: server.violations)
        assert isinstance(violation, NotAuthorized)
        server.violations.clear()
        assert server.opens == []

    def test_no_mechanism_in_common(self, rhea: RheaPeer, start_server: StartServer) -> None:
        server = start_server(sasl=offer("PLAIN", users={"me": "secret"}))

        dial(rhea, server.port)

        refused = rhea.next("connection_error")["error"]
        assert "No suitable mechanism; server supports PLAIN" in refused["description"]
        server.wait_for(lambda: not server.connections)
        assert server.opens == []

    def test_tls(self, rhea: RheaPeer, start_server: StartServer, tls_files: TlsFiles) -> None:
        server = start_server(tls=tls_files.server_context())

        connect(rhea, server.port, transport="tls", servername="localhost", ca=str(tls_files.ca))

        open_sender(rhea, "q")
        rhea.do("send", link="sender", message={"data": ["ff" * 100_000]})
        rhea.next("accepted")

    def test_tls_with_an_authority_that_rhea_does_not_know(
        self, rhea: RheaPeer, start_server: StartServer, tls_files: TlsFiles
    ) -> None:
        server = start_server(tls=tls_files.server_context())

        dial(rhea, server.port, transport="tls", servername="localhost")

        assert "certificate" in rhea.next("disconnected")["error"]["description"]
        assert server.opens == []

    def test_sasl_external_with_a_certificate(
        self, rhea: RheaPeer, start_server: StartServer, tls_files: TlsFiles
    ) -> None:
        server = start_server(tls=tls_files.server_context(ask_client=True), sasl=offer("EXTERNAL"))

        connect(
            rhea,
            server.port,
            username=None,
            transport="tls",
            servername="localhost",
            ca=str(tls_files.ca),
            cert=str(tls_files.client_certificate),
            key=str(tls_files.client_key),
            enable_sasl_external=True,
        )

        [authenticated] = server.authenticated
        assert authenticated.mechanism == "EXTERNAL"
        open_sender(rhea, "q")


class TestManyAtOnce:
    def test_several_sessions_with_many_links_each(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port)
        names = [f"{session}-{n}" for session in range(4) for n in range(40)]
        for session in range(4):
            rhea.do("begin", name=session)
        for name in names:
            session = int(name[0])
            rhea.do("sender", name=f"s{name}", session=session, options={"target": name})
            options = {"source": name, "credit_window": 5}
            rhea.do("receiver", name=f"r{name}", session=session, options=options)
        for name in names:
            rhea.next("receiver_open", link=f"r{name}")
            rhea.next("sendable", link=f"s{name}")

        for name in names:
            send_text(rhea, name, f"s{name}")

        for name in names:
            assert is_body(rhea.next("message", link=f"r{name}"), name)
        server.wait_for(lambda: len(server.settlements) == len(names))
        [peer] = server.connections
        assert len(peer.engine._sessions) == 4
        assert len(server.endpoints) == 2 * len(names)

    def test_links_come_and_go_on_one_session(self, rhea: RheaPeer, server: MemoryServer) -> None:
        connect(rhea, server.port)
        for n in range(50):
            open_sender(rhea, "q", f"s{n}")
            send_text(rhea, str(n), f"s{n}")
            rhea.next("accepted", link=f"s{n}")
            rhea.do("close_link", link=f"s{n}")
            rhea.next("sender_close", link=f"s{n}")

        assert len(server.received) == 50
        assert server.wait_for(lambda: not any(peer_links(server)))

    def test_an_ended_session_leaves_the_others_alone(
        self, rhea: RheaPeer, server: MemoryServer
    ) -> None:
        connect(rhea, server.port)
        for name in ("a", "b"):
            rhea.do("begin", name=name)
            rhea.do("sender", name=name, session=name, options={"target": "q"})
            rhea.next("sendable", link=name)

        rhea.do("end_session", link="a")
        rhea.next("session_close")
        send_text(rhea, "still here", "b")

        rhea.next("accepted", link="b")
        [end] = server.endpoints
        assert end.link.name == "b"
