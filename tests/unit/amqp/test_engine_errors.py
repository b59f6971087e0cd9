"""Errors with their info maps: both directions, on links, sessions and connections."""

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
from tests.unit.amqp.engines import ScriptedPeer, only, pair_with_sender

INFO = {Symbol("x-opt-id"): "a1", Symbol("deep"): {"list": [1, None, True]}}


def make_error() -> AmqpError:
    return AmqpError("description", condition="com.example:condition", info=INFO)


def check(error: AmqpError | None) -> None:
    assert error is not None
    assert error.condition == "com.example:condition"
    assert error.description == "description"
    assert error.info == INFO
    assert str(error) == "description (com.example:condition)"


@pytest.mark.parametrize("by_client", [True, False])
def test_detach_carries_its_error(by_client: bool) -> None:
    pair, sender, receiver = pair_with_sender()

    (sender if by_client else receiver).detach(make_error())
    reported = pair.run()

    other, own = reported.client, reported.server
    if by_client:
        other, own = own, other
    check(only(Detached, other).error)
    assert only(Detached, other).by_peer
    assert only(Detached, own).error is None


@pytest.mark.parametrize("by_client", [True, False])
@pytest.mark.parametrize("event", [Ended, Closed])
def test_end_and_close_carry_their_error(event: type[Ended | Closed], by_client: bool) -> None:
    pair, sender, receiver = pair_with_sender()

    if event is Ended:
        (sender if by_client else receiver).session.end(make_error())
    else:
        (pair.client if by_client else pair.server).close(make_error())
    reported = pair.run()

    other, own = reported.client, reported.server
    if by_client:
        other, own = own, other
    check(only(event, other).error)
    assert only(event, own).error is None


def test_rejection_carries_its_error() -> None:
    pair, sender, receiver = pair_with_sender()
    sender.send(b"x")
    delivery = only(Delivery, pair.run().server)

    receiver.session.settle(delivery.id, delivery.id, Rejected(Error.of(make_error())))

    state = only(OutgoingDeliveriesUpdated, pair.run().client).state
    assert state == Rejected(Error("com.example:condition", "description", INFO))


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
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_error_without_info_is_sent_with_info(error: AmqpError, condition: str) -> None:
    """The Azure SDK needs three fields and an info map that is not empty."""
    peer, _ = ScriptedPeer.in_session()
    link = peer.attach_sender()

    link.detach(error)

    (written,) = peer.performatives()
    assert written == Detach(
        0, True, Error(condition, error.description, {Symbol("condition"): condition})
    )


@pytest.mark.parametrize(
    ("written", "description", "info"),
    [
        (Error("a:b"), "", {}),
        (Error("a:b", None, {}), "", {}),
        (Error("a:b", "reason"), "reason", {}),
    ],
)
def test_omitted_fields_of_an_error_are_empty(
    written: Error, description: str, info: dict[str, object]
) -> None:
    peer, _ = ScriptedPeer.in_session()

    error = only(Closed, peer.deliver(Close(written))).error

    assert error is not None
    assert error.condition == "a:b"
    assert error.description == description
    assert error.info == info


def test_error_of_one_peer_can_be_passed_on_to_another() -> None:
    peer, _ = ScriptedPeer.in_session()
    error = only(Ended, peer.deliver(End(Error("a:b", "reason", INFO)))).error
    other, session = ScriptedPeer.in_session()

    session.end(error)

    assert other.performatives() == [End(Error("a:b", "reason", INFO))]


def test_invalid_info_of_an_error_closes_the_connection() -> None:
    """Applications expect the info of an error to be a dict."""
    peer, _ = ScriptedPeer.in_session()
    info = Pairs([(Symbol("a"), None), ("a", None)])
    error = Described(ULong(0x1D), [Symbol("x:y"), None, info])
    body = encode(Described(ULong(0x18), [error]))

    closed = only(Closed, peer.feed(encode_frame(0, body)))

    assert not closed.by_peer
    assert closed.error is not None
    assert closed.error.condition == "amqp:invalid-field"


def test_error_that_cannot_be_encoded_is_reduced_to_its_condition() -> None:
    peer, _ = ScriptedPeer.in_session()

    peer.engine.close(AmqpError("x", condition="a:b", info={"what": object()}))

    assert peer.performatives() == [Close(Error("a:b", None, {Symbol("condition"): "a:b"}))]
