"""A local namespace is stopped, started, reset and configured from a file, with both SDKs."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from pairbus.emulator.config import read_config
from pairbus.emulator.namespace import LocalNamespace
from tests.integration.sdk_flavours import SDK_MARKS, Flavour, bodies, is_empty, take, take_one

pytestmark = SDK_MARKS

CONFIG = """{
  // as the emulator's own file has it
  "UserConfig": {
    "Namespaces": [ {
      "Name": "sbemulatorns", /* any name */
      "Queues": [
        { "Name": "queue.1", "Properties": { "MaxDeliveryCount": 1, "ForwardTo": "",
          "LockDuration": "PT1M", "RequiresSession": false } },
        { "Name": "queue.2", "Properties": { "RequiresSession": true } }
      ],
      "Topics": [ { "Name": "topic.1", "Subscriptions": [
        { "Name": "forwards", "Properties": { "ForwardTo": "queue.1" }, "Rules": [
          { "Name": "json", "Properties": { "FilterType": "Correlation",
            "CorrelationFilter": { "ContentType": "application/json" } } } ] },
        { "Name": "sql", "Rules": [
          { "Name": "large", "Properties": { "FilterType": "Sql",
            "SqlFilter": { "SqlExpression": "size > 10" },
            "Action": { "SqlExpression": "SET size = 0" } } } ] }
      ] } ]
    } ],
    "Logging": { "Type": "File" }
  }
}"""


def sent(body: str, session: str) -> ServiceBusMessage:
    return ServiceBusMessage(body, session_id=session)


async def restart(namespace: LocalNamespace) -> None:
    await asyncio.to_thread(namespace.stop)
    await asyncio.to_thread(namespace.start)


async def test_clients_continue_after_a_restart_with_the_same_data(own_sdk: Flavour) -> None:
    own_sdk.namespace.create_queue("q")
    own_sdk.namespace.create_queue("s", requires_session=True)
    patient = own_sdk.connect(own_sdk.namespace.connection_string, retry_total=3)
    async with own_sdk.awaitable(patient):
        sender, receiver, to_sessions, session = await own_sdk.open(
            own_sdk.sender("q", client=patient),
            own_sdk.receiver("q", client=patient, prefetch_count=0),
            own_sdk.sender("s", client=patient),
            own_sdk.receiver("s", client=patient, session_id="a"),
        )
        names = ("deferred", "dead", "locked", "waiting")
        await sender.send_messages([ServiceBusMessage(name) for name in names])
        later = datetime.now(UTC) + timedelta(hours=1)
        await sender.schedule_messages(ServiceBusMessage("scheduled"), later)
        deferred, dead, locked = await take(receiver, 3)
        await receiver.defer_message(deferred)
        await receiver.dead_letter_message(dead, reason="why not")
        await to_sessions.send_messages(sent("x", "a"))
        await session.session.set_state(b"half way")
        before = own_sdk.namespace.connection_string

        await restart(own_sdk.namespace)

        assert own_sdk.namespace.connection_string == before
        with pytest.raises(ServiceBusError):  # the locks are lost
            await receiver.complete_message(locked)
        await sender.send_messages(ServiceBusMessage("new"))
        again, letters, session = await own_sdk.open(
            own_sdk.receiver("q", prefetch_count=0),
            own_sdk.dead_letters("q"),
            own_sdk.receiver("s", session_id="a"),
        )
        peeked = await again.peek_messages(9)
        assert [(str(message), message.state) for message in peeked] == [
            ("deferred", ServiceBusMessageState.DEFERRED),
            ("locked", ServiceBusMessageState.ACTIVE),
            ("waiting", ServiceBusMessageState.ACTIVE),
            ("scheduled", ServiceBusMessageState.SCHEDULED),
            ("new", ServiceBusMessageState.ACTIVE),
        ]
        assert bodies(await take(again, 3)) == ["locked", "waiting", "new"]
        (deferred,) = await again.receive_deferred_messages(deferred.sequence_number)
        await again.complete_message(deferred)
        assert (await take_one(letters)).dead_letter_reason == "why not"
        assert await session.session.get_state() == b"half way"
        assert str(await take_one(session)) == "x"


async def test_reset_deletes_all_data_but_keeps_the_address(own_sdk: Flavour) -> None:
    own_sdk.namespace.create_queue("q")
    await own_sdk.sender("q").send_messages(ServiceBusMessage("x"))
    before = own_sdk.namespace.connection_string

    await asyncio.to_thread(own_sdk.namespace.reset)

    assert own_sdk.namespace.connection_string == before
    with pytest.raises(ServiceBusAuthenticationError):
        await own_sdk.sender("q").send_messages(ServiceBusMessage("x"))
    own_sdk.namespace.create_queue("q")
    (receiver,) = await own_sdk.open(own_sdk.receiver("q", prefetch_count=0))
    assert await receiver.peek_messages(5) == []
    assert await is_empty(receiver)
    assert own_sdk.namespace.meter().get(("q", "send")) is None


async def test_config_of_the_azure_emulator_creates_its_entities(own_sdk: Flavour) -> None:
    (config,) = read_config(CONFIG)
    for _ in range(2):  # the second time, everything exists
        own_sdk.namespace.ensure(config)
    sender, to_sessions, first, dead, sql = await own_sdk.open(
        own_sdk.topic_sender("topic.1"),
        own_sdk.sender("queue.2"),
        own_sdk.receiver("queue.1"),
        own_sdk.dead_letters("queue.1"),
        own_sdk.receiver("topic.1", "sql"),
    )
    await sender.send_messages(
        [
            message("a", content_type="application/json"),
            message("b", size=11),
            message("c", size=9),
        ]
    )
    with pytest.raises(ServiceBusError):
        await to_sessions.send_messages(ServiceBusMessage("has no session"))
    forwarded = await take_one(first)
    assert str(forwarded) == "a"
    await first.abandon_message(forwarded)
    assert (await take_one(dead)).dead_letter_reason == "MaxDeliveryCountExceeded"
    (filtered,) = await take(sql)
    assert (str(filtered), filtered.application_properties[b"size"]) == ("b", 0)
    assert own_sdk.stored_count("topic.1/Subscriptions/sql") == 1


def message(body: str, content_type: str | None = None, **properties: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, content_type=content_type, application_properties=properties)
