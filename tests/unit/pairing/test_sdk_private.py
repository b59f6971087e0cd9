"""Pins of the private SDK names that pairing uses. Each failure names the code to check.

`tests/unit/pairing/test_failures.py` has the pins of errors.
"""

import asyncio
import inspect
from copy import copy
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import azure.servicebus
import azure.servicebus.aio
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, TransportType
from azure.servicebus._pyamqp import _connection as connection
from azure.servicebus._pyamqp import _transport as transport
from azure.servicebus._pyamqp import client as pyamqp
from azure.servicebus._pyamqp import management_link as management_sync
from azure.servicebus._pyamqp import sender as sender_sync
from azure.servicebus._pyamqp import session as session_sync
from azure.servicebus._pyamqp.aio import _client_async as pyamqp_async
from azure.servicebus._pyamqp.aio import _connection_async as connection_async
from azure.servicebus._pyamqp.aio import _management_link_async as management_async
from azure.servicebus._pyamqp.aio import _sender_async as sender_async
from azure.servicebus._pyamqp.aio import _session_async as session_async
from azure.servicebus._pyamqp.aio import _transport_async as transport_async
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusConnectionError

from pairbus.amqp.batch import size_in_batch
from pairbus.pairing import sdk, sdk_clients, sdk_payloads
from pairbus.pairing.payloads import PairedBatch
from pairbus.pairing.sdk import InterruptibleHandshake

TEXT = "Endpoint=sb://name.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
HOST = "name.servicebus.windows.net"

each_flavour = pytest.mark.parametrize(
    "flavour", [azure.servicebus, azure.servicebus.aio], ids=["sync", "aio"]
)


def client_of(flavour: ModuleType, **options: Any) -> Any:
    return flavour.ServiceBusClient.from_connection_string(TEXT, **options)


def must_have(owner: Any, name: str, see: str) -> Any:
    """Return an attribute. If it is missing, fail with the name of the code that uses it."""
    value = getattr(owner, name, must_have)
    kind = owner.__name__ if isinstance(owner, type) else type(owner).__name__
    assert value is not must_have, f"{kind} of the SDK no longer has {name}: see {see}"
    return value


# Messages.


def test_pin_the_function_that_converts_a_message():
    must_have(PyamqpTransport, "to_outgoing_amqp_message", "sdk.encode")


def test_pin_the_outgoing_form_of_a_message():
    message = ServiceBusMessage("b", message_id="id")
    must_have(message, "_message", "sdk.encode")
    message._message = PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message)
    assert bytes(PyamqpTransport.encode_message(message)) == sdk.encode(message), (
        "encode_message of the SDK no longer encodes what encode_payload does: see sdk.encode"
    )


def test_pin_the_raw_message_of_a_message():
    message = ServiceBusMessage("b")
    assert must_have(message, "_raw_amqp_message", "sdk.with_new_id") is message.raw_amqp_message, (
        "raw_amqp_message no longer returns _raw_amqp_message: see sdk.with_new_id"
    )


def test_pin_that_a_message_of_the_sdk_has_an_id_and_an_annotated_one_has_none():
    assert ServiceBusMessage("b").message_id is not None, (
        "the SDK no longer assigns message ids: see the docs and rule S11"
    )
    annotated = AmqpAnnotatedMessage(data_body=b"b")
    assert annotated.properties is None or annotated.properties.message_id is None, (
        "an AmqpAnnotatedMessage has an id now: see sdk.with_new_id"
    )


def test_pin_that_the_sdk_changes_bytes_among_application_properties():
    """If the SDK stops this, the copy in `sdk.encode` is unnecessary."""
    properties: dict[str | bytes, Any] = {"a": b"b"}
    raw = ServiceBusMessage("b", application_properties=properties).raw_amqp_message
    PyamqpTransport.to_outgoing_amqp_message(raw)
    assert properties == {"a": "b"}, (
        "the SDK no longer changes application properties: see sdk.encode"
    )


# Batches.


def test_pin_the_members_of_a_batch():
    message = ServiceBusMessage("b", message_id="id")
    batch = ServiceBusMessageBatch()
    batch.add_message(message)
    sections = must_have(batch, "_message", "sdk.members")
    assert isinstance(sections, list), "_message of a batch is no longer a list: see sdk.members"
    assert [bytes(member) for member in sections[sdk.DATA_SECTION]] == [sdk.encode(message)], (
        f"the members of a batch are not in _message[{sdk.DATA_SECTION}]: see sdk.members"
    )


@pytest.mark.parametrize("name", ["_count", "_amqp_transport", "_tracing_attributes", "_add"])
def test_pin_the_fields_of_a_batch(name: str):
    must_have(ServiceBusMessageBatch(), name, "sdk_payloads.EncodedBatch and sdk.batch_settings")


@each_flavour
@pytest.mark.parametrize("sizes", [(200,), (1, 1000)], ids=["single", "batch"])
def test_pin_how_a_sender_sends_encoded_messages(
    flavour: Any, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
):
    """A sender of the SDK hands an `EncodedBatch` to its handler, and reads no other field of it,
    also while its tracing is enabled."""
    see = "sdk_payloads.EncodedBatch"
    module = inspect.getmodule(type(client_of(flavour).get_queue_sender("q")))
    payloads = [sdk.encode(ServiceBusMessage(b"x" * size)) for size in sizes]
    sender = client_of(flavour, retry_total=0).get_queue_sender("q")
    must_have(sender, "_amqp_transport", see)
    sender._running = True
    sender._handler = SimpleNamespace(sent=[])

    def send_message(message: Any, **options: Any) -> None:
        sender._handler.sent.append(message)

    async def send_message_async(message: Any, **options: Any) -> None:
        sender._handler.sent.append(message)

    sender._handler.send_message = send_message
    sender._handler.send_message_async = send_message_async
    for traced in (False, True):
        monkeypatch.setattr(module, "is_tracing_enabled", lambda traced=traced: traced)
        result = sdk_payloads.send_payloads(sender, payloads, traced=traced)
        if inspect.isawaitable(result):
            asyncio.run(wait_for(result))
    assert [type(message) for message in sender._handler.sent] == [
        sdk_payloads.EncodedMessage
    ] * 2, f"the SDK sends something else: see {see}"


async def wait_for(result: Any) -> None:
    await result


@each_flavour
def test_pin_the_end_of_a_send(flavour: Any):
    see = "sdk_payloads.send_payloads"
    sender = client_of(flavour).get_queue_sender("q")
    for name in ("_check_live", "_send", "_do_retryable_operation"):
        must_have(sender, name, see)
    source = "".join(inspect.getsource(type(sender).send_messages).split())
    assert source.count("self._check_live()") == 1, f"senders check something else: see {see}"
    assert source.endswith(
        "withsend_trace_context_manager(self,links=trace_links):"
        f"{'await' if flavour is azure.servicebus.aio else ''}self._do_retryable_operation("
        "self._send,message=obj_message,timeout=timeout,operation_requires_timeout=True,"
        "apply_try_timeout=True,require_last_exception=True,)"
    ), f"`send_messages` ends in another way: see {see}"


def test_pin_that_the_sdk_encodes_nothing_of_an_encoded_message():
    from azure.servicebus._pyamqp._encode import encode_payload

    message: Any = sdk_payloads.EncodedMessage.of([b"payload"])
    assert encode_payload(bytearray(), message) == b"", (
        "the SDK encodes more sections of a message: see sdk_payloads.EncodedMessage"
    )


def test_pin_the_encoding_of_a_batch():
    payloads = [sdk.encode(ServiceBusMessage(b"x" * size)) for size in (1, 255, 256, 1000)]
    batch = ServiceBusMessageBatch()
    batch._message[sdk.DATA_SECTION].extend(map(bytearray, payloads))
    wire = pyamqp_bytes(batch)
    encoded = sdk_payloads.EncodedMessage.of(payloads)
    assert wire == encoded.payload, (
        "the SDK encodes a batch in another way: see sdk_payloads.EncodedMessage"
    )
    assert BatchMessage._code == encoded._code
    assert len(wire) == sum(size_in_batch(len(payload)) for payload in payloads), (
        "the size of a message in a batch has changed: see pairbus.amqp.batch.size_in_batch"
    )


def pyamqp_bytes(batch: ServiceBusMessageBatch) -> bytes:
    """Encode a batch as `PyamqpTransport.send_messages` does."""
    from azure.servicebus._pyamqp._encode import encode_payload

    return bytes(encode_payload(bytearray(), BatchMessage(*batch._message)))


@pytest.mark.parametrize("module", [session_sync, session_async], ids=["sync", "aio"])
def test_pin_the_state_of_a_session_after_a_transfer(module: ModuleType):
    source = inspect.getsource(module.Session._outgoing_transfer)
    after = source.rpartition("_process_outgoing_frame(")[2]
    changes = [line.strip() for line in after.splitlines() if " += " in line or " -= " in line]
    assert changes == [
        "self.next_outgoing_id += 1",
        "self.remote_incoming_window -= 1",
        "self.outgoing_window -= 1",
    ], "a session counts transfers in another way: see sdk_payloads.encode_frames_once"


def test_pin_the_constructor_arguments_of_a_batch():
    amqp_transport, attributes = object(), {"a": "b"}
    batch = ServiceBusMessageBatch(max_size_in_bytes=500)
    batch._amqp_transport, batch._tracing_attributes = amqp_transport, attributes

    class RecordingBatch(PairedBatch):
        def __init__(self, **arguments: Any) -> None:
            self.arguments = arguments

    assert RecordingBatch.like(batch).arguments == {
        "max_size_in_bytes": 500,
        "amqp_transport": amqp_transport,
        "tracing_attributes": attributes,
    }
    constructor = inspect.getsource(ServiceBusMessageBatch.__init__)
    for name in ("amqp_transport", "tracing_attributes"):
        assert f'kwargs.pop("{name}"' in constructor, (
            f"ServiceBusMessageBatch no longer accepts {name}: see payloads.PairedBatch.like"
        )


# Clients and senders.


@each_flavour
def test_pin_that_senders_use_the_retries_of_their_client(flavour: Any):
    client = client_of(flavour, retry_total=7)
    without_retries = sdk_clients.without_retries(client)
    for make in ("get_queue_sender", "get_queue_receiver"):
        assert getattr(without_retries, make)("q")._config.retry_total == 0, (
            f"{make} does not use retry_total of _config: see sdk_clients.without_retries"
        )
        assert getattr(client, make)("q")._config.retry_total == 7, (
            "a copy of a client shares its configuration: see sdk_clients.without_retries"
        )


@each_flavour
@pytest.mark.parametrize(
    ("name", "see"),
    [
        ("_config", "sdk_clients.without_retries"),
        ("_credential", "sdk_clients.administration_options"),
        ("_ssl_context", "sdk_clients.administration_options"),
        ("_connection_verify", "sdk_clients.ca_file_of"),
        ("_custom_endpoint_address", "sdk_clients.custom_endpoint_of"),
        ("_entity_name", "sdk_clients.entity_path_of"),
    ],
)
def test_pin_the_fields_of_a_client(flavour: Any, name: str, see: str):
    must_have(client_of(flavour), name, see)


@each_flavour
@pytest.mark.parametrize(
    "name",
    ["use_tls", "transport_type", "ssl_context", "connection_verify", "retry_total", "http_proxy"],
)
def test_pin_the_configuration_of_a_sender(flavour: Any, name: str):
    sender = client_of(flavour).get_queue_sender("q")
    config = must_have(sender, "_config", "sdk.make_handshake_interruptible")
    must_have(config, name, "sdk.make_handshake_interruptible and sdk_clients")


def test_pin_the_tls_context_of_a_sender():
    sender = client_of(azure.servicebus).get_queue_sender("q")
    assert sender._config.transport_type is TransportType.Amqp
    sdk.make_handshake_interruptible(sender)
    assert isinstance(sender._config.ssl_context, InterruptibleHandshake)
    source = inspect.getsource(PyamqpTransport.create_send_client)
    assert "ssl_context" in source, (
        "the SDK does not use the ssl_context of a configuration: see "
        "sdk.make_handshake_interruptible"
    )


def test_pin_how_a_transport_uses_a_tls_context():
    class Context:
        def wrap_socket(self, sock: Any, **options: Any) -> Any:
            return sock, options

    tls_transport = transport.SSLTransport(HOST, ssl_opts={"context": Context()})
    assert tls_transport._wrap_socket("socket", **tls_transport.sslopts) == (
        "socket",
        {"server_hostname": HOST},
    ), (
        "the SDK does not use the given context for the TLS handshake, or passes more than "
        "`server_hostname`: see sdk.InterruptibleHandshake"
    )


@each_flavour
@pytest.mark.parametrize("name", ["_open", "_handler"])
def test_pin_the_fields_of_a_sender(flavour: Any, name: str):
    sender = client_of(flavour).get_queue_sender("q")
    must_have(sender, name, "sdk.interrupt and sdk.abort_connection")


def test_pin_that_the_method_that_opens_a_link_can_be_replaced():
    sender = client_of(azure.servicebus, retry_total=0).get_queue_sender("q")
    sdk.interrupt(sender)
    with pytest.raises(sdk.CallInterrupted, match="interrupted"):
        sender.send_messages(ServiceBusMessage("b"))
    with pytest.raises(sdk.CallInterrupted, match="interrupted"):
        sender.create_message_batch()


@pytest.mark.parametrize(
    ("handler_type", "connection_type"),
    [
        (pyamqp.SendClient, connection.Connection),
        (pyamqp_async.SendClientAsync, connection_async.Connection),
    ],
    ids=["sync", "aio"],
)
def test_pin_the_connection_of_a_handler(handler_type: Any, connection_type: Any):
    handler = handler_type(HOST, "target")
    must_have(handler, "open", "sdk.interrupt")
    assert must_have(handler, "_connection", "sdk.interrupt and sdk.abort_connection") is None
    must_have(
        connection_type(f"amqps://{HOST}"), "_transport", "sdk.interrupt and sdk.abort_connection"
    )


def test_pin_that_closing_a_handler_waits_for_its_keep_alive_thread():
    """If the SDK stops this, `sdk.interrupt` need not forget the thread."""
    handler = pyamqp.SendClient(HOST, "target")
    assert must_have(handler, "_keep_alive_thread", "sdk.interrupt") is None
    source = inspect.getsource(pyamqp.AMQPClient.close)
    assert "self._keep_alive_thread.join()" in source, (
        "`close` of a handler no longer joins _keep_alive_thread: see sdk.interrupt"
    )


def test_pin_that_the_method_that_sets_a_socket_up_can_be_replaced():
    for kind in (transport.SSLTransport, transport._AbstractTransport):
        must_have(kind, "_init_socket", "sdk.interrupt")
    source = inspect.getsource(transport._AbstractTransport.connect)
    assert source.index("socket.create_connection(") < source.index("self._init_socket("), (
        "a transport no longer calls _init_socket after it has connected: see sdk.interrupt"
    )


def test_pin_that_the_method_that_waits_between_retries_can_be_replaced():
    sender = client_of(azure.servicebus, retry_total=1).get_queue_sender("q")
    must_have(sender, "_backoff", "sdk_opening.make_opening_interruptible")
    waited = []
    sender._open = mock.Mock(side_effect=ServiceBusConnectionError(message="down"))
    sender._backoff = lambda **options: waited.append(options)
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(ServiceBusMessage("b"))
    assert len(waited) == 1, (
        "the SDK no longer waits with _backoff: see sdk_opening.make_opening_interruptible"
    )


def test_pin_the_socket_of_a_transport():
    assert must_have(transport.SSLTransport(HOST), "sock", "sdk.interrupt") is None


def test_pin_the_stream_of_an_async_transport():
    assert "self.writer" in inspect.getsource(transport_async.AsyncTransport.connect), (
        "AsyncTransport of the SDK no longer has a StreamWriter `writer`: see sdk.abort_connection"
    )


# Closing of clients.


@each_flavour
def test_pin_that_a_client_closes_the_links_in_its_set_of_handlers(flavour: Any):
    see = "sdk_clients.forget_links"
    client = client_of(flavour)
    sender = client.get_queue_sender("q")
    assert list(must_have(client, "_handlers", see)) == [sender], f"handlers are elsewhere: {see}"
    assert must_have(copy(client), "_handlers", see) is client._handlers, (
        f"a copy of a client has other handlers: see {see}"
    )
    sdk_clients.forget_links(client, [sender])
    assert len(client._handlers) == 0
    assert "in self._handlers:" in inspect.getsource(type(client).close), (
        f"`close` no longer closes the handlers: see {see}"
    )


# Transfers.


@pytest.mark.parametrize(
    ("handler", "name", "session"),
    [
        (pyamqp.SendClient, "_transfer_message", session_sync.Session),
        (pyamqp_async.SendClientAsync, "_transfer_message_async", session_async.Session),
    ],
    ids=["sync", "aio"],
)
def test_pin_the_transfer_of_a_message_to_the_session(handler: Any, name: str, session: Any):
    see = "sdk_transfers.record_transfers"
    must_have(handler(HOST, "target"), name, see)
    source = inspect.getsource(session._outgoing_transfer)
    assert 'delivery.frame["payload"]' in source, f"the payload is in another field: see {see}"
    assert 'delivery.frame["delivery_id"] = ' in source, (
        "the session no longer gives a frame its id before it writes it: see "
        "sdk_transfers._is_unanswered"
    )
    assert "delivery.transfer_state = SessionTransferState.OKAY" in source, (
        f"sent deliveries have another state: see {see}"
    )
    assert "self._session._outgoing_transfer(" in inspect.getsource(
        {"_transfer_message": sender_sync, "_transfer_message_async": sender_async}[name].SenderLink
    ), f"links no longer call _outgoing_transfer: see {see}"


@each_flavour
def test_pin_that_the_method_that_creates_a_handler_can_be_replaced(flavour: Any):
    sender = client_of(flavour).get_queue_sender("q")
    must_have(sender, "_create_handler", "sdk_transfers.record_transfers")
    assert "self._create_handler(auth)" in inspect.getsource(type(sender)._open)


@pytest.mark.parametrize(
    ("handler", "name"),
    [
        (pyamqp.SendClient, "_on_send_complete"),
        (pyamqp_async.SendClientAsync, "_on_send_complete_async"),
    ],
    ids=["sync", "aio"],
)
def test_pin_the_answer_to_a_message(handler: Any, name: str):
    source = inspect.getsource(must_have(handler, name, "sdk_transfers._is_unanswered"))
    assert "message_delivery.reason = reason" in source, (
        "the answer to a message is no longer in `reason`: see sdk_transfers._is_unanswered"
    )


@pytest.mark.parametrize("module", [pyamqp, pyamqp_async], ids=["sync", "aio"])
def test_pin_that_the_sdk_does_not_use_the_field_for_the_delivery(module: ModuleType):
    assert "message_delivery.delivery" not in inspect.getsource(module), (
        "the SDK uses the field `delivery` of a message: see sdk_transfers.record_transfers"
    )


@pytest.mark.parametrize(
    ("handler", "name", "link"),
    [
        (pyamqp.SendClient, "mgmt_request", management_sync),
        (pyamqp_async.SendClientAsync, "mgmt_request_async", management_async),
    ],
    ids=["sync", "aio"],
)
def test_pin_the_message_of_a_management_request(handler: Any, name: str, link: ModuleType):
    see = "sdk_transfers._recorded_request"
    must_have(handler(HOST, "target"), name, see)
    source = inspect.getsource(link.ManagementLink.execute_operation)
    assert 'message.application_properties["operation"] = operation' in source, (
        f"a request no longer has the properties of its message: see {see}"
    )
    assert "message._replace(properties=new_properties)" in source, (
        f"the message of a request is copied in another way: see {see}"
    )
