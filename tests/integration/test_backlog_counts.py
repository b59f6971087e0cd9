"""How many messages some queues hold, as a real namespace says it."""

from collections.abc import Iterator

import pytest

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message
from pairbus.broker.auth import Right, SharedAccessRule
from pairbus.broker.namespace import LocalNamespace
from pairbus.syphon.counts import backlog_size

OF_ONE = SharedAccessRule(
    name="of-one", primary_key="k", secondary_key="l", rights=frozenset(Right)
)


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace() as namespace:
        namespace.create_queue("one", authorization_rules=(OF_ONE,))
        namespace.create_queue("two")
        with Client(options_of(namespace.connection_string)) as client:
            for path, count in (("one", 3), ("two", 2)):
                for _ in range(count):
                    Sender(client, path).send(Message.build(data=b"hello").encode())
        yield namespace


def options_of(connection_string: str) -> ClientOptions:
    return ClientOptions.from_connection_string(connection_string)


def test_queues_are_summed_up_and_one_that_is_not_there_has_nothing(
    namespace: LocalNamespace,
) -> None:
    options = options_of(namespace.connection_string)

    assert backlog_size(options, ("one", "two", "absent")) == 5
    assert backlog_size(options, ("absent",)) == 0


def test_where_one_cannot_be_counted_the_sum_is_not_known(namespace: LocalNamespace) -> None:
    options = options_of(namespace.connection_string_of(OF_ONE.name, OF_ONE.primary_key))

    assert backlog_size(options, ("one",)) == 3
    assert backlog_size(options, ("one", "two")) is None
