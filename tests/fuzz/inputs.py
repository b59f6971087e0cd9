"""Inputs: valid ones with something changed, frames with absurd fields, and noise."""

import dataclasses
from random import Random
from typing import Any

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

CODES = bytes.fromhex(
    "00 40 41 42 43 44 45 50 51 52 53 54 55 56 60 61 70 71 72 73 74 80 81 82 83 84 94 98"
    "a0 a1 a3 b0 b1 b3 c0 c1 d0 d1 e0 f0"
)
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 100, 255, 256, 511, 512, 65535, 2**31 - 1, 2**31, 2**32 - 1)
PERFORMATIVES = (
    [Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close] * 2
    + [Flow, Transfer, Disposition, Attach] * 3
    + [SaslInit, SaslMechanisms, SaslOutcome, SaslResponse]
)


def noise(chance: Random, most: int = 200) -> bytes:
    """Random bytes; mostly such as AMQP uses."""
    size = chance.randrange(most)
    if chance.random() < 0.3:
        return chance.randbytes(size)
    return bytes(
        chance.choice(CODES) if chance.random() < 0.6 else chance.randrange(12) for _ in range(size)
    )


def changed(chance: Random, data: bytes, other: bytes = b"") -> bytes:
    """The same bytes with a few changes."""
    raw = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        if not raw:
            return noise(chance)
        start = chance.randrange(len(raw))
        end = min(len(raw), start + chance.choice((1, 1, 2, 4, 8, 50)))
        match chance.randrange(9):
            case 0:
                raw[start] ^= 1 << chance.randrange(8)
            case 1:
                raw[start] = chance.choice(CODES)
            case 2:
                raw[start] = chance.choice((0, 1, 2, 127, 128, 254, 255))
            case 3:
                del raw[start:end]
            case 4:
                raw[start:start] = raw[start:end] * chance.choice((1, 1, 2, 20))
            case 5:
                raw[start:start] = noise(chance, 20)
            case 6:
                raw[start : start + 4] = chance.choice(NUMBERS).to_bytes(4, "big")
            case 7:
                cut = chance.randrange(len(other)) if other else 0
                raw[start:] = other[cut:]
            case 8:
                del raw[start:]
    return bytes(raw)


def value(chance: Random, depth: int = 0) -> Any:
    """Any AMQP value."""
    number = chance.choice(NUMBERS)
    kinds: list[Any] = [
        None,
        True,
        False,
        UByte(number & 255),
        UShort(number & 65535),
        UInt(number),
        ULong(number),
        Byte(number & 127),
        Int32(number & 0x7FFFFFFF),
        number,
        Float32(1.5),
        float(number),
        Decimal32(b"abcd"),
        Char("x"),
        Timestamp(number),
        b"x" * chance.choice((0, 1, 32, 33, 255, 256)),
        "x" * chance.choice((0, 1, 300)),
        Symbol("x" * chance.choice((0, 1, 300))),
        Accepted(),
        Error("a:b"),
    ]
    if depth < 4:
        inner = [value(chance, depth + 1) for _ in range(chance.randrange(4))]
        keyed = [[value(chance, depth + 1), each] for each in inner]
        kinds += [
            inner,
            Pairs(tuple(pair) for pair in keyed),  # type: ignore[arg-type]
            {Symbol(f"k{place}"): each for place, each in enumerate(inner)},
            Described(chance.choice((ULong(number & 0x7F), Symbol("a:b"))), inner),
            Array(UInt, (UInt(number),) * 3, chance.choice((None, Symbol("a:b")))),
            Array(Symbol, (Symbol("a"), Symbol("b"))),
        ]
    return chance.choice(kinds)


def performative(chance: Random) -> Any:
    """A performative whose fields are plausible, absurd or wrong."""
    kind: Any = chance.choice(PERFORMATIVES)
    wild = chance.random() < 0.15
    fields = {
        field.name: value(chance, 2) if wild else _field(chance, field.name)
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING or chance.random() < 0.4
    }
    return kind(**fields)


def _field(chance: Random, name: str) -> Any:
    """Something of the type of the field."""
    states = [None, Accepted(), Rejected(Error("a:b")), Modified(), Described(Symbol("a"), [])]
    choices: dict[str, list[Any]] = {
        "container_id": ["peer"],
        "hostname": [None, "host"],
        "name": ["to", "from", "at once", "never", "new", "n" * 300],
        "handle": [None, 0, 1, 2, 3, 7, 8],
        "role": [True, False],
        "snd_settle_mode": [0, 1, 2, 3],
        "rcv_settle_mode": [0, 1, 2],
        "source": [None, Source("q"), Source("refused"), Target("q"), Source(filter={"a": 1}), 5],
        "target": [None, Target("q"), Target("refused"), Source("q"), Described("x", [])],
        "delivery_tag": [None, b"", b"tag", b"x" * 32, b"x" * 33],
        "state": states,
        "error": [None, Error("a:b", "why", {Symbol("k"): 1}), Error("c:d")],
        "properties": [None, {}, {Symbol("k"): "v"}],
        "unsettled": [None, {b"t": None}],
        "mechanism": ["PLAIN", "ANONYMOUS", "MSSBCBS", "EXTERNAL", "OTHER"],
        "sasl_server_mechanisms": [(), (Symbol("PLAIN"),), (Symbol("ANONYMOUS"), Symbol("X"))],
        "initial_response": [None, b"", b"\0me\0secret"],
        "response": [b"", b"\0me\0secret"],
        "code": [0, 1, 2, 9],
        "additional_data": [None, b""],
        "max_frame_size": [0, 511, 512, 4096, 2**32 - 1],
        "channel_max": [0, 1, 65535],
        "remote_channel": [None, None, 0, 1, 65535],
    }
    flags = ("settled", "more", "resume", "aborted", "batchable", "drain", "echo", "closed")
    if name in choices:
        return chance.choice(choices[name])
    if name in flags or name == "incomplete_unsettled":
        return chance.random() < 0.4
    if name.endswith(("capabilities", "locales")):
        return chance.choice(((), (Symbol("a"),)))
    return chance.choice((None, *NUMBERS, 0, 1, 2, 3))


def one_frame(chance: Random) -> bytes:
    """A frame around a performative."""
    said = performative(chance)
    try:
        body = encode_composite(said)
    except EncodeError:
        body = noise(chance)
    if isinstance(said, Transfer):
        body += b"x" * chance.choice((0, 1, 100, 400))
    channel = chance.choice((0, 0, 0, 0, 1, 2, 7, 8, 65535))
    return encode_frame(channel, body, 1 if type(said).__name__.startswith("Sasl") else 0)


def transfer(chance: Random) -> bytes:
    """The list of a transfer, as peers write it or in another way."""
    match chance.randrange(4):
        case 0:
            head = encode_first_transfer(
                encode(UInt(chance.choice(NUMBERS))),
                chance.choice(NUMBERS),
                b"t" * chance.randrange(40),
                chance.choice(NUMBERS),
                chance.random() < 0.5,
                chance.random() < 0.5,
            )
        case 1:
            head = encode_next_transfer(b"\x43", chance.random() < 0.5, chance.random() < 0.5)
        case 2:
            fields = [value(chance, 2) for _ in range(chance.randrange(13))]
            try:
                head = b"\x00\x53\x14" + encode(fields)
            except EncodeError:
                head = noise(chance)
        case _:
            named = {
                field.name: _field(chance, field.name) for field in dataclasses.fields(Transfer)
            }
            try:
                head = encode_composite(Transfer(**named))
            except EncodeError:
                head = noise(chance)
    return head[3:] + b"payload"


def message(chance: Random) -> bytes:
    """An encoded message."""
    built = Message.build(
        header=chance.choice((None, Header(True, 5, 1000))),
        message_annotations=chance.choice((None, {}, {Symbol("x-opt-a"): 1, "x-opt-b": []})),
        properties=chance.choice((None, Properties("id", b"user", group_id="g"))),
        application_properties=chance.choice((None, {"a": 1, "b": "x" * 300})),
        data=chance.choice((None, b"", b"x" * 300)),
        sequence=chance.choice((None, [1, "two"])),
    )
    return built.encode()
