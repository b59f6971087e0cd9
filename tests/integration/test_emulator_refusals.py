"""The frames of refusals, on which the behaviour of the SDK depends.

Every error has a non-empty info map. A refused attach is an attach with a null terminus and then a
detach with the error. A send is accepted or rejected.
"""

import contextlib
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pairbus.amqp.composite import decode_composite, encode_composite
from pairbus.amqp.decode import decode
from pairbus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from pairbus.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.descriptions import EntityStatus
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.connection_strings import ConnectionString
from tests.integration.emulator_clients import open_socket
from tests.waiting import DEADLINE_S, wait_until

HELLO = Message.build(data=b"hello").encode()
LISTENS = SharedAccessRule(name="listens", primary_key="key", rights=frozenset({Right.LISTEN}))
SENDS = SharedAccessRule(name="sends", primary_key="key", rights=frozenset({Right.SEND}))


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace(rules=[LISTENS, SENDS]) as namespace:
        namespace.create_queue("orders")
        namespace.create_queue("brief", lock_duration=timedelta(seconds=0.2))
        namespace.create_queue("sessions", requires_session=True)
        namespace.create_queue("small", max_message_size_in_kilobytes=1)
        namespace.create_queue("full", max_size_in_megabytes=1)
        namespace.create_queue("off", status=EntityStatus.DISABLED)
        yield namespace


class FrameConnection:
    """A connection that returns every frame."""

    def __init__(self, sock: socket.socket, name: str, key: str) -> None:
        self._sock = sock
        self._buffer = b""
        plain = f"\0{name}\0{key}".encode()
        init = encode_frame(0, encode_composite(SaslInit(Symbol("PLAIN"), plain)), SASL_FRAME)
        self.send_raw(SASL_HEADER + init + AMQP_HEADER)
        self.send(Open("test"))
        self.send(Begin(None, 0, 1000, 1000))
        for part in (8, None, None, 8):  # header, mechanisms, outcome, header
            self._frame() if part is None else self._take(part)
        self.receive(Begin)

    def send(self, performative: Any, payload: bytes = b"") -> None:
        self.send_raw(encode_frame(0, encode_composite(performative) + payload))

    def send_raw(self, data: bytes) -> None:
        self._sock.sendall(data)

    def receive(self, *kinds: type) -> Any:
        """Return the next performative of one of these kinds, and skip others."""
        while True:
            performative = self._next()
            if isinstance(performative, kinds):
                return performative

    def _next(self) -> Any:
        body = self._frame()
        return decode_composite(decode(body)[0]) if body else None

    def _frame(self) -> bytes:
        """Return the body of the next frame."""
        rest = self._take(int.from_bytes(self._take(4), "big") - 4)
        return rest[rest[0] * 4 - 4 :]

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            data = self._sock.recv(65536)
            assert data, "the namespace closed the connection"
            self._buffer += data
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken


@contextlib.contextmanager
def connected(
    namespace: LocalNamespace, rule: SharedAccessRule | None = None
) -> Iterator[FrameConnection]:
    parsed = ConnectionString.parse(namespace.connection_string)
    with open_socket(namespace) as sock:
        sock.settimeout(DEADLINE_S)
        if rule is None:
            yield FrameConnection(sock, str(parsed.key_name), str(parsed.key))
        else:
            yield FrameConnection(sock, rule.name, rule.primary_key)


def attach(connection: FrameConnection, path: str, *, sends: bool, handle: int = 0) -> Attach:
    connection.send(
        Attach(
            f"{path}-{handle}",
            handle,
            not sends,
            source=Source("me" if sends else path),
            target=Target(path if sends else "me"),
            initial_delivery_count=0 if sends else None,
            rcv_settle_mode=0 if sends else 1,
        )
    )
    performative = connection.receive(Attach)
    assert isinstance(performative, Attach)
    return performative


def assert_error(error: Error | None, condition: str) -> None:
    assert error is not None
    assert error.condition == condition
    assert error.description
    assert error.info


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize(
    ("path", "condition"),
    [
        ("nowhere", "amqp:not-found"),
        ("off", "com.microsoft:entity-disabled"),
        ("orders", "amqp:unauthorized-access"),
    ],
)
def test_refused_attach_is_a_null_terminus_and_then_a_detach_with_the_error(
    namespace: LocalNamespace, path: str, condition: str, sends: bool
) -> None:
    rule = (LISTENS if sends else SENDS) if path == "orders" else None
    with connected(namespace, rule) as connection:
        attached = attach(connection, path, sends=sends)
        detached = connection.receive(Detach)
        assert (attached.target if sends else attached.source) is None
        assert detached.closed
        assert_error(detached.error, condition)
        # The session stays open.
        connection.send(Detach(0, closed=True))
        granted = attach(connection, "orders", sends=not sends, handle=1)
        assert (granted.source if sends else granted.target) is not None


def fill(namespace: LocalNamespace, path: str) -> None:
    namespace.call(lambda core: setattr(core.entities.get(path).queue, "bytes", 2**20))


@pytest.mark.parametrize(
    ("path", "payload", "condition"),
    [
        ("orders", HELLO, None),
        ("orders", b"\xff\xff", "amqp:decode-error"),
        ("sessions", HELLO, None),
        ("full", HELLO, "amqp:resource-limit-exceeded"),
        ("throttled", HELLO, "com.microsoft:server-busy"),
        ("broken", HELLO, "amqp:internal-error"),
    ],
)
def test_send_is_accepted_or_rejected_and_nothing_else(
    namespace: LocalNamespace, path: str, payload: bytes, condition: str | None
) -> None:
    if path in ("throttled", "broken"):
        kind = {"throttled": "throttle", "broken": "internal-error"}[path]
        namespace.create_queue(path)
        namespace.add_fault(kind, path)
    if path == "full":
        fill(namespace, path)
    with connected(namespace) as connection:
        attach(connection, path, sends=True)
        connection.receive(Flow)
        connection.send(Transfer(0, 0, b"tag", 0), payload)
        answer = connection.receive(Disposition)
        assert answer.settled
        if path == "orders" and condition is None:
            assert answer.state == Accepted()
            return
        assert isinstance(answer.state, Rejected)
        assert answer.state.error is not None
        assert_error(answer.state.error, condition or answer.state.error.condition)


@pytest.mark.parametrize("state", [Accepted(), Released(), Modified(True), Rejected()])
def test_settlement_with_an_expired_lock_is_rejected(namespace: LocalNamespace, state: Any) -> None:
    with connected(namespace) as connection:
        attach(connection, "brief", sends=True)
        connection.receive(Flow)
        connection.send(Transfer(0, 0, b"tag", 0, settled=True), HELLO)
        attach(connection, "brief", sends=False, handle=1)
        connection.send(Flow(0, 1000, 1, 1000, 1, 0, 1))
        delivered = connection.receive(Transfer)
        wait_until(
            lambda: namespace.call(lambda core: not core.entities.get("brief").queue._locks),
            "the lock to be lost",
        )
        connection.send(Disposition(True, delivered.delivery_id, state=state))
        while True:
            answer = connection.receive(Disposition)
            if answer.role is False:
                break
        assert isinstance(answer.state, Rejected)
        assert_error(answer.state.error, "com.microsoft:message-lock-lost")
    assert namespace.call(lambda core: len(core.entities.get("brief").queue)) >= 1


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (encode_frame(0, b"\x00\x53\x77\x45"), Close),
        (encode_frame(0, encode_composite(Begin(None, 0, 1, 1))), Close),
        (encode_frame(0, encode_composite(Transfer(7, 0, b"tag", 0)) + HELLO), End),
        (encode_frame(0, encode_composite(Detach(9, closed=True))), End),
    ],
    ids=["a performative that is none", "a begin twice", "no link", "no link to detach"],
)
def test_end_of_a_session_or_connection_has_an_error(
    namespace: LocalNamespace, data: bytes, kind: type
) -> None:
    with connected(namespace) as connection:
        connection.send_raw(data)
        performative = connection.receive(Close, End)
        assert isinstance(performative, kind)
        assert_error(performative.error, performative.error.condition)


def test_links_of_a_deleted_entity_are_detached_with_an_error(namespace: LocalNamespace) -> None:
    namespace.create_queue("passing")
    with connected(namespace) as connection:
        attach(connection, "passing", sends=False)
        attach(connection, "passing", sends=True, handle=1)
        connection.receive(Flow)
        namespace.call(lambda core: core.entities.delete("passing"))
        assert_error(connection.receive(Detach).error, "amqp:not-found")
        connection.send(Transfer(1, 0, b"tag", 0), HELLO)
        answer = connection.receive(Disposition)
        assert isinstance(answer.state, Rejected)
        assert_error(answer.state.error, "amqp:not-found")


def test_management_links_of_a_deleted_entity_are_detached(namespace: LocalNamespace) -> None:
    namespace.create_queue("passing")
    with connected(namespace) as connection:
        attach(connection, "passing/$management", sends=False)
        attach(connection, "passing/$management", sends=True, handle=1)
        connection.receive(Flow)
        namespace.call(lambda core: core.entities.delete("passing"))
        for _ in range(2):
            assert_error(connection.receive(Detach).error, "amqp:not-found")


def test_expired_token_is_the_error_of_the_detach(namespace: LocalNamespace) -> None:
    with connected(namespace) as connection:
        attach(connection, "orders", sends=True)
        fault = namespace.add_fault("expire-tokens", "orders", count=1)
        assert_error(connection.receive(Detach).error, "amqp:unauthorized-access")
        assert fault.fired == 1
