"""Our client, and the bare engine where the client lacks a feature, against proton as a broker."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest
from proton import Condition, Delivery, Endpoint, Link, Message, SSLDomain, Terminus, int32, symbol
from proton.reactor import Selector

from pairbus.amqp import events as ev
from pairbus.amqp import performatives as p
from pairbus.amqp import sections
from pairbus.amqp.batch import BATCH_FORMAT, batch_envelope, make_batch, split_batch
from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.client.management import Management
from pairbus.amqp.client.transport import Transport
from pairbus.amqp.connection import Connection, ConnectionSettings
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import Described, Int32, Symbol
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
from pairbus.servicebus.tokens import SharedAccessKey
from tests.interop.conftest import TlsFiles
from tests.interop.proton_broker import ProtonServer
from tests.interop.proton_peer import post, settle
from tests.interop.proton_types import EVERY, SIMPLE, TWICE, ours, theirs, typed

T = TypeVar("T")
Start = Callable[..., ProtonServer]
Connect = Callable[..., Client]

DEADLINE_S = 20.0


@pytest.fixture
def start_proton() -> Iterator[Start]:
    """Starts a broker of proton's; stops it when the test is over."""
    with ExitStack() as stack:
        yield lambda **knobs: stack.enter_context(ProtonServer(**knobs))


@pytest.fixture
def proton(start_proton: Start) -> ProtonServer:
    """A broker as it comes."""
    return start_proton()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes a client of ours for a broker; closes it when the test is over."""
    with ExitStack() as stack:

        def connect(server: ProtonServer, **options: Any) -> Client:
            options = {"host": "localhost", "endpoint_host": "127.0.0.1", "tls": False, **options}
            times = {"connect_timeout_s": DEADLINE_S, "operation_timeout_s": DEADLINE_S}
            client = Client(ClientOptions(port=server.port, **{**times, **options}))
            stack.callback(client.close)
            return client

        yield connect


class BareEngine:
    """The engine on a socket, with nothing in between."""

    def __init__(self, server: ProtonServer, **settings: Any) -> None:
        self.events: list[Any] = []
        self.wire = Transport.connect(
            "127.0.0.1",
            server.port,
            tls=None,
            server_name="",
            deadline=time.monotonic() + DEADLINE_S,
            clock=time.monotonic,
        )
        self.connection = Connection(
            ConnectionSettings(container_id="bare", **settings),
            sasl=SaslClient.anonymous(),
            now=time.monotonic(),
        )
        self.until(lambda: self.connection.remote)

    def __enter__(self) -> "BareEngine":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.wire.close()

    def until(self, condition: Callable[[], T]) -> T:
        end = time.monotonic() + DEADLINE_S
        while not (result := condition()):
            now = time.monotonic()
            if now > end:
                raise TimeoutError("the engine did not come to that")
            self.events += self.connection.tick(now)
            data = self.wire.exchange(self.connection.data_to_send(now), now + 0.02)
            self.events += self.connection.receive(data, time.monotonic())
        return result

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    def sender(self, address: str, **fields: Any) -> Any:
        session = self.connection.begin()
        link = session.attach_sender(f"to {address}", target=p.Target(address), **fields)
        self.until(lambda: link.alive and link.credit > 0)
        return link

    def receiver(self, address: str, **fields: Any) -> Any:
        session = self.connection.begin()
        fields = {"source": p.Source(address), **fields}
        link = session.attach_receiver(f"from {address}", **fields)
        self.until(lambda: link.alive)
        return link


@pytest.fixture
def bare() -> Iterator[Callable[..., BareEngine]]:
    """Connects a bare engine; hangs up when the test is over."""
    with ExitStack() as stack:
        yield lambda server, **settings: stack.enter_context(BareEngine(server, **settings))


def encoded(body: object = "hello", **fields: object) -> bytes:
    return sections.Message.build(value=body, **fields).encode()


def test_a_message_goes_to_proton_and_comes_back_as_it_was(
    proton: ProtonServer, connect: Connect
) -> None:
    client = connect(proton)
    payload = encoded("hello", application_properties={"a": 1})
    with Sender(client, "q") as sender, Receiver(client, "q") as receiver:
        sender.send(payload)
        [arrived] = proton.arrived
        assert (arrived.address, arrived.message.body) == ("q", "hello")
        assert arrived.message.properties == {"a": 1}
        [delivery] = receiver.receive()
        assert (delivery.payload, delivery.message_format) == (payload, 0)
        receiver.settle([delivery])
        assert [outcome.state for outcome in proton.outcomes] == [Delivery.ACCEPTED]
    client.close()
    assert proton.faults == []


def test_several_messages_are_in_flight_and_keep_their_order(
    proton: ProtonServer, connect: Connect
) -> None:
    client = connect(proton)
    sender, receiver = Sender(client, "q"), Receiver(client, "q")
    payloads = [encoded(number) for number in range(300)]
    posted = [sender.post(payload) for payload in payloads]
    sender.wait(posted)
    assert [one.error for one in posted] == [None] * 300
    received = []
    while len(received) < 300:
        received += receiver.receive(300 - len(received))
    assert [delivery.payload for delivery in received] == payloads
    receiver.settle(received)
    assert len(proton.outcomes) == 300


# Proton can neither read nor set the message format of a transfer, so it passes a batch on
# as an ordinary message of the same bytes: that the mark itself crosses proton cannot be shown.


def test_a_batch_reaches_proton_whole_and_can_be_split_when_it_comes_back(
    proton: ProtonServer, connect: Connect
) -> None:
    client = connect(proton)
    members = [
        encoded(number, properties=sections.Properties(message_id=str(number)))
        for number in range(500)
    ]
    Sender(client, "q").send_batch(members)
    assert proton.arrived[0].payload == make_batch(members, batch_envelope(members[0]))
    [delivery] = Receiver(client, "q").receive()
    assert delivery.message_format == 0 != BATCH_FORMAT
    assert split_batch(delivery.payload) == members


def test_what_proton_encodes_of_a_batch_is_split_right(
    proton: ProtonServer, connect: Connect
) -> None:
    # Proton's Message keeps but the last of several data sections; so one section at a time.
    client = connect(proton)
    members = [encoded("x" * size) for size in (0, 100, 300)]
    Sender(client, "q").send_batch(members)
    decoded = Message()
    decoded.decode(proton.arrived[0].payload)
    assert bytes(decoded.body) == members[-1]
    again = b"".join(Message(body=member, inferred=True).encode() for member in members)
    proton.put("again", again)
    [delivery] = Receiver(client, "again").receive()
    assert split_batch(delivery.payload) == members


def test_a_large_message_goes_to_proton_in_many_frames_and_through_a_small_window(
    start_proton: Start, connect: Connect
) -> None:
    proton = start_proton(max_frame_size=1024, incoming_capacity=8 * 1024)
    client = connect(proton)
    payload = encoded(bytes(range(256)) * 4096)
    sender = Sender(client, "q")
    sender.send(payload)
    sender.send(encoded("after it"))
    assert [arrived.payload for arrived in proton.arrived] == [payload, encoded("after it")]
    assert proton.transports[0].frames_input > 1000


def test_a_large_message_comes_from_proton_in_many_frames(
    proton: ProtonServer, connect: Connect
) -> None:
    payload = encoded(bytes(range(256)) * 4096)
    proton.put("q", payload, encoded("after it"))
    client = connect(proton, max_frame_size=1024)
    receiver = Receiver(client, "q")
    received = receiver.receive(2)
    while len(received) < 2:
        received += receiver.receive()
    assert [delivery.payload for delivery in received] == [payload, encoded("after it")]
    assert proton.transports[0].frames_output > 1000
    receiver.settle(received)


def test_a_large_message_comes_from_proton_through_a_small_window(
    proton: ProtonServer, bare: Callable[..., BareEngine]
) -> None:
    payload = encoded(b"x" * 100_000)
    proton.put("q", payload)
    engine = bare(proton, max_frame_size=512, incoming_window=2)
    engine.receiver("q").flow(1)
    [delivery] = engine.until(lambda: engine.of(ev.Delivery))
    assert delivery.payload == payload


def test_a_delivery_that_is_aborted_half_way_is_dropped_by_proton(
    proton: ProtonServer, bare: Callable[..., BareEngine]
) -> None:
    engine = bare(proton)
    link = engine.sender("q")
    link.send(b"x" * 100_000, more=True)
    link.abort()
    link.send(encoded("whole"))
    engine.until(lambda: engine.of(ev.OutgoingDeliveriesUpdated))
    assert proton.aborted == 1
    assert [arrived.payload for arrived in proton.arrived] == [encoded("whole")]


def test_every_type_that_we_send_is_read_by_proton_as_what_it_is(
    proton: ProtonServer, connect: Connect
) -> None:
    message = sections.Message.build(
        application_properties=ours(SIMPLE),
        message_annotations={Symbol(name): value for name, value in ours(EVERY).items()},
        value=ours(EVERY),
    )
    Sender(connect(proton), "q").send(message.encode())
    read = proton.arrived[0].message
    assert typed(read.properties) == typed(theirs(SIMPLE))
    annotations = {symbol(name): value for name, value in theirs(EVERY).items()}
    assert typed(read.annotations) == typed(annotations)
    assert typed(read.body) == typed(theirs(EVERY))


def test_every_type_that_proton_sends_is_received_as_what_it_is(
    proton: ProtonServer, connect: Connect
) -> None:
    message = Message(
        properties=theirs(SIMPLE),
        annotations={symbol(name): value for name, value in theirs(EVERY).items()},
        body=theirs(EVERY),
    )
    proton.put("q", message.encode(), Message(body=TWICE[0]).encode())
    receiver = Receiver(connect(proton), "q")
    received = receiver.receive(2)
    while len(received) < 2:
        received += receiver.receive()
    parsed, twice = (sections.Message.parse(delivery.payload) for delivery in received)
    assert typed(parsed.read_application_properties()) == typed(ours(SIMPLE))
    annotations = {Symbol(name): value for name, value in ours(EVERY).items()}
    assert typed(parsed.read_message_annotations()) == typed(annotations)
    assert typed(parsed.read_value()) == typed(ours(EVERY))
    assert typed(twice.read_value()) == typed(TWICE[1])


def test_our_sender_waits_for_protons_credit_and_goes_on_with_more(
    start_proton: Start, connect: Connect
) -> None:
    proton = start_proton(credit=2)
    proton.refill = False
    client = connect(proton)
    sender = Sender(client, "q")
    posted = [sender.post(encoded(number)) for number in range(2)]
    with pytest.raises(OperationTimeout):
        sender.post(encoded("too many"), timeout_s=0.2)
    proton.wait_for(lambda: len(proton.arrived) == 2)
    proton.call(lambda: [link.flow(1) for link in proton.links])
    posted.append(sender.post(encoded("now it may")))
    sender.wait(posted)
    assert [one.error for one in posted] == [None] * 3
    assert len(proton.arrived) == 3


def test_our_receiver_is_sent_what_it_has_asked_for_and_no_more(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.put("q", *(encoded(number) for number in range(5)))
    client = connect(proton)
    receiver = Receiver(client, "q")
    received = receiver.receive(3)
    while len(received) < 3:
        received += receiver.receive(3 - len(received))
    assert receiver.credit == 0
    receiver.settle(received)  # a round trip: whatever was under way is here
    assert len(proton.queues["q"]) == 2
    assert receiver.receive(1)[0].payload == encoded(3)


def test_a_drain_takes_back_the_credit_that_proton_has_no_messages_for(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.put("q", encoded(0))
    client = connect(proton)
    receiver = Receiver(client, "q")
    assert len(receiver.receive(10)) == 1
    assert receiver.credit == 9
    assert receiver.drain() == []
    assert receiver.credit == 0
    assert proton.drained == [9]
    proton.put("q", encoded("later"))
    assert receiver.receive(1)[0].payload == encoded("later")


def test_a_receiver_of_settled_messages_gets_them_settled(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.put("q", encoded(1))
    client = connect(proton)
    [delivery] = Receiver(client, "q", settled=True).receive()
    assert delivery.settled
    assert proton.attached[0].snd_settle_mode == Link.SND_SETTLED
    assert proton.outcomes == []


def test_a_receiver_that_does_not_ask_for_confirmation_settles_first(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.put("q", encoded(1))
    client = connect(proton)
    receiver = Receiver(client, "q", confirm=False)
    receiver.settle(receiver.receive())
    proton.wait_for(lambda: proton.outcomes)
    assert proton.attached[0].rcv_settle_mode == Link.RCV_FIRST
    assert (proton.outcomes[0].state, proton.outcomes[0].settled) == (Delivery.ACCEPTED, True)


def test_a_receiver_that_asks_for_confirmation_settles_second(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.put("q", encoded(1))
    client = connect(proton)
    receiver = Receiver(client, "q")
    receiver.settle(receiver.receive())
    assert proton.attached[0].rcv_settle_mode == Link.RCV_SECOND
    assert (proton.outcomes[0].state, proton.outcomes[0].settled) == (Delivery.ACCEPTED, False)


def test_what_the_engine_sends_settled_arrives_settled(
    proton: ProtonServer, bare: Callable[..., BareEngine]
) -> None:
    engine = bare(proton)
    link = engine.sender("q", snd_settle_mode=p.SETTLE_SETTLED)
    link.send(encoded(1))
    engine.until(lambda: proton.arrived)
    assert proton.arrived[0].settled
    assert link.session.outgoing.unsettled == {}


def test_a_mixed_link_sends_both_kinds(
    proton: ProtonServer, bare: Callable[..., BareEngine]
) -> None:
    engine = bare(proton)
    link = engine.sender("q")
    link.send(encoded(1), settled=True)
    link.send(encoded(2), settled=False)
    [updated] = engine.until(lambda: engine.of(ev.OutgoingDeliveriesUpdated))
    assert [arrived.settled for arrived in proton.arrived] == [True, False]
    assert (updated.state, updated.settled) == (p.Accepted(), True)


OUTCOMES: dict[str, tuple[Any, dict[str, Any]]] = {
    "accepted": (p.Accepted(), {"state": Delivery.ACCEPTED}),
    "rejected": (p.Rejected(), {"state": Delivery.REJECTED, "condition": None}),
    "rejected with a reason": (
        p.Rejected(p.Error("test:stain", "it has a stain", {Symbol("where"): "the sleeve"})),
        {
            "state": Delivery.REJECTED,
            "condition": Condition("test:stain", "it has a stain", {symbol("where"): "the sleeve"}),
        },
    ),
    "released": (p.Released(), {"state": Delivery.RELEASED}),
    "modified": (p.Modified(), {"state": Delivery.MODIFIED, "failed": False}),
    "modified, with all that it may say": (
        p.Modified(True, True, {Symbol("x-opt-why"): "because"}),
        {
            "state": Delivery.MODIFIED,
            "failed": True,
            "undeliverable": True,
            "annotations": {symbol("x-opt-why"): "because"},
        },
    ),
}


@pytest.mark.parametrize("confirm", [True, False], ids=["settled second", "settled first"])
@pytest.mark.parametrize("name", OUTCOMES)
def test_every_outcome_of_ours_reaches_proton(
    name: str, confirm: bool, proton: ProtonServer, connect: Connect
) -> None:
    state, expected = OUTCOMES[name]
    proton.put("q", encoded(name))
    receiver = Receiver(connect(proton), "q", confirm=confirm)
    receiver.settle(receiver.receive(), state)
    outcome = proton.wait_for(lambda: proton.outcomes)[0]
    assert outcome.settled is not confirm
    assert {field: getattr(outcome, field) for field in expected} == expected


def reject(condition: Condition | None) -> Callable[[Delivery], None]:
    def reject(delivery: Delivery) -> None:
        delivery.local.condition = condition
        settle(delivery, Delivery.REJECTED)

    return reject


def modify(delivery: Delivery) -> None:
    delivery.local.failed = delivery.local.undeliverable = True
    delivery.local.annotations = {symbol("x-opt-why"): "because"}
    settle(delivery, Delivery.MODIFIED)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        pytest.param(reject(None), Unavailable, id="rejected"),
        pytest.param(reject(Condition("amqp:not-allowed", "no")), Refused, id="not allowed"),
        pytest.param(
            reject(Condition("amqp:resource-limit-exceeded", "full")), QuotaExceeded, id="full"
        ),
        pytest.param(
            reject(Condition("amqp:link:message-size-exceeded")), MessageTooLarge, id="too large"
        ),
        pytest.param(reject(Condition("com.microsoft:server-busy")), Busy, id="busy"),
        pytest.param(reject(Condition("test:unheard-of")), Unavailable, id="unheard of"),
        pytest.param(
            lambda delivery: settle(delivery, Delivery.RELEASED), Unavailable, id="released"
        ),
        pytest.param(modify, Unavailable, id="modified"),
    ],
)
def test_a_message_that_proton_does_not_accept_is_an_error(
    outcome: Callable[[Delivery], None],
    kind: type[AmqpError],
    proton: ProtonServer,
    connect: Connect,
) -> None:
    proton.outcome["bad"] = outcome
    client = connect(proton)
    sender = Sender(client, "bad")
    with pytest.raises(kind) as caught:
        sender.send(encoded())
    assert type(caught.value) is kind
    proton.call(proton.outcome.clear)
    sender.send(encoded("the link is as good as before"))


def test_a_rejection_carries_all_that_proton_says(proton: ProtonServer, connect: Connect) -> None:
    said = Condition("amqp:not-allowed", "not on a sunday", {symbol("day"): "sunday"})
    proton.outcome["q"] = reject(said)
    with pytest.raises(Refused, match="not on a sunday") as caught:
        Sender(connect(proton), "q").send(encoded())
    assert caught.value.condition == "amqp:not-allowed"
    assert caught.value.info == {"day": "sunday"}


def test_every_outcome_of_protons_reaches_the_engine(
    proton: ProtonServer, bare: Callable[..., BareEngine]
) -> None:
    outcomes: dict[str, tuple[Callable[[Delivery], None], Any]] = {
        "accepted": (settle, p.Accepted()),
        "rejected": (reject(None), p.Rejected()),
        "blamed": (
            reject(Condition("test:stain", "ugh", {symbol("where"): "here"})),
            p.Rejected(p.Error(Symbol("test:stain"), "ugh", {Symbol("where"): "here"})),
        ),
        "released": (lambda delivery: settle(delivery, Delivery.RELEASED), p.Released()),
        "modified": (modify, p.Modified(True, True, {Symbol("x-opt-why"): "because"})),
    }
    proton.outcome.update({name: outcome for name, (outcome, _) in outcomes.items()})
    engine = bare(proton)
    for name, (_, expected) in outcomes.items():
        engine.sender(name).send(encoded(name))
        [updated] = engine.until(lambda: engine.of(ev.OutgoingDeliveriesUpdated))
        assert (updated.state, updated.settled) == (expected, True)
        engine.events.clear()


def test_a_settlement_that_proton_does_not_take_is_an_error(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.put("q", encoded(1), encoded(2))
    receiver = Receiver(connect(proton), "q")
    [delivery] = receiver.receive()
    proton.call(lambda: setattr(proton, "deny", Condition("com.microsoft:message-lock-lost")))
    with pytest.raises(LockLost):
        receiver.settle([delivery])
    receiver.settle(receiver.receive())


def answer(proton: ProtonServer, reply: Callable[[Message], Message]) -> Callable[[Delivery], None]:
    """A node that answers each request on the link that goes where the answer is wanted."""

    def answer(delivery: Delivery) -> None:
        settle(delivery)
        asked = proton.arrived[-1].message
        message = reply(asked)
        message.correlation_id = asked.id
        for link in proton.links:
            if link.is_sender and link.remote_target.address == asked.reply_to:
                post(link, message)

    return answer


def test_tokens_are_put_and_requests_answered(proton: ProtonServer, connect: Connect) -> None:
    proton.outcome["$cbs"] = answer(
        proton, lambda asked: Message(properties={"status-code": int32(202)})
    )
    state = Message(properties={"statusCode": int32(200)}, body={"session-state": b"state"})
    proton.outcome["q/$management"] = answer(proton, lambda asked: state)
    client = connect(proton, tokens=SharedAccessKey("name", "key"))
    assert Management(client, "q").get_session_state("s") == b"state"
    put, asked = (arrived.message for arrived in proton.arrived)
    audience = f"sb://localhost:{proton.port}/q"
    assert (put.properties["operation"], put.properties["name"]) == ("put-token", audience)
    assert put.body.startswith("SharedAccessSignature ")
    assert asked.body == {"session-id": "s"}


def test_a_token_or_a_request_that_is_refused_is_an_error(
    proton: ProtonServer, connect: Connect
) -> None:
    no = {"status-code": int32(401), "status-description": "wrong key"}
    proton.outcome["$cbs"] = answer(proton, lambda asked: Message(properties=no))
    with pytest.raises(NotAuthorized, match="wrong key"):
        Sender(connect(proton, tokens=SharedAccessKey("name", "key")), "q").send(encoded())
    nobody = {"statusCode": int32(404), "errorCondition": symbol("amqp:not-found")}
    proton.outcome["q/$management"] = answer(proton, lambda asked: Message(properties=nobody))
    with pytest.raises(EntityNotFound):
        Management(connect(proton), "q").get_session_state("s")


@pytest.mark.parametrize("end", [Sender, Receiver])
@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("amqp:not-found", EntityNotFound),
        ("amqp:unauthorized-access", NotAuthorized),
        ("amqp:not-allowed", Refused),
        ("amqp:internal-error", Unavailable),
        ("com.microsoft:entity-disabled", EntityDisabled),
        ("com.microsoft:session-cannot-be-locked", LockLost),
        ("test:unheard-of", Unavailable),
    ],
)
def test_a_link_that_proton_refuses_raises_the_error_of_our_tree(
    condition: str,
    kind: type[AmqpError],
    end: type[Sender] | type[Receiver],
    proton: ProtonServer,
    connect: Connect,
) -> None:
    proton.refuse["nowhere"] = Condition(condition, "not here", {symbol("tracking"): "42"})
    client = connect(proton)
    with pytest.raises(kind, match="not here") as caught:
        end(client, "nowhere").open()
    assert type(caught.value) is kind
    assert caught.value.info == {"tracking": "42"}
    Sender(client, "somewhere").send(encoded())
    assert client.generation == 1


def close(endpoint: Endpoint, condition: str, description: str) -> None:
    endpoint.condition = Condition(condition, description)
    endpoint.close()


def test_a_link_that_proton_takes_away_fails_once_and_is_attached_anew(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.outcome["q"] = lambda delivery: close(delivery.link, "amqp:link:detach-forced", "idle")
    client = connect(proton)
    sender = Sender(client, "q")
    with pytest.raises(LinkLost, match="idle"):
        sender.send(encoded(1))
    proton.call(proton.outcome.clear)
    sender.send(encoded(2))
    assert client.generation == 1


def test_a_link_that_proton_detaches_without_closing_is_attached_anew(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.outcome["q"] = lambda delivery: delivery.link.detach()
    client = connect(proton)
    sender = Sender(client, "q")
    with pytest.raises(LinkLost):
        sender.send(encoded(1))
    proton.call(proton.outcome.clear)
    sender.send(encoded(2))
    assert client.generation == 1


def test_a_session_that_proton_ends_fails_its_links_which_go_on_in_a_new_one(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.outcome["q"] = lambda delivery: close(delivery.session, "amqp:not-allowed", "enough")
    client = connect(proton)
    sender, receiver = Sender(client, "q"), Receiver(client, "another")
    receiver.open()
    with pytest.raises(Refused, match="enough"):
        sender.send(encoded(1))
    proton.call(proton.outcome.clear)
    sender.send(encoded(2))
    proton.put("another", encoded(3))
    assert receiver.receive()[0].payload == encoded(3)
    assert client.generation == 1
    assert len(proton.sessions) == 2


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        pytest.param("amqp:unauthorized-access", NotAuthorized, id="not authorized"),
        pytest.param("amqp:connection:forced", ConnectionLost, id="forced"),
    ],
)
def test_a_connection_that_proton_refuses_raises_the_error_of_our_tree(
    condition: str, kind: type[AmqpError], proton: ProtonServer, connect: Connect
) -> None:
    proton.refuse_connection = Condition(condition, "go away")
    client = connect(proton)
    with pytest.raises(kind, match="go away"):
        client.connect()
    proton.call(lambda: setattr(proton, "refuse_connection", None))
    client.connect()
    assert client.generation == 2


@pytest.mark.parametrize("condition", ["amqp:connection:forced", "amqp:resource-limit-exceeded"])
def test_a_connection_that_proton_closes_fails_once_and_is_made_anew(
    condition: str, proton: ProtonServer, connect: Connect
) -> None:
    proton.outcome["q"] = lambda delivery: close(delivery.connection, condition, "maintenance")
    client = connect(proton)
    sender = Sender(client, "q")
    with pytest.raises(ConnectionLost, match="maintenance"):
        sender.send(encoded(1))
    proton.call(proton.outcome.clear)
    sender.send(encoded(2))
    assert client.generation == 2


def test_more_than_the_link_takes_is_not_sent(proton: ProtonServer, connect: Connect) -> None:
    proton.max_message_size = 1000
    sender = Sender(connect(proton), "q")
    with pytest.raises(MessageTooLarge):
        sender.send(b"x" * 1001)
    sender.send(encoded(b"x" * 900))
    assert len(proton.arrived) == 1


def idle_until(receiver: Receiver, condition: Callable[[], object]) -> None:
    """Wait for messages that do not come, as a program does that has nothing to do."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        assert receiver.receive(timeout_s=0.1) == []


def test_our_heartbeats_keep_an_idle_connection_to_proton_alive(
    start_proton: Start, connect: Connect
) -> None:
    proton = start_proton(idle_timeout=3.6)
    client = connect(proton)
    receiver = Receiver(client, "q")
    receiver.open()
    frames = lambda: proton.call(lambda: proton.transports[0].frames_input)  # noqa: E731
    before = frames()
    # We write one each 0.9 s: five take longer than proton would wait for the first.
    idle_until(receiver, lambda: frames() >= before + 5)
    Sender(client, "q").send(encoded("still here"))
    assert receiver.receive()[0].payload == encoded("still here")
    assert client.generation == 1


def test_protons_heartbeats_keep_our_idle_connection_alive(
    proton: ProtonServer, connect: Connect
) -> None:
    client = connect(proton, idle_timeout_s=4.5)
    receiver = Receiver(client, "q")
    receiver.open()
    frames = lambda: proton.call(lambda: proton.transports[0].frames_output)  # noqa: E731
    before = frames()
    # Proton's loop writes one each 2.25 s: three take longer than we would wait for the first.
    idle_until(receiver, lambda: frames() >= before + 3)
    Sender(client, "q").send(encoded("still here"))
    assert receiver.receive()[0].payload == encoded("still here")
    assert client.generation == 1


def test_a_proton_that_is_frozen_is_given_up_and_found_again(
    proton: ProtonServer, connect: Connect
) -> None:
    client = connect(proton, idle_timeout_s=1)
    sender = Sender(client, "q")
    sender.send(encoded(1))
    frozen, thaw = threading.Event(), threading.Event()
    proton.post(lambda: (frozen.set(), thaw.wait(DEADLINE_S)))
    try:
        assert frozen.wait(DEADLINE_S)
        with pytest.raises(ConnectionLost, match="sent nothing"):
            sender.send(encoded(2))
    finally:
        thaw.set()
    sender.send(encoded(3))
    assert client.generation == 2


def test_a_proton_that_is_frozen_from_the_start_is_not_waited_for_without_end(
    proton: ProtonServer, connect: Connect
) -> None:
    frozen, thaw = threading.Event(), threading.Event()
    proton.post(lambda: (frozen.set(), thaw.wait(DEADLINE_S)))
    try:
        assert frozen.wait(DEADLINE_S)
        with pytest.raises(OperationTimeout):
            connect(proton, connect_timeout_s=0.3).connect()
    finally:
        thaw.set()


def test_proton_gives_up_our_client_when_it_is_frozen(
    start_proton: Start, connect: Connect
) -> None:
    proton = start_proton(idle_timeout=0.8)
    client = connect(proton)
    sender = Sender(client, "q")
    sender.send(encoded(1))
    fault = proton.wait_for(lambda: proton.faults)[0]  # our client does nothing meanwhile
    assert (fault.where, fault.condition.name) == ("transport", "amqp:resource-limit-exceeded")
    proton.wait_for(lambda: proton.hung_up)
    sender.send(encoded(2))
    assert client.generation == 2


def test_a_cut_in_the_middle_fails_what_was_in_flight_and_the_next_call_goes_on(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.cut_after = 3
    client = connect(proton)
    sender = Sender(client, "q")
    posted = [sender.post(encoded(number)) for number in range(3)]
    sender.wait(posted)
    assert proton.cuts == 1
    assert type(posted[2].error) is ConnectionLost
    assert sender.in_flight == 0
    sender.send(encoded("after it"))
    assert client.generation == 2
    assert proton.arrived[-1].payload == encoded("after it")


def test_a_receiver_goes_on_after_a_cut_and_its_locks_are_lost(
    proton: ProtonServer, connect: Connect
) -> None:
    proton.put("q", encoded(1))
    client = connect(proton)
    receiver = Receiver(client, "q")
    [delivery] = receiver.receive()
    proton.call(lambda: proton.flowed.update(q=lambda link: proton.cut_now()))
    with pytest.raises(ConnectionLost):
        receiver.receive()
    assert proton.cuts == 1
    proton.call(proton.flowed.clear)
    proton.put("q", encoded(2))
    [another] = receiver.receive()
    assert another.payload == encoded(2)
    with pytest.raises(LockLost):
        receiver.settle([delivery])
    receiver.settle([another])
    assert client.generation == 2


def test_a_cut_while_nobody_looked_is_no_error_of_the_next_call(
    proton: ProtonServer, connect: Connect
) -> None:
    client = connect(proton)
    sender = Sender(client, "q")
    sender.send(encoded(1))
    proton.cut()
    assert proton.cuts == 1
    sender.send(encoded(2))
    assert [arrived.payload for arrived in proton.arrived] == [encoded(1), encoded(2)]
    assert client.generation == 2


def test_a_broker_that_was_away_is_found_again(start_proton: Start, connect: Connect) -> None:
    proton = start_proton()
    client = connect(proton)
    sender = Sender(client, "q")
    sender.send(encoded(1))
    proton.close()
    with pytest.raises(ConnectionLost, match="refused"):
        sender.send(encoded(2))
    again = start_proton(port=proton.port)
    sender.send(encoded(3))
    assert [arrived.payload for arrived in again.arrived] == [encoded(3)]


# Without Cyrus SASL, proton as a server offers ANONYMOUS and EXTERNAL, never PLAIN:
# that name and password let our client in cannot be shown with it.


def test_our_client_comes_in_anonymously(start_proton: Start, connect: Connect) -> None:
    proton = start_proton(mechanisms="ANONYMOUS")
    connect(proton).connect()
    assert proton.users == [("ANONYMOUS", "anonymous")]


@pytest.mark.parametrize(
    ("mechanisms", "sasl"),
    [
        pytest.param("ANONYMOUS", SaslClient.plain("ann", "secret"), id="PLAIN not offered"),
        pytest.param("ANONYMOUS", SaslClient.external(), id="EXTERNAL without TLS"),
        pytest.param("PLAIN", SaslClient.plain("ann", "secret"), id="a server with no mechanism"),
    ],
)
def test_our_client_does_not_get_in_with(
    mechanisms: str, sasl: SaslClient, start_proton: Start, connect: Connect
) -> None:
    proton = start_proton(mechanisms=mechanisms)
    with pytest.raises(NotAuthorized):
        connect(proton, sasl=sasl).connect()
    assert proton.connections == []


def tls_domain(files: TlsFiles, *, ask_client: bool = False) -> SSLDomain:
    domain = SSLDomain(SSLDomain.MODE_SERVER)
    domain.set_credentials(str(files.certificate), str(files.key), None)
    if ask_client:
        domain.set_trusted_ca_db(str(files.ca))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER, str(files.ca))
    return domain


def test_messages_small_and_large_go_over_tls(
    start_proton: Start, connect: Connect, tls_files: TlsFiles
) -> None:
    proton = start_proton(tls=tls_domain(tls_files))
    client = connect(proton, tls=True, ca_file=str(tls_files.ca))
    payloads = [encoded("small"), encoded(b"x" * 1_000_000), encoded("small again")]
    sender, receiver = Sender(client, "q"), Receiver(client, "q")
    for payload in payloads:
        sender.send(payload)
        [delivery] = receiver.receive()
        assert delivery.payload == payload
        receiver.settle([delivery])
    assert proton.transports[0].encrypted


def test_our_client_comes_in_with_a_certificate(
    start_proton: Start, connect: Connect, tls_files: TlsFiles, tmp_path
) -> None:
    proton = start_proton(tls=tls_domain(tls_files, ask_client=True), mechanisms="EXTERNAL")
    both = tmp_path / "client-with-key.pem"
    both.write_bytes(tls_files.client_certificate.read_bytes() + tls_files.client_key.read_bytes())
    client = connect(
        proton,
        tls=True,
        ca_file=str(tls_files.ca),
        certificate_file=str(both),
        sasl=SaslClient.external(),
    )
    Sender(client, "q").send(encoded("signed"))
    assert proton.users == [("EXTERNAL", "CN=client")]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"ca_file": None}, id="an authority that it does not know"),
        pytest.param({"host": "elsewhere.example"}, id="another name"),
    ],
)
def test_our_client_does_not_trust_a_certificate_of(
    options: dict[str, Any], start_proton: Start, connect: Connect, tls_files: TlsFiles
) -> None:
    proton = start_proton(tls=tls_domain(tls_files))
    with pytest.raises(ConnectionLost, match="certificate verify failed"):
        connect(proton, **{"tls": True, "ca_file": str(tls_files.ca), **options}).connect()
    assert proton.connections == []


def test_a_client_has_many_links_on_one_connection(proton: ProtonServer, connect: Connect) -> None:
    client = connect(proton)
    senders = [Sender(client, f"q{number}") for number in range(60)]
    receivers = [Receiver(client, sender.path) for sender in senders]
    posted = [(sender, sender.post(encoded(sender.path))) for sender in senders]
    for sender, one in posted:
        sender.wait([one])
        assert one.error is None
    for receiver in receivers:
        [delivery] = receiver.receive()
        assert delivery.payload == encoded(receiver.path)
        receiver.settle([delivery])
    assert len(proton.links) == 120
    for end in [*senders, *receivers]:
        end.close()
    assert proton.links == []
    assert (client.generation, len(proton.sessions)) == (1, 1)


def test_the_engine_has_several_sessions_on_one_connection(
    proton: ProtonServer, bare: Callable[..., BareEngine]
) -> None:
    engine = bare(proton)
    senders = [engine.sender(f"q{number}") for number in range(10)]
    receivers = [engine.receiver(f"q{number}") for number in range(10)]
    for number, (sender, receiver) in enumerate(zip(senders, receivers, strict=True)):
        sender.send(encoded(number))
        receiver.flow(1)
    engine.until(lambda: len(engine.of(ev.Delivery)) == 10)
    assert len(proton.sessions) == 20
    received = {delivery.link.name: delivery.payload for delivery in engine.of(ev.Delivery)}
    assert received == {f"from q{number}": encoded(number) for number in range(10)}
    senders[0].session.end()
    engine.until(lambda: engine.of(ev.Ended))
    senders[1].send(encoded("the others are still there"))
    engine.until(lambda: len(engine.of(ev.OutgoingDeliveriesUpdated)) == 11)


def test_what_we_say_of_ourselves_and_our_links_is_read_by_proton(
    proton: ProtonServer, bare: Callable[..., BareEngine]
) -> None:
    engine = bare(
        proton,
        hostname="vhost",
        properties={Symbol("product"): "pairbus"},
        offered_capabilities=("x", "y"),
    )
    selector = Described(Symbol("apache.org:selector-filter:string"), "color='red'")
    source = p.Source(
        "q",
        durable=2,
        expiry_policy="never",
        distribution_mode="copy",
        filter={Symbol("selector"): selector},
        capabilities=("queue",),
    )
    engine.receiver("q", source=source, properties={Symbol("a"): Int32(1)}, max_message_size=12345)

    def seen() -> dict[str, Any]:
        [connection], [link] = proton.connections, proton.links
        source, filters = link.remote_source, link.remote_source.filter
        filters.next()
        return {
            "container": connection.remote_container,
            "host": connection.remote_hostname,
            "properties": connection.remote_properties,
            "capabilities": connection.remote_offered_capabilities,
            "link": link.remote_properties,
            "size": link.remote_max_message_size,
            "terminus": (source.address, source.durability, source.expiry_policy),
            "mode": source.distribution_mode,
            "filter": filters.get_object(),
        }

    selector_of_proton = Selector("color='red'").filter_set
    assert proton.call(seen) == {
        "container": "bare",
        "host": "vhost",
        "properties": {symbol("product"): "pairbus"},
        "capabilities": [symbol("x"), symbol("y")],
        "link": {symbol("a"): 1},
        "size": 12345,
        "terminus": ("q", Terminus.DELIVERIES, Terminus.EXPIRE_NEVER),
        "mode": Terminus.DIST_MODE_COPY,
        "filter": selector_of_proton,
    }
