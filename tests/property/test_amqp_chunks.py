"""The events of an engine do not depend on how its input is split."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.events import Event
from tests.fuzz.application import Application
from tests.fuzz.conversations import Case, recorded


def summary(event: Event) -> tuple[Any, ...]:
    """Return the content of an event without objects of the engine."""
    fields = ("id", "tag", "payload", "message_format", "settled", "state", "mechanism", "by_peer")
    values = [getattr(event, field, None) for field in fields]
    link = getattr(event, "link", None)
    return (
        type(event).__name__,
        *values,
        None if link is None else (link.name, link.credit),
        str(getattr(event, "error", None)),
    )


def play(case: Case, chunks: list[list[bytes]]) -> tuple[list[Any], bytes]:
    """Return events and output of an engine that receives each turn in these chunks."""
    engine = case.engine()
    program = Application(engine, client=case.client)
    events = []
    output = bytearray(engine.data_to_send())
    for turn in chunks:
        turn_events = [event for chunk in turn for event in engine.receive(chunk, 0.0)]
        # The application answers after the turn, so that the order of its answers is fixed.
        events += map(summary, turn_events)
        program.react(turn_events)
        output += engine.data_to_send()
    return events, bytes(output)


@given(st.sampled_from(range(len(recorded()))), st.data())
def test_chunks_cause_the_same_events_as_the_whole(number: int, data: st.DataObject) -> None:
    case = recorded()[number]
    pieces = []
    for turn in case.chunks:
        cuts = data.draw(st.lists(st.integers(0, len(turn)), max_size=6).map(sorted))
        edges = [0, *cuts, len(turn)]
        pieces.append([turn[a:b] for a, b in pairwise(edges)])

    assert play(case, pieces) == play(case, [[turn] for turn in case.chunks])


@given(st.sampled_from(range(len(recorded()))))
def test_single_bytes_cause_the_same_events_as_the_whole(number: int) -> None:
    case = recorded()[number]
    pieces = [[bytes((byte,)) for byte in turn] for turn in case.chunks]

    assert play(case, pieces) == play(case, [[turn] for turn in case.chunks])
