"""Chunks: the events of an engine do not depend on how its input is split."""

import random
from typing import Any

import pytest

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import AttachReceived, Delivery, Event
from pairbus.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_FRAME, SASL_HEADER
from pairbus.amqp.performatives import (
    Accepted,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    Transfer,
)
from pairbus.amqp.sasl import SaslServer
from pairbus.amqp.settings import ConnectionSettings
from tests.unit.amqp.engines import framed, receiver_attach, sender_attach

OPENING = [
    SASL_HEADER,
    framed(SaslInit("ANONYMOUS", b"x"), kind=SASL_FRAME),
    AMQP_HEADER,
    framed(Open("peer", idle_time_out=1000)),
    EMPTY_FRAME,
    framed(Begin(None, 0, 100, 100)),
    framed(sender_attach("s", 0)),
    framed(receiver_attach("r", 1)),
]
# A peer waits for credit before it continues, so no chunk spans two turns.
SENDING = [
    framed(Flow(0, 100, 0, 100, 1, link_credit=10, echo=True)),
    framed(Transfer(0, 0, b"a", 0), payload=b"complete"),
    framed(Transfer(0, 1, b"b", 0x80013700, more=True), payload=b"x" * 300),
    EMPTY_FRAME,
    framed(Transfer(0, more=True), payload=b"y" * 300),
    framed(Transfer(0), payload=b"z"),
    framed(Transfer(0, 2, b"c", more=True), payload=b"aborted"),
    framed(Transfer(0, aborted=True)),
    framed(Disposition(True, 0, 5, True, Accepted())),
    framed(Detach(1, True)),
    framed(End(Error("a:b", "reason", {}))),
    framed(Close()),
]
TURNS = [b"".join(OPENING), b"".join(SENDING)]


def summary(event: Event) -> tuple[Any, ...]:
    """Return the content of an event without objects of the engine."""
    if isinstance(event, Delivery):
        return ("Delivery", event.id, event.tag, event.payload, event.message_format)
    return (type(event).__name__, getattr(event, "id", None), str(getattr(event, "error", None)))


def run(chunks: list[bytes]) -> tuple[list[Any], bytes]:
    """Return events and output of a server that receives the chunks."""
    engine = Connection(
        ConnectionSettings(container_id="engine", max_frame_size=1024),
        sasl=SaslServer.anonymous(),
        now=0.0,
    )
    events = []
    output = bytearray()
    for chunk in chunks:
        for event in engine.receive(chunk, 0.0):
            events.append(summary(event))
            if isinstance(event, AttachReceived):
                event.link.accept()
                if event.link.name == "s":
                    event.link.flow(10)
                    event.link.session.settle(0, 0, Accepted())
        output += engine.data_to_send()
        assert len(engine._input) <= 1024
    return events, bytes(output)


def by_frames() -> tuple[list[Any], bytes]:
    return run(OPENING + SENDING)


def test_test_conversation_has_all_kinds_of_events() -> None:
    names = [name for name, *_ in by_frames()[0]]

    assert names.count("Delivery") == 2
    for name in (
        "Authenticated",
        "Opened",
        "AttachReceived",
        "FlowReceived",
        "DeliveryAborted",
        "Detached",
        "Closed",
    ):
        assert name in names


def test_single_bytes_cause_the_same_events() -> None:
    assert run([bytes((byte,)) for turn in TURNS for byte in turn]) == by_frames()


@pytest.mark.parametrize("size", [2, 3, 7, 8, 9, 100, 1000])
def test_chunks_of_equal_size_cause_the_same_events(size: int) -> None:
    chunks = [turn[start : start + size] for turn in TURNS for start in range(0, len(turn), size)]

    assert run(chunks) == by_frames()


@pytest.mark.parametrize("seed", range(20))
def test_chunks_of_random_sizes_cause_the_same_events(seed: int) -> None:
    chance = random.Random(seed)
    chunks = []
    for turn in TURNS:
        pos = 0
        while pos < len(turn):
            size = chance.choice((0, 1, 2, 5, 8, 20, 200))
            chunks.append(turn[pos : pos + size])
            pos += size

    assert run(chunks) == by_frames()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_data_may_be_in_any_kind_of_buffer(kind: type) -> None:
    chunks = [TURNS[0][:100], TURNS[0][100:], TURNS[1][:100], TURNS[1][100:]]

    assert run([kind(chunk) for chunk in chunks]) == by_frames()


def test_reused_buffer_does_not_change_received_data() -> None:
    engine = Connection(ConnectionSettings(container_id="engine"), client=False, now=0.0)
    setup = b"".join(
        [AMQP_HEADER, framed(Open("p")), framed(Begin(None, 0, 9, 9)), framed(sender_attach())]
    )
    link = next(e for e in engine.receive(setup, 0.0) if isinstance(e, AttachReceived)).link
    link.accept()
    link.flow(1)
    buffer = bytearray(framed(Transfer(0, 0, b"tag", 0), payload=b"payload"))

    (delivery,) = engine.receive(buffer, 0.0)
    buffer[:] = bytes(len(buffer))

    assert isinstance(delivery, Delivery)
    assert delivery.payload == b"payload"
    assert type(delivery.payload) is bytes
