"""The SDK senders and receivers of a pairing."""

from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from pairbus.pairing.link_factory import LinkFactory

RETRIES = 7


@pytest.fixture
def factory() -> LinkFactory:
    clients = [
        ServiceBusClient.from_connection_string(
            f"Endpoint=sb://{name}.example/;SharedAccessKeyName=n;SharedAccessKey=a2V5",
            retry_total=RETRIES,
        )
        for name in ("one", "two")
    ]
    return LinkFactory(*clients, None, interruptible=True)


@pytest.mark.rule("S2a")
def test_pings_probes_and_peeks_do_not_retry(factory: LinkFactory) -> None:
    links: dict[str, Any] = {
        "ping": factory.ping_sender("q"),
        "probe": factory.probe_sender("q"),
        "peek": factory.backlog_receiver("q"),
    }

    assert {name: link._config.retry_total for name, link in links.items()} == dict.fromkeys(
        links, 0
    )
    assert [links[name].fully_qualified_namespace for name in links] == [
        "one.example",
        "two.example",
        "two.example",
    ]


@pytest.mark.rule("S2")
def test_messages_are_sent_with_the_retries_of_the_user(factory: LinkFactory) -> None:
    assert factory.backlog_sender("q")._config.retry_total == RETRIES
