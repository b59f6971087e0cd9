"""Lock tokens: the tags of deliveries, and as uuids in requests."""

from collections.abc import Iterable
from uuid import UUID

from pairbus.amqp.encode import Encoded, encode_compound
from pairbus.errors import EncodeError

SIZE = 16
_UUID = b"\x98"
_NETWORK_ORDER = (3, 2, 1, 0, 5, 4, 7, 6)
"""The first three fields of a uuid are numbers, which a delivery tag has in little-endian order."""


def encode_lock_tokens(tags: Iterable[bytes]) -> Encoded:
    """Return an array of uuids. Raises EncodeError for a tag that is not a lock token."""
    parts = list(tags)
    if any(len(tag) != SIZE for tag in parts):
        raise EncodeError(f"a lock token has {SIZE} bytes")
    body = swap_byte_order(b"".join(parts))
    return Encoded(encode_compound(0xE0, len(parts), _UUID + body))


def to_lock_tokens(uuids: Iterable[UUID]) -> list[bytes]:
    """Return the lock tokens of uuids in a request."""
    tokens = swap_byte_order(b"".join([uuid.int.to_bytes(SIZE, "big") for uuid in uuids]))
    return [tokens[start : start + SIZE] for start in range(0, len(tokens), SIZE)]


def swap_byte_order(tokens: bytes) -> bytes:
    """Return joined lock tokens as uuids, or uuids as lock tokens."""
    swapped = bytearray(tokens)
    for target, source in enumerate(_NETWORK_ORDER):
        swapped[target::SIZE] = tokens[source::SIZE]
    return bytes(swapped)
