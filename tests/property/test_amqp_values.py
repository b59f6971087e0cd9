"""Values survive a round trip with their types; invalid data raises DecodeError."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairbus.amqp.composite import decode_composite, encode_composite
from pairbus.amqp.decode import decode, decode_whole, skip_value
from pairbus.amqp.encode import encode
from pairbus.amqp.types import Described, Pairs
from pairbus.errors import DecodeError, EncodeError
from tests.fuzz.checks import check_decode, check_transfer
from tests.property.amqp_values import scalars, values
from tests.unit.amqp.same import same

# Hypothesis warns of the long names of recursive strategies.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")


@given(values)
@example(Pairs([([], 1), ({}, 2)]))
def test_value_survives_a_round_trip(value: Any) -> None:
    assert same(decode_whole(encode(value)), value)


@given(values, st.binary(max_size=5), st.binary(max_size=5))
def test_value_is_decoded_independently_of_surrounding_data(
    value: Any, before: bytes, after: bytes
) -> None:
    raw = encode(value)
    data = before + raw + after

    result, end = decode(data, len(before))

    assert same(result, value)
    assert end == len(before) + len(raw) == skip_value(data, len(before))


@given(values)
def test_truncated_value_is_a_decode_error(value: Any) -> None:
    raw = encode(value)
    for size in {0, 1, 2, len(raw) // 2, len(raw) - 1}:
        if size < len(raw):
            for read in (decode, skip_value):
                try:
                    read(raw[:size], 0)
                except DecodeError:
                    continue
                raise AssertionError(f"{raw[:size]!r} was read by {read.__name__}")


CODES = [0, 0x40, 0x41, 0x45, 0x50, 0x52, 0x56, 0x70, 0x73, 0xA0, 0xA1, 0xA3, 0xB1]
CODES += [0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0]
likely = st.lists(st.sampled_from([*CODES, 1, 2, 3, 4, 8]) | st.integers(0, 255), max_size=60)


@given(st.binary(max_size=200) | likely.map(bytes))
@example(bytes.fromhex("e0 02 05 45"))
@example(bytes.fromhex("c1 07 04 43 40 5500 41"))
def test_any_data_is_a_value_or_a_decode_error(data: bytes) -> None:
    check_decode(data)


@given(values, st.data())
def test_changed_value_is_a_value_or_a_decode_error(value: Any, data: st.DataObject) -> None:
    raw = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw) - 1))
        change = data.draw(st.sampled_from(["set", "insert", "delete"]))
        byte = data.draw(st.sampled_from(CODES) | st.integers(0, 255))
        if change == "set":
            raw[place] = byte
        elif change == "insert":
            raw.insert(place, byte)
        elif len(raw) > 1:
            del raw[place]
    check_decode(bytes(raw))


@given(st.lists(scalars | values, max_size=12), st.binary(max_size=5))
def test_transfer_decoders_agree_on_any_fields(fields: list[Any], payload: bytes) -> None:
    check_transfer(encode(fields) + payload)


@given(likely.map(bytes))
def test_transfer_decoders_agree_on_any_data(data: bytes) -> None:
    check_transfer(data)
    check_transfer(b"\xc0" + bytes((min(len(data) + 1, 255), 4)) + data)


@given(st.integers(0, 0x80), st.lists(values, max_size=15))
def test_any_fields_are_a_composite_or_a_decode_error(code: int, fields: list[Any]) -> None:
    described = decode_whole(b"\x00\x53" + bytes((code,)) + encode(fields))
    try:
        composite = decode_composite(described)
    except DecodeError:
        return
    if isinstance(composite, Described):
        return
    assert decode_composite(
        decode_whole(encode_composite(composite))
    ) == composite or "nan" in repr(composite)


class Unsupported:
    """A type that AMQP cannot encode."""


@given(st.lists(scalars | st.builds(Unsupported) | st.integers(), max_size=5))
def test_any_value_is_encoded_or_an_encode_error(value: list[Any]) -> None:
    try:
        data = encode(value)
    except EncodeError:
        return
    assert same(decode_whole(data), value)
