"""Whatever an engine is told, what it writes itself keeps to the protocol."""

from pairbus.amqp.composite import decode_composite
from pairbus.amqp.connection import Connection
from pairbus.amqp.decode import decode
from pairbus.amqp.frames import AMQP_HEADER, MIN_MAX_FRAME_SIZE, SASL_HEADER, frame_header
from pairbus.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
)


class Audit:
    """Reads what one engine writes. Raises AssertionError for what no engine may write."""

    def __init__(self, engine: Connection) -> None:
        self.engine = engine
        self.frames = 0
        self._open = self._closed = False
        self._handles: dict[int, set[int]] = {}
        self._next_delivery: dict[int, int] = {}

    def take(self, data: bytes) -> None:
        pos = 0
        while pos < len(data):
            if data[pos : pos + 8] in (AMQP_HEADER, SASL_HEADER):
                assert not self._open, "a header behind an open"
                pos += 8
                continue
            size, offset, kind, channel = frame_header.unpack_from(data, pos)
            limit = max(self.engine.remote_max_frame_size, MIN_MAX_FRAME_SIZE)
            assert 8 <= size <= limit, f"a frame of {size} bytes, {limit} at most"
            assert offset == 2
            body = data[pos + 8 : pos + size]
            assert len(body) == size - 8, "half a frame"
            pos += size
            self.frames += 1
            assert not self._closed, "something behind a close"
            if kind == 1:
                assert not self._open, "a SASL frame behind an open"
            elif body:
                self._take(channel, decode_composite(decode(body)[0]))

    def _take(self, channel: int, said: object) -> None:
        if isinstance(said, Open):
            assert not self._open, "a second open"
            self._open = True
            return
        assert self._open, f"{said} before open"
        if isinstance(said, Close):
            self._closed = True
        elif isinstance(said, Begin):
            assert channel not in self._handles, "a second begin"
            self._handles[channel] = set()
            self._next_delivery.pop(channel, None)
        else:
            assert channel in self._handles, f"{said} on a channel that has not begun"
            self._take_in_session(channel, said)

    def _take_in_session(self, channel: int, said: object) -> None:
        handles = self._handles[channel]
        if isinstance(said, End):
            del self._handles[channel]
        elif isinstance(said, Attach):
            assert said.handle not in handles, "a handle in use"
            handles.add(said.handle)
        elif isinstance(said, Detach):
            assert said.handle in handles, "a detach of nothing"
            handles.remove(said.handle)
        elif isinstance(said, Flow):
            assert said.handle is None or said.handle in handles, "a flow on no link"
        elif isinstance(said, Transfer):
            assert said.handle in handles, "a transfer on no link"
            if said.delivery_id is not None:
                due = self._next_delivery.get(channel, said.delivery_id)
                assert said.delivery_id == due, f"{said.delivery_id} instead of {due}"
                self._next_delivery[channel] = (due + 1) & 0xFFFFFFFF
        else:
            assert isinstance(said, Disposition), f"{said} has no place"
