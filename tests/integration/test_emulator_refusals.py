"""The shape of refusals, frame by frame: what the SDK makes of them hangs on it.

Every error has an info map that is not empty; a refused attach is an attach without a terminus and
then a detach with the error; a send is accepted or rejected.
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
from tests.integration.emulator_bench import DEADLINE_S, connect, wait_until

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


class Talk:
    """A connection on which every frame is seen."""

    def __init__(self, sock: socket.socket, name: str, key: str) -> None:
        self._sock = sock
        self._heard = b""
        plain = f"\0{name}\0{key}".encode()
        init = encode_frame(0, encode_composite(SaslInit(Symbol("PLAIN"), plain)), SASL_FRAME)
        self.say_raw(SASL_HEADER + init + AMQP_HEADER)
        self.say(Open("talk"))
        self.say(Begin(None, 0, 1000, 1000))
        for part in (8, None, None, 8):  # header, mechanisms, outcome, header
            self._frame() if part is None else self._take(part)
        self.hear(Begin)

    def say(self, performative: Any, payload: bytes = b"") -> None:
        self.say_raw(encode_frame(0, encode_composite(performative) + payload))

    def say_raw(self, data: bytes) -> None:
        self._sock.sendall(data)

    def hear(self, *kinds: type) -> Any:
        """The next performative of one of these kinds; others are passed over."""
        while True:
            heard = self._next()
            if isinstance(heard, kinds):
                return heard

    def _next(self) -> Any:
        body = self._frame()
        return decode_composite(decode(body)[0]) if body else None

    def _frame(self) -> bytes:
        """The body of the next frame."""
        rest = self._take(int.from_bytes(self._take(4), "big") - 4)
        return rest[rest[0] * 4 - 4 :]

    def _take(self, count: int) -> bytes:
        while len(self._heard) < count:
            data = self._sock.recv(65536)
            assert data, "the namespace has hung up"
            self._heard += data
        taken, self._heard = self._heard[:count], self._heard[count:]
        return taken


@contextlib.contextmanager
def talking(namespace: LocalNamespace, rule: SharedAccessRule | None = None) -> Iterator[Talk]:
    parsed = ConnectionString.parse(namespace.connection_string)
    with connect(namespace) as sock:
        sock.settimeout(DEADLINE_S)
        if rule is None:
            yield Talk(sock, str(parsed.key_name), str(parsed.key))
        else:
            yield Talk(sock, rule.name, rule.primary_key)


def attach(talk: Talk, path: str, *, sends: bool, handle: int = 0) -> Attach:
    talk.say(
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
    heard = talk.hear(Attach)
    assert isinstance(heard, Attach)
    return heard


def assert_tells(error: Error | None, condition: str) -> None:
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
    with talking(namespace, rule) as talk:
        attached = attach(talk, path, sends=sends)
        detached = talk.hear(Detach)
        assert (attached.target if sends else attached.source) is None
        assert detached.closed
        assert_tells(detached.error, condition)
        # The session goes on.
        talk.say(Detach(0, closed=True))
        granted = attach(talk, "orders", sends=not sends, handle=1)
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
    with talking(namespace) as talk:
        attach(talk, path, sends=True)
        talk.hear(Flow)
        talk.say(Transfer(0, 0, b"tag", 0), payload)
        answer = talk.hear(Disposition)
        assert answer.settled
        if path == "orders" and condition is None:
            assert answer.state == Accepted()
            return
        assert isinstance(answer.state, Rejected)
        assert answer.state.error is not None
        assert_tells(answer.state.error, condition or answer.state.error.condition)


@pytest.mark.parametrize("state", [Accepted(), Released(), Modified(True), Rejected()])
def test_settlement_with_an_expired_lock_is_rejected(namespace: LocalNamespace, state: Any) -> None:
    with talking(namespace) as talk:
        attach(talk, "brief", sends=True)
        talk.hear(Flow)
        talk.say(Transfer(0, 0, b"tag", 0, settled=True), HELLO)
        attach(talk, "brief", sends=False, handle=1)
        talk.say(Flow(0, 1000, 1, 1000, 1, 0, 1))
        delivered = talk.hear(Transfer)
        wait_until(
            lambda: namespace.call(lambda core: not core.entities.get("brief").queue._locks),
            "the lock to be lost",
        )
        talk.say(Disposition(True, delivered.delivery_id, state=state))
        while True:
            answer = talk.hear(Disposition)
            if answer.role is False:
                break
        assert isinstance(answer.state, Rejected)
        assert_tells(answer.state.error, "com.microsoft:message-lock-lost")
    assert namespace.call(lambda core: len(core.entities.get("brief").queue)) >= 1


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (encode_frame(0, b"\x00\x53\x77\x45"), Close),
        (encode_frame(0, encode_composite(Begin(None, 0, 1, 1))), Close),
        (encode_frame(0, encode_composite(Transfer(7, 0, b"tag", 0)) + HELLO), End),
        (encode_frame(0, encode_composite(Detach(9, closed=True))), End),
    ],
    ids=["a performative that is none", "a begin twice", "no link", "no link to detach"],
)
def test_end_of_a_session_or_connection_has_an_error(
    namespace: LocalNamespace, said: bytes, kind: type
) -> None:
    with talking(namespace) as talk:
        talk.say_raw(said)
        heard = talk.hear(Close, End)
        assert isinstance(heard, kind)
        assert_tells(heard.error, heard.error.condition)


def test_links_of_a_deleted_entity_are_detached_with_an_error(namespace: LocalNamespace) -> None:
    namespace.create_queue("passing")
    with talking(namespace) as talk:
        attach(talk, "passing", sends=False)
        attach(talk, "passing", sends=True, handle=1)
        talk.hear(Flow)
        namespace.call(lambda core: core.entities.delete("passing"))
        assert_tells(talk.hear(Detach).error, "amqp:not-found")
        talk.say(Transfer(1, 0, b"tag", 0), HELLO)
        answer = talk.hear(Disposition)
        assert isinstance(answer.state, Rejected)
        assert_tells(answer.state.error, "amqp:not-found")


def test_expired_token_is_the_error_of_the_detach(namespace: LocalNamespace) -> None:
    with talking(namespace) as talk:
        attach(talk, "orders", sends=True)
        fault = namespace.add_fault("expire-tokens", "orders", count=1)
        assert_tells(talk.hear(Detach).error, "amqp:unauthorized-access")
        assert fault.fired == 1
