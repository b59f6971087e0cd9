"""Hosts and ports of namespaces."""

import pytest

from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import (
    canonical_address,
    format_address,
    namespace_name,
    split_host,
)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("Orders.example", "orders.example", None),
        ("orders.example.", "orders.example", None),
        ("orders.example:5671", "orders.example", 5671),
        ("sb://orders.example:5671/path", "orders.example", 5671),
        (" https://orders.example/ ", "orders.example", None),
        ("[::1]:5671", "::1", 5671),
        ("[::1]", "::1", None),
        ("::1", "::1", None),
    ],
)
def test_host_and_port_are_taken_from_an_address(address: str, host: str, port: int | None):
    assert split_host(address) == (host, port)


@pytest.mark.parametrize(
    "address", ["", "sb://", ":5671", "host:", "host:port", "[]:1", "host:\u0661"]
)
def test_address_without_host_or_with_an_invalid_port_is_refused(address: str):
    with pytest.raises(ConfigurationError, match="is not a host, or a host and a port"):
        split_host(address)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("orders.servicebus.windows.net", "orders"),
        ("ORDERS", "orders"),
        ("localhost", None),
        ("localhost:5672", None),
        ("127.0.0.1", None),
        ("::1", None),
    ],
)
def test_namespace_is_named_by_the_first_label_of_its_host(host: str, name: str | None):
    assert namespace_name(host) == name


@pytest.mark.parametrize(
    ("host", "port", "endpoint_host", "canonical"),
    [
        ("Orders.example", 5671, None, ("orders.example", None)),
        ("orders.example", 9000, None, ("orders.example", 9000)),
        ("127.0.0.1", 5000, None, ("localhost", 5000)),
        ("::1", 443, None, ("localhost", 443)),
        ("localhost", 5671, None, ("localhost", 5671)),
        ("10.0.0.4", 5672, None, ("10.0.0.4", 5672)),
        ("10.0.0.4", None, None, ("10.0.0.4", None)),
        ("orders.example", None, "10.0.0.4", ("orders.example", None)),
        ("localhost", 5000, "Endpoint.example", ("endpoint.example", 5000)),
    ],
)
def test_spellings_of_one_namespace_have_one_canonical_address(
    host: str, port: int | None, endpoint_host: str | None, canonical: tuple[str, int | None]
):
    assert canonical_address(host, port, endpoint_host) == canonical


def test_ipv6_address_is_formatted_in_brackets():
    assert format_address("::1", 5671) == "[::1]:5671"
    assert format_address("::1", None) == "[::1]"
    assert format_address("orders.example", 5671) == "orders.example:5671"
