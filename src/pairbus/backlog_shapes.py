"""Restoring of backlog messages, of which many have the same shape.

The messages of a sender mostly have the same sections, keys and types, and values of the same size.
Of such a message only the bytes that define its shape are compared, and the restored message is put
together from pieces of it. A shape is learned from a message that was restored in the usual way.

Only messages without a time-to-live and without a scheduled enqueue time have shapes, because these
values change the message in other ways.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from pairbus.amqp.map_shapes import ExtractedKeys, MapShape
from pairbus.amqp.section_edit import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    encode_section,
)
from pairbus.amqp.sections import Message
from pairbus.servicebus.annotations import ENQUEUED_TIME, LOCK_TOKEN, SET_BY_SERVICE
from pairbus.servicebus.application_properties import ALIASES, PATH_ALIAS, SESSION_ALIAS

MAX_SHAPES, MAX_SIZES = 8, 256
"""Limits of the shapes that are remembered, and of the message sizes whose last shape is."""
MISSES_PER_SHAPE = 64
"""When there is no space for another shape, one of so many messages replaces the oldest shape."""
MAX_HEAD = 2048
"""Size of the sections before the body at most."""
_STRING, _TIMESTAMP = 0xA1, 0x83
_SMALL_DATA, _LARGE_DATA = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"
_read_size = Struct(">I").unpack_from
_SECTION_HEADERS = {0xC0: 5, 0xD0: 8}
"""The bytes of a list section up to its count, by the constructor of the list."""
_TOKEN_KEYS = ExtractedKeys((LOCK_TOKEN,))
_SERVICE_KEYS = ExtractedKeys(SET_BY_SERVICE)
_ALIAS_KEYS = ExtractedKeys(ALIASES)


@dataclass(frozen=True, slots=True)
class MessageShape:
    """The positions in messages that have the same bytes where the mask has ones."""

    size: int
    """The size of the sections before the body, and the constructor of the body."""
    mask: int
    fixed: int
    """The bytes where the mask has ones."""
    size_bytes: int
    """The bytes of the size of the body."""
    before: tuple[bytes | slice, ...]
    """The pieces of the restored message before its properties."""
    properties: slice
    after: tuple[bytes | slice, ...]
    """The pieces of the restored message between its properties and its body."""
    body: slice
    path: slice
    session: slice | None
    """The encoded session id."""
    enqueued: slice | None
    """The enqueued time, encoded as a timestamp."""

    def matches(self, payload: bytes) -> bool:
        """Return True if a message has this shape."""
        size = self.size
        if int.from_bytes(payload[:size], "big") & self.mask != self.fixed:
            return False
        start = size + self.size_bytes
        if len(payload) < start:
            return False
        body_size = payload[size] if self.size_bytes == 1 else _read_size(payload, size)[0]
        return bool(len(payload) == start + body_size)

    def restored(self, payload: bytes, properties: bytes) -> bytes:
        """Return the restored message, with these properties."""
        if not self.before and not self.after:
            return properties + payload[self.body]
        pieces = [piece if isinstance(piece, bytes) else payload[piece] for piece in self.before]
        pieces.append(properties)
        pieces += [piece if isinstance(piece, bytes) else payload[piece] for piece in self.after]
        pieces.append(payload[self.body])
        return b"".join(pieces)


class MessageShapes:
    """The shapes of the last messages."""

    def __init__(self) -> None:
        self._shapes: tuple[MessageShape, ...] = ()
        self._by_size: dict[int, MessageShape] = {}
        self._misses = 0

    def find(self, payload: bytes) -> MessageShape | None:
        """Return the shape of a message, if it is known."""
        size = len(payload)
        shape = self._by_size.get(size)
        if shape is not None and shape.matches(payload):
            return shape
        for shape in self._shapes:
            if shape.matches(payload):
                if len(self._by_size) >= MAX_SIZES:
                    self._by_size.clear()
                self._by_size[size] = shape
                return shape
        return None

    def learn(self, payload: bytes, restored_header: Callable[[bytes], bytes]) -> None:
        """Take note of a message without a known shape. `restored_header` returns the header that
        such a message gets."""
        self._misses += 1
        if len(self._shapes) >= MAX_SHAPES and self._misses % MISSES_PER_SHAPE:
            return
        shape = _shape_of(payload, restored_header)
        if shape is not None:
            self._shapes = (shape, *self._shapes[: MAX_SHAPES - 1])


def _shape_of(payload: bytes, restored_header: Callable[[bytes], bytes]) -> MessageShape | None:
    """Return the shape of a message that can be restored, or None if it is not a simple one."""
    message = Message.parse(payload)
    body = message.body
    constructor, size_bytes = body[:4], 1 if body[:4] == _SMALL_DATA else 4
    if constructor not in (_SMALL_DATA, _LARGE_DATA) or message.footer:
        return None
    content = 4 + size_bytes
    body_size = body[4] if size_bytes == 1 else _read_size(body, 4)[0]
    head = len(payload) - len(body)
    properties = message.properties
    if (
        content + body_size != len(body)  # several data sections
        or message.encode() != payload  # the delivery annotations are not in their place
        or head > MAX_HEAD
        or (properties and properties[:3] != b"\x00\x53\x73")
    ):
        return None
    mask = bytearray(b"\xff" * len(message.header))
    tokens = _Map.of(message.delivery_annotations, DELIVERY_ANNOTATIONS, _TOKEN_KEYS, len(mask))
    if tokens is None:
        return None
    mask += tokens.mask
    by_service = _Map.of(message.message_annotations, MESSAGE_ANNOTATIONS, _SERVICE_KEYS, len(mask))
    if by_service is None:
        return None
    mask += by_service.mask
    properties_start = len(mask)
    fixed_bytes = _SECTION_HEADERS.get(properties[3], len(properties)) if properties else 0
    mask += b"\xff" * fixed_bytes + bytes(len(properties) - fixed_bytes)
    aliases = _Map.of(
        message.application_properties, APPLICATION_PROPERTIES, _ALIAS_KEYS, len(mask)
    )
    if aliases is None or not aliases.extracted.keys() <= {PATH_ALIAS, SESSION_ALIAS}:
        return None
    mask += aliases.mask + b"\xff" * len(constructor)
    path, session = aliases.extracted.get(PATH_ALIAS), aliases.extracted.get(SESSION_ALIAS)
    enqueued = by_service.extracted.get(ENQUEUED_TIME)
    if path is None or payload[path.start] != _STRING or path.stop - path.start <= 2:
        return None
    if session is not None and payload[session.start] != _STRING:
        return None
    if enqueued is not None and payload[enqueued.start] != _TIMESTAMP:
        enqueued = None
    header = restored_header(message.header)
    number = int.from_bytes(mask, "big")
    return MessageShape(
        size=len(mask),
        mask=number,
        fixed=int.from_bytes(payload[: len(mask)], "big") & number,
        size_bytes=size_bytes,
        before=(*((header,) if header else ()), *tokens.pieces, *by_service.pieces),
        properties=slice(properties_start, properties_start + len(properties)),
        after=aliases.pieces,
        body=slice(head, None),
        path=path,
        session=session,
        enqueued=enqueued,
    )


@dataclass(frozen=True, slots=True)
class _Map:
    """A section of a message that is a map, without the keys that are removed."""

    mask: bytes
    pieces: tuple[bytes | slice, ...]
    """The pieces of the section that remain."""
    extracted: dict[str, slice]
    """The positions of the values that are removed, in the message."""

    @classmethod
    def of(cls, section: bytes, code: int, keys: ExtractedKeys, start: int) -> "_Map | None":
        """Return the section that starts at a position in a message, or None if it has keys or
        values that are not simple."""
        if not section:
            return cls(b"", (), {})
        shape: MapShape | None = keys.shape_of(section)
        if shape is None:
            return None
        mask = shape.mask.to_bytes(len(section), "big")
        if not shape.extracted and code == DELIVERY_ANNOTATIONS:
            return cls(mask, (slice(start, start + len(section)),), {})
        pieces: list[bytes | slice] = []
        if shape.count:
            entries = b"".join([section[span] for span in shape.spans])
            encoded = encode_section(code, 0xC1, shape.count, entries)
            pieces.append(encoded[: len(encoded) - len(entries)])
            pieces += [_moved(span, start) for span in shape.spans]
        return cls(
            mask, tuple(pieces), {name: _moved(place, start) for name, place in shape.extracted}
        )


def _moved(place: slice, offset: int) -> slice:
    return slice(place.start + offset, place.stop + offset)
