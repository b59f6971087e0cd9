"""A check of an engine's output: it conforms to the protocol, whatever the engine received."""

from pairbus.amqp.composite import decode_composite
from pairbus.amqp.connection import Connection
from pairbus.amqp.decode import decode
from pairbus.amqp.frames import (
    AMQP_HEADER,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    frame_header,
)
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


class OutputCheck:
    """Parses the output of an engine. Raises AssertionError for a violation of the protocol."""

    def __init__(self, engine: Connection) -> None:
        self.engine = engine
        self.frames = 0
        self._open = self._closed = False
        self._handles: dict[int, set[int]] = {}
        self._next_delivery: dict[int, int] = {}

    def check(self, data: bytes) -> None:
        pos = 0
        while pos < len(data):
            if data[pos : pos + 8] in (AMQP_HEADER, SASL_HEADER):
                assert not self._open, "a protocol header after open"
                pos += 8
                continue
            size, offset, frame_type, channel = frame_header.unpack_from(data, pos)
            limit = max(self.engine.remote_max_frame_size, MIN_MAX_FRAME_SIZE)
            assert 8 <= size <= limit, f"a frame of {size} bytes; the maximum is {limit}"
            assert offset == 2
            body = data[pos + 8 : pos + size]
            assert len(body) == size - 8, "an incomplete frame"
            pos += size
            self.frames += 1
            assert not self._closed, "a frame after close"
            if frame_type == SASL_FRAME:
                assert not self._open, "a SASL frame after open"
            elif body:
                self._check_performative(channel, decode_composite(decode(body)[0]))

    def _check_performative(self, channel: int, performative: object) -> None:
        if isinstance(performative, Open):
            assert not self._open, "a second open"
            self._open = True
            return
        assert self._open, f"{performative} before open"
        if isinstance(performative, Close):
            self._closed = True
        elif isinstance(performative, Begin):
            assert channel not in self._handles, "a second begin"
            self._handles[channel] = set()
            self._next_delivery.pop(channel, None)
        else:
            assert channel in self._handles, f"{performative} on a channel without a session"
            self._check_in_session(channel, performative)

    def _check_in_session(self, channel: int, performative: object) -> None:
        handles = self._handles[channel]
        if isinstance(performative, End):
            del self._handles[channel]
        elif isinstance(performative, Attach):
            assert performative.handle not in handles, "an attach with a handle that is in use"
            handles.add(performative.handle)
        elif isinstance(performative, Detach):
            assert performative.handle in handles, "a detach without a link"
            handles.remove(performative.handle)
        elif isinstance(performative, Flow):
            handle = performative.handle
            assert handle is None or handle in handles, "a flow without a link"
        elif isinstance(performative, Transfer):
            assert performative.handle in handles, "a transfer without a link"
            delivery_id = performative.delivery_id
            if delivery_id is not None:
                expected = self._next_delivery.get(channel, delivery_id)
                assert delivery_id == expected, f"delivery {delivery_id} instead of {expected}"
                self._next_delivery[channel] = (expected + 1) & 0xFFFFFFFF
        else:
            assert isinstance(performative, Disposition), f"an unexpected {performative}"
