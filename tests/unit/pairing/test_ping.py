"""The content of a ping, and how receivers recognize one."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from pairbus.amqp.sections import Message
from pairbus.pairing.ping import PING_CONTENT_TYPE, drop_pings, is_ping, make_ping
from pairbus.pairing.sdk import encode


class Receiver:
    def __init__(self) -> None:
        self.completed: list[Any] = []

    def complete_message(self, message: Any) -> None:
        self.completed.append(message)


@pytest.mark.rule("G1")
def test_ping_is_empty_and_expires_after_a_second() -> None:
    ping = make_ping()

    assert ping.body_type is AmqpMessageBodyType.DATA
    assert b"".join(ping.body) == b""
    assert ping.content_type == "application/vnd.ms-servicebus-ping"
    assert ping.time_to_live == timedelta(seconds=1)


@pytest.mark.rule("G1")
def test_encoded_ping_has_one_empty_data_section() -> None:
    message = Message.parse(encode(make_ping()))

    assert message.read_header().ttl == 1000
    assert message.body == b"\x00\x53\x75\xa0\x00"


@pytest.mark.rule("G1")
def test_pings_have_random_sessions_and_ids() -> None:
    pings = [make_ping() for _ in range(20)]

    assert all(isinstance(ping.session_id, str) and ping.session_id for ping in pings)
    assert len({ping.session_id for ping in pings}) == 20
    assert len({ping.message_id for ping in pings}) == 20


@pytest.mark.rule("G3")
def test_ping_is_recognized_by_its_content_type() -> None:
    assert is_ping(make_ping())
    assert is_ping(SimpleNamespace(content_type=PING_CONTENT_TYPE.encode()))
    for other in (None, "", b"", "application/json", PING_CONTENT_TYPE.upper()):
        assert not is_ping(SimpleNamespace(content_type=other))


@pytest.mark.rule("G3")
def test_pings_are_completed_and_other_messages_keep_their_order() -> None:
    receiver = Receiver()
    first, second = ServiceBusMessage(b"1"), ServiceBusMessage(b"2", content_type="text/plain")
    pings = [make_ping(), make_ping(), make_ping()]

    others = drop_pings(receiver, iter([pings[0], first, pings[1], second, pings[2]]))

    assert others == [first, second]
    assert receiver.completed == pings


def test_no_messages_are_dropped_from_an_empty_list() -> None:
    receiver = Receiver()

    assert drop_pings(receiver, []) == []
    assert receiver.completed == []
