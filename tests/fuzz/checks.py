"""Properties that hold for every input. Any exception that a check raises is a finding."""

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
from tests.fuzz.application import Application
from tests.fuzz.conversations import Case
from tests.fuzz.output_check import OutputCheck
from tests.unit.amqp.same import same

Check = Callable[[tuple[bytes, ...]], None]


def check_engine(case: Case) -> None:
    """Check that an engine and its application keep their invariants for these chunks."""
    engine = case.engine()
    application = Application(engine, client=case.client)
    output_check = OutputCheck(engine)
    output_check.check(engine.data_to_send(0.0))
    received = event_count = written = 0
    closed = False
    for chunk in case.chunks:
        events = engine.receive(chunk, 0.0)
        application.react(events)
        output = engine.data_to_send(0.0)
        output_check.check(output)
        received += len(chunk)
        event_count += len(events)
        written += len(output)
        if closed:
            assert events == [], "an event after Closed"
            assert output == b"", "output after Closed"
        ends = [index for index, event in enumerate(events) if isinstance(event, Closed)]
        assert ends in ([], [len(events) - 1]), "Closed is not the last event, or occurs twice"
        closed = closed or bool(ends)
        assert closed == engine.closed
        # The smallest frame has eight bytes and causes one event, or two if it is invalid.
        assert event_count <= 2 * (received // 8) + 2, f"{event_count} events for {received} bytes"
        frames_written = output_check.frames
        assert frames_written <= 8 * (received // 8) + 20, f"{frames_written} frames"
        assert written <= 30 * received + 20_000, f"{written} bytes for {received} bytes"
        _check_memory(engine, chunk)
    engine.tick(30.0)
    output_check.check(engine.data_to_send(30.0))
    engine.tick(1e9)
    output_check.check(engine.data_to_send(1e9))
    engine.connection_lost("the test ended")
    assert engine.closed
    assert engine.receive(b"AMQP\x00\x01\x00\x00", 0.0) == []
    assert not engine.has_data_to_send
    assert engine.buffered == 0, "a closed engine buffers incomplete messages"


def _check_memory(engine: Any, chunk: bytes) -> None:
    settings = engine.settings
    assert len(engine._input) <= max(settings.max_frame_size, 8), "more than one frame is buffered"
    assert 0 <= engine.buffered <= settings.max_buffered + len(chunk)
    assert len(engine._channels.local) <= settings.channel_max + 1
    assert len(engine._channels.remote) <= settings.channel_max + 1
    buffered = 0
    for session in engine._channels.remote.values():
        assert len(session._by_remote_handle) <= settings.handle_max + 1
        buffered += sum(len(partial.data) for partial in session.incoming._partials.values())
    assert buffered == engine.buffered, f"{engine.buffered} bytes counted, {buffered} buffered"


def check_decode(data: bytes) -> None:
    """Check that data decodes to a value that can be encoded again, or raises DecodeError.

    `decode` and `skip_value` agree on the end of the value.
    """
    skipped: int | None
    try:
        skipped = skip_value(data, 0)
    except DecodeError:
        skipped = None
    try:
        value, after = decode(data)
    except DecodeError:
        return
    assert skipped == after <= len(data), f"decode ends at {after}, skip_value at {skipped}"
    encoded = encode(value)
    assert len(encoded) <= after or _has_array(value), "the encoding is not the smallest"
    assert same(decode_whole(encoded), value)


def _has_array(value: Any) -> bool:
    """Return whether the encoding may grow: array elements without bytes are encoded with some."""
    if isinstance(value, Array):
        return True
    if isinstance(value, Described):
        return _has_array(value.descriptor) or _has_array(value.value)
    if isinstance(value, dict):
        return any(map(_has_array, [*value.keys(), *value.values()]))
    return isinstance(value, list | tuple) and any(map(_has_array, value))


def check_transfer(data: bytes) -> None:
    """Check that the fast and the general decoder of transfers agree, whatever surrounds them.

    A list with another count is also decoded, because the flags are cached by their encoding.
    """
    variants = [data]
    if data[:1] == b"\xc0" and len(data) > 2:
        variants += [data[:2] + bytes(((data[2] + step) & 0xFF,)) + data[3:] for step in (1, -1)]
    for variant in variants:
        for before, after in ((b"", b""), (b"\x43", b""), (b"", b"\x43\x43\xa0\x01a\x43\x41")):
            _check_transfer_at(before + variant + after, len(before), len(before) + len(variant))


def _check_transfer_at(data: bytes, start: int, end: int) -> None:
    general = _result(lambda: frames._decode_any_transfer(data, start, end))
    for _ in range(2):  # The second time, the flags are cached.
        fast = _result(lambda: frames.decode_transfer(data, start, end))
        assert fast == general or (
            fast is not None and general is not None and same(list(fast), list(general))
        ), f"decode_transfer returns {fast}, the general decoder {general}"
        if fast is not None:
            default = fast[4] == frames.DEFAULT_FLAGS
            assert (fast[4] is frames.DEFAULT_FLAGS) == default, "default flags are copied"


def _result(decode_data: Callable[[], Any]) -> Any:
    try:
        return decode_data()
    except DecodeError:
        return None


def check_sections(data: bytes) -> None:
    """Check that a message can be parsed, read, edited and encoded, or raises DecodeError."""
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
    assert sorted(message.encode()) == sorted(data), "the encoded message has other bytes"
    for section in sections:
        pos = 0
        while pos < len(section):
            assert section[pos] == 0
            pos = skip_value(section, pos)
        assert pos == len(section), "a section ends within a value"
    for operation in (
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
        _result(operation)
    edited = message.encode()
    assert Message.parse(edited).encode() == edited


def check_batch(data: bytes) -> None:
    """Check that a batch splits into messages that make the same batch, or raises DecodeError."""
    try:
        messages = split_batch(data)
    except DecodeError:
        return
    assert sum(map(len, messages)) <= len(data)
    assert split_batch(make_batch(messages)) == messages


def count_calls(run: Callable[[], None]) -> int:
    """Return the number of function calls of a run, which is the same on every machine."""
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
    """Return the peak memory of a run in bytes."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def within_work(check: Check) -> Check:
    """Return a check that also limits the number of function calls."""

    def run(chunks: tuple[bytes, ...]) -> None:
        size = sum(map(len, chunks))
        calls = count_calls(lambda: check(chunks))
        limit = 20_000 + 500 * len(chunks) + 60 * size
        assert calls <= limit, f"{calls} calls for {size} bytes"

    return run


def within_memory(check: Check) -> Check:
    """Return a check that also limits the peak memory."""

    def run(chunks: tuple[bytes, ...]) -> None:
        size = sum(map(len, chunks))
        peak = peak_memory(lambda: check(chunks))
        limit = 2_000_000 + 1_000 * size
        assert peak <= limit, f"{peak} bytes of memory for {size} bytes"

    return run
