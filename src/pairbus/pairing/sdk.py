"""Everything that is private in the Azure SDK and used here all the same, in one place.

A test pins each name. The SDK has no public way to learn what bytes it would send, to send bytes
that are there already, to end a call that hangs, or to make a sender that does not retry.
"""

import contextlib
import select
import ssl
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any
from uuid import uuid4

import certifi
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, TransportType
from azure.servicebus._pyamqp.constants import SessionTransferState
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import ServiceBusError

_LOOK_S = 0.25
_DATA = 5
"""Where a batch keeps its members."""

Single = ServiceBusMessage | AmqpAnnotatedMessage


def annotated(message: Single) -> AmqpAnnotatedMessage:
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


def encode(message: Single) -> bytes:
    """The bytes that the SDK would send. The message is not changed."""
    # The SDK turns bytes among the application properties into text, in the caller's dictionary.
    raw = copy(annotated(message))
    if raw.application_properties:
        raw.application_properties = dict(raw.application_properties)
    holder = ServiceBusMessage(None)
    holder._message = PyamqpTransport.to_outgoing_amqp_message(raw)
    return bytes(PyamqpTransport.encode_message(holder))


def size_of(received: Any) -> int:
    """About how many bytes a message had that was received; 0 where the SDK cannot write it."""
    try:
        return len(encode(received.raw_amqp_message))
    except Exception:  # noqa: BLE001  it is only counted
        return 0


def with_id(message: Single) -> Single:
    """The message, or a copy of it with an id if it has none."""
    raw = annotated(message)
    if raw.properties is not None and raw.properties.message_id is not None:
        return message
    properties = AmqpMessageProperties() if raw.properties is None else copy(raw.properties)
    properties.message_id = str(uuid4())
    raw = copy(raw)
    raw.properties = properties
    if not isinstance(message, ServiceBusMessage):
        return raw
    twin = copy(message)
    twin._raw_amqp_message = raw
    return twin


def members(batch: ServiceBusMessageBatch) -> list[bytes]:
    """The encoded messages of a batch."""
    return [bytes(member) for member in batch._message[_DATA]]


def batch_of(payloads: Iterable[bytes], like: ServiceBusMessageBatch) -> ServiceBusMessageBatch:
    """A batch of messages that are encoded already, for the sender that made the batch `like`."""
    # Of another transport than its own the async SDK makes a new batch, out of what was added by
    # `add_message`: here nothing. It would send that, and report success.
    batch = ServiceBusMessageBatch(amqp_transport=like._amqp_transport)
    batch._message[_DATA].extend(bytearray(payload) for payload in payloads)
    batch._count = len(batch._message[_DATA])
    return batch


class PairedBatch(ServiceBusMessageBatch):
    """A batch of the SDK that gives messages without an id one, and refuses those whose application
    properties use a name that the backlog needs."""

    @classmethod
    def like(cls, batch: ServiceBusMessageBatch) -> "PairedBatch":
        return cls(
            max_size_in_bytes=batch.max_size_in_bytes,
            amqp_transport=batch._amqp_transport,
            tracing_attributes=batch._tracing_attributes,
        )

    def add_message(self, message: Single | Mapping[str, Any]) -> None:
        from pairbus.pairing.payloads import checked

        super().add_message(checked(message))


def keep_transfers(sender: Any) -> None:
    """From now on a sender keeps the sizes of the messages of each delivery that it hands to its
    link, in `_pairbus_transfers`, until somebody takes them from there."""
    kept: list[list[int]] = []
    create = sender._create_handler

    def create_and_listen(auth: Any) -> None:
        create(auth)
        handler = sender._handler
        if hasattr(handler, "_transfer_message_async"):
            _listen_async(handler, kept)
        else:
            _listen(handler, kept)

    sender._create_handler = create_and_listen
    sender._pairbus_transfers = kept


def _listen(handler: Any, kept: list[list[int]]) -> None:
    transfer = handler._transfer_message
    known: Any = None

    def listen(*args: Any, **options: Any) -> Any:
        nonlocal known
        session = handler._link._session
        if session is not known:
            known, send = session, session._outgoing_transfer

            def outgoing(delivery: Any, *more: Any) -> None:
                sizes = _sizes(delivery)
                send(delivery, *more)
                _keep(kept, handler, delivery, sizes)

            session._outgoing_transfer = outgoing
        return transfer(*args, **options)

    handler._transfer_message = listen


def _listen_async(handler: Any, kept: list[list[int]]) -> None:
    transfer = handler._transfer_message_async
    known: Any = None

    async def listen(*args: Any, **options: Any) -> Any:
        nonlocal known
        session = handler._link._session
        if session is not known:
            known, send = session, session._outgoing_transfer

            async def outgoing(delivery: Any, *more: Any) -> None:
                sizes = _sizes(delivery)
                await send(delivery, *more)
                _keep(kept, handler, delivery, sizes)

            session._outgoing_transfer = outgoing
        return await transfer(*args, **options)

    handler._transfer_message_async = listen


def _sizes(delivery: Any) -> list[int]:
    """The bytes of each message of a delivery that is about to go out."""
    if isinstance(delivery.message, BatchMessage):
        members: Any = delivery.message[_DATA]
        return list(map(len, members))
    return [len(delivery.frame["payload"])]


def _keep(kept: list[list[int]], handler: Any, delivery: Any, sizes: list[int]) -> None:
    # A session that is out of window sends nothing, and is asked again. The management link is on
    # this session, too, and is counted elsewhere.
    link = handler._link
    if (
        delivery.transfer_state == SessionTransferState.OKAY
        and link is not None
        and delivery.frame["handle"] == link.handle
    ):
        kept.append(sizes)


def without_retries(client: Any) -> Any:
    """A client like this one, whose senders and receivers try once."""
    twin = copy(client)
    twin._config = copy(client._config)
    twin._config.retry_total = 0
    return twin


def make_handshake_endable(sender: Any) -> None:
    """See to it that `break_off` reaches a sender in its TLS handshake. The SDK does that without a
    limit, and nobody else has the socket then."""
    config = sender._config
    if not config.use_tls or config.transport_type is not TransportType.Amqp:
        return
    context = config.ssl_context
    if context is None:
        # As the SDK makes it; a file that is not there is for the SDK to complain about.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(config.connection_verify or certifi.where())
        except OSError:
            return
    config.ssl_context = EndableHandshake(context)


class EndableHandshake:
    """A TLS context whose handshakes can be ended from another thread."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.ended = False

    def wrap_socket(self, sock: Any, **options: Any) -> Any:
        wrapped = self._context.wrap_socket(sock, do_handshake_on_connect=False, **options)
        wrapped.setblocking(False)
        while not self.ended:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                select.select([wrapped], [], [], _LOOK_S)
            except ssl.SSLWantWriteError:
                select.select([], [wrapped], [], _LOOK_S)
            except BaseException:
                wrapped.close()
                raise
            else:
                wrapped.setblocking(True)  # the SDK sets its own limit afterwards
                return wrapped
        wrapped.close()
        raise TimeoutError("the TLS handshake was given up")


class BrokenOff(ServiceBusError):
    """What a call of the SDK meets that was given up. One of its own errors, so that it does not
    log a stack for it."""


def break_off(sender: Any) -> None:
    """Make a call that hangs in another thread fail: its socket ends, and it gets no other. Can be
    called again, and must be: the SDK may be between two sockets."""
    sender._open = _broken_off
    if isinstance(sender._config.ssl_context, EndableHandshake):
        sender._config.ssl_context.ended = True
    handler = sender._handler
    if handler is None:
        return
    handler.open = _broken_off
    sock = _socket_of(handler)
    if sock is not None:
        with contextlib.suppress(OSError, AttributeError, ValueError):
            sock.shutdown(2)


def hang_up(sender: Any) -> None:
    """Close the socket of a sender whose call was broken off, and has returned. The SDK's own close
    does nothing while there is no session, and would leave it open."""
    sock = None if sender._handler is None else _socket_of(sender._handler)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.close()


def _socket_of(handler: Any) -> Any:
    connection = handler._connection
    transport = None if connection is None else connection._transport
    return None if transport is None else transport.sock


def cut_off(one: Any) -> None:
    """Cut the connection of something of the async SDK, if it has one. Closing would not: it does
    nothing while a handshake is under way, and the socket would stay open."""
    handler = getattr(one, "_handler", None)
    connection = None if handler is None else handler._connection
    transport = None if connection is None else connection._transport
    # Not over a web socket; there, the session ends with its last user.
    writer = getattr(transport, "writer", None)
    if writer is not None:
        writer.transport.abort()


def _broken_off(*args: Any, **options: Any) -> None:
    raise BrokenOff("this call was given up: it took too long")
