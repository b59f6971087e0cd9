"""The Azure SDK, as far as a pairing notices it: senders and receivers with the SDK's habits.

They speak AMQP to the emulator over the simulated network, with pairbus's own client. From the
SDK they have: a connection for each sender, opened by the first call; retries with growing pauses;
no time limit for the handshake or for an answer; a send that is answered with *released* never
returns; a link that ends during a send gives a connection error of unknown kind; errors by the
tables of docs/reference/failures.md. Messages, batches and exceptions are those of the real SDK.
"""

from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from azure.servicebus import ServiceBusMessageBatch, TransportType
from azure.servicebus import exceptions as sdk

from pairbus.amqp.batch import BATCH_FORMAT, batch_envelope, make_batch, split_batch
from pairbus.amqp.client import Client, ClientOptions, Management, Sender
from pairbus.amqp.sections import Message
from pairbus.errors import (
    AmqpError,
    ConnectionLost,
    LinkLost,
    MessageTooLarge,
    OperationTimeout,
    StateError,
)
from pairbus.pairing.sdk import DATA_SECTION, CallInterrupted, encode, raw_message
from pairbus.pairing.sdk_payloads import EncodedMessage
from pairbus.pairing.sdk_transfers import LinkDeliverySettleReason
from pairbus.servicebus import annotations
from pairbus.servicebus.limits import MAX_MESSAGE_SIZE_STANDARD
from pairbus.servicebus.ping import PING_CONTENT_TYPE
from tests.simulation.scheduler import Process
from tests.simulation.sdk_errors import opening_error, request_error, sending_error

T = TypeVar("T")

FOREVER_S = 1_000_000.0
BACKOFF_S, MAX_BACKOFF_S = 0.8, 120.0
"""The SDK's defaults."""
ANSWERED = LinkDeliverySettleReason.DISPOSITION_RECEIVED

TransferHook = Callable[["SdkSender", list[bytes], str], None]
"""Called with the messages of a transfer, and what happens: `sends`, `accepted` or `rejected`."""


class SdkConfig:
    """The private settings of a client that pairbus reads."""

    use_tls = False
    transport_type = TransportType.Amqp
    ssl_context = None
    connection_verify = None
    http_proxy = None

    def __init__(self, retries: int) -> None:
        self.retry_total = retries


class SdkClient:
    """In the place of `ServiceBusClient`."""

    def __init__(
        self,
        process: Process,
        options: ClientOptions,
        on_call: Callable[["SdkSender"], None],
        *,
        retries: int,
    ) -> None:
        """`on_call` is called when a sender is about to send messages that are no ping."""
        self.process = process
        self.options = options
        self.on_call = on_call
        self.fully_qualified_namespace = options.host
        self._config = SdkConfig(retries)
        self._handlers: set[Any] = set()
        self.hooks: list[TransferHook] = []
        self.stale_share = 0.0
        """The share of peeks during a hold that miss messages. A namespace may answer peeks from a
        copy that is behind."""
        self.is_held: Callable[[], bool] = lambda: False
        """Returns whether a hold is in progress."""

    def get_queue_sender(self, path: str, **options: Any) -> "SdkSender":
        return SdkSender(self, path)

    def get_queue_receiver(self, path: str, **options: Any) -> "SdkReceiver":
        return SdkReceiver(self, path)

    def close(self) -> None:
        pass


class _Link:
    """The part that senders and receivers share."""

    def __init__(self, client: SdkClient, path: str) -> None:
        self._sdk_client = client
        self._config = client._config
        self._handler: Any = None
        self.path = path
        self.process = client.process
        self.client = Client(client.options)
        self.client_identifier = f"{client.process.name}-{path}"
        self.fully_qualified_namespace = client.fully_qualified_namespace

    _running = False

    def _open(self) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        """Close the socket at once, as the interruption of a call does."""
        transport = self.client._transport
        if transport is not None:
            transport.close()

    def close(self) -> None:
        self.client.close(timeout_s=5)


class _Frame:
    def __init__(self) -> None:
        self.frame = {"delivery_id": 1}


class TransferRecord:
    """In the place of the SDK's record of a message that it transfers."""

    delivery = _Frame()

    def __init__(self) -> None:
        self.reason: Any = None


class SdkSender(_Link):
    """In the place of `ServiceBusSender`."""

    def __init__(self, client: SdkClient, path: str) -> None:
        super().__init__(client, path)
        self._sender = Sender(self.client, path)
        self._management: Management | None = None
        self._max_message_size_on_link = 0
        self.pairbus_transfers: list[TransferRecord] = []
        self.pairbus_abandoned = False
        self.pairbus_sizes: list[list[int]] | None = None

    def _create_handler(self, auth: Any) -> None:
        """Exist, for the check of private names."""

    def __enter__(self) -> "SdkSender":
        self._retry(self._open)
        return self

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        if not self._max_message_size_on_link:
            self._retry(self._open)
        size = self._sender.max_batch_size or MAX_MESSAGE_SIZE_STANDARD
        return ServiceBusMessageBatch(max_size_in_bytes=max_size_in_bytes or size)

    def send_messages(self, message: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        self._sending(message, self._send, timeout)()

    def _sending(
        self, message: Any, attempt: "Attempt", timeout: float | None
    ) -> Callable[[], None]:
        """Report a call, and return the function that carries it out."""
        delivery = _delivery_of(message)
        if not delivery.is_ping:
            self._sdk_client.on_call(self)
        return lambda: self._retry(lambda: attempt(delivery, timeout))

    def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None, **_: Any
    ) -> Any:
        return self._scheduling(messages, schedule_time_utc, timeout)()

    def cancel_scheduled_messages(
        self, numbers: list[int], *, timeout: float | None, **_: Any
    ) -> Any:
        return self._requesting([], lambda requests: requests.cancel(numbers, timeout_s=timeout))()

    def _scheduling(
        self, messages: Any, enqueue_at: datetime, timeout: float | None
    ) -> Callable[[], list[int]]:
        """Report a call that schedules messages, and return the function that carries it out."""
        several = messages if isinstance(messages, list) else [messages]
        payloads = [_encode_scheduled(message, enqueue_at) for message in several]
        return self._requesting(
            payloads, lambda requests: requests.schedule(payloads, timeout_s=timeout)
        )

    def _requesting(
        self, payloads: list[bytes], request: Callable[[Management], T]
    ) -> Callable[[], T]:
        """Report a call that makes a management request, and return the function that carries it
        out."""
        self._sdk_client.on_call(self)
        return lambda: self._retry(lambda: self._request(payloads, request))

    # The private names that `send_payloads` uses.

    _amqp_transport = None

    def _check_live(self) -> None:
        pass

    def _do_retryable_operation(
        self, operation: "Attempt", *, message: Any, timeout: float | None, **_: Any
    ) -> None:
        self._sending(message, operation, timeout)()

    # One attempt.

    def _open(self) -> None:
        if self.pairbus_abandoned:
            raise CallInterrupted("the call was abandoned, because it took too long")
        try:
            self._sender.open(FOREVER_S)
        except StateError as exc:  # it was closed
            raise ValueError(str(exc)) from exc
        except AmqpError as exc:
            raise opening_error(exc) from exc
        self._max_message_size_on_link = self._sender.max_message_size or MAX_MESSAGE_SIZE_STANDARD
        self._running = True

    def _send(self, delivery: "EncodedDelivery", timeout: float | None) -> None:
        self._open()
        payloads, now = delivery.members, self.process.monotonic()
        try:
            pending = self._sender.enqueue(
                delivery.payload, delivery.message_format, now + FOREVER_S
            )
        except MessageTooLarge as exc:
            raise sdk.MessageSizeExceededError(message=str(exc)) from exc
        except AmqpError as exc:  # the link was lost while the sender waited for credit
            raise sending_error(exc, rejected=False) from exc
        record = self._begin_transfer(payloads)
        if self.pairbus_sizes is not None:
            self.pairbus_sizes.append(list(map(len, payloads)))
        try:
            self._sender.wait([pending], timeout_s=FOREVER_S if timeout is None else timeout)
        except AmqpError as exc:
            pending.error = pending.error or exc
        error = pending.error
        if error is None:
            self._answered(record, payloads, "accepted")
            return
        if pending.rejected:
            self._answered(record, payloads, "rejected")
        elif not isinstance(error, ConnectionLost | LinkLost | OperationTimeout):
            self.process.scheduler.current_task().wait(None)  # released: the SDK never returns
        raise sending_error(error, rejected=pending.rejected) from error

    def _request(self, payloads: list[bytes], request: Callable[[Management], T]) -> T:
        self._open()
        management = self._management = self._management or Management(self.client, self.path)
        link: Any = management._requests._sender
        records: list[TransferRecord] = []

        def enqueue(*arguments: Any) -> Any:
            pending = Sender.enqueue(link, *arguments)
            records.append(self._begin_transfer(payloads))
            return pending

        link.enqueue = enqueue
        try:
            result = request(management)
        except AmqpError as exc:
            answered = not isinstance(exc, ConnectionLost | LinkLost | OperationTimeout)
            if records and answered:
                self._answered(records[0], payloads, "rejected")
            raise request_error(exc, transferred=bool(records), answered=answered) from exc
        self._answered(records[0], payloads, "accepted")
        return result

    def _begin_transfer(self, payloads: list[bytes]) -> TransferRecord:
        """Record a transfer that is about to begin."""
        record = TransferRecord()
        self.pairbus_transfers.append(record)
        if self.pairbus_abandoned:
            raise CallInterrupted("the call was abandoned, because it took too long")
        self._report(payloads, "sends")
        return record

    def _answered(self, record: TransferRecord, payloads: list[bytes], event: str) -> None:
        record.reason = ANSWERED
        self._report(payloads, event)

    def _report(self, payloads: list[bytes], event: str) -> None:
        for hook in self._sdk_client.hooks:
            hook(self, payloads, event)

    def _retry(self, attempt: Callable[[], T]) -> T:
        retries = 0
        while True:
            try:
                return attempt()
            except sdk.ServiceBusError as exc:
                if isinstance(exc, CallInterrupted):
                    raise
                if exc._shutdown_handler:
                    self._restart()
                if not exc._retryable or retries >= self._config.retry_total:
                    raise
            retries += 1
            pause_s = min(BACKOFF_S * 2 ** (retries - 1), MAX_BACKOFF_S)
            self.process.scheduler.current_task().wait(pause_s)

    def _restart(self) -> None:
        """Open a new connection at the next attempt."""
        self.abort()
        self._running = False
        self.client = Client(self._sdk_client.options)
        self._sender = Sender(self.client, self.path)
        self._management = None


class EncodedDelivery(NamedTuple):
    """The messages of a call, as the SDK transfers them."""

    members: list[bytes]
    """Each message."""
    payload: bytes
    """The single message, or the batch."""
    message_format: int = 0
    is_ping: bool = False


Attempt = Callable[[EncodedDelivery, float | None], None]
"""Sends a delivery once, with a timeout."""


def _delivery_of(message: Any) -> EncodedDelivery:
    if isinstance(message, ServiceBusMessageBatch):
        inner: Any = message._message
        if not isinstance(inner, EncodedMessage):
            return _batch_of([bytes(member) for member in inner[DATA_SECTION]])
        is_batch = inner._code == BATCH_FORMAT
        members = split_batch(inner.payload) if is_batch else [inner.payload]
        return EncodedDelivery(members, inner.payload, inner._code)
    if isinstance(message, list):
        return _batch_of([encode(each) for each in message])
    properties = raw_message(message).properties
    content_type = None if properties is None else properties.content_type
    is_ping = content_type in (PING_CONTENT_TYPE, PING_CONTENT_TYPE.encode())
    payload = encode(message)
    return EncodedDelivery([payload], payload, is_ping=is_ping)


def _encode_scheduled(message: Any, enqueue_at: datetime) -> bytes:
    """Return a message as the SDK encodes it to be scheduled."""
    twin = copy(message)
    twin._raw_amqp_message = raw = copy(message.raw_amqp_message)
    raw.annotations = dict(raw.annotations or {})
    twin.scheduled_enqueue_time_utc = enqueue_at
    return encode(twin)


def _batch_of(members: list[bytes]) -> EncodedDelivery:
    return EncodedDelivery(members, make_batch(members, batch_envelope(members[0])), BATCH_FORMAT)


class PeekedMessage:
    """In the place of `ServiceBusReceivedMessage`, for peeks."""

    raw_amqp_message = None

    def __init__(self, payload: bytes) -> None:
        values = Message.parse(payload).read_message_annotations()
        self.sequence_number = int(values[annotations.SEQUENCE_NUMBER])
        enqueued_ms = int(values[annotations.ENQUEUED_TIME])
        self.enqueued_time_utc = datetime.fromtimestamp(enqueued_ms / 1000, UTC)


class SdkReceiver(_Link):
    """In the place of `ServiceBusReceiver`, which a pairing uses for peeks."""

    def __init__(self, client: SdkClient, path: str) -> None:
        super().__init__(client, path)
        self._management = Management(self.client, path)
        self._has_missed = False
        """The last peek has missed messages. No two in a row do."""

    def peek_messages(
        self, max_message_count: int = 1, *, sequence_number: int = 0, timeout: float | None = None
    ) -> list[PeekedMessage]:
        try:
            payloads = self._management.peek(sequence_number, max_message_count, timeout_s=timeout)
        except AmqpError as exc:
            raise opening_error(exc) from exc
        self._has_missed = (
            self._sdk_client.stale_share > 0
            and bool(payloads)
            and not self._has_missed
            and self._sdk_client.is_held()
            and self.process.scheduler.random.random() < self._sdk_client.stale_share
        )
        if self._has_missed:
            self.process.scheduler.trace(self.process.name, f"peek of {self.path} misses messages")
            return []
        return [PeekedMessage(payload) for payload in payloads]
