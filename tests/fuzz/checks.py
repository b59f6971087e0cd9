"""What has to hold for any input. A check raises AssertionError, or lets an exception through."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

from pairbus.amqp import frames
from pairbus.amqp.batch import make_batch, split_batch
from pairbus.amqp.decode import decode, decode_whole, skip_value
from pairbus.amqp.encode import encode
from pairbus.amqp.events import Closed
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Array, Described, UInt
from pairbus.errors import DecodeError
from tests.fuzz.audit import Audit
from tests.fuzz.conversations import Case
from tests.fuzz.program import Program
from tests.unit.amqp.same import same


def check_engine(case: Case) -> None:
    """An engine and its program hear these chunks, and stay sound."""
    engine = case.engine()
    program = Program(engine, client=case.client)
    audit = Audit(engine)
    audit.take(engine.data_to_send(0.0))
    heard = told = written = 0
    closed = False
    for chunk in case.chunks:
        events = engine.receive(chunk, 0.0)
        program.react(events)
        said = engine.data_to_send(0.0)
        audit.take(said)
        heard += len(chunk)
        told += len(events)
        written += len(said)
        if closed:
            assert events == [], "an event behind Closed"
            assert said == b"", "bytes behind Closed"
        ends = [place for place, event in enumerate(events) if isinstance(event, Closed)]
        assert ends in ([], [len(events) - 1]), "Closed is the last event, and comes once"
        closed = closed or bool(ends)
        assert closed == engine.closed
        # The smallest frame has eight bytes, and means one event; two where it breaks something.
        assert told <= 2 * (heard // 8) + 2, f"{told} events from {heard} bytes"
        assert audit.frames <= 8 * (heard // 8) + 20, f"{audit.frames} frames for {heard} bytes"
        assert written <= 30 * heard + 20_000, f"{written} bytes for {heard} bytes"
        _check_memory(engine, chunk)
    engine.tick(30.0)
    audit.take(engine.data_to_send(30.0))
    engine.tick(1e9)
    audit.take(engine.data_to_send(1e9))
    engine.connection_lost("the end of the test")
    assert engine.closed
    assert engine.receive(b"AMQP\x00\x01\x00\x00", 0.0) == []
    assert not engine.has_data_to_send
    assert engine.buffered == 0, "a closed engine keeps bytes of unfinished messages"


def _check_memory(engine: Any, chunk: bytes) -> None:
    settings = engine.settings
    assert len(engine._input) <= max(settings.max_frame_size, 8), "more input than one frame"
    assert 0 <= engine.buffered <= settings.max_buffered + len(chunk)
    assert len(engine._sessions) <= settings.channel_max + 1
    assert len(engine._by_remote_channel) <= settings.channel_max + 1
    kept = 0
    for session in engine._by_remote_channel.values():
        assert len(session._by_remote_handle) <= settings.handle_max + 1
        kept += sum(len(partial.data) for partial in session.incoming._partials.values())
    assert kept == engine.buffered, f"{engine.buffered} bytes counted, {kept} kept"


def check_decode(data: bytes) -> None:
    """A value that can be written again and ends where `skip_value` says, or a DecodeError."""
    skipped: int | None
    try:
        skipped = skip_value(data, 0)
    except DecodeError:
        skipped = None
    try:
        value, after = decode(data)
    except DecodeError:
        return
    assert skipped == after <= len(data), f"decode ends at {after}, skip at {skipped}"
    again = encode(value)
    assert len(again) <= after or _has_array(value), "the smallest encoding is not the smallest"
    assert same(decode_whole(again), value)


def _has_array(value: Any) -> bool:
    """Elements without bytes are written with some, so arrays alone may grow."""
    if isinstance(value, Array):
        return True
    if isinstance(value, Described):
        return _has_array(value.descriptor) or _has_array(value.value)
    if isinstance(value, dict):
        return any(map(_has_array, [*value.keys(), *value.values()]))
    return isinstance(value, list | tuple) and any(map(_has_array, value))


def check_transfer(data: bytes) -> None:
    """The quick reader and the careful one agree, whatever stands around the transfer."""
    for before, after in ((b"", b""), (b"\x43", b""), (b"", b"\x43\x43\xa0\x01a\x43\x41")):
        whole = before + data + after
        start, end = len(before), len(before) + len(data)
        careful = _outcome(lambda s=start, e=end, w=whole: frames._decode_any_transfer(w, s, e))
        for _ in range(2):
            quick = _outcome(lambda s=start, e=end, w=whole: frames.decode_transfer(w, s, e))
            assert quick == careful or (
                quick is not None and careful is not None and same(list(quick), list(careful))
            ), f"read_transfer says {quick}, the careful reader {careful}"
            if quick is not None:
                plain = quick[4] == frames.DEFAULT_FLAGS
                assert (quick[4] is frames.DEFAULT_FLAGS) == plain, "plain flags are one object"


def _outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DecodeError:
        return None


def check_sections(data: bytes) -> None:
    """Taken apart and put together again, or a DecodeError; read and edited likewise."""
    try:
        message = Message.parse(data)
    except DecodeError:
        return
    sections = (
        message.header,
        message.delivery_annotations,
        message.message_annotations,
        message.properties,
        message.application_properties,
        message.body,
        message.footer,
    )
    assert sorted(message.encode()) == sorted(data), "bytes were lost"
    for section in sections:
        pos = 0
        while pos < len(section):
            assert section[pos] == 0
            pos = skip_value(section, pos)
        assert pos == len(section), "a section does not end where it ends"
    for read in (
        message.read_header,
        message.read_properties,
        message.read_message_annotations,
        message.read_application_properties,
        message.read_body,
        message.read_value,
        lambda: message.edit_header({2: UInt(1000)}),
        lambda: message.edit_properties({10: "group", 12: None}),
        lambda: message.edit_message_annotations({"x-opt-a": 1}, ("x-opt-b",)),
        lambda: message.edit_application_properties({"a": 1}, ("b",)),
    ):
        _outcome(read)
    edited = message.encode()
    assert Message.parse(edited).encode() == edited


def check_batch(data: bytes) -> None:
    """Messages, or a DecodeError."""
    try:
        messages = split_batch(data)
    except DecodeError:
        return
    assert sum(map(len, messages)) <= len(data)
    assert split_batch(make_batch(messages)) == messages


def count_calls(run: Callable[[], None]) -> int:
    """How many functions a run calls: work, measured in the same way on every machine."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls


def peak_memory(run: Callable[[], None]) -> int:
    """The most bytes that a run held at any time."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
