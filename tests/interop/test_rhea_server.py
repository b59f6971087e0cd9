"""rhea (npm) as a server, against our client, and the bare engine where the client does less."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pairbus.amqp.batch import BATCH_FORMAT, split_batch
from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.events import (
    Attached,
    Begun,
    Closed,
    Delivery,
    Detached,
    FlowReceived,
    Opened,
    OutgoingDeliveriesUpdated,
)
from pairbus.amqp.performatives import (
    SETTLE_SECOND,
    SETTLE_SETTLED,
    SETTLE_UNSETTLED,
    Accepted,
    Error,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
)
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    MESSAGE_ANNOTATIONS,
    VALUE,
    Message,
    Properties,
)
from pairbus.amqp.session import Session
from pairbus.amqp.types import Symbol, UInt, ULong
from pairbus.errors import (
    AmqpError,
    Busy,
    ConnectionLost,
    EntityDisabled,
    EntityNotFound,
    LinkLost,
    LockLost,
    MessageTooLarge,
    NotAuthorized,
    OperationTimeout,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from tests.interop.bare_engine import BareEngine
from tests.interop.conftest import TlsFiles
from tests.interop.rhea_peer import DEADLINE_S, RheaPeer, error, tag, tag_all, untag
from tests.interop.rhea_types import EVERYTHING, ID, SIMPLE

OpenClient = Callable[..., Client]


class RheaServer(RheaPeer):
    """A server on a port of its own."""

    port: int

    def __init__(self) -> None:
        super().__init__("rhea_server.js")

    def listen(self, users: dict[str, str] | None = None, **options: Any) -> None:
        anonymous = users is None and not options.get("enable_sasl_external")
        answer = self.do("listen", options=options, users=users, anonymous=anonymous)
        self.port = answer["port"]

    def rule(self, address: str, **rule: Any) -> None:
        """What to do on the spot at an address: see rhea_server.js."""
        self.do("rule", address=address, rule=rule)

    def link_from(self, address: str) -> str:
        """The name of the link that has just been attached to receive from an address."""
        return self.next("sender_open", source=address)["link"]

    def link_to(self, address: str) -> str:
        """The name of the link that has just been attached to send to an address."""
        return self.next("receiver_open", target=address)["link"]

    def send_text(self, link: str, body: str) -> int:
        return self.do("send", link=link, message={"body": tag(body)})["id"]


@pytest.fixture
def start_rhea() -> Iterator[Callable[..., RheaServer]]:
    """Starts servers with the given options."""
    with ExitStack() as stack:

        def start(**options: Any) -> RheaServer:
            server = stack.enter_context(RheaServer())
            server.listen(**options)
            return server

        yield start


@pytest.fixture
def rhea(start_rhea: Callable[..., RheaServer]) -> RheaServer:
    """A server as it comes."""
    return start_rhea()


@pytest.fixture
def open_client(start_rhea: object) -> Iterator[OpenClient]:
    """Makes clients that are closed before the server is stopped."""
    with ExitStack() as stack:

        def open_client(port: int, **options: Any) -> Client:
            given = {"host": "127.0.0.1", "tls": False, "operation_timeout_s": 20} | options
            return stack.enter_context(Client(ClientOptions(port=port, **given)))

        yield open_client


def text(body: str) -> bytes:
    return Message.build(value=body).encode()


def texts(deliveries: list[Delivery]) -> list[Any]:
    return [Message.parse(delivery.payload).read_value() for delivery in deliveries]


def receive(receiver: Receiver, count: int) -> list[Delivery]:
    """So many messages, however many calls it takes."""
    arrived: list[Delivery] = []
    while len(arrived) < count:
        some = receiver.receive(count - len(arrived))
        assert some, f"{len(arrived)} of {count} messages came"
        arrived += some
    return arrived


class TestMessages:
    def test_a_message_arrives_byte_for_byte(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        payload = Message.build(
            message_annotations={Symbol("x-opt-seen"): True},
            properties=Properties(message_id=ID, group_id="group", group_sequence=9),
            application_properties={"colour": "red"},
            data=b"the body",
        ).encode()

        Sender(open_client(rhea.port), "q").send(payload)

        event = rhea.next("message", target="q")
        assert (event["payload"], event["format"]) == (payload.hex(), 0)
        assert event["sections"][str(DATA)] == [tag(b"the body")]
        assert event["sections"][str(APPLICATION_PROPERTIES)] == [tag({"colour": "red"})]

    def test_a_message_is_received_with_all_its_sections(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port), "q")
        receiver.open()
        message = {
            "durable": tag(True),
            "message_id": tag(ULong(7)),
            "subject": tag("žluťoučký"),
            "message_annotations": tag_all({"x-opt-seen": True}),
            "application_properties": tag_all({"colour": "red"}),
            "data": [b"the body".hex()],
        }
        encoded = rhea.do("encode", message=message)["payload"]

        rhea.do("send", link=rhea.link_from("q"), message=message, tag="cafe")

        [delivery] = receiver.receive()
        assert (delivery.tag, delivery.message_format) == (b"\xca\xfe", 0)
        assert delivery.payload.hex() == encoded
        parsed = Message.parse(delivery.payload)
        assert parsed.read_header().durable
        assert parsed.read_properties() == Properties(message_id=ULong(7), subject="žluťoučký")
        assert parsed.read_application_properties() == {"colour": "red"}
        assert parsed.read_body() == (DATA, [b"the body"])
        receiver.settle([delivery])
        assert untag(rhea.next("accepted")["state"]) == Accepted()

    def test_a_batch_that_we_send_is_split_by_rhea(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        members = [text("m" * size) for size in (0, 9, 250, 999)]

        Sender(open_client(rhea.port), "q").send_batch(members)

        event = rhea.next("message")
        assert event["format"] == BATCH_FORMAT
        sections = rhea.do("decode", payload=event["payload"])["sections"]
        assert [untag(section) for section in sections[str(DATA)]] == members

    def test_a_batch_that_rhea_sends_is_split_by_us(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port), "q")
        receiver.open()
        members = [
            rhea.do("encode", message={"body": tag("m" * size)})["payload"] for size in (0, 9, 999)
        ]
        batch = rhea.do("encode", message={"data": members})["payload"]

        rhea.do("send", link=rhea.link_from("q"), payload=batch, format=BATCH_FORMAT)

        [delivery] = receiver.receive()
        assert (delivery.message_format, delivery.payload.hex()) == (BATCH_FORMAT, batch)
        assert [member.hex() for member in split_batch(delivery.payload)] == members

    def test_a_megabyte_is_sent_in_frames_of_1024_bytes(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        rhea = start_rhea(max_frame_size=1024)
        payload = Message.build(data=hashlib.shake_256(b"up").digest(1 << 20)).encode()

        Sender(open_client(rhea.port), "q").send(payload)

        assert rhea.next("message")["payload"] == payload.hex()
        counts = rhea.do("counts")
        assert counts["largest_in"] <= 1024
        assert counts["frames_in"] > 1024

    def test_a_megabyte_arrives_in_frames_of_512_bytes(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port, max_frame_size=512), "q")
        receiver.open()
        body = hashlib.shake_256(b"down").digest(1 << 20)

        rhea.do("send", link=rhea.link_from("q"), message={"data": [body.hex()]})

        [delivery] = receiver.receive()
        assert Message.parse(delivery.payload).read_body() == (DATA, [body])
        counts = rhea.do("counts")
        assert counts["largest_out"] <= 512
        assert counts["frames_out"] > 2048


class TestTypes:
    def test_what_we_send_keeps_its_types(self, rhea: RheaServer, open_client: OpenClient) -> None:
        annotations = {Symbol(name): value for name, value in EVERYTHING.items()}
        message = Message.build(
            message_annotations=annotations,
            application_properties=SIMPLE,
            value=list(EVERYTHING.values()),
        )

        Sender(open_client(rhea.port), "q").send(message.encode())

        sections = rhea.next("message")["sections"]
        assert sections[str(MESSAGE_ANNOTATIONS)] == [tag(annotations)]
        assert sections[str(APPLICATION_PROPERTIES)] == [tag(SIMPLE)]
        assert sections[str(VALUE)] == [tag(list(EVERYTHING.values()))]

    def test_what_we_receive_keeps_its_types(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port), "q")
        receiver.open()
        message = {
            "message_annotations": tag_all(EVERYTHING),
            "application_properties": tag_all(SIMPLE),
            "body": tag(list(EVERYTHING.values())),
        }

        rhea.do("send", link=rhea.link_from("q"), message=message)

        [delivery] = receiver.receive()
        parsed = Message.parse(delivery.payload)
        annotations = {Symbol(name): value for name, value in EVERYTHING.items()}
        assert tag(parsed.read_message_annotations()) == tag(annotations)
        assert tag(parsed.read_application_properties()) == tag(SIMPLE)
        assert tag(parsed.read_value()) == tag(list(EVERYTHING.values()))


class TestFlow:
    def test_a_sender_waits_for_credit(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        rhea = start_rhea(receiver_options={"autoaccept": False, "credit_window": 0})
        sender = Sender(open_client(rhea.port), "q")
        sender.open()

        with pytest.raises(OperationTimeout, match="timed out waiting for credit to send to 'q'"):
            sender.send(text("too early"), timeout_s=0.3)
        rhea.do("credit", link=rhea.link_to("q"), credit=2)
        sender.send(text("a"))
        sender.send(text("b"))

        bodies = [event["sections"][str(VALUE)] for event in rhea.take("message", 2)]
        assert bodies == [[tag("a")], [tag("b")]]
        assert not rhea.has("message")

    def test_many_deliveries_are_in_flight_at_once(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        rhea = start_rhea(receiver_options={"autoaccept": False, "credit_window": 10})
        rhea.rule("q", hold=True)
        sender = Sender(open_client(rhea.port), "q")

        posted = [sender.post(text(str(n))) for n in range(10)]
        events = rhea.take("message", 10)
        assert sender.in_flight == 10
        for event in events:
            rhea.do("settle", link=event["link"], id=event["id"], outcome="accepted")
        sender.wait(posted)

        assert [one.error for one in posted] == [None] * 10
        assert sender.in_flight == 0

    def test_a_receiver_gets_as_many_messages_as_it_asks_for(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port), "q")
        receiver.open()
        link = rhea.link_from("q")
        for n in range(5):
            rhea.send_text(link, str(n))

        assert texts(receive(receiver, 2)) == ["0", "1"]
        assert receiver.credit == 0
        assert receiver.drain() == []
        assert texts(receive(receiver, 3)) == ["2", "3", "4"]

    def test_a_receiver_drains_and_goes_on(self, rhea: RheaServer, open_client: OpenClient) -> None:
        receiver = Receiver(open_client(rhea.port), "q")
        receiver.open()
        link = rhea.link_from("q")
        rhea.send_text(link, "a")
        assert texts(receiver.receive(10)) == ["a"]
        assert receiver.credit == 9

        assert receiver.drain() == []

        rhea.next("sender_draining")
        assert receiver.credit == 0
        rhea.send_text(link, "b")
        assert texts(receiver.receive()) == ["b"]

    def test_what_comes_before_a_drain_is_answered_is_not_lost(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port), "q")
        receiver.open()
        link = rhea.link_from("q")
        rhea.send_text(link, "a")
        assert texts(receiver.receive(10)) == ["a"]
        rhea.send_text(link, "b")
        rhea.send_text(link, "c")

        assert texts(receiver.drain()) == ["b", "c"]

        rhea.next("sender_draining")
        assert receiver.credit == 0

    def test_a_sender_gives_its_credit_back_when_rhea_drains_it(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        rhea = start_rhea(receiver_options={"autoaccept": False, "credit_window": 0})
        client = open_client(rhea.port)
        sender = Sender(client, "q")
        sender.open()
        link = rhea.link_to("q")
        rhea.do("credit", link=link, credit=5)
        sender.send(text("a"))

        rhea.do("drain", link=link)
        receiver = Receiver(client, "other")
        receiver.open()
        while not rhea.has("receiver_drained"):
            assert receiver.receive(timeout_s=0.1) == []

        assert rhea.next("receiver_drained")["credit"] == 0
        with pytest.raises(OperationTimeout, match="credit"):
            sender.send(text("too early"), timeout_s=0.1)
        rhea.do("credit", link=link, credit=3)  # rhea goes on draining
        while not rhea.has("receiver_drained"):
            assert receiver.receive(timeout_s=0.1) == []
        assert rhea.next("receiver_drained")["credit"] == 0

        def give_credit_when_it_is_waited_for() -> None:
            until(lambda: sender._needs_credit)
            rhea.do("credit", link=link, credit=3)

        giver = threading.Thread(target=give_credit_when_it_is_waited_for, daemon=True)
        giver.start()
        sender.send(text("b"))
        giver.join()
        assert [shown(event) for event in rhea.take("message", 2)] == ["a", "b"]
        assert rhea.next("receiver_drained")["credit"] == 0


class TestSettlement:
    def test_a_receiver_that_settles_second_waits_for_rhea(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port), "q")
        receiver.open()
        opened = rhea.next("sender_open")
        modes = opened["snd_settle_mode"], opened["rcv_settle_mode"]
        assert modes == (SETTLE_UNSETTLED, SETTLE_SECOND)
        for n in range(3):
            rhea.send_text(opened["link"], str(n))
        deliveries = receive(receiver, 3)

        receiver.settle(deliveries)

        outcomes = rhea.take("accepted", 3)
        assert [(one["id"], one["settled"]) for one in outcomes] == [
            (0, False),
            (1, False),
            (2, False),
        ]

    def test_a_receiver_that_settles_first_does_not_wait(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port), "q", confirm=False)
        receiver.open()
        rhea.send_text(rhea.link_from("q"), "a")

        receiver.settle(receiver.receive())

        assert rhea.next("accepted")["settled"] is True
        rhea.next("settled")

    def test_a_receiver_may_have_everything_settled(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port), "q", settled=True)
        receiver.open()
        opened = rhea.next("sender_open")
        assert opened["snd_settle_mode"] == SETTLE_SETTLED
        rhea.send_text(opened["link"], "a")

        [delivery] = receiver.receive()

        assert delivery.settled
        assert texts([delivery]) == ["a"]

    def test_a_settlement_that_is_denied_raises_the_reason(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        rhea.rule("q", deny=error("com.microsoft:message-lock-lost", "the lock has expired"))
        receiver = Receiver(open_client(rhea.port), "q")
        receiver.open()
        rhea.send_text(rhea.link_from("q"), "a")

        with pytest.raises(LockLost, match="the lock has expired"):
            receiver.settle(receiver.receive())

        rhea.next("accepted")

    def test_the_engine_sends_settled(self, rhea: RheaServer) -> None:
        with BareEngine.dial(rhea.port) as engine:
            session = begin(engine)
            link = session.attach_sender("s", target=Target("q"), snd_settle_mode=SETTLE_SETTLED)
            engine.next(Attached)
            engine.next(FlowReceived, lambda flowed: flowed.link is link)

            link.send(text("a"))
            engine.flush()

            assert rhea.next("receiver_open")["snd_settle_mode"] == SETTLE_SETTLED
            assert rhea.next("message")["settled"] is True
            assert session.outgoing.unsettled == {}

    def test_the_engine_sends_to_a_receiver_that_settles_second(self, rhea: RheaServer) -> None:
        with BareEngine.dial(rhea.port) as engine:
            session = begin(engine)
            link = session.attach_sender("s", target=Target("q"), rcv_settle_mode=SETTLE_SECOND)
            engine.next(FlowReceived, lambda flowed: flowed.link is link)
            sent = link.send(text("a"))

            updated = engine.next(OutgoingDeliveriesUpdated)
            assert (updated.deliveries, updated.state, updated.settled) == (
                [sent],
                Accepted(),
                False,
            )
            session.confirm(sent.id, sent.id, Accepted())
            engine.flush()

            assert untag(rhea.next("settled")["state"]) == Accepted()
            assert session.outgoing.unsettled == {}


def begin(engine: BareEngine) -> Session:
    engine.next(Opened)
    session = engine.connection.begin()
    engine.next(Begun)
    return session


VERDICTS: dict[str, tuple[dict[str, Any], type[AmqpError], str]] = {
    # at which path, what rhea says, what is raised, and how it reads
    "none": (
        {"outcome": "rejected", "error": error("amqp:not-found", "no such queue")},
        EntityNotFound,
        "'none' rejected a message: no such queue",
    ),
    "full": (
        {"outcome": "rejected", "error": error("amqp:resource-limit-exceeded", "no room")},
        QuotaExceeded,
        "'full' rejected a message: no room",
    ),
    "busy": (
        {"outcome": "rejected", "error": error("com.microsoft:server-busy", "slow down")},
        Busy,
        "'busy' rejected a message: slow down",
    ),
    "mute": (
        {"outcome": "rejected"},
        Unavailable,
        "'mute' rejected a message: no reason was given",
    ),
    "later": ({"outcome": "released"}, Unavailable, "'later' did not accept a message (released)"),
    "again": (
        {"outcome": "modified", "fields": {"delivery_failed": True}},
        Unavailable,
        "'again' did not accept a message (modified)",
    ),
}


class TestOutcomes:
    def test_a_sender_raises_each_outcome_but_accepted(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        client = open_client(rhea.port)
        for path, (verdict, kind, said) in VERDICTS.items():
            rhea.rule(path, verdict=verdict)
            sender = Sender(client, path)

            with pytest.raises(kind) as caught:
                sender.send(text("a"))

            assert type(caught.value) is kind
            assert said in str(caught.value)
            rhea.rule(path)
            sender.send(text("b"))

    def test_a_rejection_carries_its_info(self, rhea: RheaServer, open_client: OpenClient) -> None:
        why = error("pairbus:why", "because", colour="red", n=UInt(3))
        rhea.rule("q", verdict={"outcome": "rejected", "error": why})

        with pytest.raises(Unavailable) as caught:
            Sender(open_client(rhea.port), "q").send(text("a"))

        assert caught.value.condition == "pairbus:why"
        assert tag(dict(caught.value.info)) == tag({"colour": "red", "n": UInt(3)})

    def test_rhea_hears_each_outcome_from_a_receiver(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port), "q")
        receiver.open()
        link = rhea.link_from("q")
        why = Error("pairbus:why", "because", {Symbol("colour"): "red", Symbol("n"): UInt(3)})
        states = [
            Accepted(),
            Released(),
            Rejected(why),
            Rejected(),
            Modified(delivery_failed=True),
            Modified(True, True, {Symbol("seen"): UInt(1)}),
        ]

        for n, state in enumerate(states):
            rhea.send_text(link, str(n))
            [delivery] = receiver.receive()
            if state == Rejected(why):
                # rhea confirms with what it was told, which reads as a refusal.
                with pytest.raises(AmqpError, match="'q' did not settle a message: because"):
                    receiver.settle([delivery], state)
            else:
                receiver.settle([delivery], state)

            event = rhea.next(type(state).__name__.lower(), id=n)
            assert untag(event["state"]) == state


REFUSALS: dict[str, type[AmqpError]] = {
    "amqp:not-found": EntityNotFound,
    "amqp:unauthorized-access": NotAuthorized,
    "amqp:not-allowed": Refused,
    "com.microsoft:entity-disabled": EntityDisabled,
    "com.microsoft:server-busy": Busy,
    "pairbus:why": Unavailable,
}


class TestRefusals:
    def test_a_refused_link_raises_the_reason_and_the_connection_goes_on(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        client = open_client(rhea.port)
        for condition, kind in REFUSALS.items():
            rhea.rule("none", refuse=error(condition, "no", n=UInt(1)))

            for end in (Sender(client, "none"), Receiver(client, "none")):
                with pytest.raises(kind, match="no") as caught:
                    end.open()
                assert type(caught.value) is kind
                assert (caught.value.condition, caught.value.info) == (condition, {"n": UInt(1)})

            rhea.next("receiver_open", target="none")
            rhea.next("sender_open", source="none")
        Sender(client, "some").send(text("a"))
        assert client.generation == 1

    def test_a_link_that_was_taken_away_is_attached_again_by_the_next_call(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        receiver = Receiver(open_client(rhea.port), "q")
        receiver.open()
        link = rhea.link_from("q")

        rhea.do("close_link", link=link, error=error("amqp:link:detach-forced", "idle too long"))
        with pytest.raises(LinkLost, match="idle too long"):
            receiver.receive()

        receiver.open()
        assert receiver.receive(timeout_s=0.1) == []
        rhea.next("sender_close", link=link)
        rhea.send_text(rhea.link_from("q"), "a")
        assert texts(receiver.receive()) == ["a"]

    def test_a_session_that_was_ended_is_begun_again_by_the_next_call(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        client = open_client(rhea.port)
        receiver = Receiver(client, "q")
        receiver.open()
        link = rhea.link_from("q")

        rhea.do("end_session", link=link, error=error("amqp:internal-error", "a bad day"))
        with pytest.raises(Unavailable, match="the session was ended: a bad day"):
            receiver.receive()

        Sender(client, "q").send(text("a"))
        rhea.next("session_close")
        assert client.generation == 1

    def test_a_connection_that_was_closed_is_made_again_by_the_next_call(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        client = open_client(rhea.port)
        receiver = Receiver(client, "q")
        receiver.open()
        rhea.link_from("q")

        rhea.do("close", error=error("amqp:connection:forced", "maintenance"))
        with pytest.raises(ConnectionLost, match="the connection was closed: maintenance"):
            receiver.receive()

        rhea.next("connection_close")
        Sender(client, "q").send(text("a"))
        assert client.generation == 2

    def test_a_link_without_a_target_is_given_up_in_time(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        rhea.rule("q", bare=True)
        client = open_client(rhea.port)

        # By the book a null target is half a refusal, and its reason is still to come.
        with pytest.raises(OperationTimeout, match="the attach of a link to 'q'"):
            Sender(client, "q").open(timeout_s=0.3)

        assert rhea.next("receiver_open")["target"] == "q"
        Sender(client, "other").send(text("a"))
        rhea.next("receiver_close")

    def test_a_message_that_is_too_large_is_not_sent(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        rhea = start_rhea(receiver_options={"autoaccept": False, "max_message_size": 1000})
        sender = Sender(open_client(rhea.port), "q")

        with pytest.raises(MessageTooLarge, match="which accepts at most 1000"):
            sender.send(text("x" * 1000))

        assert sender.max_message_size == 1000
        sender.send(text("x" * 900))
        assert len(rhea.next("message")["payload"]) < 2 * 1000


class TestIdleness:
    def test_heartbeats_keep_an_idle_connection_alive(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        # Each gives up after four seconds of silence, and sends once a second.
        rhea = start_rhea(idle_time_out=2000)
        client = open_client(rhea.port, idle_timeout_s=4)
        assert untag(rhea.next("connection_open")["open"]).idle_time_out == 2000
        receiver = Receiver(client, "q")
        receiver.open()

        counts = rhea.do("counts")
        while min(counts["empty_in"], counts["empty_out"]) < 5:
            assert receiver.receive(timeout_s=0.5) == []
            counts = rhea.do("counts")

        assert not rhea.has("disconnected")
        rhea.send_text(rhea.link_from("q"), "a")
        assert texts(receiver.receive()) == ["a"]
        assert client.generation == 1

    def test_a_frozen_server_is_given_up_and_found_again_when_it_thaws(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        client = open_client(rhea.port, idle_timeout_s=3)
        receiver = Receiver(client, "q")
        receiver.open()

        rhea.freeze()
        with pytest.raises(ConnectionLost, match="sent nothing for 3 s"):
            receiver.receive()

        assert rhea.frozen
        rhea.thaw()
        Sender(client, "q").send(text("a"))
        assert client.generation == 2

    def test_the_engine_closes_a_connection_to_a_frozen_server(self, rhea: RheaServer) -> None:
        with BareEngine.dial(rhea.port, idle_timeout_s=2.5) as engine:
            begin(engine)

            rhea.freeze()
            closed = engine.next(Closed)

            assert rhea.frozen
            assert not closed.by_peer
            assert closed.error.condition == "amqp:resource-limit-exceeded"
            engine.flush()
            rhea.thaw()
            said = untag(rhea.next("connection_error")["error"])
            assert said.condition == "amqp:resource-limit-exceeded"

    def test_no_answer_from_a_frozen_server_is_a_timeout(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        client = open_client(rhea.port)
        sender = Sender(client, "q")
        sender.send(text("a"))

        rhea.freeze()
        with pytest.raises(OperationTimeout, match="timed out waiting for 'q' to accept"):
            sender.send(text("b"), timeout_s=0.3)
        fresh = Client(ClientOptions(host="127.0.0.1", port=rhea.port, tls=False))
        with pytest.raises(OperationTimeout, match="the open of"):
            fresh.connect(timeout_s=0.3)

        assert rhea.frozen
        rhea.thaw()
        sender.send(text("c"))
        assert [shown(event) for event in rhea.take("message", 3)] == ["a", "b", "c"]
        assert client.generation == 1

    def test_a_client_that_was_away_for_long_finds_the_server_alive(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        client = open_client(rhea.port, idle_timeout_s=1)
        sender = Sender(client, "q")
        sender.send(text("a"))
        away_since = time.monotonic()
        before = rhea.do("counts")["empty_out"]

        until(lambda: time.monotonic() > away_since + 1.2)

        assert rhea.do("counts")["empty_out"] > before
        sender.send(text("b"))
        assert client.generation == 1

    def test_rhea_gives_up_a_client_that_was_away_and_the_next_call_connects_again(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        rhea = start_rhea(idle_time_out=1500)
        client = open_client(rhea.port)
        sender = Sender(client, "q")
        sender.send(text("a"))

        rhea.next("disconnected")

        sender.send(text("b"))
        assert client.generation == 2


def until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        waiting.wait(0.05)


class TestReconnecting:
    def test_a_sender_goes_on_after_its_connection_was_cut(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        client = open_client(rhea.port)
        sender = Sender(client, "q")
        sender.send(text("a"))
        rhea.rule("q", cut=True)

        with pytest.raises(ConnectionLost):
            sender.send(text("b"))

        assert [shown(rhea.next("message")) for _ in range(2)] == ["a", "b"]
        rhea.rule("q")
        sender.send(text("b again"))
        assert shown(rhea.next("message")) == "b again"
        assert client.generation == 2

    def test_deliveries_in_flight_are_done_when_the_connection_is_cut(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        rhea.rule("q", hold=True)
        sender = Sender(open_client(rhea.port), "q")
        posted = [sender.post(text(str(n))) for n in range(3)]
        rhea.take("message", 3)

        rhea.do("cut")
        sender.wait(posted)

        assert [type(one.error) for one in posted] == [ConnectionLost] * 3
        rhea.rule("q")
        sender.send(text("on we go"))

    def test_a_receiver_goes_on_after_its_connection_was_cut(
        self, rhea: RheaServer, open_client: OpenClient
    ) -> None:
        client = open_client(rhea.port)
        receiver = Receiver(client, "q")
        receiver.open()
        rhea.send_text(rhea.link_from("q"), "a")
        held = receiver.receive()

        rhea.do("cut")
        with pytest.raises(ConnectionLost):
            client.run_until(lambda: False, client.deadline(None), "the cut")
        with pytest.raises(LockLost, match="the link to 'q' that held the locks ended"):
            receiver.settle(held)

        receiver.open()
        rhea.send_text(rhea.link_from("q"), "b")
        assert texts(receiver.receive()) == ["b"]
        assert client.generation == 2

    def test_a_server_that_was_killed_is_found_again_on_the_same_port(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        first = start_rhea()
        client = open_client(first.port)
        sender, receiver = Sender(client, "q"), Receiver(client, "q")
        sender.send(text("a"))
        receiver.open()

        first.kill()
        assert first.exit_code == -9
        with pytest.raises(ConnectionLost):
            client.run_until(lambda: False, client.deadline(None), "the end")
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            sender.send(text("nobody there"))
        second = start_rhea(port=first.port)

        sender.send(text("b"))
        assert shown(second.next("message")) == "b"
        receiver.open()
        second.send_text(second.link_from("q"), "c")
        assert texts(receiver.receive()) == ["c"]
        assert client.generation == 2


def shown(event: dict[str, Any]) -> str:
    return untag(event["sections"][str(VALUE)][0])


class TestSecurity:
    def test_without_sasl(self, rhea: RheaServer) -> None:
        with BareEngine.dial(rhea.port, sasl=None) as engine:
            begin(engine)

            assert rhea.next("connection_open").get("user") is None

    def test_sasl_anonymous(self, rhea: RheaServer, open_client: OpenClient) -> None:
        open_client(rhea.port)

        assert rhea.next("connection_open")["user"] == "anonymous"

    def test_sasl_plain(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        rhea = start_rhea(users={"me": "žluťoučký"})

        client = open_client(rhea.port, sasl=SaslClient.plain("me", "žluťoučký"))

        assert rhea.next("connection_open")["user"] == "me"
        Sender(client, "q").send(text("a"))

    def test_sasl_plain_with_a_wrong_password(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        rhea = start_rhea(users={"me": "secret"})

        with pytest.raises(NotAuthorized, match="SASL PLAIN failed: the user name, password or"):
            open_client(rhea.port, sasl=SaslClient.plain("me", "wrong"))

        assert not rhea.has("connection_open")

    def test_no_mechanism_in_common(
        self, start_rhea: Callable[..., RheaServer], open_client: OpenClient
    ) -> None:
        rhea = start_rhea(users={"me": "secret"})

        with pytest.raises(NotAuthorized, match="the SASL mechanisms PLAIN, but this client"):
            open_client(rhea.port)

        assert not rhea.has("connection_open")

    def test_tls(
        self,
        start_rhea: Callable[..., RheaServer],
        open_client: OpenClient,
        tls_files: TlsFiles,
    ) -> None:
        rhea = start_rhea(transport="tls", cert=str(tls_files.certificate), key=str(tls_files.key))
        client = open_client(
            rhea.port,
            tls=True,
            host="localhost",
            endpoint_host="127.0.0.1",
            ca_file=str(tls_files.ca),
        )
        payload = Message.build(data=bytes(100_000)).encode()

        Sender(client, "q").send(payload)

        assert rhea.next("message")["payload"] == payload.hex()
        receiver = Receiver(client, "q")
        receiver.open()
        rhea.do("send", link=rhea.link_from("q"), payload=payload.hex())
        assert [delivery.payload for delivery in receiver.receive()] == [payload]

    def test_tls_with_an_authority_that_we_do_not_know(
        self,
        start_rhea: Callable[..., RheaServer],
        open_client: OpenClient,
        tls_files: TlsFiles,
    ) -> None:
        rhea = start_rhea(transport="tls", cert=str(tls_files.certificate), key=str(tls_files.key))

        with pytest.raises(ConnectionLost, match="certificate"):
            open_client(rhea.port, tls=True, host="localhost", endpoint_host="127.0.0.1")

        assert not rhea.has("connection_open")

    def test_sasl_external_with_a_certificate(
        self,
        start_rhea: Callable[..., RheaServer],
        open_client: OpenClient,
        tls_files: TlsFiles,
        tmp_path: Path,
    ) -> None:
        rhea = start_rhea(
            transport="tls",
            cert=str(tls_files.certificate),
            key=str(tls_files.key),
            ca=str(tls_files.ca),
            requestCert=True,
            rejectUnauthorized=True,
            enable_sasl_external=True,
        )
        both = tmp_path / "client.pem"
        both.write_bytes(
            tls_files.client_certificate.read_bytes() + tls_files.client_key.read_bytes()
        )

        client = open_client(
            rhea.port,
            tls=True,
            host="localhost",
            endpoint_host="127.0.0.1",
            ca_file=str(tls_files.ca),
            certificate_file=str(both),
            sasl=SaslClient.external(),
        )

        assert rhea.next("connection_open")["certificate"] == "client"
        Sender(client, "q").send(text("a"))


class TestManyAtOnce:
    def test_many_links_of_one_client(self, rhea: RheaServer, open_client: OpenClient) -> None:
        client = open_client(rhea.port)
        senders = [Sender(client, f"q{n}") for n in range(30)]
        receivers = [Receiver(client, f"q{n}") for n in range(30)]

        for n in range(30):
            senders[n].send(text(str(n)))
            receivers[n].open()
            rhea.send_text(rhea.link_from(f"q{n}"), str(n))
            assert texts(receivers[n].receive()) == [str(n)]
        for n in range(30):
            assert shown(rhea.next("message", target=f"q{n}")) == str(n)
            senders[n].close()

        assert client.generation == 1
        assert len(rhea.take("receiver_close", 30)) == 30

    def test_several_sessions_with_many_links_each(self, rhea: RheaServer) -> None:
        with BareEngine.dial(rhea.port) as engine:
            engine.next(Opened)
            sessions = [engine.connection.begin() for _ in range(4)]
            links = [
                session.attach_sender(f"{number}-{n}", target=Target(f"{number}-{n}"))
                for number, session in enumerate(sessions)
                for n in range(25)
            ]
            for link in links:
                engine.next(FlowReceived, lambda flowed, link=link: flowed.link is link)

            for link in links:
                link.send(text(link.name))
            answered = 0
            while answered < len(links):
                updated = engine.next(OutgoingDeliveriesUpdated)
                assert (updated.state, updated.settled) == (Accepted(), True)
                answered += len(updated.deliveries)

            arrived = {event["target"]: shown(event) for event in rhea.take("message", len(links))}
            assert arrived == {link.name: link.name for link in links}
            assert len({link.session.channel for link in links}) == 4

    def test_a_session_sends_and_receives_at_once(self, rhea: RheaServer) -> None:
        with BareEngine.dial(rhea.port) as engine:
            session = begin(engine)
            sender = session.attach_sender("s", target=Target("q"))
            receiver = session.attach_receiver("r", source=Source("q"))
            engine.next(FlowReceived, lambda flowed: flowed.link is sender)
            receiver.flow(100)
            engine.flush()
            name = rhea.link_from("q")
            for n in range(50):
                sender.send(text(f"to {n}"))
                engine.flush()
                rhea.send_text(name, f"from {n}")

            deliveries = [engine.next(Delivery) for _ in range(50)]
            session.settle(deliveries[0].id, deliveries[-1].id, Accepted())
            engine.flush()

            assert texts(deliveries) == [f"from {n}" for n in range(50)]
            sent = [shown(event) for event in rhea.take("message", 50)]
            assert sent == [f"to {n}" for n in range(50)]
            assert len(rhea.take("accepted", 50)) == 50

    def test_a_detached_link_may_come_back_under_its_name(self, rhea: RheaServer) -> None:
        with BareEngine.dial(rhea.port) as engine:
            session = begin(engine)
            for _ in range(3):
                link = session.attach_sender("s", target=Target("q"))
                engine.next(Attached)
                link.detach()
                detached = engine.next(Detached)
                assert (detached.link, detached.error) == (link, None)

            assert len(rhea.take("receiver_close", 3)) == 3
