"""Reading: depth, count and size are bounded, whatever the bytes say."""

import tracemalloc
from collections.abc import Callable
from uuid import UUID

import pytest

from pairbus.amqp.decode import MAX_DEPTH, MAX_ZERO_WIDTH_ELEMENTS, decode, decode_whole, skip_value
from pairbus.amqp.encode import encode
from pairbus.amqp.types import Array, Pairs
from pairbus.errors import DecodeError
from tests.unit.amqp.same import same


def lists(depth: int) -> bytes:
    data = b"\x45"
    for _ in range(depth - 1):
        data = b"\xd0" + (len(data) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + data
    return data


def maps(depth: int) -> bytes:
    data = b"\xc1\x01\x00"
    for _ in range(depth - 1):
        data = b"\xd1" + (len(data) + 5).to_bytes(4, "big") + b"\x00\x00\x00\x02\x40" + data
    return data


def arrays(depth: int) -> bytes:
    element = b"\x02\x00\x40"  # what follows 0xe0: size, count and constructor
    for _ in range(depth - 1):
        if len(element) + 2 < 256:
            element = bytes((len(element) + 2, 1)) + b"\xe0" + element
        else:
            raise AssertionError("these arrays are meant to be small")
    return b"\xe0" + element


def described(depth: int) -> bytes:
    return b"\x00\x40" * depth + b"\x40"


def descriptors(depth: int) -> bytes:
    return b"\x00" * depth + b"\x40" * (depth + 1)


NESTS = [lists, maps, arrays, described, descriptors]


@pytest.mark.parametrize("nest", NESTS)
def test_values_can_be_nested_up_to_the_maximum_depth(nest: Callable[[int], bytes]) -> None:
    data = nest(MAX_DEPTH)

    assert decode(data)[1] == len(data)


@pytest.mark.parametrize("nest", NESTS)
def test_values_nested_too_deeply_are_an_error(nest: Callable[[int], bytes]) -> None:
    # An empty list has no depth of its own, so one more is allowed for lists.
    with pytest.raises(DecodeError, match="nested more than"):
        decode(nest(MAX_DEPTH + 2))


def test_unbounded_nesting_is_an_error_not_a_stack_overflow() -> None:
    for data in (lists(20_000), described(100_000), descriptors(100_000), b"\x00" * 1_000_000):
        with pytest.raises(DecodeError):
            decode(data)
    with pytest.raises(DecodeError):
        skip_value(b"\x00" * 1_000_000, 0)


@pytest.mark.parametrize("code", ["40", "41", "42", "43", "44", "45"])
def test_array_elements_without_bytes_are_decoded_up_to_the_limit(code: str) -> None:
    value = decode_whole(
        bytes.fromhex("e0 02") + bytes((MAX_ZERO_WIDTH_ELEMENTS,)) + bytes.fromhex(code)
    )

    assert len(value.elements) == MAX_ZERO_WIDTH_ELEMENTS


@pytest.mark.parametrize("code", ["40", "41", "42", "43", "44", "45"])
@pytest.mark.parametrize("count", [MAX_ZERO_WIDTH_ELEMENTS + 1, 2**32 - 1])
def test_too_many_array_elements_without_bytes_are_an_error(code: str, count: int) -> None:
    data = b"\xf0\x00\x00\x00\x05" + count.to_bytes(4, "big") + bytes.fromhex(code)

    with pytest.raises(DecodeError, match="elements without bytes"):
        decode(data)


@pytest.mark.parametrize("code", ["50", "60", "70", "80", "94", "98", "a0", "b1", "c0", "d1", "e0"])
def test_array_count_beyond_its_bytes_is_an_error_at_once(code: str) -> None:
    data = b"\xf0\x00\x00\x00\x15\xff\xff\xff\xff" + bytes.fromhex(code) + bytes(16)

    with pytest.raises(DecodeError, match="fewer elements"):
        decode(data)


@pytest.mark.parametrize("head", ["d0", "d1"])
def test_list_or_map_count_beyond_its_bytes_is_an_error(head: str) -> None:
    data = bytes.fromhex(head) + b"\x00\x00\x00\x08\xff\xff\xff\xff" + b"\x40" * 4

    with pytest.raises(DecodeError, match="fewer elements"):
        decode(data)


@pytest.mark.parametrize("head", ["b0", "b1", "b3", "d0", "d1", "f0"])
def test_size_beyond_the_data_is_an_error_and_uses_no_memory(head: str) -> None:
    data = bytes.fromhex(head) + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x01\x40"

    with pytest.raises(DecodeError):
        decode(data)
    with pytest.raises(DecodeError):
        skip_value(data, 0)


def test_element_must_not_exceed_its_list() -> None:
    # The inner binary ends with the bytes, but behind its list.
    with pytest.raises(DecodeError, match="do not match its size"):
        decode(bytes.fromhex("c0 03 01 a003 616263"))


def test_decoded_values_are_bounded_by_the_size_of_their_encoding() -> None:
    """The worst that 30 KB can hold: arrays in an array, as many empty lists in each as allowed."""
    element = bytes((2, MAX_ZERO_WIDTH_ELEMENTS, 0x45))
    count = 10_000
    body = b"\xe0" + element * count
    data = b"\xf0" + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body

    tracemalloc.start()
    try:
        value = decode_whole(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(value.elements) == count
    assert peak < 500 * len(data)


def test_map_keys_with_equal_hashes_are_not_compared_pairwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's hash of a uuid is its value modulo 2**61 - 1, so a peer can choose them alike."""
    modulus = 2**61 - 1
    count = 2000
    body = b"".join(b"\x98" + (7 + n * modulus).to_bytes(16, "big") + b"\x40" for n in range(count))
    data = b"\xd1" + (len(body) + 4).to_bytes(4, "big") + (2 * count).to_bytes(4, "big") + body
    compared = 0
    equal = UUID.__eq__

    def counted(self: UUID, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equal(self, other)

    monkeypatch.setattr(UUID, "__eq__", counted)
    value = decode_whole(data)

    assert compared < 10 * count
    assert isinstance(value, Pairs)
    assert [key.int for key, _ in value] == [7 + n * modulus for n in range(count)]


def test_large_map_with_ordinary_keys_is_a_dict() -> None:
    for keys in (range(500), map(str, range(500)), map(UUID, (f"{n:032x}" for n in range(500)))):
        value = dict.fromkeys(keys)

        assert same(decode_whole(encode(value)), value)


def test_array_size_is_limited_only_by_its_bytes() -> None:
    data = encode(Array(bytes, (b"x",) * 5000))

    assert decode_whole(data).elements == (b"x",) * 5000
