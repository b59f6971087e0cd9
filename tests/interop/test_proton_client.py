"""Apache Qpid proton as a client, against a server on our engine, over sockets."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from proton import (
    Condition,
    Data,
    Delivery,
    Endpoint,
    Link,
    Message,
    SSLDomain,
    Terminus,
    int32,
    symbol,
)
from proton.reactor import (
    AtLeastOnce,
    AtMostOnce,
    Copy,
    DurableSubscription,
    LinkOption,
    Selector,
)
from proton.utils import BlockingConnection, SyncRequestResponse

from examples.engine.frame_log import FrameLog
from examples.engine.memory_server import MemoryServer, Request, Response, offer
from pairbus.amqp import performatives as p
from pairbus.amqp import sections
from pairbus.amqp.batch import BATCH_FORMAT, make_batch, split_batch
from pairbus.amqp.encode import encode
from pairbus.amqp.link import ReceiverLink
from pairbus.amqp.types import Described, Int32, Symbol, Timestamp, UByte, UInt, ULong
from pairbus.errors import AmqpError, EntityNotFound, NotAuthorized
from tests.interop.conftest import TlsFiles
from tests.interop.proton_peer import ProtonClient, post, settle
from tests.interop.proton_types import EVERY, SIMPLE, SOME_UUID, TWICE, ours, theirs, typed

Start = Callable[..., MemoryServer]
Watch = Callable[[MemoryServer], FrameLog]
Connect = Callable[..., ProtonClient]

BAD = AmqpError("it has a stain", condition="test:stain", info={Symbol("where"): "the left sleeve"})
BAD_TO_PROTON = Condition("test:stain", "it has a stain", {symbol("where"): "the left sleeve"})


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects proton to a server; closes when the test is over."""
    with ExitStack() as stack:
        yield lambda server, **options: stack.enter_context(ProtonClient(server.port, **options))


def encoded(body: object = "hello", **fields: object) -> bytes:
    return sections.Message.build(value=body, **fields).encode()


def test_a_message_goes_to_our_server_and_comes_back_as_it_was(server, connect: Connect) -> None:
    client = connect(server)
    message = Message(body="hello")
    [outcome] = client.send(client.sender("q"), message)
    assert (outcome.state, outcome.settled) == (Delivery.ACCEPTED, True)
    assert [(r.address, r.payload, r.message_format) for r in server.received] == [
        ("q", message.encode(), 0)
    ]
    client.receiver("q", credit=1)
    [arrived] = client.receive()
    assert arrived.payload == message.encode()
    settle(arrived.delivery)
    client.until(lambda: server.settlements)
    assert server.settlements[0][2:] == (p.Accepted(), True)
    client.close()
    assert server.errors == []


def test_header_and_properties_that_proton_writes_are_read(server, connect: Connect) -> None:
    client = connect(server)
    message = Message(body=b"data", inferred=True, durable=True, priority=7, ttl=30, id=SOME_UUID)
    message.first_acquirer, message.delivery_count = True, 3
    message.user_id, message.address, message.subject = b"me", "to", "subject"
    message.reply_to, message.correlation_id = "back", 2**40
    message.content_type, message.content_encoding = "text/plain", "gzip"
    message.expiry_time, message.creation_time = 2000, 1000
    message.group_id, message.group_sequence, message.reply_to_group_id = "g", 9, "rg"
    message.instructions = {symbol("for-the-hop"): "x"}
    client.send(client.sender("q"), message)
    parsed = sections.Message.parse(server.received[0].payload)
    assert parsed.read_header() == sections.Header(True, UByte(7), UInt(30000), True, UInt(3))
    read = parsed.read_properties()
    assert read == sections.Properties(
        message_id=SOME_UUID,
        user_id=b"me",
        to="to",
        subject="subject",
        reply_to="back",
        correlation_id=ULong(2**40),
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=Timestamp(2000000),
        creation_time=Timestamp(1000000),
        group_id="g",
        group_sequence=UInt(9),
        reply_to_group_id="rg",
    )
    assert (type(read.correlation_id), type(read.creation_time)) == (ULong, Timestamp)
    assert parsed.read_body() == (sections.DATA, [b"data"])
    assert parsed.delivery_annotations != b""
    assert parsed.encode() == message.encode()


def test_header_and_properties_that_we_write_are_read_by_proton(server, connect: Connect) -> None:
    server.put(
        "q",
        encoded(
            header=sections.Header(True, 7, 30000, True, 3),
            properties=sections.Properties(
                message_id=ULong(2**40),
                user_id=b"me",
                to="to",
                subject="subject",
                reply_to="back",
                correlation_id=SOME_UUID,
                content_type="text/plain",
                content_encoding="gzip",
                absolute_expiry_time=Timestamp(2000000),
                creation_time=Timestamp(1000000),
                group_id="g",
                group_sequence=9,
                reply_to_group_id="rg",
            ),
        ),
    )
    client = connect(server)
    client.receiver("q", credit=1)
    message = client.receive()[0].message
    assert (message.durable, message.priority, message.ttl) == (True, 7, 30)
    assert (message.first_acquirer, message.delivery_count) == (True, 3)
    assert (message.id, message.user_id, message.address) == (2**40, b"me", "to")
    assert (message.subject, message.reply_to) == ("subject", "back")
    assert message.correlation_id == SOME_UUID
    assert (message.content_type, message.content_encoding) == ("text/plain", "gzip")
    assert (message.expiry_time, message.creation_time) == (2000, 1000)
    assert (message.group_id, message.group_sequence) == ("g", 9)
    assert message.reply_to_group_id == "rg"


def test_protons_blocking_client_works_too(server) -> None:
    connection = BlockingConnection(f"127.0.0.1:{server.port}", timeout=20)
    sender = connection.create_sender("q")
    for number in range(20):
        sender.send(Message(body=number))
    receiver = connection.create_receiver("q", credit=7)
    for number in range(20):
        assert receiver.receive(timeout=20).body == number
        receiver.accept()
    connection.close()
    assert [settlement.state for settlement in server.settlements] == [p.Accepted()] * 20


def test_requests_are_answered_on_a_dynamic_address(server) -> None:
    def echo(request: Request) -> Response:
        return Response(200, "OK", {"asked": request.operation, "body": request.body})

    server.handlers["$management"] = echo
    connection = BlockingConnection(f"127.0.0.1:{server.port}", timeout=20)
    requests = SyncRequestResponse(connection, "$management")
    assert requests.reply_to.startswith("dynamic-")
    answer = requests.call(Message(body=[1], properties={"operation": "peek"}))
    assert answer.body == {"asked": "peek", "body": [1]}
    assert answer.properties["statusCode"] == 200
    connection.close()


# Proton can neither set nor read the message format of a transfer, and its Message keeps
# but the last of several data sections. So what can be shown is that a delivery marked as a batch
# does not trouble it, and that the bytes pass whole in both directions; not that proton knows it
# for a batch.


def test_a_batch_from_our_server_reaches_proton_whole(server, connect: Connect, watch) -> None:
    log = watch(server)
    members = [encoded(number) for number in range(500)]
    server.put("q", make_batch(members), message_format=BATCH_FORMAT)
    client = connect(server)
    client.receiver("q", credit=1)
    [arrived] = client.receive()
    assert log.transfers("out")[0].performative.message_format == BATCH_FORMAT
    assert split_batch(arrived.payload) == members
    for number, member in enumerate(split_batch(arrived.payload)):
        message = Message()
        message.decode(member)
        assert message.body == number


def test_what_proton_writes_as_data_sections_is_split_as_a_batch(server, connect: Connect) -> None:
    client = connect(server)
    members = [Message(body="x" * size).encode() for size in (0, 100, 300)]
    sections_of_proton = [Message(body=member, inferred=True) for member in members]
    payload = b"".join(message.encode() for message in sections_of_proton)
    client.send(client.sender("q"), payload)
    assert server.received[0].payload == payload
    assert split_batch(payload) == members


def test_a_large_message_from_proton_comes_in_many_frames(
    start_server: Start, connect: Connect, watch: Watch
) -> None:
    server = start_server(max_frame_size=1024, incoming_window=8)
    log = watch(server)
    client = connect(server)
    message = Message(body=bytes(range(256)) * 4096, inferred=True)
    small = Message(body="after it")
    client.send(client.sender("q"), message, small)
    assert [received.payload for received in server.received] == [
        message.encode(),
        small.encode(),
    ]
    frames = log.transfers("in")
    assert len(frames) > 1000
    assert max(frame.size for frame in frames) <= 1024


def test_a_large_message_to_proton_goes_in_many_frames_and_through_a_small_window(
    server, connect: Connect, watch: Watch
) -> None:
    log = watch(server)
    payload = encoded(bytes(range(256)) * 4096)
    server.put("q", payload, encoded("after it"))
    client = connect(server, max_frame_size=1024)
    session = client.connection.session()
    session.incoming_capacity = 8 * 1024
    session.open()
    client.receiver("q", credit=2, on=session)
    large, small = client.receive(2)
    assert large.payload == payload
    assert small.message.body == "after it"
    frames = log.transfers("out")
    assert len(frames) > 1000
    assert max(frame.size for frame in frames) <= 1024
    begun = [f.performative for f in log.frames if f.direction == "in" and f.name == "begin"]
    assert begun[0].incoming_window == 8


def test_a_delivery_that_proton_aborts_half_way_is_dropped(
    server, connect: Connect, watch: Watch
) -> None:
    log = watch(server)
    client = connect(server)
    link = client.sender("q")
    aborted = link.delivery("half")
    link.stream(b"x" * 100_000)
    client.until(lambda: log.transfers("in"))
    aborted.abort()
    client.send(link, Message(body="whole"))
    assert any(frame.performative.aborted for frame in log.transfers("in"))
    assert [received.payload for received in server.received] == [Message(body="whole").encode()]


def test_every_type_that_proton_writes_is_read_as_what_it_is(server, connect: Connect) -> None:
    client = connect(server)
    message = Message(
        properties=theirs(SIMPLE),
        annotations={symbol(name): value for name, value in theirs(EVERY).items()},
        body=theirs(EVERY),
    )
    client.send(client.sender("q"), message, Message(body=TWICE[0]))
    parsed, twice = (sections.Message.parse(received.payload) for received in server.received)
    assert typed(parsed.read_application_properties()) == typed(ours(SIMPLE))
    annotations = {Symbol(name): value for name, value in ours(EVERY).items()}
    assert typed(parsed.read_message_annotations()) == typed(annotations)
    assert typed(parsed.read_value()) == typed(ours(EVERY))
    assert typed(twice.read_value()) == typed(TWICE[1])


def test_every_type_that_we_write_is_read_by_proton_as_what_it_is(server, connect: Connect) -> None:
    message = sections.Message.build(
        application_properties=ours(SIMPLE),
        message_annotations={Symbol(name): value for name, value in ours(EVERY).items()},
        value=ours(EVERY),
    )
    server.put("q", message.encode(), encode(TWICE[1]))
    client = connect(server)
    client.receiver("q", credit=2)
    read, twice = client.receive(2)
    read = read.message
    assert typed(read.properties) == typed(theirs(SIMPLE))
    annotations = {symbol(name): value for name, value in theirs(EVERY).items()}
    assert typed(read.annotations) == typed(annotations)
    assert typed(read.body) == typed(theirs(EVERY))
    data = Data()
    data.decode(twice.payload)
    data.rewind()
    data.next()
    assert typed(data.get_object()) == typed(TWICE[0])


def test_a_sequence_body_is_read_by_both(server, connect: Connect) -> None:
    client = connect(server)
    client.send(client.sender("q"), Message(body=["a", 1], inferred=True))
    parsed = sections.Message.parse(server.received[0].payload)
    assert parsed.read_body() == (sections.SEQUENCE, [["a", 1]])
    server.put("back", sections.Message.build(sequence=["b", Int32(2)]).encode())
    client.receiver("back", credit=1)
    message = client.receive()[0].message
    assert (message.inferred, typed(message.body)) == (True, typed(["b", int32(2)]))


def test_proton_sends_no_more_than_the_credit_it_has_and_goes_on_with_more(
    start_server: Start, connect: Connect
) -> None:
    server = start_server(credit=2)
    client = connect(server)
    link = client.sender("q")
    assert link.credit == 2
    for number in range(50):
        post(link, Message(body=number))  # queued by proton where there is no credit
    client.until(lambda: len(client.outcomes) == 50)
    assert [received.payload for received in server.received] == [
        Message(body=number).encode() for number in range(50)
    ]


def test_our_server_sends_no_more_than_protons_credit(server, connect: Connect) -> None:
    server.put("q", *(encoded(number) for number in range(10)))
    client = connect(server)
    link = client.receiver("q", credit=3)
    client.until(lambda: len(client.arrived) == 3)
    client.receiver("another")  # a round trip: whatever was on its way is here
    assert [arrived.message.body for arrived in client.receive(3)] == [0, 1, 2]
    assert client.arrived == []
    link.flow(7)
    assert [arrived.message.body for arrived in client.receive(7)] == list(range(3, 10))


def test_a_drain_of_proton_gives_what_is_there_and_takes_back_the_rest(
    server, connect: Connect
) -> None:
    server.put("q", encoded(0), encoded(1))
    client = connect(server)
    link = client.receiver("q")
    link.drain(10)
    client.until(lambda: len(client.arrived) == 2 and not link.draining())
    assert link.drained() == 8
    assert link.credit == 0
    assert server.drains == 1
    link.drain_mode = False
    link.flow(1)
    server.put("q", encoded("later"))
    client.until(lambda: len(client.arrived) == 3)


def test_a_drain_of_our_server_takes_back_protons_credit(server, connect: Connect) -> None:
    client = connect(server)
    link = client.sender("q")
    [ours_] = [end.link for end in server.endpoints]
    assert isinstance(ours_, ReceiverLink)
    server.call(lambda: setattr(server, "credit", 0))  # it gives no credit of its own accord now
    server.call(lambda: ours_.flow(5, drain=True))
    client.until(lambda: link.drain_mode)
    post(link, Message(body="one of five"))
    assert link.drained() == 4
    client.until(lambda: server.received and ours_.credit == 0)
    assert ours_.delivery_count == 5
    assert not ours_.drain
    server.call(lambda: ours_.flow(1))
    client.send(link, Message(body="after the drain"))


def test_what_proton_sends_at_most_once_arrives_settled(server, connect: Connect) -> None:
    client = connect(server)
    link = client.sender("q", options=AtMostOnce())
    client.send(link, Message(body=1), Message(body=2))
    client.until(lambda: len(server.received) == 2)
    assert [received.settled for received in server.received] == [True, True]
    assert server.attaches[0].snd_settle_mode == p.SETTLE_SETTLED
    client.send(client.sender("q", options=AtLeastOnce()), Message(body=3))
    assert not server.received[2].settled
    assert server.attaches[1].snd_settle_mode == p.SETTLE_UNSETTLED
    assert len(client.outcomes) == 1


def test_what_proton_receives_at_most_once_arrives_settled(server, connect: Connect) -> None:
    server.put("q", encoded(1), encoded(2))
    client = connect(server)
    client.receiver("q", credit=2, options=AtMostOnce())
    assert [arrived.settled for arrived in client.receive(2)] == [True, True]
    server.put("q", encoded(3))
    client.receiver("q", credit=1, options=AtLeastOnce())
    [arrived] = client.receive()
    assert not arrived.settled
    settle(arrived.delivery)
    client.until(lambda: len(server.settlements) == 1)


class SettleSecond(AtLeastOnce):
    """A receiver that settles once the sender has."""

    def apply(self, link: Link) -> None:
        super().apply(link)
        link.rcv_settle_mode = Link.RCV_SECOND


def test_proton_as_receiver_that_settles_second_is_told_that_we_have_settled(
    server, connect: Connect
) -> None:
    server.put("q", encoded(1), encoded(2))
    client = connect(server)
    link = client.receiver("q", credit=2, options=SettleSecond())
    assert link.remote_rcv_settle_mode == Link.RCV_SECOND
    for arrived in client.receive(2):
        arrived.delivery.update(Delivery.ACCEPTED)
    client.until(lambda: len(client.confirmed) == 2)
    assert [(s.state, s.settled) for s in server.settlements] == [(p.Accepted(), False)] * 2


def test_a_sender_that_asks_to_be_settled_second_is_told_that_it_is_first(
    server, connect: Connect
) -> None:
    client = connect(server)
    link = client.sender("q", options=SettleSecond())
    assert server.attaches[0].rcv_settle_mode == p.SETTLE_SECOND
    assert link.remote_rcv_settle_mode == Link.RCV_FIRST
    [outcome] = client.send(link, Message(body=1))
    assert (outcome.state, outcome.settled) == (Delivery.ACCEPTED, True)


def test_every_outcome_of_protons_reaches_our_server(server, connect: Connect) -> None:
    server.put("q", *(encoded(number) for number in range(6)))
    client = connect(server)
    client.receiver("q", credit=6)
    accepted, rejected, blamed, released, modified, changed = (
        arrived.delivery for arrived in client.receive(6)
    )
    settle(accepted)
    settle(rejected, Delivery.REJECTED)
    blamed.local.condition = BAD_TO_PROTON
    settle(blamed, Delivery.REJECTED)
    settle(released, Delivery.RELEASED)
    settle(modified, Delivery.MODIFIED)
    changed.local.failed = changed.local.undeliverable = True
    changed.local.annotations = {symbol("x-opt-why"): "because"}
    settle(changed, Delivery.MODIFIED)
    client.until(lambda: len(server.settlements) == 6)
    # Proton says it in an order of its own.
    in_order = sorted(server.settlements, key=lambda settlement: settlement.payload)
    assert [settlement.state for settlement in in_order] == [
        p.Accepted(),
        p.Rejected(),
        p.Rejected(p.Error(BAD.condition, BAD.description, dict(BAD.info))),
        p.Released(),
        p.Modified(),
        p.Modified(True, True, {Symbol("x-opt-why"): "because"}),
    ]


def test_every_outcome_of_ours_reaches_proton(server, connect: Connect) -> None:
    server.outcomes = {
        "accepted": p.Accepted(),
        "rejected": p.Rejected(),
        "blamed": p.Rejected(p.Error.of(BAD)),
        "released": p.Released(),
        "modified": p.Modified(),
        "changed": p.Modified(True, True, {Symbol("x-opt-why"): "because"}),
    }
    client = connect(server)
    outcomes = {
        name: client.send(client.sender(name), Message(body=name))[0] for name in server.outcomes
    }
    assert all(outcome.settled for outcome in outcomes.values())
    assert {name: outcome.state for name, outcome in outcomes.items()} == {
        "accepted": Delivery.ACCEPTED,
        "rejected": Delivery.REJECTED,
        "blamed": Delivery.REJECTED,
        "released": Delivery.RELEASED,
        "modified": Delivery.MODIFIED,
        "changed": Delivery.MODIFIED,
    }
    assert outcomes["rejected"].condition is None
    assert outcomes["blamed"].condition == BAD_TO_PROTON
    assert not outcomes["modified"].failed
    changed = outcomes["changed"]
    assert (changed.failed, changed.undeliverable) == (True, True)
    assert changed.annotations == {symbol("x-opt-why"): "because"}


def test_what_proton_releases_or_leaves_behind_is_delivered_again(server, connect: Connect) -> None:
    server.put("q", encoded("again"))
    client = connect(server)
    client.receiver("q", credit=2)
    [first] = client.receive()
    settle(first.delivery, Delivery.RELEASED)
    [second] = client.receive()
    assert second.payload == first.payload
    client.close()  # not settled
    another = connect(server)
    another.receiver("q", credit=1)
    assert another.receive()[0].payload == first.payload
    assert server.errors == []


def test_a_link_that_we_refuse_is_an_error_that_says_why(server, connect: Connect) -> None:
    server.attach_errors["nowhere"] = EntityNotFound(
        "there is no queue 'nowhere'", info={Symbol("tracking"): "42"}
    )
    client = connect(server)
    said = Condition("amqp:not-found", "there is no queue 'nowhere'", {symbol("tracking"): "42"})
    sender = client.container.create_sender(client.connection, "nowhere")
    client.until(lambda: sender.state & Endpoint.REMOTE_CLOSED)
    receiver = client.container.create_receiver(client.connection, "nowhere")
    client.until(lambda: receiver.state & Endpoint.REMOTE_CLOSED)
    assert client.faults == [("link", said), ("link", said)]
    assert sender.remote_target.address is None
    assert receiver.remote_source.address is None
    client.send(client.sender("somewhere"), Message(body="the connection is as good as before"))


def test_a_message_larger_than_the_link_takes_ends_the_link(
    start_server: Start, connect: Connect
) -> None:
    server = start_server(max_message_size=1000)
    client = connect(server)
    link = client.sender("q")
    assert link.remote_max_message_size == 1000
    post(link, b"x" * 2000)  # proton itself does not look at the limit
    client.until(lambda: client.faults)
    assert client.faults[0].where == "link"
    assert client.faults[0].condition.name == "amqp:link:message-size-exceeded"
    assert [error.condition for error in server.violations] == ["amqp:link:message-size-exceeded"]
    server.violations.clear()
    assert server.received == []
    client.send(client.sender("q"), b"x" * 1000)


def test_sessions_and_connections_that_we_end_tell_proton_why(server, connect: Connect) -> None:
    client = connect(server)
    client.sender("q")
    [end] = server.endpoints
    server.call(lambda: end.link.session.end(BAD))
    client.until(lambda: client.faults)
    server.call(lambda: end.connection.engine.close(BAD))
    client.until(lambda: len(client.faults) == 2)
    assert client.faults == [("session", BAD_TO_PROTON), ("connection", BAD_TO_PROTON)]


def count(log: FrameLog, direction: str, name: str) -> int:
    return log.names(direction).count(name)


def test_protons_heartbeats_keep_an_idle_connection_to_our_server_alive(
    start_server: Start, connect: Connect, watch: Watch
) -> None:
    server = start_server(idle_timeout_s=4.5)
    log = watch(server)
    client = connect(server)
    link = client.sender("q")
    assert client.transports[0].remote_idle_timeout == pytest.approx(2.25)
    # Proton's loop writes one each 2.25 s: three take longer than we wait for the first.
    client.until(lambda: count(log, "in", "empty") >= 3)
    client.send(link, Message(body="still here"))
    assert server.errors == []


def test_our_heartbeats_keep_an_idle_connection_of_protons_alive(
    server, connect: Connect, watch: Watch
) -> None:
    log = watch(server)
    client = connect(server, heartbeat=3.6)
    link = client.sender("q")
    assert server.opens[0].idle_time_out == 1800
    # We write one each 0.9 s: five take longer than proton would wait for the first.
    client.until(lambda: count(log, "out", "empty") >= 5)
    client.send(link, Message(body="still here"))
    assert client.faults == []


def test_a_proton_that_is_frozen_is_given_up(start_server: Start, connect: Connect) -> None:
    server = start_server(idle_timeout_s=2.5)
    client = connect(server)
    client.sender("q")
    server.wait_for(lambda: server.violations)  # proton's loop does not turn meanwhile
    assert [error.condition for error in server.violations] == ["amqp:resource-limit-exceeded"]
    server.violations.clear()
    client.until(lambda: client.faults)
    assert client.faults[0].condition.name == "amqp:resource-limit-exceeded"


def test_proton_gives_up_our_server_when_it_is_frozen(server, connect: Connect) -> None:
    client = connect(server, heartbeat=2.5)
    client.sender("q")
    frozen, thaw = threading.Event(), threading.Event()

    def freeze() -> None:
        frozen.set()
        thaw.wait(20)

    freezer = threading.Thread(target=server.call, args=(freeze,))
    freezer.start()
    try:
        assert frozen.wait(20)
        client.until(lambda: client.faults)
        assert client.faults[0].where == "transport"
        assert client.faults[0].condition.name == "amqp:resource-limit-exceeded"
    finally:
        thaw.set()
        freezer.join()
    client.close()
    server.wait_for(lambda: server.errors)
    assert server.errors[0].condition == "amqp:resource-limit-exceeded"


def test_proton_goes_on_sending_on_a_new_connection(server, connect: Connect) -> None:
    server.cut_after = 5
    client = connect(server, reconnect=None)
    link = client.sender("q")
    sent = [Message(body=number) for number in range(10)]
    client.send(link, *sent[:4])
    post(link, sent[4])
    client.until(lambda: server.cuts == 1)
    client.until(lambda: len(server.opens) == 2 and link.credit > 0)
    client.send(link, *sent[5:])
    assert len(server.attaches) == 2
    assert [received.payload for received in server.received] == [m.encode() for m in sent]


def test_proton_goes_on_receiving_on_a_new_connection(server, connect: Connect) -> None:
    server.put("q", *(encoded(number) for number in range(10)))
    server.call(lambda: setattr(server, "cut_after", 5))
    client = connect(server, reconnect=None)
    client.receiver("q", credit=10)
    client.until(lambda: server.cuts)
    bodies = set()

    def all_are_here() -> bool:
        for arrived in client.arrived:
            bodies.add(arrived.message.body)
        return len(bodies) == 10

    client.until(all_are_here)
    assert len(server.opens) == 2


def test_proton_comes_in_anonymously(start_server: Start, connect: Connect) -> None:
    server = start_server(sasl=offer("ANONYMOUS"))
    connect(server).sender("q")
    assert [done.mechanism for done in server.authenticated] == ["ANONYMOUS"]


def test_proton_comes_in_without_sasl_where_none_is_asked_for(
    start_server: Start, connect: Connect
) -> None:
    server = start_server(sasl=None)
    client = connect(server, sasl_enabled=False)
    client.send(client.sender("q"), Message(body="bare"))
    assert server.authenticated == []


def test_proton_comes_in_with_name_and_password(start_server: Start, connect: Connect) -> None:
    server = start_server(sasl=offer("PLAIN", "ANONYMOUS", users={"ann": "s€cret"}))
    client = connect(server, user="ann", password="s€cret", allowed_mechs="PLAIN")
    client.send(client.sender("q"), Message(body="it is me"))
    assert [(d.mechanism, d.identity) for d in server.authenticated] == [("PLAIN", "ann")]


@pytest.mark.parametrize(
    ("user", "password"),
    [
        pytest.param("ann", "wrong", id="a wrong password"),
        pytest.param("bob", "secret", id="a wrong name"),
    ],
)
def test_proton_is_not_let_in_with(
    user: str, password: str, start_server: Start, connect: Connect
) -> None:
    server = start_server(sasl=offer("PLAIN", users={"ann": "secret"}))
    client = connect(server, user=user, password=password)
    client.until(lambda: client.faults and server.violations)
    assert client.faults[0].where == "transport"
    assert client.faults[0].condition.name == "amqp:unauthorized-access"
    assert [type(error) for error in server.violations] == [NotAuthorized]
    server.violations.clear()
    assert server.authenticated == server.opens == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "MSSBCBS"])
def test_proton_gives_up_where_no_mechanism_that_is_offered_suits_it(
    mechanism: str, start_server: Start, connect: Connect
) -> None:
    server = start_server(sasl=offer(mechanism, users={"ann": "secret"}))
    client = connect(server)  # without a name it cannot do PLAIN, and MSSBCBS it does not know
    client.until(lambda: client.faults)
    assert client.faults[0].where == "transport"
    assert client.faults[0].condition.name == "amqp:unauthorized-access"
    assert server.authenticated == server.opens == []


def tls_domain(files: TlsFiles) -> SSLDomain:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(files.ca))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, str(files.ca))
    return domain


def test_messages_small_and_large_go_over_tls(
    start_server: Start, connect: Connect, tls_files: TlsFiles
) -> None:
    server = start_server(tls=tls_files.server_context())
    client = connect(server, scheme="amqps", sni="localhost", ssl_domain=tls_domain(tls_files))
    messages = [Message(body="small"), Message(body=b"x" * 1_000_000), Message(body="small again")]
    client.send(client.sender("q"), *messages)
    client.receiver("q", credit=3)
    assert [arrived.payload for arrived in client.receive(3)] == [m.encode() for m in messages]
    assert client.transports[0].encrypted


def test_proton_comes_in_with_a_certificate(
    start_server: Start, connect: Connect, tls_files: TlsFiles
) -> None:
    server = start_server(
        tls=tls_files.server_context(ask_client=True), sasl=offer("EXTERNAL", "ANONYMOUS")
    )
    domain = tls_domain(tls_files)
    domain.set_credentials(str(tls_files.client_certificate), str(tls_files.client_key), None)
    client = connect(
        server, scheme="amqps", sni="localhost", ssl_domain=domain, allowed_mechs="EXTERNAL"
    )
    client.send(client.sender("q"), Message(body="signed"))
    assert [done.mechanism for done in server.authenticated] == ["EXTERNAL"]


def test_proton_does_not_trust_a_certificate_of_an_authority_unknown_to_it(
    start_server: Start, connect: Connect, tls_files: TlsFiles
) -> None:
    server = start_server(tls=tls_files.server_context())
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(tls_files.client_certificate))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER, str(tls_files.client_certificate))
    client = connect(server, scheme="amqps", sni="localhost", ssl_domain=domain)
    client.until(lambda: client.faults)
    assert "certificate verify failed" in client.faults[0].condition.description
    assert server.opens == []


class LinkFields(LinkOption):
    def apply(self, link: Link) -> None:
        link.properties = {"a": int32(1)}
        link.target.capabilities.put_object(symbol("queue"))
        link.max_message_size = 12345


def test_what_proton_says_of_itself_and_its_links_is_read(
    start_server: Start, connect: Connect
) -> None:
    server = start_server(
        offered_capabilities=("x", "y"), properties={Symbol("product"): "memory", Symbol("n"): 1}
    )
    client = connect(
        server,
        properties={"product": "proton"},
        desired_capabilities=["one", "two"],
        virtual_host="vhost",
        container_id="me",
    )
    options = [Selector("color='red'"), DurableSubscription(), Copy(), LinkFields()]
    link = client.receiver("q", options=options)
    [open_], [attach] = server.opens, server.attaches
    assert (open_.container_id, open_.hostname) == ("me", "vhost")
    assert open_.desired_capabilities == ("one", "two")
    assert typed(open_.properties) == typed({Symbol("product"): "proton"})
    assert typed(attach.properties) == typed({Symbol("a"): Int32(1)})
    assert attach.max_message_size == 12345
    assert attach.target.capabilities == ("queue",)
    source = attach.source
    assert (source.address, source.durable, source.expiry_policy) == ("q", 2, "never")
    assert source.distribution_mode == "copy"
    selector = Described(Symbol("apache.org:selector-filter:string"), "color='red'")
    assert typed(source.filter) == typed({Symbol("selector"): selector})
    assert client.connection.remote_container == "memory-server"
    assert client.connection.remote_offered_capabilities == [symbol("x"), symbol("y")]
    assert client.connection.remote_properties == {symbol("product"): "memory", symbol("n"): 1}
    agreed = link.remote_source  # as proton asked
    assert (agreed.address, agreed.durability) == ("q", Terminus.DELIVERIES)
    assert agreed.expiry_policy == Terminus.EXPIRE_NEVER


def test_a_link_that_proton_detaches_without_closing_can_be_attached_again(
    server, connect: Connect
) -> None:
    client = connect(server)
    link = client.sender("q")
    client.send(link, Message(body=1))
    link.detach()
    client.until(lambda: not server.endpoints)
    again = client.container.create_sender(client.connection, "q", name=link.name)
    client.until(lambda: again.credit > 0)
    client.send(again, Message(body=2))
    assert [attach.name for attach in server.attaches] == [link.name] * 2


def test_many_links_on_several_sessions_share_one_connection(server, connect: Connect) -> None:
    client = connect(server)
    sessions_ = [client.session() for _ in range(6)]
    addresses = [f"q{number}" for number in range(60)]
    for number, address in enumerate(addresses):
        sender = client.sender(address, on=sessions_[number % 6])
        client.receiver(address, credit=1, on=sessions_[(number + 1) % 6])
        post(sender, Message(body=address))
    arrived = client.receive(60)
    assert {(one.address, one.message.body) for one in arrived} == {(a, a) for a in addresses}
    assert len(server.endpoints) == 120
    assert len({id(end.link.session) for end in server.endpoints}) == 6
    sessions_[0].close()
    client.until(lambda: len(server.endpoints) == 100)
    client.send(client.sender("q1", on=sessions_[1]), Message(body="the others are still there"))
    assert len(server.opens) == 1
    assert server.errors == []
