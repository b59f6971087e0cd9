"""Hypothesis strategies for fuzzing: changed conversations, invalid frames and random bytes."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st

from pairbus.amqp.batch import make_batch
from pairbus.amqp.composite import encode_composite
from pairbus.amqp.encode import encode
from pairbus.amqp.frames import (
    TRANSFER_PREFIX,
    encode_first_transfer,
    encode_frame,
    encode_next_transfer,
)
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
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.sections import Header, Message, Properties
from pairbus.amqp.types import Described, Symbol, UInt
from pairbus.errors import EncodeError
from tests.fuzz.checks import (
    check_batch,
    check_decode,
    check_engine,
    check_sections,
    check_transfer,
    within_memory,
    within_work,
)
from tests.fuzz.conversations import Case, recorded
from tests.property.amqp_values import values

CODES = bytes.fromhex(
    "00 40 41 42 43 44 45 50 51 52 53 54 55 56 60 61 70 71 72 73 74 80 81 82 83 84 94 98"
    "a0 a1 a3 b0 b1 b3 c0 c1 d0 d1 e0 f0"
)
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 100, 255, 256, 511, 512, 65535, 2**31 - 1, 2**31, 2**32 - 1)
LIKELY = (CODES * 4 + bytes(range(12)) * 8)[:256]
"""Maps a random byte to one that AMQP uses: a constructor or a small number."""

numbers = st.sampled_from(NUMBERS)
noise = st.binary(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.translate(LIKELY))

Check = Callable[[tuple[bytes, ...]], None]


@dataclass(frozen=True)
class FuzzInput:
    """Chunks of data, and the check that must hold for them."""

    name: str
    chunks: tuple[bytes, ...]
    check: Check = dataclasses.field(repr=False)

    def run(self) -> None:
        self.check(self.chunks)

    def __repr__(self) -> str:
        return f"{self.name}: {' '.join(chunk.hex() for chunk in self.chunks)}"


class Edit(NamedTuple):
    """One change of a byte string. Positions are taken modulo its size."""

    operation: str
    position: int
    length: int
    number: int
    data: bytes

    def apply(self, raw: bytearray, other: bytes) -> None:
        start = self.position % len(raw)
        end = min(len(raw), start + self.length)
        match self.operation:
            case "flip a bit":
                raw[start] ^= 1 << self.length % 8
            case "constructor":
                raw[start] = CODES[self.position % len(CODES)]
            case "byte":
                raw[start] = self.number & 0xFF
            case "number":
                raw[start : start + 4] = self.number.to_bytes(4, "big")
            case "remove":
                del raw[start:end]
            case "truncate":
                del raw[start:]
            case "repeat":
                raw[start:start] = raw[start:end] * (20 if self.number == 255 else 1)
            case "insert":
                raw[start:start] = self.data
            case "splice":
                raw[start:] = other[self.number % len(other) :] if other else b""


edits = st.lists(
    st.builds(
        Edit,
        st.sampled_from(
            (
                "flip a bit",
                "constructor",
                "byte",
                "number",
                "remove",
                "truncate",
                "repeat",
                "insert",
                "splice",
            )
        ),
        st.integers(0, 2**16),
        st.sampled_from((1, 1, 2, 4, 8, 50)),
        numbers,
        st.binary(max_size=20).map(lambda raw: raw.translate(LIKELY)),
    ),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, changes: list[Edit], other: bytes = b"") -> bytes:
    raw = bytearray(data)
    for change in changes:
        if raw:
            change.apply(raw, other)
    return bytes(raw)


def maybe_edited(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return data | st.builds(edited, data, edits, data)


FIELDS: dict[str, tuple[Any, ...]] = {
    "container_id": ("peer",),
    "hostname": (None, "host"),
    "name": ("sender", "receiver", "settled", "refused", "new", "n" * 300),
    "handle": (None, 0, 1, 2, 3, 7, 8),
    "role": (True, False),
    "snd_settle_mode": (0, 1, 2, 3),
    "rcv_settle_mode": (0, 1, 2),
    "source": (None, Source("q"), Source("refused"), Target("q"), Source(filter={"a": 1}), 5),
    "target": (None, Target("q"), Target("refused"), Source("q"), Described("x", [])),
    "delivery_tag": (None, b"", b"tag", b"x" * 32, b"x" * 33),
    "state": (None, Accepted(), Rejected(Error("a:b")), Modified(), Described(Symbol("a"), [])),
    "error": (None, Error("a:b", "reason", {Symbol("k"): 1}), Error("c:d")),
    "properties": (None, {}, {Symbol("k"): "v"}),
    "unsettled": (None, {b"t": None}),
    "mechanism": ("PLAIN", "ANONYMOUS", "MSSBCBS", "EXTERNAL", "OTHER"),
    "sasl_server_mechanisms": ((), (Symbol("PLAIN"),), (Symbol("ANONYMOUS"), Symbol("X"))),
    "initial_response": (None, b"", b"\0me\0secret"),
    "response": (b"", b"\0me\0secret"),
    "code": (0, 1, 2, 9),
    "additional_data": (None, b""),
    "max_frame_size": (0, 511, 512, 4096, 2**32 - 1),
    "channel_max": (0, 1, 65535),
    "remote_channel": (None, None, 0, 1, 65535),
}
FLAGS = (
    "settled",
    "more",
    "resume",
    "aborted",
    "batchable",
    "drain",
    "echo",
    "closed",
    "incomplete_unsettled",
    "dynamic",
)


def plausible_field(name: str) -> st.SearchStrategy[Any]:
    if name in FIELDS:
        return st.sampled_from(FIELDS[name])
    if name in FLAGS:
        return st.booleans()
    if name.endswith(("capabilities", "locales")):
        return st.sampled_from(((), (Symbol("a"),)))
    return st.sampled_from((0, 1, 2, 3, None, *NUMBERS))


def performatives_of(cls: Any, field: Callable[[str], st.SearchStrategy[Any]]) -> Any:
    required, optional = {}, {}
    for each in dataclasses.fields(cls):
        group = required if each.default is dataclasses.MISSING else optional
        group[each.name] = field(each.name)
    return st.fixed_dictionaries(required, optional=optional).map(lambda fields: cls(**fields))


SESSION_PERFORMATIVES = (Flow, Transfer, Disposition, Attach)
PERFORMATIVES = (Open, Begin, *SESSION_PERFORMATIVES, Detach, End, Close)
SASL_PERFORMATIVES = (SaslInit, SaslMechanisms, SaslOutcome, SaslResponse)

plausible = {
    cls: performatives_of(cls, plausible_field) for cls in PERFORMATIVES + SASL_PERFORMATIVES
}
performatives = st.one_of(
    *(plausible[cls] for cls in (*SESSION_PERFORMATIVES, *SESSION_PERFORMATIVES, *plausible)),
    st.sampled_from(PERFORMATIVES).flatmap(lambda cls: performatives_of(cls, lambda name: values)),
)


def _frame(performative: Any, size: int, channel: int, fallback: bytes) -> bytes:
    try:
        body = encode_composite(performative)
    except EncodeError:
        body = fallback
    if isinstance(performative, Transfer):
        body += b"x" * size
    return encode_frame(channel, body, int(isinstance(performative, SASL_PERFORMATIVES)))


frames = st.builds(
    _frame,
    performatives,
    st.sampled_from((0, 1, 100, 400)),
    st.sampled_from((0, 0, 0, 0, 1, 2, 7, 8, 65535)),
    noise,
)


def _encoded_or(fallback: bytes, encode_value: Callable[[], bytes]) -> bytes:
    try:
        return encode_value()
    except EncodeError:
        return fallback


transfers = st.one_of(
    st.builds(
        encode_first_transfer,
        numbers.map(lambda number: encode(UInt(number))),
        numbers,
        st.integers(0, 40).map(lambda size: b"t" * size),
        numbers,
        st.booleans(),
        st.booleans(),
    ),
    st.builds(encode_next_transfer, st.just(b"\x43"), st.booleans(), st.booleans()),
    st.builds(
        lambda fields, fallback: TRANSFER_PREFIX + _encoded_or(fallback, lambda: encode(fields)),
        st.lists(values, max_size=13),
        noise,
    ),
    st.builds(
        lambda transfer, fallback: _encoded_or(fallback, lambda: encode_composite(transfer)),
        plausible[Transfer],
        noise,
    ),
).map(lambda performative: performative[len(TRANSFER_PREFIX) :] + b"payload")
"""The list of a transfer and a payload, in the usual encoding or in another one."""

messages = st.builds(
    Message.build,
    header=st.sampled_from((None, Header(True, 5, 1000))),
    message_annotations=st.sampled_from((None, {}, {Symbol("x-opt-a"): 1, "x-opt-b": []})),
    properties=st.sampled_from((None, Properties("id", b"user", group_id="g"))),
    application_properties=st.sampled_from((None, {"a": 1, "b": "x" * 300})),
    data=st.sampled_from((None, b"", b"x" * 300)),
    sequence=st.sampled_from((None, [1, "two"])),
).map(Message.encode)

encoded_values = st.builds(
    lambda value, fallback: _encoded_or(fallback, lambda: encode(value)), values, noise
)


@st.composite
def conversations(draw: st.DrawFn) -> Case:
    """Return a recorded conversation in which a turn is changed, replaced, repeated or added."""
    cases = recorded()
    case = draw(st.sampled_from(cases))
    turns = list(case.chunks)
    position = draw(st.integers(0, len(turns) - 1))
    other = draw(st.sampled_from(cases))
    other_turn = other.chunks[draw(st.integers(0, len(other.chunks) - 1))]
    match draw(st.sampled_from(("edit", "edit", "noise", "frames", "frames", "other", "repeat"))):
        case "edit":
            turns[position] = edited(turns[position], draw(edits), other_turn)
        case "noise":
            turns[position:] = [draw(noise)]
        case "frames":
            turns[position:position] = draw(st.lists(frames, min_size=1, max_size=20))
        case "other":
            turns[position] = other_turn
        case "repeat":
            turns.insert(position, turns[draw(st.integers(0, len(turns) - 1))])
    size = draw(st.sampled_from((None, None, None, 1, 3, 8, 100)))
    if size is not None:
        data = b"".join(turns)
        turns = [data[start : start + size] for start in range(0, len(data), size)]
    return dataclasses.replace(case, chunks=tuple(turns))


def _engine_input(case: Case) -> FuzzInput:
    name = f"a {case.kind} {'client' if case.client else 'server'}"
    check = lambda chunks: check_engine(dataclasses.replace(case, chunks=chunks))  # noqa: E731
    return FuzzInput(name, case.chunks, check)


def _data_inputs(
    name: str, data: st.SearchStrategy[bytes], check: Callable[[bytes], None]
) -> st.SearchStrategy[FuzzInput]:
    return data.map(lambda raw: FuzzInput(name, (raw,), lambda chunks: check(b"".join(chunks))))


def fuzz_inputs() -> st.SearchStrategy[FuzzInput]:
    """Return inputs for the engine and the codec. Some also have their work or memory limited."""
    engine = conversations().map(_engine_input)
    batches = st.lists(messages, max_size=3).map(make_batch)
    inputs = st.one_of(
        engine,
        engine,
        engine,
        _data_inputs("decode", noise | maybe_edited(encoded_values), check_decode),
        _data_inputs("transfer", maybe_edited(transfers), check_transfer),
        _data_inputs("sections", maybe_edited(messages), check_sections),
        _data_inputs("batch", maybe_edited(batches), check_batch),
    )
    limits = st.sampled_from((None,) * 14 + (within_work, within_memory))
    return st.builds(
        lambda given, limit: (
            given if limit is None else dataclasses.replace(given, check=limit(given.check))
        ),
        inputs,
        limits,
    )
