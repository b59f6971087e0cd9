"""Error conditions with their info maps, from either side, on every level."""

import pytest

from pairbus.amqp.encode import encode
from pairbus.amqp.events import Closed, Delivery, Detached, Ended, OutgoingDeliveriesUpdated
from pairbus.amqp.frames import encode_frame
from pairbus.amqp.performatives import Close, Detach, End, Error, Rejected
from pairbus.amqp.types import Described, Pairs, Symbol, ULong
from pairbus.errors import (
    AmqpError,
    Busy,
    EntityNotFound,
    LockLost,
    MessageTooLarge,
    OperationTimeout,
    ProtocolError,
)
from tests.unit.amqp.pump import Peer, only, talk_with_sender

INFO = {Symbol("x-opt-id"): "a1", Symbol("deep"): {"list": [1, None, True]}}


def the_error() -> AmqpError:
    return AmqpError("what happened", condition="com.example:it-happened", info=INFO)


def check(error: AmqpError | None) -> None:
    assert error is not None
    assert error.condition == "com.example:it-happened"
    assert error.description == "what happened"
    assert error.info == INFO
    assert str(error) == "what happened (com.example:it-happened)"


@pytest.mark.parametrize("by_client", [True, False])
def test_detach_carries_its_error(by_client: bool) -> None:
    talk, sender, receiver = talk_with_sender()

    (sender if by_client else receiver).detach(the_error())
    heard = talk.run()

    other, own = (heard.server, heard.client) if by_client else (heard.client, heard.server)
    check(only(Detached, other).error)
    assert only(Detached, other).by_peer
    assert only(Detached, own).error is None


@pytest.mark.parametrize("by_client", [True, False])
def test_end_carries_its_error(by_client: bool) -> None:
    talk, sender, receiver = talk_with_sender()

    (sender if by_client else receiver).session.end(the_error())
    heard = talk.run()

    other, own = (heard.server, heard.client) if by_client else (heard.client, heard.server)
    check(only(Ended, other).error)
    assert only(Ended, own).error is None


@pytest.mark.parametrize("by_client", [True, False])
def test_close_carries_its_error(by_client: bool) -> None:
    talk, _, _ = talk_with_sender()

    (talk.client if by_client else talk.server).close(the_error())
    heard = talk.run()

    other, own = (heard.server, heard.client) if by_client else (heard.client, heard.server)
    check(only(Closed, other).error)
    assert only(Closed, own).error is None


def test_rejection_carries_its_error() -> None:
    talk, sender, receiver = talk_with_sender()
    sender.send(b"x")
    delivery = only(Delivery, talk.run().server)

    receiver.session.settle(delivery.id, delivery.id, Rejected(Error.of(the_error())))

    state = only(OutgoingDeliveriesUpdated, talk.run().client).state
    assert state == Rejected(Error("com.example:it-happened", "what happened", INFO))


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (AmqpError(), "amqp:internal-error"),
        (ProtocolError("x"), "amqp:not-allowed"),
        (EntityNotFound("x"), "amqp:not-found"),
        (MessageTooLarge("x"), "amqp:link:message-size-exceeded"),
        (Busy("x"), "com.microsoft:server-busy"),
        (LockLost("x"), "com.microsoft:message-lock-lost"),
        (OperationTimeout("x"), "com.microsoft:timeout"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_error_without_info_is_sent_with_info(error: AmqpError, condition: str) -> None:
    """The Azure SDK looks for three fields, and takes an empty map for a missing one."""
    peer, _ = Peer.in_session()
    link = peer.attach_sender()

    link.detach(error)

    (said,) = peer.told()
    assert said == Detach(
        0, True, Error(condition, error.description, {Symbol("condition"): condition})
    )


@pytest.mark.parametrize(
    ("written", "description", "info"),
    [
        (Error("a:b"), "", {}),
        (Error("a:b", None, {}), "", {}),
        (Error("a:b", "why"), "why", {}),
    ],
)
def test_omitted_fields_of_an_error_are_empty(
    written: Error, description: str, info: dict[str, object]
) -> None:
    peer, _ = Peer.in_session()

    error = only(Closed, peer.say(Close(written))).error

    assert error is not None
    assert error.condition == "a:b"
    assert error.description == description
    assert error.info == info


def test_error_of_one_peer_can_be_passed_on_to_another() -> None:
    peer, _ = Peer.in_session()
    error = only(Ended, peer.say(End(Error("a:b", "why", INFO)))).error
    other, session = Peer.in_session()

    session.end(error)

    assert other.told() == [End(Error("a:b", "why", INFO))]


def test_invalid_info_of_an_error_closes_the_connection() -> None:
    """A dict that is not one would surprise every program that looks into it."""
    peer, _ = Peer.in_session()
    info = Pairs([(Symbol("a"), None), ("a", None)])
    error = Described(ULong(0x1D), [Symbol("x:y"), None, info])
    body = encode(Described(ULong(0x18), [error]))

    closed = only(Closed, peer.feed(encode_frame(0, body)))

    assert not closed.by_peer
    assert closed.error is not None
    assert closed.error.condition == "amqp:invalid-field"


def test_error_that_cannot_be_encoded_is_reduced_to_its_condition() -> None:
    peer, _ = Peer.in_session()

    peer.engine.close(AmqpError("x", condition="a:b", info={"what": object()}))

    assert peer.told() == [Close(Error("a:b", None, {Symbol("condition"): "a:b"}))]
