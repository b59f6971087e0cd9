"""Sends of messages that are encoded already, and messages of batches and frames that are encoded
once. Uses private names of the SDK, like `pairing.sdk`.

The SDK encodes each message itself. Encoded messages pass through it in a message without sections,
for which the SDK encodes nothing; the session of the link then gets their bytes.
"""

from collections.abc import Awaitable
from typing import Any

from azure.servicebus import ServiceBusMessageBatch, __version__

from pairbus.amqp.batch import BATCH_FORMAT, make_batch
from pairbus.pairing.sdk import DATA_SECTION, require

try:
    from azure.servicebus._pyamqp._encode import encode_payload
    from azure.servicebus._pyamqp.constants import SessionState, SessionTransferState
    from azure.servicebus._pyamqp.message import BatchMessage
    from azure.servicebus._pyamqp.performatives import TransferFrame
    from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
except ImportError as exc:
    raise ImportError(
        f"azure-servicebus {__version__} is not supported by this version of pairbus: {exc}. "
        "Install a supported version of azure-servicebus."
    ) from exc

require(PyamqpTransport, "get_message_encoded_size", "add_batch")
require(ServiceBusMessageBatch(), "_amqp_transport", "_message", "_messages", "_count")

_NO_SECTIONS = (None,) * len(BatchMessage._fields)
_MAX_FRAME_OVERHEAD = 256
"""More than the size of a transfer frame without its payload: all of its fields are short."""
# Module constants for the hot path: Python 3.11 is slow to look up members of an enum.
_MAPPED, _OKAY = SessionState.MAPPED, SessionTransferState.OKAY


class BatchEncoder(PyamqpTransport):
    """Adds messages to a batch, and encodes each of them once. The SDK encodes a message twice,
    first to learn its size."""

    def __init__(self) -> None:
        self._message: Any = None
        self._encoded = b""

    def add(self, batch: ServiceBusMessageBatch, message: Any) -> None:
        """Add a message, as `ServiceBusMessageBatch.add_message` does."""
        # A sender of the SDK that finds another transport than its own builds another batch.
        transport_of_sender = batch._amqp_transport
        batch._amqp_transport = self
        try:
            ServiceBusMessageBatch.add_message(batch, message)
        finally:
            batch._amqp_transport = transport_of_sender

    def get_message_encoded_size(self, message: Any) -> int:  # type: ignore[override]
        """Encode a message, and return its size."""
        self._message = message
        self._encoded = encode_payload(bytearray(), message)
        return len(self._encoded)

    def add_batch(self, batch: Any, holder: Any) -> None:  # type: ignore[override]
        """Add the message whose size was asked for."""
        assert holder._message is self._message
        batch._message[DATA_SECTION].append(self._encoded)


class EncodedMessage(tuple[None, ...]):  # noqa: SLOT001  the SDK takes the format from an attribute
    """An encoded message or batch, in the place of a message of the SDK."""

    application_properties = None
    _code: int
    """The message format, as in the SDK."""
    payload: bytes
    sizes: list[int]
    """The size of each message."""

    @classmethod
    def of(cls, payloads: list[bytes]) -> "EncodedMessage":
        """Return a single message, or a batch of several."""
        message = cls(_NO_SECTIONS)
        message.sizes = list(map(len, payloads))
        if len(payloads) == 1:
            message._code, message.payload = 0, payloads[0]
        else:
            message._code, message.payload = BATCH_FORMAT, make_batch(payloads)
        return message


class EncodedBatch(ServiceBusMessageBatch):
    """Encoded messages in the form of a batch, which a sender of the SDK sends without changes. A
    single message is not sent as a batch: the service has a higher limit for it, and less work."""

    def __init__(self, payloads: list[bytes], amqp_transport: Any) -> None:
        # These are all fields that a sender reads; the constructor of the SDK takes as long as the
        # encoding of a message. If the transport is not that of the sender, the sender builds
        # another batch from `_messages`.
        self._amqp_transport = amqp_transport
        self._message: Any = EncodedMessage.of(payloads)
        self._messages: list[Any] = []
        self._count = len(payloads)


def send_payloads(sender: Any, payloads: list[bytes], *, traced: bool) -> Any:
    """Send encoded messages as one delivery, with the retries of the SDK. Returns an awaitable in
    the async SDK. `traced`: the application has enabled the tracing of the SDK. The sender must
    have sessions of `encode_frames_once`."""
    batch = EncodedBatch(payloads, sender._amqp_transport)
    if traced:
        return sender.send_messages(batch)
    # The end of `send_messages`, as it is without tracing. Its beginning examines and converts
    # messages, which takes longer than the encoding of a batch.
    sender._check_live()
    return sender._do_retryable_operation(
        sender._send,
        message=batch,
        timeout=None,
        operation_requires_timeout=True,
        apply_try_timeout=True,
        require_last_exception=True,
    )


def encode_frames_once(session: Any) -> None:
    """Let a session of the SDK transfer messages that are encoded already, and encode the frame of
    a short message once. The SDK encodes it twice, to learn how many frames it needs."""
    outgoing_transfer = session._outgoing_transfer
    connection = session._connection

    def transfer(delivery: Any, network_trace: Any) -> Any:
        frame = delivery.frame
        if type(delivery.message) is EncodedMessage:
            frame["payload"] = delivery.message.payload
        if (
            network_trace
            or session.state is not _MAPPED
            or session.remote_incoming_window <= 0
            or len(frame["payload"]) > connection._remote_max_frame_size - _MAX_FRAME_OVERHEAD
        ):
            return outgoing_transfer(delivery, network_trace)
        frame["delivery_id"] = session.next_outgoing_id
        written = connection._process_outgoing_frame(session.channel, TransferFrame(**frame))
        if written is None:
            return _count_transfer(session, delivery)
        return _count_when_written(written, session, delivery)

    session._outgoing_transfer = transfer


async def _count_when_written(written: Awaitable[None], session: Any, delivery: Any) -> None:
    await written
    _count_transfer(session, delivery)


def _count_transfer(session: Any, delivery: Any) -> None:
    session.next_outgoing_id += 1
    session.remote_incoming_window -= 1
    session.outgoing_window -= 1
    delivery.transfer_state = _OKAY
