"""Peeking at messages that have no sequence number."""

from typing import Any

import pytest

from pairbus.backlog.peek import BATCH_SIZE, peek
from pairbus.errors import ProtocolError


class UndecodableMessages:
    """A management link whose messages cannot be decoded, so that they have no sequence number."""

    requests = 0

    def __init__(self, *_: object) -> None: ...

    def peek(self, start: int, count: int) -> list[bytes]:
        UndecodableMessages.requests += 1
        return [b"nonsense"] * count

    def close(self) -> None: ...


def test_messages_without_sequence_numbers_do_not_cause_an_endless_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pairbus.backlog.peek.Management", UndecodableMessages)
    client: Any = None

    batches = peek(client, "q")
    assert len(next(batches)) == BATCH_SIZE
    with pytest.raises(ProtocolError, match="without sequence numbers"):
        next(batches)
    assert UndecodableMessages.requests == 1
