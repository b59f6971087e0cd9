"""Decisions of the administration client: addresses, proxies, and errors for statuses."""

from typing import Any

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.errors import (
    AmqpError,
    Busy,
    ConfigurationError,
    EntityExists,
    EntityNotFound,
    NotAuthorized,
    OperationTimeout,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from pairbus.servicebus.administration import AdministrationOptions, error_of
from pairbus.servicebus.http_transport import Proxy
from pairbus.servicebus.tokens import SharedAccessKey

HOST = "orders.servicebus.windows.net"


@pytest.mark.parametrize(
    ("status", "creates", "error"),
    [
        (401, False, NotAuthorized),
        (401, True, NotAuthorized),
        (403, False, NotAuthorized),
        (403, True, QuotaExceeded),
        (404, False, EntityNotFound),
        (408, False, OperationTimeout),
        (409, True, EntityExists),
        (409, False, Busy),
        (429, False, Busy),
        (400, True, Refused),
        (412, False, Refused),
        (500, False, Unavailable),
        (503, True, Unavailable),
        (302, False, Refused),
    ],
)
def test_status_that_is_not_a_success_is_an_error(
    status: int, creates: bool, error: type[AmqpError]
):
    exc = error_of(status, "the detail", "reading queue 'q'", creates=creates)

    assert type(exc) is error
    assert exc.info == {"status": status, "detail": "the detail"}
    assert exc.description.startswith("reading queue 'q' ")


@pytest.mark.parametrize(
    ("options", "address", "namespace"),
    [
        ({}, (HOST, 443), HOST),
        ({"port": 8443}, (HOST, 8443), f"{HOST}:8443"),
        ({"tls": False}, (HOST, 5672), HOST),
        ({"tls": False, "port": 5000}, (HOST, 5000), f"{HOST}:5000"),
        ({"endpoint": "10.0.0.4"}, ("10.0.0.4", 443), HOST),
        ({"endpoint": "sb://10.0.0.4:5001/"}, ("10.0.0.4", 5001), HOST),
        ({"endpoint": "[::1]:5001"}, ("::1", 5001), HOST),
    ],
)
def test_address_is_that_of_the_endpoint_or_the_namespace(
    options: dict[str, Any], address: tuple[str, int], namespace: str
):
    administration = AdministrationOptions(host=HOST, **options)

    assert administration.address == address
    assert administration.namespace == namespace


@pytest.mark.parametrize(
    ("options", "address", "endpoint"),
    [
        ({}, (HOST, 443), None),
        ({"port": 5671}, (HOST, 443), None),
        ({"port": 5672}, (HOST, 443), None),
        ({"port": 9000}, (HOST, 9000), None),
        ({"port": 5672, "tls": False}, (HOST, 5672), None),
        ({"tls": False}, (HOST, 5672), None),
        ({"endpoint_host": "10.0.0.4", "port": 5671}, ("10.0.0.4", 443), "10.0.0.4"),
        ({"endpoint_host": "::1", "port": 9000}, ("::1", 9000), "[::1]:9000"),
    ],
)
def test_amqp_options_lead_to_the_administration_api_of_the_same_namespace(
    options: dict[str, Any], address: tuple[str, int], endpoint: str | None
):
    tokens = SharedAccessKey("name", "key")
    client = ClientOptions(host=HOST, tokens=tokens, operation_timeout_s=7, **options)
    administration = client.administration()

    assert administration.address == address
    assert administration.endpoint == endpoint
    assert administration.tokens is tokens
    assert administration.timeout_s == 7
    assert client.administration(timeout_s=2).timeout_s == 2


@pytest.mark.parametrize("timeout_s", [0, -1])
def test_timeout_that_is_not_positive_is_refused(timeout_s: float):
    with pytest.raises(ConfigurationError, match="timeout_s must be above 0"):
        AdministrationOptions(host=HOST, timeout_s=timeout_s)


def test_empty_host_is_refused():
    with pytest.raises(ConfigurationError, match="host must not be empty"):
        AdministrationOptions(host="")


def test_ca_file_that_cannot_be_read_is_refused(tmp_path: Any):
    options = AdministrationOptions(host=HOST, ca_file=str(tmp_path / "absent.pem"))

    with pytest.raises(ConfigurationError, match=r"cannot use ca_file '.*absent.pem'"):
        options.transport(lambda: 0.0)


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("address", "proxy"),
    [
        ("http://proxy:3128", Proxy(host="proxy", port=3128)),
        ("proxy:3128", Proxy(host="proxy", port=3128)),
        ("http://proxy", Proxy(host="proxy", port=80)),
        (
            "http://me%40home:p%2Fw@proxy:3128/",
            Proxy(host="proxy", port=3128, username="me@home", password="p/w"),
        ),
    ],
)
def test_proxy_for_https_is_read_from_the_environment(
    no_proxies: pytest.MonkeyPatch, address: str, proxy: Proxy
):
    no_proxies.setenv("HTTPS_PROXY", address)

    assert Proxy.from_environment(HOST) == proxy


def test_host_in_no_proxy_is_connected_to_directly(no_proxies: pytest.MonkeyPatch):
    assert Proxy.from_environment(HOST) is None
    no_proxies.setenv("HTTPS_PROXY", "http://proxy:3128")
    no_proxies.setenv("NO_PROXY", ".windows.net")
    assert Proxy.from_environment(HOST) is None
    assert Proxy.from_environment("elsewhere.example") is not None


@pytest.mark.parametrize(
    "address", ["socks5://me:secret@proxy:1080", "http://:3128", "http://me:secret@proxy:port"]
)
def test_proxy_that_is_not_an_http_proxy_is_refused_without_its_password(
    no_proxies: pytest.MonkeyPatch, address: str
):
    no_proxies.setenv("HTTPS_PROXY", address)

    with pytest.raises(ConfigurationError, match="HTTPS_PROXY is not of the form") as caught:
        Proxy.from_environment(HOST)
    assert "secret" not in str(caught.value)


def test_secrets_are_not_shown():
    options = AdministrationOptions(
        host=HOST,
        tokens=SharedAccessKey("name", "secret"),
        proxy=Proxy(host="proxy", port=1, username="me", password="secret"),
    )

    assert "secret" not in repr(options)
