"""Lock tokens in requests."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.decode import decode
from pairbus.amqp.encode import encode
from pairbus.amqp.lock_tokens import encode_lock_tokens, to_lock_tokens
from pairbus.amqp.types import Array
from pairbus.errors import EncodeError


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=40))
def test_tags_are_uuids_as_service_bus_writes_them(tags: list[bytes]) -> None:
    uuids = Array(UUID, tuple(UUID(bytes_le=tag) for tag in tags))

    assert encode_lock_tokens(tags) == encode(uuids)
    assert encode({"lock-tokens": encode_lock_tokens(tags)}) == encode({"lock-tokens": uuids})


def test_tag_that_is_not_a_lock_token_is_an_error() -> None:
    with pytest.raises(EncodeError, match="16 bytes"):
        encode_lock_tokens([b"t" * 16, b"short"])


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=40))
def test_uuids_of_a_request_are_the_tags_again(tags: list[bytes]) -> None:
    uuids, _ = decode(encode_lock_tokens(tags))

    assert uuids.elements == tuple(UUID(bytes_le=tag) for tag in tags)
    assert to_lock_tokens(uuids.elements) == tags
