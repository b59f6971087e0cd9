"""The azure-servicebus SDK as a peer: its synchronous and its asynchronous client.

They have separate implementations of connection, session, links and transport, so they are two
peers. A proxy makes the asynchronous client callable from the tests.
"""

import asyncio
import inspect
import threading
from collections.abc import Iterator
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode, TransportType
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp.performatives import Accepted, Error, Modified, Rejected
from pairbus.amqp.types import (
    Symbol,
)
from tests.interop.messages import PeerMessage
from tests.interop.peers import (
    DEADLINE_S,
    ConnectOptions,
    PeerClient,
    PeerError,
    PeerReceiver,
    PeerSender,
)
from tests.interop.sdk_cases import NO_RETRIES, QUICK_CLOSE, RETRIES
from tests.interop.sdk_values import (
    as_read_by_sdk,
    error_from_sdk,
    message_from_sdk,
    message_to_sdk,
)


class SdkSender(PeerSender):
    def __init__(self, sender: Any) -> None:
        self.native = sender

    def send(self, message: PeerMessage | bytes) -> Any:
        assert isinstance(message, PeerMessage), "the SDK does not send encoded messages"
        return self._send(message_to_sdk(message))

    def send_batch(self, messages: list[PeerMessage]) -> Any:
        return self._send([message_to_sdk(message) for message in messages])

    def _send(self, message: Any) -> Any:
        try:
            self.native.send_messages(message)
        except ServiceBusError as exc:
            error = error_from_sdk(exc)
            if error is None:
                raise PeerError("link", None) from exc
            return Rejected(error)
        return Accepted()

    def close(self, error: Error | None = None) -> None:
        self.native.close()


class SdkReceiver(PeerReceiver):
    def __init__(self, receiver: Any) -> None:
        self.native = receiver

    def receive(self, count: int = 1) -> list[PeerMessage]:
        messages: list[Any] = []
        while len(messages) < count:
            some = self.native.receive_messages(count - len(messages), max_wait_time=DEADLINE_S)
            assert some, f"only {len(messages)} of {count} messages arrived"
            messages += some
        return [message_from_sdk(message) for message in messages]

    def settle(self, message: PeerMessage, state: Any = None) -> None:
        match state or Accepted():
            case Accepted():
                self.native.complete_message(message.handle)
            case Modified(undeliverable_here=True):
                self.native.defer_message(message.handle)
            case Modified():
                self.native.abandon_message(message.handle)
            case Rejected(error):
                assert error is not None
                self.native.dead_letter_message(
                    message.handle,
                    reason=(error.info or {})["DeadLetterReason"],
                    error_description=error.description,
                )

    def close(self, error: Error | None = None) -> None:
        self.native.close()


class SdkClient(PeerClient):
    """The synchronous client. Each of its senders and receivers has a connection."""

    name = "sdk"
    heartbeats_s = 0.75
    # The SDK has no outcome for released, and none for rejected without an error.
    outcomes = (
        Accepted(),
        Modified(delivery_failed=True),
        Modified(delivery_failed=True, undeliverable_here=True),
        Rejected(
            Error(
                Symbol("com.microsoft:dead-letter"),
                "what",
                {
                    Symbol("DeadLetterReason"): "why",
                    Symbol("DeadLetterErrorDescription"): "what",
                },
            )
        ),
    )

    def __init__(self, port: int, options: ConnectOptions) -> None:
        host = f"127.0.0.1:{port}" if options.tls is None else "localhost"
        text = f"Endpoint=sb://{host}/;SharedAccessKeyName=root;SharedAccessKey=a2V5;"
        native: dict[str, Any] = dict(RETRIES if options.reconnect else NO_RETRIES)
        if options.tls is None:
            text += "UseDevelopmentEmulator=true;"
        else:
            files = options.tls
            native |= {
                "custom_endpoint_address": f"sb://localhost:{port}",
                "transport_type": TransportType.Amqp,
                "connection_verify": str(files.ca if options.trusted else files.client_certificate),
            }
        self.client = self._open(text, native)
        self.links: list[Any] = []

    def _open(self, connection_string: str, options: dict[str, Any]) -> Any:
        return ServiceBusClient.from_connection_string(connection_string, **options)

    def as_read(self, value: Any) -> Any:
        return as_read_by_sdk(value)

    def sender(self, address: str, *, settled: bool | None = None, session: int = 0) -> SdkSender:
        return SdkSender(self._attach(self.client.get_queue_sender(address, **QUICK_CLOSE)))

    def receiver(
        self,
        address: str,
        *,
        settled: bool = False,
        second: bool = True,
        session: int = 0,
        **options: Any,
    ) -> SdkReceiver:
        if settled:
            options["receive_mode"] = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        receiver = self.client.get_queue_receiver(address, **(QUICK_CLOSE | options))
        return SdkReceiver(self._attach(receiver))

    def _attach(self, link: Any) -> Any:
        self.links.append(link)
        try:
            link.__enter__()
        except ServiceBusError as exc:
            raise PeerError("link", error_from_sdk(exc)) from exc
        return link

    def close(self) -> None:
        while self.links:
            self.links.pop().close()
        self.client.close()


class SdkAioClient(SdkClient):
    """The asynchronous client, which runs in an event loop of its own thread."""

    name = "sdk-aio"

    def _open(self, connection_string: str, options: dict[str, Any]) -> Any:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sdk-aio")
        self._thread.start()
        return SyncProxy(
            lambda: AioServiceBusClient.from_connection_string(connection_string, **options),
            self._loop,
        )

    def close(self) -> None:
        if self._loop.is_closed():
            return
        try:
            super().close()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(DEADLINE_S)
            self._loop.close()


class SyncProxy:
    """Calls an asynchronous object from another thread, and waits for the results."""

    def __init__(self, create: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._target = self._run(create)

    def _run(self, function: Any) -> Any:
        async def call() -> Any:
            result = function()
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(2 * DEADLINE_S)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            if name.startswith("get_queue_"):
                return SyncProxy(lambda: attribute(*args, **kwargs), self._loop)
            return self._run(lambda: attribute(*args, **kwargs))

        return call

    def __enter__(self) -> "SyncProxy":
        self._run(self._target.__aenter__)
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        iterator = self._target.__aiter__()
        while True:
            try:
                yield self._run(iterator.__anext__)
            except StopAsyncIteration:
                return
