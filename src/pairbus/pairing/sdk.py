"""All access to private names of messages, senders and receivers of the Azure SDK.

The SDK has no public way to read the bytes that it would send, to send bytes that are encoded
already, or to end a call that hangs. `pairing.sdk_opening` makes the opening of a link
interruptible, `pairing.sdk_clients` does the same for clients and `pairing.sdk_transfers` for
transfers; no other module of pairbus uses private names of the SDK.
`require` fails with a clear message when the installed version lacks a name.
"""

import contextlib
import inspect
import selectors
import ssl
from collections.abc import Awaitable
from copy import copy
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import azure.servicebus.aio
import certifi
from azure.core.settings import settings
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusSender,
    TransportType,
    __version__,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import ServiceBusError

from pairbus.errors import ConfigurationError

try:
    from azure.servicebus._common.tracing import (
        TraceAttributes,
        trace_message,
    )
    from azure.servicebus._pyamqp._encode import encode_payload
    from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
except ImportError as exc:
    raise ImportError(
        f"azure-servicebus {__version__} is not supported by this version of pairbus: {exc}. "
        "Install a supported version of azure-servicebus."
    ) from exc

_HANDSHAKE_CHECK_S = 0.25
DATA_SECTION = 5
"""The index of the encoded messages in the private message of a batch."""

_CONTEXT_NAMES = frozenset(("traceparent", b"traceparent", "Diagnostic-Id", b"Diagnostic-Id"))
"""Application properties with the trace context of the producer."""
CONTEXT_TEXTS = frozenset(("traceparent", "tracestate", "Diagnostic-Id"))
"""The names that the SDK adds while its tracing is enabled."""

Message: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage


def require(owner: Any, *names: str) -> None:
    """Raise ConfigurationError if an object or class of the SDK lacks one of these names."""
    for name in names:
        if not hasattr(owner, name):
            type_name = owner.__name__ if inspect.isclass(owner) else type(owner).__name__
            raise ConfigurationError(
                f"azure-servicebus {__version__} is not supported by this version of pairbus: "
                f"{type_name} has no {name!r}. Install a supported version of azure-servicebus."
            )


require(PyamqpTransport, "to_outgoing_amqp_message")
for _sender_class in (ServiceBusSender, azure.servicebus.aio.ServiceBusSender):
    require(_sender_class, "_open", "_create_handler")
require(ServiceBusMessage(None), "_message", "_raw_amqp_message")
require(ServiceBusMessageBatch(), "_message", "_count", "_amqp_transport", "_tracing_attributes")


# Messages.


def raw_message(message: Message) -> AmqpAnnotatedMessage:
    """Return the AMQP message behind a message."""
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


def encode(message: Message) -> bytes:
    """Return the bytes that the SDK would send. The message is not changed."""
    raw = raw_message(message)
    for value in (raw.application_properties or {}).values():
        if isinstance(value, bytes):
            # The SDK converts bytes to text, in the dictionary of the caller.
            raw = _with_own_properties(raw)
            break
    return _encode(PyamqpTransport.to_outgoing_amqp_message(raw))


def is_tracing_enabled() -> bool:
    """Return whether the application has enabled the tracing of the SDK."""
    return settings.tracing_implementation() is not None


def encode_traced(message: Message, host: str, path: str) -> bytes:
    """Return the bytes that the SDK would send to a path while its tracing is enabled: it makes a
    span for the message, and adds its context to the application properties. A context that the
    caller has set is kept."""
    raw = _with_own_properties(raw_message(message))
    outgoing = PyamqpTransport.to_outgoing_amqp_message(raw)
    # The SDK would add the names that are missing, with the context of another span.
    if _has_context(raw):
        return _encode(outgoing)
    traced = trace_message(
        outgoing,
        amqp_transport=PyamqpTransport(),
        additional_attributes={
            TraceAttributes.TRACE_NET_PEER_NAME_ATTRIBUTE: host,
            TraceAttributes.TRACE_MESSAGING_DESTINATION_ATTRIBUTE: path,
        },
    )
    return _encode(traced)


def keep_context(message: Message) -> Message:
    """Return a message whose trace context the SDK does not add a second time.

    The SDK looks for names in bytes only. If the caller has set a name in text, it adds the same
    name again while its tracing is enabled, and the receiver sees the last of the two. Both are
    encoded alike, so the result has the caller's names in bytes. Messages without such names, and
    all messages if tracing is not enabled, are returned unchanged.
    """
    properties = raw_message(message).application_properties
    if not properties or CONTEXT_TEXTS.isdisjoint(properties) or not is_tracing_enabled():
        return message
    renamed: dict[str | bytes, bytes] = {
        name: name.encode() for name in CONTEXT_TEXTS if name in properties
    }
    added = frozenset(renamed.values())  # by the SDK, if the caller sends a message again
    raw = copy(raw_message(message))
    raw.application_properties = {
        renamed.get(name, name): value for name, value in properties.items() if name not in added
    }
    return _with_raw(message, raw)


def _has_context(raw: AmqpAnnotatedMessage) -> bool:
    return any(name in _CONTEXT_NAMES for name in raw.application_properties or ())


def _with_own_properties(raw: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    """Return a copy of a message whose application properties can be changed."""
    if raw.application_properties:
        raw = copy(raw)
        raw.application_properties = dict(raw.application_properties or {})
    return raw


def _encode(outgoing: Any) -> bytes:
    return bytes(encode_payload(bytearray(), outgoing))


def with_new_id(message: Message) -> Message:
    """Return a copy of a message with a new message id."""
    raw = raw_message(message)
    properties = AmqpMessageProperties() if raw.properties is None else copy(raw.properties)
    properties.message_id = str(uuid4())
    raw = copy(raw)
    raw.properties = properties
    return _with_raw(message, raw)


def _with_raw(message: Message, raw: AmqpAnnotatedMessage) -> Message:
    """Return a copy of a message with another AMQP message."""
    if not isinstance(message, ServiceBusMessage):
        return raw
    twin = copy(message)
    twin._raw_amqp_message = raw
    return twin


# Batches.


def members(batch: ServiceBusMessageBatch) -> list[bytes]:
    """Return the encoded messages of a batch."""
    return [bytes(member) for member in batch._message[DATA_SECTION]]


class LinkLimits(NamedTuple):
    """The limits of an open link for batches and for single messages, in bytes."""

    max_batch_size: int
    max_message_size: int


def link_limits(sender: Any) -> Any:
    """Open the link of a sender, and return its LinkLimits; an awaitable in the async SDK."""
    batch = sender.create_message_batch()
    return _await_limits(batch, sender) if inspect.isawaitable(batch) else _limits(batch, sender)


async def _await_limits(batch: Awaitable[ServiceBusMessageBatch], sender: Any) -> LinkLimits:
    return _limits(await batch, sender)


def _limits(batch: ServiceBusMessageBatch, sender: Any) -> LinkLimits:
    require(sender, "_max_message_size_on_link")
    limits = LinkLimits(batch.max_size_in_bytes, int(sender._max_message_size_on_link))
    sender.pairbus_limits = limits
    return limits


def limits_of(sender: Any) -> LinkLimits | None:
    """Return the limits of a sender of a backlog queue; None if its link is not open, or if
    `link_limits` has not opened it."""
    limits: LinkLimits | None = sender.pairbus_limits if sender._running else None
    return limits


def batch_settings(batch: ServiceBusMessageBatch) -> dict[str, Any]:
    """Return the constructor arguments for another batch of the same sender."""
    return {
        "max_size_in_bytes": batch.max_size_in_bytes,
        "amqp_transport": batch._amqp_transport,
        "tracing_attributes": batch._tracing_attributes,
    }


# Errors.


def condition_of(error: ServiceBusError) -> str:
    """Return the AMQP condition of an error."""
    condition = getattr(error, "_condition", None)
    return condition.decode(errors="replace") if isinstance(condition, bytes) else str(condition)


def management_status_of(error: ServiceBusError) -> int | None:
    """Return the status of the management response that an error reports."""
    status = getattr(error, "_status_code", None)
    return status if isinstance(status, int) else None


# Senders and receivers.


def check_link(link: Any) -> None:
    """Raise ConfigurationError if a sender or receiver lacks a private name that pairbus uses."""
    require(link, "_open", "_handler", "_config", "_running")


def is_open(link: Any) -> bool:
    """Return whether the link of a sender or receiver is open."""
    return bool(link._running)


def make_handshake_interruptible(link: Any) -> None:
    """Let `interrupt` reach a sender or receiver during its TLS handshake. The SDK's handshake has
    no time limit, and its socket is not accessible from outside."""
    config = link._config
    if not config.use_tls or config.transport_type is not TransportType.Amqp:
        return
    context = config.ssl_context
    if context is None:
        # The same context as the SDK's. If the CA file does not exist, the SDK reports it.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(config.connection_verify or certifi.where())
        except OSError:
            return
    config.ssl_context = InterruptibleHandshake(context)


class InterruptibleHandshake:
    """A TLS context whose handshakes can be interrupted from another thread."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.interrupted = False

    def wrap_socket(self, sock: Any, **options: Any) -> Any:
        """Wrap a socket, as `SSLContext.wrap_socket` does."""
        wrapped = self._context.wrap_socket(sock, do_handshake_on_connect=False, **options)
        wrapped.setblocking(False)
        while not self.interrupted:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                _wait_for(wrapped, selectors.EVENT_READ)
            except ssl.SSLWantWriteError:
                _wait_for(wrapped, selectors.EVENT_WRITE)
            except BaseException:
                wrapped.close()
                raise
            else:
                wrapped.setblocking(True)  # the SDK sets its timeout afterwards
                return wrapped
        wrapped.close()
        raise TimeoutError("the TLS handshake was interrupted")


def _wait_for(sock: Any, event: int) -> None:
    """Wait until a socket is ready, not for long. `select.select` fails for a socket whose number
    is 1024 or more."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, event)
        selector.select(_HANDSHAKE_CHECK_S)


class CallInterrupted(ServiceBusError):
    """Raised inside an SDK call that was interrupted. It is a ServiceBusError, so that the SDK does
    not log a traceback."""


def interrupt(link: Any) -> None:
    """Make a call that hangs in another thread fail: shut its socket down, and prevent another
    connection. Must be repeated until the call ends, because the SDK may be between two sockets."""
    link._open = _raise_interrupted
    if isinstance(link._config.ssl_context, InterruptibleHandshake):
        link._config.ssl_context.interrupted = True
    handler = getattr(link, "_handler", None)  # a client has none
    if handler is not None:
        handler.open = _raise_interrupted
        handler._keep_alive_thread = None  # `close` would wait for it, for up to a second
        transport = _transport_of(handler)
        if transport is not None:
            # The host name may be resolved later, in a thread that was abandoned.
            transport._init_socket = _raise_interrupted
        sock = socket_of(handler)
        if sock is not None:
            with contextlib.suppress(OSError, AttributeError, ValueError):
                sock.shutdown(2)
    steps = getattr(link, "_pairbus_steps", None)
    if steps is not None:
        steps.interrupt()


def _raise_interrupted(*args: Any, **options: Any) -> None:
    raise call_interrupted()


def call_interrupted() -> CallInterrupted:
    """Return the error that is raised inside an interrupted call."""
    return CallInterrupted("the call was interrupted, because it took too long")


def close_socket(link: Any) -> None:
    """Close the socket of a link after its call was interrupted. The SDK's `close` does nothing
    while there is no session, and would leave the socket open."""
    handler = getattr(link, "_handler", None)  # a client has none
    sock = None if handler is None else socket_of(handler)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.close()


def socket_of(handler: Any) -> Any:
    """Return the socket of a handler of the synchronous SDK; None if it is not connected."""
    transport = _transport_of(handler)
    return None if transport is None else transport.sock


def _transport_of(handler: Any) -> Any:
    connection = handler._connection
    return None if connection is None else connection._transport


def abort_connection(link: Any) -> None:
    """Abort the connection of a link of the async SDK. The SDK's `close` does nothing during the
    handshake, and would leave the socket open."""
    handler = getattr(link, "_handler", None)
    connection = None if handler is None else handler._connection
    transport = None if connection is None else connection._transport
    # A WebSocket transport has no writer; its session is closed with its last user.
    writer = getattr(transport, "writer", None)
    if writer is not None:
        writer.transport.abort()
