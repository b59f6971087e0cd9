"""A log of the frames of a connection, for `MemoryServer.on_data`."""

from collections import defaultdict
from typing import Any, NamedTuple

from pairbus.amqp.composite import decode_composite
from pairbus.amqp.decode import decode
from pairbus.amqp.frames import frame_header
from pairbus.amqp.performatives import Transfer


class Frame(NamedTuple):
    connection: int
    direction: str
    performative: Any  # None for an empty frame.
    size: int

    @property
    def name(self) -> str:
        return "empty" if self.performative is None else type(self.performative).__name__.lower()


class FrameLog:
    """Records all frames of the data that it is called with. Protocol headers are skipped."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._incomplete: dict[tuple[int, str], bytes] = defaultdict(bytes)

    def __call__(self, connection: int, direction: str, data: bytes) -> None:
        data = self._incomplete[connection, direction] + data
        pos = 0
        while len(data) - pos >= 8:
            if data[pos : pos + 4] == b"AMQP":
                pos += 8
                continue
            size, offset, _, _ = frame_header.unpack_from(data, pos)
            if len(data) - pos < size:
                break
            body = data[pos + 4 * offset : pos + size]
            performative = decode_composite(decode(body)[0]) if body else None
            self.frames.append(Frame(connection, direction, performative, size))
            pos += size
        self._incomplete[connection, direction] = data[pos:]

    def names(self, direction: str) -> list[str]:
        return [frame.name for frame in self.frames if frame.direction == direction]

    def transfers(self, direction: str) -> list[Frame]:
        return [
            frame
            for frame in self.frames
            if frame.direction == direction and isinstance(frame.performative, Transfer)
        ]
