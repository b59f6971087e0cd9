"""The options of the connector that tell how to reach the namespace."""

import pickle

import pytest

from pairbus.errors import ConfigurationError
from pairbus.servicebus.proxy import Proxy
from pairbus.spark.connector_options import ConnectorOptions

HOST = "Endpoint=sb://ns.example/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
PROXY = Proxy(host="proxy", port=3128, username="me", password="hidden")
URL = "http://me:hidden@proxy:3128"


def test_default_is_tcp_without_a_proxy():
    options = ConnectorOptions({"connectionString": HOST}).client()

    assert (options.transport, options.proxy, options.ca_file) == ("tcp", None, None)


@pytest.mark.parametrize("source", ["option", "variable"])
def test_network_options_reach_both_clients(source: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_PROXY", URL)
    options = ConnectorOptions(
        {
            "connectionString": HOST,
            "settleConnectionString": HOST,
            "transport": "websocket",
            "caFile": "/ca.pem",
            **({"proxy": URL} if source == "option" else {"proxyEnv": "THE_PROXY"}),
        }
    )

    for client in (options.client(), options.settle_client()):
        assert client is not None
        assert (client.transport, client.proxy, client.ca_file) == ("websocket", PROXY, "/ca.pem")
        assert "hidden" not in repr(client)


def test_invalid_proxy_is_an_error_without_its_password():
    with pytest.raises(ConfigurationError, match="URL of the proxy") as raised:
        ConnectorOptions({"connectionString": HOST, "proxy": f"{URL}/x"}).client()

    assert "hidden" not in str(raised.value)


@pytest.mark.rule("A1")
def test_host_uses_a_credential_that_each_worker_creates():
    options = ConnectorOptions({"host": "ns.example", "settleHost": "b.example", "caFile": "/ca"})
    client, settle = options.client(), options.settle_client()

    assert settle is not None
    assert (client.host, client.ca_file, settle.host) == ("ns.example", "/ca", "b.example")
    assert client == ConnectorOptions({"host": "ns.example", "caFile": "/ca"}).client()
    assert pickle.loads(pickle.dumps(client)) == client


def test_host_and_connection_string_exclude_each_other():
    with pytest.raises(ConfigurationError, match="not both"):
        ConnectorOptions({"host": "ns.example", "connectionString": HOST}).client()
