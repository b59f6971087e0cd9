"""Removal of entries from encoded maps, of which many have the same shape.

The messages of a sender mostly have the same keys, and values of the same size. The first map of a
shape is examined entry by entry. Of the others, the bytes that define the shape are compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pairbus.amqp.decode import VALUE_STEPS, skip_value
from pairbus.amqp.section_edit import EncodedKeys, extract_entries, section_bounds

MAX_SHAPES, MAX_SIZE = 256, 1024
"""Limits of the shapes that are remembered for a set of keys: each has another size."""
_HEADERS = {-1: 2, -4: 5}
"""The bytes of a constructor with the size that follows it, by `VALUE_STEPS`; 1 if none follows."""


@dataclass(frozen=True, slots=True)
class MapShape:
    """The positions in maps that have the same bytes where the mask has ones."""

    mask: int
    fixed: int
    """The bytes where the mask has ones."""
    count: int
    """The number of keys and values that remain."""
    spans: tuple[slice, ...]
    """The positions of the entries that remain."""
    extracted: tuple[tuple[str, slice], ...]
    """The values that are removed, by key."""


class ExtractedKeys:
    """A set of keys to be removed from many maps."""

    def __init__(self, names: Iterable[str]) -> None:
        self.keys = EncodedKeys(names)
        self._shapes: dict[int, MapShape | None] = {}

    def extract(self, section: bytes) -> tuple[int, bytes, dict[str, bytes]]:
        """Remove the keys from a map. The result is that of `extract_entries`."""
        size = len(section)
        shape = self._shapes.get(size)
        if shape is not None and int.from_bytes(section, "big") & shape.mask == shape.fixed:
            extracted = {name: section[place] for name, place in shape.extracted}
            spans = shape.spans
            if not spans:
                return 0, b"", extracted
            if len(spans) == 1:
                return shape.count, section[spans[0]], extracted
            return shape.count, b"".join([section[span] for span in spans]), extracted
        result = extract_entries(section, self.keys)
        if size not in self._shapes and 0 < size <= MAX_SIZE and len(self._shapes) < MAX_SHAPES:
            self._shapes[size] = self.shape_of(section)
        return result

    def shape_of(self, section: bytes) -> MapShape | None:
        """Return the shape of a valid map. None: it has keys or values that are not simple."""
        count, pos, _ = section_bounds(section)
        fixed = bytearray(b"\xff" * pos) + bytes(len(section) - pos)
        spans: list[slice] = []
        extracted: list[tuple[str, slice]] = []
        for _ in range(count // 2):
            start = pos
            if VALUE_STEPS[section[pos]] != -1:  # not a short string or symbol
                return None
            pos += 2 + section[pos + 1]
            value = pos
            header = _HEADERS.get(VALUE_STEPS[section[value]], 1)
            if section[value] == 0:  # a described value
                return None
            pos = skip_value(section, value)
            fixed[start : value + header] = b"\xff" * (value + header - start)
            name = self.keys.encoded.get(section[start:value])
            if name is not None:
                extracted.append((name, slice(value, pos)))
            elif spans and spans[-1].stop == start:
                spans[-1] = slice(spans[-1].start, pos)
            else:
                spans.append(slice(start, pos))
        mask = int.from_bytes(fixed, "big")
        return MapShape(
            mask,
            int.from_bytes(section, "big") & mask,
            count - 2 * len(extracted),
            tuple(spans),
            tuple(extracted),
        )
