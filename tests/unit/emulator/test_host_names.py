"""The hosts of a namespace, which tokens must be for."""

import socket

import pytest

from pairbus.emulator.host_names import LOOPBACK_NAMES, HostNames, machine_names, public_host


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


@pytest.mark.parametrize(
    ("host", "host_names", "public"),
    [
        ("127.0.0.1", [], "localhost"),
        ("127.0.0.2", ["bus.example"], "127.0.0.2"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("0.0.0.0", [], "localhost"),
        ("::", ["bus.example"], "bus.example"),
    ],
)
def test_clients_reach_the_namespace_by_a_name_of_its_certificate(
    host: str, host_names: list[str], public: str
):
    assert public_host(host, host_names) == public
    assert public in {*LOOPBACK_NAMES, *HostNames("orders", host, host_names).certificate_names}


def test_certificate_of_a_namespace_on_all_interfaces_names_the_machine():
    assert set(machine_names()) <= set(HostNames("orders", "0.0.0.0", []).certificate_names)
    assert socket.gethostname().lower() in machine_names()
