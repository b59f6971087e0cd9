"""Maps of the same shape give what each would give alone."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.map_shapes import MAX_SHAPES, ExtractedKeys
from pairbus.amqp.section_edit import (
    APPLICATION_PROPERTIES,
    EncodedKeys,
    encode_section,
    extract_entries,
)
from pairbus.errors import DecodeError
from tests.property.test_sections import written, written_values

NAMES = ("x-opt-a", "x-opt-b", "größe")

keys = st.sampled_from([*NAMES, "other", "x", 7]).flatmap(written)
sections = st.lists(st.tuples(keys, written_values), max_size=5).map(
    lambda entries: encode_section(
        APPLICATION_PROPERTIES,
        0xC1,
        2 * len(entries),
        b"".join(key + value for key, value in entries),
    )
)


def outcome(extract: Any, *arguments: Any) -> Any:
    try:
        return extract(*arguments)
    except DecodeError as exc:
        return str(exc)


@given(sections, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=8))
def test_maps_that_differ_in_a_byte_give_what_each_gives_alone(
    section: bytes, changes: list[tuple[int, int]]
) -> None:
    shapes = ExtractedKeys(NAMES)
    variants = [section]
    for position, value in changes:
        variant = bytearray(section)
        variant[position % len(section)] = value
        variants.append(bytes(variant))

    for variant in [*variants, *variants]:
        expected = outcome(extract_entries, variant, EncodedKeys(NAMES))
        assert outcome(shapes.extract, variant) == expected


def test_number_of_shapes_is_limited() -> None:
    shapes = ExtractedKeys(NAMES)
    for size in range(3 * MAX_SHAPES):
        body = b"\xa1\x01x" + b"\xb1" + size.to_bytes(4, "big") + b"v" * size
        shapes.extract(encode_section(APPLICATION_PROPERTIES, 0xC1, 2, body))

    assert len(shapes._shapes) == MAX_SHAPES
