"""Inputs for the fuzzer: changed conversations, invalid frames and random bytes.

The functions take a `random.Random`. `fuzz_inputs` passes one whose choices Hypothesis controls, so
that Hypothesis can reduce a failing input. Each choice costs time, so functions choose first
and build only the chosen values.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from pairbus.amqp.batch import make_batch
from pairbus.amqp.composite import encode_composite
from pairbus.amqp.encode import encode
from pairbus.amqp.frames import encode_first_transfer, encode_frame, encode_next_transfer
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
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Described,
    Float32,
    Int32,
    Pairs,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from pairbus.errors import EncodeError
from tests.fuzz.checks import (
    Check,
    check_batch,
    check_decode,
    check_engine,
    check_sections,
    check_transfer,
    within_memory,
    within_work,
)
from tests.fuzz.conversations import Case, recorded

CODES = bytes.fromhex(
    "00 40 41 42 43 44 45 50 51 52 53 54 55 56 60 61 70 71 72 73 74 80 81 82 83 84 94 98"
    "a0 a1 a3 b0 b1 b3 c0 c1 d0 d1 e0 f0"
)
LIKELY_BYTES = (CODES * 4 + bytes(range(12)) * 8)[:256]
"""A translation of random bytes to those that AMQP uses: constructors and small numbers."""
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 100, 255, 256, 511, 512, 65535, 2**31 - 1, 2**31, 2**32 - 1)
PERFORMATIVES = (
    *(Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close) * 2,
    *(Flow, Transfer, Disposition, Attach) * 3,
    *(SaslInit, SaslMechanisms, SaslOutcome, SaslResponse),
)
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
    **dict.fromkeys(
        (
            *("settled", "more", "resume", "aborted", "batchable", "drain", "echo", "closed"),
            "incomplete_unsettled",
        ),
        (False, False, True),
    ),
    **dict.fromkeys(
        (
            *("offered_capabilities", "desired_capabilities"),
            *("outgoing_locales", "incoming_locales"),
        ),
        ((), (Symbol("a"),)),
    ),
}
"""Plausible and invalid values of fields. All other fields are numbers."""


@dataclass(frozen=True)
class FuzzInput:
    """Chunks of data, and the check that must hold for them."""

    name: str
    chunks: tuple[bytes, ...]
    check: Check

    def run(self) -> None:
        self.check(self.chunks)

    def __repr__(self) -> str:
        return f"{self.name}: {' '.join(chunk.hex() for chunk in self.chunks)}"


def fuzz_inputs() -> st.SearchStrategy[FuzzInput]:
    """Return inputs of all kinds. Some checks also limit the work or the memory."""
    return st.randoms(use_true_random=False).map(fuzz_input)


def fuzz_input(random: Random) -> FuzzInput:
    match random.randrange(20):
        case 0 | 1 | 2:
            chosen = _codec_input("decode", _encoded_value(random), check_decode)
        case 3 | 4:
            chosen = _codec_input(
                "transfer", _maybe_edited(random, transfer(random)), check_transfer
            )
        case 5:
            data = edited(random, message(random), message(random))
            chosen = _codec_input("sections", data, check_sections)
        case 6:
            batch = make_batch([message(random) for _ in range(random.randrange(4))])
            chosen = _codec_input("batch", edited(random, batch, message(random)), check_batch)
        case _:
            case = conversation(random)
            name = f"a {case.kind} {'client' if case.client else 'server'}"
            chosen = FuzzInput(
                name,
                case.chunks,
                lambda chunks: check_engine(dataclasses.replace(case, chunks=chunks)),
            )
    match random.randrange(32):
        case 30:
            return dataclasses.replace(chosen, check=within_memory(chosen.check))
        case 31:
            return dataclasses.replace(chosen, check=within_work(chosen.check))
    return chosen


def _codec_input(name: str, data: bytes, check: Callable[[bytes], None]) -> FuzzInput:
    return FuzzInput(name, (data,), lambda chunks: check(b"".join(chunks)))


def _encoded_value(random: Random) -> bytes:
    if random.randrange(10) < 3:
        return noise(random)
    try:
        data = encode(value(random))
    except EncodeError:
        data = noise(random)
    return _maybe_edited(random, data)


def _maybe_edited(random: Random, data: bytes) -> bytes:
    return edited(random, data) if random.randrange(10) < 8 else data


def noise(random: Random, max_size: int = 200) -> bytes:
    """Return random bytes, mostly such as AMQP uses."""
    data = random.randbytes(random.randrange(max_size))
    return data if random.randrange(10) < 3 else data.translate(LIKELY_BYTES)


def edited(random: Random, data: bytes, other: bytes = b"") -> bytes:
    """Return the data with a few changes."""
    raw = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        if not raw:
            return noise(random)
        start = random.randrange(len(raw))
        end = min(len(raw), start + random.choice((1, 1, 2, 4, 8, 50)))
        match random.randrange(9):
            case 0:
                raw[start] ^= 1 << random.randrange(8)
            case 1:
                raw[start] = random.choice(CODES)
            case 2:
                raw[start] = random.choice((0, 1, 2, 127, 128, 254, 255))
            case 3:
                del raw[start:end]
            case 4:
                raw[start:start] = raw[start:end] * random.choice((1, 1, 2, 20))
            case 5:
                raw[start:start] = noise(random, 20)
            case 6:
                raw[start : start + 4] = random.choice(NUMBERS).to_bytes(4, "big")
            case 7:
                raw[start:] = other[random.randrange(len(other)) :] if other else b""
            case 8:
                del raw[start:]
    return bytes(raw)


SCALARS: tuple[Callable[[Random], Any], ...] = (
    lambda random: None,
    lambda random: True,
    lambda random: False,
    lambda random: UByte(random.choice(NUMBERS) & 255),
    lambda random: UShort(random.choice(NUMBERS) & 65535),
    lambda random: UInt(random.choice(NUMBERS)),
    lambda random: ULong(random.choice(NUMBERS)),
    lambda random: Byte(random.choice(NUMBERS) & 127),
    lambda random: Int32(random.choice(NUMBERS) & 0x7FFFFFFF),
    lambda random: random.choice(NUMBERS),
    lambda random: Float32(1.5),
    lambda random: float(random.choice(NUMBERS)),
    lambda random: Decimal32(b"abcd"),
    lambda random: Char("x"),
    lambda random: Timestamp(random.choice(NUMBERS)),
    lambda random: b"x" * random.choice((0, 1, 32, 33, 255, 256)),
    lambda random: "x" * random.choice((0, 1, 300)),
    lambda random: Symbol("x" * random.choice((0, 1, 300))),
    lambda random: Accepted(),
    lambda random: Error("a:b"),
)


def value(random: Random, depth: int = 0) -> Any:
    """Return any AMQP value."""
    choice = random.randrange(len(SCALARS) + (6 if depth < 4 else 0)) - len(SCALARS)
    if choice < 0:
        return SCALARS[choice](random)
    if choice == 4:
        descriptor = random.choice((None, Symbol("a:b")))
        return Array(UInt, (UInt(random.choice(NUMBERS)),) * 3, descriptor)
    if choice == 5:
        return Array(Symbol, (Symbol("a"), Symbol("b")))
    items = [value(random, depth + 1) for _ in range(random.randrange(4))]
    if choice == 0:
        return items
    if choice == 1:
        return Pairs((value(random, depth + 1), item) for item in items)
    if choice == 2:
        return {Symbol(f"k{index}"): item for index, item in enumerate(items)}
    return Described(random.choice((ULong(random.choice(NUMBERS) & 0x7F), Symbol("a:b"))), items)


def field(random: Random, name: str) -> Any:
    """Return a value of the type of the field."""
    choices = FIELDS.get(name)
    return random.choice((None, *NUMBERS, 0, 1, 2, 3) if choices is None else choices)


def performative(random: Random) -> Any:
    """Return a performative whose fields are plausible, out of range or of the wrong type."""
    cls: Any = random.choice(PERFORMATIVES)
    wrong_types = random.randrange(7) == 6
    fields = {
        item.name: value(random, 2) if wrong_types else field(random, item.name)
        for item in dataclasses.fields(cls)
        if item.default is dataclasses.MISSING or random.randrange(5) < 2
    }
    return cls(**fields)


def one_frame(random: Random) -> bytes:
    """Return a frame with a performative."""
    chosen = performative(random)
    try:
        body = encode_composite(chosen)
    except EncodeError:
        body = noise(random)
    if isinstance(chosen, Transfer):
        body += b"x" * random.choice((0, 1, 100, 400))
    channel = random.choice((0, 0, 0, 0, 1, 2, 7, 8, 65535))
    return encode_frame(channel, body, 1 if type(chosen).__name__.startswith("Sasl") else 0)


def transfer(random: Random) -> bytes:
    """Return the list of a transfer and a payload, in the usual encoding or in another one."""
    match random.randrange(4):
        case 0:
            encoded = encode_first_transfer(
                encode(UInt(random.choice(NUMBERS))),
                random.choice(NUMBERS),
                b"t" * random.randrange(40),
                random.choice(NUMBERS),
                random.random() < 0.5,
                random.random() < 0.5,
            )
        case 1:
            encoded = encode_next_transfer(b"\x43", random.random() < 0.5, random.random() < 0.5)
        case 2:
            fields = [value(random, 2) for _ in range(random.randrange(13))]
            try:
                encoded = b"\x00\x53\x14" + encode(fields)
            except EncodeError:
                encoded = noise(random)
        case _:
            named = {item.name: field(random, item.name) for item in dataclasses.fields(Transfer)}
            try:
                encoded = encode_composite(Transfer(**named))
            except EncodeError:
                encoded = noise(random)
    return encoded[3:] + b"payload"


def message(random: Random) -> bytes:
    """Return an encoded message."""
    return Message.build(
        header=random.choice((None, Header(True, 5, 1000))),
        message_annotations=random.choice((None, {}, {Symbol("x-opt-a"): 1, "x-opt-b": []})),
        properties=random.choice((None, Properties("id", b"user", group_id="g"))),
        application_properties=random.choice((None, {"a": 1, "b": "x" * 300})),
        data=random.choice((None, b"", b"x" * 300)),
        sequence=random.choice((None, [1, "two"])),
    ).encode()


def conversation(random: Random) -> Case:
    """Return a recorded conversation in which a turn is changed, replaced, repeated or added."""
    cases = recorded()
    case = random.choice(cases)
    turns = list(case.chunks)
    index = random.randrange(len(turns))
    match random.randrange(7):
        case 0 | 1:
            other = random.choice(random.choice(cases).chunks)
            turns[index] = edited(random, turns[index], other)
        case 2:
            turns[index:] = [noise(random)]
        case 3 | 4:
            count = random.choice((1, 1, 3, 20, 60))
            turns[index:index] = [one_frame(random) for _ in range(count)]
        case 5:
            turns[index] = random.choice(random.choice(cases).chunks)
        case 6:
            turns.insert(index, random.choice(turns))
    size = random.choice((None, None, None, None, None, None, 1, 3, 8, 100))
    if size is not None:
        data = b"".join(turns)
        turns = [data[start : start + size] for start in range(0, len(data), size)]
    return dataclasses.replace(case, chunks=tuple(turns))
