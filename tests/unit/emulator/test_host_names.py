"""The hosts of a namespace, which tokens must be for."""

import socket

import pytest

from pairbus.emulator.host_names import HostNames


@pytest.mark.parametrize(
    "address",
    [
        "sb://localhost/q",
        "sb://LOCALHOST:5672/q",
        "https://127.0.0.1:8080/",
        "sb://127.9.9.9",
        "sb://[::1]:5671/q",
        "sb://orders.servicebus.windows.net/q",
        "sb://Orders.servicebus.windows.net.:5671/q",
        "sb://bus.example.com/q//x",
        "bus.example.com",
    ],
)
def test_host_of_the_namespace_is_accepted(address: str):
    assert HostNames("Orders", "127.0.0.1", ["Bus.example.com."]).accepts(address)


@pytest.mark.parametrize(
    "address",
    [
        "sb://other.servicebus.windows.net/q",
        "sb://orders2.servicebus.windows.net/q",
        "sb://example.com/q",
        "sb://example.com//localhost",
        "sb://10.0.0.1/q",
        "sb:///q",
        "sb://localhost:port/q",
        "",
    ],
)
def test_other_host_is_refused(address: str):
    assert not HostNames("orders", "127.0.0.1", ["bus.example.com"]).accepts(address)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_namespace_on_all_interfaces_has_all_addresses(host: str):
    names = HostNames("orders", host, [])

    assert names.accepts("sb://10.0.0.1/q")
    assert names.accepts("sb://[fe80::1]/q")
    assert names.accepts(f"sb://{socket.gethostname()}/q")
    assert not names.accepts("sb://example.com/q")
