"""The trace context that the caller has set, while the tracing of the Azure SDK is enabled."""

from collections.abc import Iterator
from copy import copy, deepcopy
from typing import Any

import pytest
from azure.core.settings import settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.amqp.sections import Message
from pairbus.pairing.payloads import PairedBatch, Payloads, prepare
from pairbus.pairing.sdk import encode, members

pytestmark = pytest.mark.rule("O1")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONTEXT: dict[str | bytes, Any] = {
    "tenant": "contoso",
    "traceparent": PARENT,
    "tracestate": "a=b",
    "Diagnostic-Id": PARENT,
    "priority": 3,
}


@pytest.fixture
def sdk_tracing() -> Iterator[None]:
    """The tracing of the Azure SDK is enabled."""
    settings.tracing_implementation = OpenTelemetrySpan
    yield
    settings.tracing_implementation.unset_value()


def properties_of(payload: bytes) -> bytes:
    return Message.parse(payload).application_properties


def messages() -> list[Any]:
    raw = AmqpAnnotatedMessage(data_body=b"x", application_properties=copy(CONTEXT))
    sent_before = CONTEXT | {b"traceparent": "of the SDK", b"Diagnostic-Id": "of the SDK"}
    return [
        ServiceBusMessage(b"x", application_properties=dict(CONTEXT)),
        ServiceBusMessage(b"x", application_properties=dict(CONTEXT), message_id="id"),
        ServiceBusMessage(b"x", application_properties=sent_before),
        raw,
        {"body": b"x", "application_properties": dict(CONTEXT)},
    ]


@pytest.mark.parametrize("position", range(len(messages())))
def test_context_in_text_is_there_once_and_the_same_bytes(position: int, sdk_tracing: None) -> None:
    message = messages()[position]
    expected = properties_of(encode(ServiceBusMessage(b"", application_properties=dict(CONTEXT))))
    before = deepcopy(message)
    batch = PairedBatch()
    batch.add_message(message)
    payloads = Payloads(prepare(message))
    payloads.add_trace_context("localhost", "orders")

    assert [properties_of(payload) for payload in members(batch)] == [expected]
    assert [properties_of(payload) for payload in payloads.encoded()] == [expected]
    if isinstance(message, dict):
        assert message == before
    else:
        assert message.application_properties == before.application_properties


def test_message_is_not_copied_if_the_tracing_of_the_sdk_is_not_enabled() -> None:
    message = ServiceBusMessage(b"x", application_properties=dict(CONTEXT), message_id="id")

    assert prepare(message) is message


def test_message_without_a_context_in_text_is_not_copied(sdk_tracing: None) -> None:
    all_properties: list[Any] = [None, {"tenant": "contoso"}, {b"traceparent": PARENT}]
    for properties in all_properties:
        message = ServiceBusMessage(b"x", application_properties=properties, message_id="id")

        assert prepare(message) is message
