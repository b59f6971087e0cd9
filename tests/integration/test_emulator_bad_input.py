"""Clients that violate the protocol get an error or are disconnected. Others are not affected."""

import contextlib
import logging
import random
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from pairbus.amqp.client import Client, Management, Receiver, Sender
from pairbus.amqp.client.request_response import RequestResponseLinks
from pairbus.amqp.client.transport import Transport
from pairbus.amqp.composite import encode_composite
from pairbus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from pairbus.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Array, Described, Symbol, Timestamp, ULong
from pairbus.emulator.connections import incoming_links, management, outgoing_links
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import AmqpError
from tests.fuzz.inputs import edited, noise, one_frame
from tests.integration.emulator_clients import client_of, open_socket, read_until_closed, round_trip
from tests.integration.emulator_data import contents
from tests.integration.sdk_flavours import SDK_SOCKETS
from tests.waiting import wait_until

pytestmark = SDK_SOCKETS

HELLO = Message.build(data=b"hello").encode()
FUZZ_ROUNDS = 400


@pytest.fixture(scope="module")
def running() -> Iterator[LocalNamespace]:
    with LocalNamespace() as namespace:
        for name in ("orders", "kept", "target"):
            namespace.create_queue(name)
        namespace.create_queue("sessions", requires_session=True)
        with client_of(namespace) as client:
            Sender(client, "kept").send_batch([HELLO] * 10)
        yield namespace


@pytest.fixture
def namespace(
    running: LocalNamespace, caplog: pytest.LogCaptureFixture
) -> Iterator[LocalNamespace]:
    """A namespace whose data the test does not change, and that logs no internal error."""
    caplog.set_level(logging.INFO)
    before = contents(running)
    yield running
    assert failures(caplog.records) == []
    assert contents(running) == before
    with client_of(running) as client:  # the namespace still works
        assert len(Management(client, "kept").peek(1, 20)) == 10


def failures(records: list[logging.LogRecord]) -> list[str]:
    """Return the internal errors that the emulator logged."""
    return [
        record.getMessage()
        for record in records
        if record.exc_info is not None or record.name == "asyncio"
    ]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """Return the log records of the emulator so far."""
    return lambda: [item for item in caplog.records if item.name.startswith("pairbus.emulator")]


def frame_bytes(performative: Any, channel: int = 0, payload: bytes = b"") -> bytes:
    return encode_frame(channel, encode_composite(performative) + payload)


HEADERS = (
    SASL_HEADER
    + encode_frame(0, encode_composite(SaslInit(Symbol("ANONYMOUS"))), SASL_FRAME)
    + AMQP_HEADER
)
OPENED = HEADERS + frame_bytes(Open("peer"))
BEGUN = OPENED + frame_bytes(Begin(None, 0, 100, 100))
ATTACHED = BEGUN + frame_bytes(
    Attach("to", 0, False, source=Source("me"), target=Target("$cbs"), initial_delivery_count=0)
)


def transfer(handle: int, id: int | None, payload: bytes = HELLO, **fields: Any) -> bytes:
    tag = None if id is None else b"tag"
    return frame_bytes(Transfer(handle, id, tag, 0, **fields), payload=payload)


def send_frames(sock: socket.socket, data: bytes) -> None:
    """Send all frames, but wait for credit after an attach."""
    if data.startswith(ATTACHED):
        sock.sendall(ATTACHED)
        response = b""
        while FLOW not in response:
            response += sock.recv(65536)
        data = data[len(ATTACHED) :]
    sock.sendall(data)


FLOW = b"\x00\x53\x13"

MALFORMED = {
    "another protocol": b"AMQP\x07\x09\x09\x09",
    "a version of the future": b"AMQP\x00\x02\x00\x00",
    "a SASL frame that is none": SASL_HEADER + b"\xff" * 40,
    "a mechanism that is not offered": SASL_HEADER
    + encode_frame(0, encode_composite(SaslInit(Symbol("SCRAM-SHA-1"))), SASL_FRAME),
    "PLAIN without names": SASL_HEADER
    + encode_frame(0, encode_composite(SaslInit(Symbol("PLAIN"), b"\xff\xfe")), SASL_FRAME),
    "a frame of two gigabytes": HEADERS + b"\x7f\xff\xff\xff\x02\x00\x00\x00",
    "a frame of three bytes": HEADERS + b"\x00\x00\x00\x03\x02\x00\x00\x00",
    "a data offset of one": OPENED + b"\x00\x00\x00\x08\x01\x00\x00\x00",
    "a data offset behind the frame": OPENED + b"\x00\x00\x00\x08\xff\x00\x00\x00",
    "a frame type that is none": OPENED + b"\x00\x00\x00\x08\x02\x09\x00\x00",
    "a body of noise": OPENED + encode_frame(0, b"\x00\x53\xff" + b"\xc1" * 30),
    "a performative that is none": OPENED + encode_frame(0, b"\x00\x53\x77\x45"),
    "a list longer than its frame": OPENED + encode_frame(0, b"\x00\x53\x11\xc0\xff\x04\x40"),
    "an array of four billion": OPENED
    + encode_frame(0, b"\x00\x53\x11\xd0\x00\x00\x00\x08\xff\xff\xff\xff"),
    "nesting without end": OPENED
    + encode_frame(0, b"\x00\x53\x11\xc0\xf0\x01" + b"\xc0\x80\x01" * 70),
    "a field of the wrong type": OPENED + encode_frame(0, b"\x00\x53\x11\xc0\x04\x02\x40\xa1\x00"),
    "a second open": OPENED + frame_bytes(Open("peer")),
    "no open": HEADERS + frame_bytes(Begin(None, 0, 100, 100)),
    "a begin twice": BEGUN + frame_bytes(Begin(None, 0, 100, 100)),
    "an attach without a session": OPENED
    + frame_bytes(Attach("a", 0, True, source=Source("orders"), target=Target("me"))),
    "an end without a session": OPENED + frame_bytes(End()),
    "a channel beyond all": OPENED + frame_bytes(Begin(None, 0, 100, 100), 65535),
    "a handle twice": ATTACHED
    + frame_bytes(Attach("b", 0, False, source=Source("a"), target=Target("$cbs"))),
    "a transfer without a link": BEGUN + transfer(7, 0),
    "a transfer without an id": ATTACHED + transfer(0, None),
    "a flow of no link": BEGUN + frame_bytes(Flow(0, 100, 0, 100, handle=9, delivery_count=0)),
    "a detach of no link": BEGUN + frame_bytes(Detach(9, closed=True)),
}
"""Frames that end a session or the connection."""


@pytest.mark.parametrize("name", MALFORMED)
def test_invalid_amqp_ends_in_an_error_and_one_log_line(
    namespace: LocalNamespace, lines: Any, name: str
) -> None:
    with open_socket(namespace) as sock:
        send_frames(sock, MALFORMED[name])
        if MALFORMED[name].startswith(OPENED):
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                sock.sendall(frame_bytes(Close()))  # an error may have ended only the session
        response = read_until_closed(sock)

    if MALFORMED[name].startswith(OPENED):
        assert b"amqp:" in response
    wait_until(lambda: len(lines()) >= 1 or not MALFORMED[name].startswith(OPENED), "a log line")
    assert len(lines()) <= 1


HARMLESS = {
    "a disposition of nothing": BEGUN + frame_bytes(Disposition(True, 0, 1000, True, Accepted())),
    "a disposition of everything": BEGUN
    + frame_bytes(Disposition(True, 0, 2**31 - 1, True, Accepted())),
    "a link without an address": BEGUN
    + frame_bytes(Attach("a", 0, False, target=Target(), initial_delivery_count=0)),
    "a link to nowhere": BEGUN
    + frame_bytes(Attach("a", 0, False, target=Target("nowhere"), initial_delivery_count=0)),
    "a terminus of no known kind": BEGUN
    + frame_bytes(
        Attach("a", 0, False, target=Described(Symbol("x:y"), [1]), initial_delivery_count=0)
    ),
    "an address of the wrong type": BEGUN
    + frame_bytes(Attach("a", 0, False, target=Target(ULong(5)), initial_delivery_count=0)),
    "an address that is absurd": BEGUN
    + frame_bytes(Attach("a", 0, True, source=Source("%%%/../" * 500), target=Target("x"))),
    "a session filter of the wrong type": BEGUN
    + frame_bytes(
        Attach(
            "a",
            0,
            True,
            source=Source("sessions", filter={Symbol("com.microsoft:session-filter"): 5}),
            target=Target("x"),
        )
    ),
    "a timeout of the wrong type": BEGUN
    + frame_bytes(
        Attach(
            "a",
            0,
            True,
            source=Source("sessions", filter={Symbol("com.microsoft:session-filter"): None}),
            target=Target("x"),
            properties={Symbol("com.microsoft:timeout"): "soon"},
        )
    ),
    "a request that is noise": ATTACHED + transfer(0, 0, b"\x00\xff" * 50),
    "a request that is empty": ATTACHED + transfer(0, 0, b""),
    "a request in two halves, the second never": ATTACHED + transfer(0, 0, HELLO, more=True),
    "a message with an outcome": ATTACHED + transfer(0, 0, HELLO, state=Accepted()),
}
"""Frames that end at most a link."""


@pytest.mark.parametrize("name", HARMLESS)
def test_invalid_frame_ends_at_most_its_link(
    namespace: LocalNamespace, lines: Any, name: str
) -> None:
    with open_socket(namespace) as sock:
        send_frames(sock, HARMLESS[name] + frame_bytes(Close()))
        response = read_until_closed(sock)

    assert response.endswith(frame_bytes(Close()))  # without an error
    assert len(lines()) <= 1


def test_undecodable_messages_are_rejected(namespace: LocalNamespace) -> None:
    with client_of(namespace) as client:
        sender = Sender(client, "orders")
        for payload in (b"\xff" * 20, b"\x00\x53\x75\xa0\xff", b"\x00\x53\x70\x45\x00"):
            with pytest.raises(AmqpError):
                sender.send(payload)
            with pytest.raises(AmqpError):
                sender.send(payload, message_format=0x80013700)
        assert client.generation == 1


def test_message_beyond_the_hard_limit_ends_its_link(namespace: LocalNamespace) -> None:
    with client_of(namespace) as client:
        sender = Sender(client, "orders")
        link = sender.ensure_attached(client.deadline(None))
        link.remote_max_message_size = None  # skip the check of the client
        with pytest.raises(AmqpError):
            sender.send(Message.build(data=bytes(3_000_000)).encode())
    round_trip(namespace)


OPERATIONS = [
    "peek-message",
    "update-disposition",
    "renew-lock",
    "receive-by-sequence-number",
    "renew-session-lock",
    "get-session-state",
    "set-session-state",
    "get-message-sessions",
    "schedule-message",
    "cancel-scheduled-message",
]
VALUES: list[Any] = [
    None,
    True,
    -1,
    2**63 - 1,
    ULong(2**64 - 1),
    -(2**63),
    0.5,
    float("nan"),
    "text",
    "x" * 10_000,
    b"bytes",
    Symbol("symbol"),
    uuid4(),
    Timestamp(-(2**63)),
    Timestamp(2**63 - 1),
    [],
    [None],
    {},
    {"message": b"\xff"},
    [{"message": b"\xff"}],
    [{"message": "text", "message-id": 5}],
    Array(int, (2**63 - 1, -1)),
    Array(ULong, (ULong(2**64 - 1),)),
    Array(type(uuid4()), (uuid4(),)),
    Described(Symbol("x:y"), [1]),
]
PARAMETERS = [
    "from-sequence-number",
    "message-count",
    "session-id",
    "session-state",
    "disposition-status",
    "lock-tokens",
    "sequence-numbers",
    "receiver-settle-mode",
    "messages",
    "skip",
    "top",
    "last-updated-time",
    "properties-to-modify",
    "deadletter-reason",
]


@dataclass
class RequestSender:
    """Sends requests to a node."""

    client: Client
    node: str

    def __post_init__(self) -> None:
        cbs = self.node == "$cbs"
        self._requests = RequestResponseLinks(
            self.client,
            self.node,
            status_key="status-code" if cbs else "statusCode",
            description_key="status-description" if cbs else "statusDescription",
            authorize=not cbs,
        )

    def all(self, requests: list[tuple[dict[str, Any], Any]]) -> list[int | None]:
        """Return the statuses of the responses."""
        deadline = self.client.deadline(None)
        responses = [self._requests.post(request, body, deadline) for request, body in requests]
        self._requests.wait(responses, deadline)
        for response in responses:
            assert response.error is None, response.error
        return [response.status for response in responses]


@pytest.mark.parametrize("path", ["kept", "sessions"])
def test_requests_with_invalid_values_get_an_error_and_change_nothing(
    namespace: LocalNamespace, path: str
) -> None:
    with client_of(namespace) as client:
        requests_to_node = RequestSender(client, f"{path}/$management")
        for operation in OPERATIONS:
            request = {"operation": f"com.microsoft:{operation}"}
            bodies: list[Any] = [*VALUES, *[dict.fromkeys(PARAMETERS, item) for item in VALUES]]
            rng = random.Random(operation)
            bodies += [{item: rng.choice(VALUES) for item in PARAMETERS} for _ in range(30)]
            statuses = requests_to_node.all([(request, body) for body in bodies])
            assert 500 not in statuses, operation
        assert client.generation == 1


def test_unknown_operations_are_refused(namespace: LocalNamespace) -> None:
    operations: list[Any] = ["", "com.microsoft:nonsense", "READ", None, 5, b"peek", "x" * 10_000]
    with client_of(namespace) as client:
        requests_to_node = RequestSender(client, "kept/$management")
        statuses = requests_to_node.all(
            [({"operation": item}, {}) for item in operations] + [({}, None)]
        )
        assert all(status is not None and 400 <= status < 600 for status in statuses)
        assert client.generation == 1


def test_invalid_tokens_are_refused(namespace: LocalNamespace) -> None:
    put = {"operation": "put-token", "type": "jwt", "name": "sb://localhost/kept"}
    bad: list[tuple[dict[str, Any], Any]] = [(put, value) for value in VALUES]
    bad += [(put | {"name": value}, "token") for value in (None, 5, b"x", "", "%%%")]
    bad += [(put | {"operation": value}, "token") for value in (None, 5, "delete-token", "")]
    bad += [
        (put, f"SharedAccessSignature {text}")
        for text in ("", "&&&", "sr=&sig=&se=&skn=", "sr=a&sig=%%%&se=1&skn=a", "sr=a&" * 5000)
    ]
    bad += [(put, f"SharedAccessSignature sr=a&sig=a&se={se}&skn=a") for se in ("-1", "9" * 40)]
    with client_of(namespace, tokens=None) as client:
        statuses = RequestSender(client, "$cbs").all(bad)
        assert set(statuses) <= {400, 401}
        assert client.generation == 1


GARBAGE_HTTP = {
    "noise": b"\x80\x81\x82\r\n\r\n",
    "a method that is none": b"EAT /orders HTTP/1.1\r\nHost: a\r\n\r\n",
    "no version": b"GET /orders\r\n\r\n",
    "headers without end": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
    "a header without a colon": b"GET / HTTP/1.1\r\nnonsense\r\n\r\n",
    "a body of four terabytes": b"PUT /q HTTP/1.1\r\nHost: a\r\n"
    b"Content-Length: 4000000000000\r\n\r\n",
    "a length below nothing": b"PUT /q HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "a chunk that is none": b"PUT /q HTTP/1.1\r\nHost: a\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a path that is none": b"GET //%00/%ff/../.. HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "XML that is none": b"PUT /q?api-version=2021-05 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
    b"Connection: close\r\n\r\n<a>",
    "a token that is none": b"GET /kept HTTP/1.1\r\nHost: a\r\nAuthorization: \xff\xfe\r\n"
    b"Connection: close\r\n\r\n",
    "a request to the controls": b"POST /$pairbus/faults HTTP/1.1\r\nHost: a\r\n"
    b"Content-Length: 1\r\nConnection: close\r\n\r\n{",
}


@pytest.mark.parametrize("name", GARBAGE_HTTP)
def test_invalid_http_gets_an_error_response(namespace: LocalNamespace, name: str) -> None:
    with open_socket(namespace) as sock:
        with contextlib.suppress(
            ConnectionResetError, BrokenPipeError
        ):  # the namespace may have closed the connection
            sock.sendall(GARBAGE_HTTP[name])
            if b"Connection: close" not in GARBAGE_HTTP[name]:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        response = read_until_closed(sock)
    assert response == b"" or response.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501")), response


def test_client_that_does_not_read_delays_no_other_and_loses_nothing() -> None:
    body, count = bytes(100_000), 200
    with LocalNamespace() as namespace:
        namespace.create_queue("large")
        namespace.create_queue("orders")
        with client_of(namespace) as client:
            sender = Sender(client, "large")
            for n in range(count):
                sender.send(Message.build(data=b"%d:" % n + body).encode())
        with client_of(namespace) as client:
            receiver = Receiver(client, "large", settled=True)
            link = receiver.ensure_attached(client.deadline(None))
            link.flow(count)
            client.step(client.now())  # send the credit; from now on, nothing is read
            wait_until(lambda: ("large", "receive") in namespace.meter(), "messages to be sent")
            round_trip(namespace)

            received: list[bytes] = []
            while len(received) < count:
                some = receiver.receive(count - len(received))
                assert some, f"{len(received)} of {count} messages arrived"
                received += [Message.parse(item.payload).read_body()[1][0] for item in some]
        assert [int(item.partition(b":")[0]) for item in received] == list(range(count))


def test_unread_responses_delay_no_other_client() -> None:
    request = Message.build(
        application_properties={"operation": "com.microsoft:peek-message"},
        value={"from-sequence-number": 1, "message-count": 1},
    ).encode()
    with LocalNamespace() as namespace:
        namespace.create_queue("large")
        namespace.create_queue("orders")
        with client_of(namespace) as client:
            Sender(client, "large").send(Message.build(data=bytes(250_000)).encode())
            Management(client, "large").peek(1)
            requests_to_node = RequestSender(client, "large/$management")
            requests_to_node.all([({"operation": "com.microsoft:peek-message"}, None)])
            link = requests_to_node._requests._receiver.ensure_attached(client.deadline(None))
            link.flow(100_000)
            requests = requests_to_node._requests._sender.ensure_attached(client.deadline(None))
            assert client._engine is not None
            assert client._transport is not None
            sock = client._transport._sock
            sent = 0
            while requests.credit > 0:
                requests.send(request, tag=b"%d" % sent)
                sent += 1
            sock.settimeout(10)
            sock.sendall(client._engine.data_to_send())
            wait_until(
                lambda: namespace.meter()[("large", "peek")].operations > 10, "answers to be made"
            )
            round_trip(namespace)
        round_trip(namespace)


class HealthyClient:
    """A client that sends and receives while others misbehave."""

    def __init__(self, namespace: LocalNamespace) -> None:
        self._namespace = namespace
        self._stopped = threading.Event()
        self.round_trips = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "HealthyClient":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with client_of(self._namespace) as client:
                sender, receiver = Sender(client, "orders"), Receiver(client, "orders")
                while not self._stopped.is_set():
                    sender.send(HELLO)
                    receiver.settle(receiver.receive(1))
                    self.round_trips += 1
                assert client.generation == 1
        except BaseException as exc:  # noqa: BLE001  the test checks it
            self.error = exc


def record_session(namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the bytes of a client that uses every operation with a valid token."""
    chunks: list[bytes] = []
    exchange = Transport.exchange

    def listen(self: Transport, data: bytes, deadline: float) -> bytes:
        if data:
            chunks.append(bytes(data))
        return exchange(self, data, deadline)

    with monkeypatch.context() as patched:
        patched.setattr(Transport, "exchange", listen)
        with client_of(namespace) as client:
            sender, receiver = Sender(client, "target"), Receiver(client, "target")
            sender.send(HELLO)
            sender.send_batch([HELLO, HELLO])
            receiver.settle(receiver.receive(1))
            Management(client, "target").peek(1)
            receiver.drain()
    return chunks


def unaffected(stored: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the data that mutated sessions cannot change: they have a token for some entities."""
    entities = [row for row in stored["entity"] if row[1] not in ("target", "orders")]
    ids = {row[0] for row in entities}
    messages = {
        table: [row for row in stored[table] if (row[0] >> 42) in ids]
        for table in ("message", "message_group", "removed_from_group")
    }
    return stored | {"entity": entities} | messages


def test_random_bytes_and_mutated_sessions_affect_no_other_client(
    running: LocalNamespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    session_chunks = record_session(running, monkeypatch)
    before = unaffected(contents(running))
    assert [row[1] for row in before["message_group"]] == [10]
    refused = 0

    with HealthyClient(running) as healthy:
        wait_until(lambda: healthy.round_trips > 0, "a healthy client")
        for _ in range(FUZZ_ROUNDS):
            refused += feed(running, mutated(rng, session_chunks))
        round_trips = healthy.round_trips
        wait_until(
            lambda: healthy.round_trips > round_trips or healthy.error is not None,
            "a healthy client",
        )

    assert healthy.error is None
    assert refused > FUZZ_ROUNDS // 4  # the input was really invalid
    assert failures(caplog.records) == []
    assert unaffected(contents(running)) == before
    round_trip(running)


def mutated(rng: random.Random, session_chunks: list[bytes]) -> bytes:
    match rng.randrange(4):
        case 0:
            return noise(rng, 500)
        case 1:
            return BEGUN + b"".join([one_frame(rng) for _ in range(rng.randrange(10))])
        case 2:
            place = rng.randrange(len(session_chunks))
            parts = [
                *session_chunks[:place],
                edited(rng, session_chunks[place], rng.choice(session_chunks)),
            ]
            return b"".join(parts + session_chunks[place + 1 :])
        case _:
            parts = list(session_chunks)
            first, second = rng.randrange(len(parts)), rng.randrange(len(parts))
            parts[first], parts[second] = parts[second], parts[first]
            return b"".join(parts)


def feed(namespace: LocalNamespace, data: bytes) -> bool:
    """Send data until the connection ends, and return True if the reply is an error or empty."""
    with open_socket(namespace) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(1)
        except OSError:
            return True  # the namespace closed the connection
        response = read_until_closed(sock)
    return b"amqp:" in response or not response.startswith(b"AMQP")


def test_internal_exception_ends_one_connection_and_not_the_namespace(
    running: LocalNamespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise RuntimeError("a bug")

    with client_of(running) as bystander:
        sender = Sender(bystander, "orders")
        sender.send(HELLO)
        for module, name in (
            (incoming_links, "parse_message"),
            (outgoing_links, "encode_deliveries"),
            (management, "execute"),
        ):
            caplog.clear()
            with monkeypatch.context() as patched, client_of(running) as client:
                work = {
                    "parse_message": lambda: Sender(client, "orders").send(HELLO),
                    "encode_deliveries": lambda: Receiver(client, "kept").receive(1),
                    "execute": lambda: Management(client, "kept").peek(1),
                }[name]
                patched.setattr(module, name, fail)
                with pytest.raises(AmqpError):
                    work()
            assert len(failures(caplog.records)) == 1, name
        sender.send(HELLO)
        assert bystander.generation == 1
        receiver = Receiver(bystander, "orders", settled=True)
        assert len(receiver.receive(2)) >= 1
