"""Composite types: omitted fields, invalid fields and encoding."""

from typing import Any

import pytest

from pairbus.amqp import performatives
from pairbus.amqp.composite import decode_composite, encode_composite
from pairbus.amqp.decode import decode_whole
from pairbus.amqp.encode import encode
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
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.types import (
    Array,
    Char,
    Decimal32,
    Described,
    Pairs,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
)
from pairbus.errors import DecodeError, EncodeError, NotAuthorized

CODES = {
    Open: (0x10, "amqp:open:list"),
    Begin: (0x11, "amqp:begin:list"),
    Attach: (0x12, "amqp:attach:list"),
    Flow: (0x13, "amqp:flow:list"),
    Transfer: (0x14, "amqp:transfer:list"),
    Disposition: (0x15, "amqp:disposition:list"),
    Detach: (0x16, "amqp:detach:list"),
    End: (0x17, "amqp:end:list"),
    Close: (0x18, "amqp:close:list"),
    Error: (0x1D, "amqp:error:list"),
    Received: (0x23, "amqp:received:list"),
    Accepted: (0x24, "amqp:accepted:list"),
    Rejected: (0x25, "amqp:rejected:list"),
    Released: (0x26, "amqp:released:list"),
    Modified: (0x27, "amqp:modified:list"),
    Source: (0x28, "amqp:source:list"),
    Target: (0x29, "amqp:target:list"),
    SaslMechanisms: (0x40, "amqp:sasl-mechanisms:list"),
    SaslInit: (0x41, "amqp:sasl-init:list"),
    SaslChallenge: (0x42, "amqp:sasl-challenge:list"),
    SaslResponse: (0x43, "amqp:sasl-response:list"),
    SaslOutcome: (0x44, "amqp:sasl-outcome:list"),
}

SHORTEST: dict[type, tuple[list[Any], Any]] = {
    Open: (["me"], Open("me")),
    Begin: (
        [None, UInt(1), UInt(2), UInt(3)],
        Begin(remote_channel=None, next_outgoing_id=1, incoming_window=2, outgoing_window=3),
    ),
    Attach: (["link", UInt(0), True], Attach("link", 0, True)),
    Flow: ([None, UInt(1), UInt(2), UInt(3)], Flow(None, 1, 2, 3)),
    Transfer: ([UInt(0)], Transfer(0)),
    Disposition: ([True, UInt(7)], Disposition(True, 7)),
    Detach: ([UInt(0)], Detach(0)),
    End: ([], End()),
    Close: ([], Close()),
    Error: ([Symbol("amqp:not-found")], Error("amqp:not-found")),
    Received: ([UInt(1), ULong(2)], Received(1, 2)),
    Accepted: ([], Accepted()),
    Rejected: ([], Rejected()),
    Released: ([], Released()),
    Modified: ([], Modified()),
    Source: ([], Source()),
    Target: ([], Target()),
    SaslMechanisms: ([Symbol("PLAIN")], SaslMechanisms((Symbol("PLAIN"),))),
    SaslInit: ([Symbol("PLAIN")], SaslInit("PLAIN")),
    SaslChallenge: ([b""], SaslChallenge(b"")),
    SaslResponse: ([b""], SaslResponse(b"")),
    SaslOutcome: ([UByte(0)], SaslOutcome(0)),
}

FULL: list[Any] = [
    Open(
        "me",
        "host",
        512,
        7,
        1000,
        (Symbol("en-US"),),
        (Symbol("en-US"), Symbol("de-DE")),
        (Symbol("offered"),),
        (Symbol("desired"),),
        {Symbol("product"): "x"},
    ),
    Begin(3, 4, 5, 6, 7, (Symbol("a"),), (Symbol("b"),), {Symbol("p"): 1}),
    Attach(
        "link",
        1,
        True,
        1,
        1,
        Source(
            "queue",
            2,
            "never",
            60,
            True,
            {Symbol("lifetime"): 1},
            "move",
            {Symbol("filter"): Described(Symbol("filter"), "x")},
            Modified(True, True, {Symbol("a"): 1}),
            (Symbol("amqp:accepted:list"),),
            (Symbol("queue"),),
        ),
        Target("topic", 1, "link-detach", 30, True, {Symbol("p"): 2}, (Symbol("topic"),)),
        {b"tag": None},
        True,
        5,
        1024,
        (Symbol("a"),),
        (Symbol("b"),),
        {Symbol("p"): UInt(3)},
    ),
    Flow(1, 2, 3, 4, 5, 6, 7, 8, True, True, {Symbol("p"): 1}),
    Transfer(1, 2, b"tag", 0x80013700, True, True, 1, Received(1, 2), True, True, True),
    Disposition(True, 1, 2, True, Rejected(Error("a:b", "reason", {Symbol("k"): "v"})), True),
    Detach(1, True, Error("amqp:not-found", "no such queue", {Symbol("k"): 1})),
    SaslInit("PLAIN", b"\x00a\x00b", "host"),
    SaslOutcome(1, b"more"),
]


def read(fields: Any, descriptor: Any) -> Any:
    return decode_composite(Described(descriptor, fields))


def encoded_fields(performative: Any) -> list[Any]:
    """Return the encoded fields of a performative."""
    fields = decode_whole(encode_composite(performative)).value
    assert isinstance(fields, list)
    return fields


def test_every_composite_is_tested() -> None:
    declared = {
        value
        for value in vars(performatives).values()
        if isinstance(value, type) and value.__module__ == performatives.__name__
    }

    assert declared == set(CODES) == set(SHORTEST)


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_composite_is_decoded_by_numeric_and_symbolic_descriptor(kind: type) -> None:
    code, name = CODES[kind]
    fields, expected = SHORTEST[kind]

    assert read(fields, ULong(code)) == expected
    assert read(fields, Symbol(name)) == expected
    assert encode_composite(expected).startswith(bytes((0x00, 0x53, code)))


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_null_equals_an_omitted_field(kind: type) -> None:
    code, _ = CODES[kind]
    fields, expected = SHORTEST[kind]
    count = len(kind.__slots__)  # type: ignore[attr-defined]

    padded = fields + [None] * (count - len(fields))

    assert read(padded, ULong(code)) == expected


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_too_many_fields_are_an_error(kind: type) -> None:
    code, _ = CODES[kind]
    count = len(kind.__slots__)  # type: ignore[attr-defined]

    with pytest.raises(DecodeError, match="are defined") as caught:
        read([None] * (count + 1), ULong(code))
    assert caught.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("value", [{}, "text", None, 5, Array(int, ())], ids=repr)
def test_composite_that_is_not_a_list_is_an_error(kind: type, value: Any) -> None:
    with pytest.raises(DecodeError, match="is not a list"):
        read(value, ULong(CODES[kind][0]))


@pytest.mark.parametrize(
    ("kind", "index"),
    [
        (kind, index)
        for kind, (fields, _) in SHORTEST.items()
        for index, field in enumerate(fields)
        if field is not None
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_mandatory_field_that_is_missing_or_null_is_an_error(kind: type, index: int) -> None:
    code, _ = CODES[kind]
    fields, _ = SHORTEST[kind]
    nulled = [None if place == index else field for place, field in enumerate(fields)]

    for broken in (nulled, fields[:index]):
        with pytest.raises(DecodeError, match="is missing") as caught:
            read(broken, ULong(code))
        assert caught.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize(
    ("code", "fields", "field"),
    [
        (0x10, [Symbol("me")], "Open.container_id"),
        (0x10, [Char("m")], "Open.container_id"),
        (0x10, [b"me"], "Open.container_id"),
        (0x10, ["me", Symbol("host")], "Open.hostname"),
        (0x10, ["me", None, 512], "Open.max_frame_size"),
        (0x10, ["me", None, None, UInt(5)], "Open.channel_max"),
        (0x10, ["me", None, None, None, None, "en-US"], "Open.outgoing_locales"),
        (
            0x10,
            ["me", None, None, None, None, None, None, Array(str, ("a",))],
            "Open.offered_capabilities",
        ),
        (
            0x10,
            ["me", None, None, None, None, None, None, Array(Symbol, (Symbol("a"),), "d")],
            "Open.offered_capabilities",
        ),
        (0x10, ["me"] + [None] * 8 + [[]], "Open.properties"),
        (0x10, ["me"] + [None] * 8 + [Pairs([("a", 1), (Symbol("a"), 2)])], "Open.properties"),
        (0x11, [UInt(1), UInt(1), UInt(2), UInt(3)], "Begin.remote_channel"),
        (0x12, ["link", UInt(0), UInt(1)], "Attach.role"),
        (0x12, ["link", UInt(0), True, UInt(1)], "Attach.snd_settle_mode"),
        (0x14, [UInt(0), UInt(0), "tag"], "Transfer.delivery_tag"),
        (0x14, [UInt(0), UInt(0), Decimal32(b"abcd")], "Transfer.delivery_tag"),
        (0x15, [UInt(1), UInt(7)], "Disposition.role"),
        (0x16, [UInt(0), True, "error"], "Detach.error"),
        (0x16, [UInt(0), True, Described(ULong(0x24), [])], "Detach.error"),
        (0x18, [Described(Symbol("unknown"), [])], "Close.error"),
        (0x1D, ["amqp:not-found"], "Error.condition"),
        (0x25, [[Symbol("amqp:not-found")]], "Rejected.error"),
        (0x40, [UInt(1)], "SaslMechanisms.sasl_server_mechanisms"),
    ],
)
def test_field_of_the_wrong_type_is_an_error(code: int, fields: list[Any], field: str) -> None:
    with pytest.raises(DecodeError, match=f"{field} cannot be") as caught:
        read(fields, ULong(code))
    assert caught.value.condition == "amqp:invalid-field"


def test_error_in_a_nested_composite_names_the_inner_field() -> None:
    inner = Described(ULong(0x1D), [None])

    with pytest.raises(DecodeError, match=r"Error\.condition is missing"):
        read([inner], ULong(0x18))


@pytest.mark.parametrize("value", FULL, ids=lambda value: type(value).__name__)
def test_all_fields_survive_a_round_trip(value: Any) -> None:
    assert decode_composite(decode_whole(encode_composite(value))) == value


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_trailing_defaults_are_omitted(kind: type) -> None:
    fields, value = SHORTEST[kind]
    if kind is Error:
        return  # The exception is tested below.
    written = encoded_fields(value)

    assert written == fields or kind is SaslMechanisms


def test_default_before_other_fields_is_null() -> None:
    assert encoded_fields(Open("me", max_frame_size=0xFFFFFFFF, channel_max=7)) == [
        "me",
        None,
        None,
        7,
    ]


def test_numbers_are_encoded_with_the_types_of_their_fields() -> None:
    fields = encoded_fields(Attach("link", 1, False, 0, 1, max_message_size=9))

    assert [type(field) for field in fields[1:5]] == [UInt, bool, UByte, UByte]
    assert type(fields[10]) is ULong
    assert type(encoded_fields(Open("me", channel_max=7))[3]) is UShort


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (Error("amqp:not-found"), [Symbol("amqp:not-found"), None, None]),
        (Error("amqp:not-found", "gone"), [Symbol("amqp:not-found"), "gone", None]),
        (Error("amqp:not-found", None, {}), [Symbol("amqp:not-found"), None, {}]),
    ],
)
def test_error_always_has_three_fields_for_the_azure_sdk(error: Error, fields: list[Any]) -> None:
    assert encoded_fields(error) == fields
    assert encoded_fields(Close(error))[0].value == fields
    assert encoded_fields(Detach(0, True, error))[2].value == fields
    assert encoded_fields(Rejected(error))[0].value == fields


def test_exception_becomes_an_error_with_an_info_map_that_is_never_empty() -> None:
    plain = Error.of(NotAuthorized("no"))
    error_with_info = Error.of(NotAuthorized("no", condition="x:y", info={"a": 1, Symbol("b"): 2}))

    assert plain == Error("amqp:unauthorized-access", "no", {"condition": plain.condition})
    assert error_with_info == Error("x:y", "no", {"a": 1, "b": 2})
    for error in (plain, error_with_info):
        info = encoded_fields(error)[2]
        assert {type(key) for key in info} == {Symbol}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, ()),
        (Symbol("a"), (Symbol("a"),)),
        (Array(Symbol, ()), ()),
        (Array(type(None), ()), ()),
        (Array(Symbol, (Symbol("a"),)), (Symbol("a"),)),
        (Array(Symbol, (Symbol("a"), Symbol("b"))), (Symbol("a"), Symbol("b"))),
    ],
    ids=repr,
)
def test_multiple_symbols_are_decoded_from_null_a_symbol_or_an_array(
    written: Any, expected: tuple[Symbol, ...]
) -> None:
    fields = [None] * 9 + [written]

    assert read(fields, ULong(0x28)).outcomes == expected


def test_multiple_symbols_are_encoded_as_an_array() -> None:
    fields = encoded_fields(Target(capabilities=(Symbol("a"), Symbol("b"))))

    assert fields[6] == Array(Symbol, (Symbol("a"), Symbol("b")))


def test_values_of_unknown_types_stay_described() -> None:
    unknown = Described(Symbol("com.example:coordinator"), ["x"])
    attach = Attach("link", 0, False, target=unknown, initial_delivery_count=0)

    assert decode_composite(decode_whole(encode_composite(attach))).target == unknown


@pytest.mark.parametrize("descriptor", [[], {}, [1], None, "x", UInt(99), 0x10000], ids=repr)
def test_value_with_an_unknown_descriptor_is_unchanged(descriptor: Any) -> None:
    value = Described(descriptor, ["me"])

    assert decode_composite(value) is value


@pytest.mark.parametrize(
    "value",
    [
        Open("me", max_frame_size=2**32),
        Open("me", channel_max=-1),
        Open("me", channel_max="many"),  # type: ignore[arg-type]
        Open(object()),  # type: ignore[arg-type]
        Open("me", properties={Symbol("a"): object()}),
        Error("é"),
        Attach("\ud800", 0, True),
        SaslMechanisms(5),  # type: ignore[arg-type]
    ],
    ids=["range", "negative", "text", "object", "property", "symbol", "surrogate", "number"],
)
def test_field_without_an_encoding_is_an_encode_error(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode_composite(value)


def test_performative_is_encoded_as_a_described_list() -> None:
    assert encode_composite(Close()) == bytes.fromhex("005318 45")
    assert encode_composite(Open("me")) == bytes.fromhex("005310 c0 05 01") + encode("me")
