"""Identity and names of namespaces, and the registry of pairings."""

import threading
from typing import Any

import pytest
from azure.core.credentials import AzureSasCredential
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from pairbus.errors import (
    AlreadyPaired,
    ConfigurationError,
    SameNamespace,
    SecondaryInUse,
    SecondaryIsPrimary,
)
from pairbus.pairing.namespaces import NamespaceId, Registry, check_no_entity_path
from pairbus.servicebus.addresses import namespace_name
from pairbus.servicebus.backlog_paths import backlog_paths

KINDS = [ServiceBusClient, AsyncServiceBusClient]
KEY = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"
CLOUD = f"Endpoint=sb://Orders.servicebus.windows.net/;{KEY}"
ONE, TWO, THREE, FOUR = (NamespaceId(name) for name in ("one", "two", "three", "four"))


def local(port: int, host: str = "localhost", *, tls: bool = False) -> str:
    return f"Endpoint=sb://{host}:{port}/;{KEY}" + ("" if tls else ";UseDevelopmentEmulator=true")


def id_of(text: str, kind: Any = ServiceBusClient, **options: Any) -> NamespaceId:
    return NamespaceId.of(kind.from_connection_string(text, **options))


def endpoint_options(address: str) -> dict[str, Any]:
    return {"custom_endpoint_address": address, "transport_type": TransportType.Amqp}


def client() -> ServiceBusClient:
    return ServiceBusClient("one", AzureSasCredential("sr=x"))


@pytest.mark.rule("P1")
@pytest.mark.parametrize("kind", KINDS)
def test_case_of_the_host_does_not_matter(kind: Any) -> None:
    named = kind("ORDERS.ServiceBus.Windows.NET", AzureSasCredential("sr=x"))

    assert id_of(CLOUD, kind) == NamespaceId("orders.servicebus.windows.net")
    assert NamespaceId.of(named) == id_of(CLOUD, kind)
    assert id_of(CLOUD.replace("net/", "net:443/"), kind) == id_of(CLOUD, kind)
    assert id_of(CLOUD.replace("net/", "net./"), kind) == id_of(CLOUD, kind)


@pytest.mark.rule("P1")
@pytest.mark.parametrize("kind", KINDS)
def test_namespaces_of_one_host_differ_by_port(kind: Any) -> None:
    assert id_of(local(6001), kind) == NamespaceId("localhost", 6001)
    assert id_of(local(6001), kind) != id_of(local(6002), kind)
    # With TLS the SDK drops the port; only the custom endpoint has it.
    secure = [
        id_of(local(1, tls=True), kind, **endpoint_options(f"sb://localhost:{n}")) for n in (1, 2)
    ]
    assert secure == [NamespaceId("localhost", 1), NamespaceId("localhost", 2)]


@pytest.mark.rule("P1")
def test_all_spellings_of_the_loopback_address_are_one_host() -> None:
    hosts = ("localhost", "LOCALHOST", "127.0.0.1", "[::1]")

    assert {id_of(local(6001, host)) for host in hosts} == {NamespaceId("localhost", 6001)}
    assert id_of(local(6001, "[fe80::0:1]")) == NamespaceId("fe80::1", 6001)
    assert str(id_of(local(6001, "[fe80::0:1]"))) == "[fe80::1]:6001"


@pytest.mark.rule("P1")
def test_custom_endpoint_with_a_default_port_does_not_change_the_namespace() -> None:
    assert id_of(CLOUD, **endpoint_options("sb://gateway.example")) == id_of(CLOUD)
    assert id_of(CLOUD, **endpoint_options("sb://gateway.example:443")) == id_of(CLOUD)


@pytest.mark.rule("P1")
def test_hosts_without_a_name_differ_by_their_custom_endpoints() -> None:
    text = local(1, tls=True)

    assert id_of(text, **endpoint_options("sb://a.example:443")) != id_of(
        text, **endpoint_options("b.example:443")
    )


@pytest.mark.parametrize("address", ["", "sb://", "host:port", "[::1]:x"])
def test_invalid_host_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="not a host"):
        namespace_name(address)


@pytest.mark.rule("P3")
@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Orders.servicebus.windows.net", "orders"),
        ("orders.servicebus.usgovcloudapi.net", "orders"),
        ("servicebus-emulator", "servicebus-emulator"),
        ("servicebus-emulator:5672", "servicebus-emulator"),
        ("localhost", None),
        ("localhost:6001", None),
        ("localhost.localdomain", None),
        ("127.0.0.1", None),
        ("10.1.2.3:5672", None),
        ("::1", None),
        ("fe80::1", None),
        ("[fe80::1]:5672", None),
    ],
)
def test_name_of_a_namespace_is_the_first_label_of_its_host(host: str, name: str) -> None:
    assert namespace_name(host) == name


@pytest.mark.rule("P3")
def test_backlog_paths_are_numbered_below_the_name_of_the_primary() -> None:
    assert backlog_paths("orders", 2) == [
        "orders/x-servicebus-transfer/0",
        "orders/x-servicebus-transfer/1",
    ]


@pytest.mark.rule("P3")
@pytest.mark.parametrize(
    "name",
    ["", " ", "a/b", "a b", "ä", "$x", ".", "-a", "a?", "a\n", "Subscriptions", "x" * 240],
)
def test_name_that_is_invalid_in_a_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="primary_name"):
        backlog_paths(name, 1)


@pytest.mark.rule("P1")
@pytest.mark.parametrize("text", [f"{CLOUD};EntityPath=queue", f"entitypath = queue ;{CLOUD}"])
def test_connection_string_with_an_entity_path_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="secondary is limited to 'queue'") as caught:
        check_no_entity_path(text, "secondary")

    assert "c2VjcmV0" not in str(caught.value)
    check_no_entity_path(f"{CLOUD};EntityPath=", "secondary")
    check_no_entity_path(CLOUD, "secondary")


@pytest.mark.rule("P1")
@pytest.mark.parametrize("kind", KINDS)
def test_client_with_an_entity_path_is_refused(kind: Any) -> None:
    check_no_entity_path(kind.from_connection_string(CLOUD), "primary")

    with pytest.raises(ConfigurationError, match="primary is limited to 'queue'"):
        check_no_entity_path(kind.from_connection_string(f"{CLOUD};EntityPath=queue"), "primary")


@pytest.mark.rule("P1")
def test_namespace_cannot_be_paired_with_itself() -> None:
    registry = Registry()

    with pytest.raises(SameNamespace):
        registry.enter(client(), ONE, NamespaceId("one"))
    assert len(registry) == 0


@pytest.mark.rule("P1")
def test_client_can_be_paired_again_after_its_pairing_ended() -> None:
    registry, paired = Registry(), client()
    registry.enter(paired, ONE, TWO)

    with pytest.raises(AlreadyPaired):
        registry.enter(paired, ONE, THREE)
    registry.leave(paired)
    registry.leave(paired)
    registry.enter(paired, ONE, THREE)


@pytest.mark.rule("P1")
def test_two_clients_of_one_namespace_can_share_a_secondary() -> None:
    registry, first, second = Registry(), client(), client()
    registry.enter(first, ONE, TWO)
    registry.enter(second, ONE, TWO)
    registry.leave(first)

    with pytest.raises(SecondaryInUse):  # by the second client
        registry.enter(client(), THREE, TWO)
    registry.leave(second)
    registry.enter(client(), THREE, TWO)


@pytest.mark.rule("P1")
def test_secondary_is_no_primary_and_serves_one_primary() -> None:
    registry, first = Registry(), client()
    registry.enter(first, ONE, TWO)

    with pytest.raises(SecondaryIsPrimary):
        registry.enter(client(), THREE, ONE)
    with pytest.raises(SecondaryInUse):
        registry.enter(client(), THREE, TWO)
    assert len(registry) == 1
    registry.enter(
        client(), TWO, FOUR
    )  # the secondary of one pairing may be the primary of another


@pytest.mark.rule("P1")
def test_checks_are_made_in_order() -> None:
    registry, first = Registry(), client()
    registry.enter(first, ONE, TWO)
    registry.enter(client(), TWO, THREE)

    with pytest.raises(SameNamespace):
        registry.enter(first, TWO, TWO)
    with pytest.raises(AlreadyPaired):
        registry.enter(first, FOUR, TWO)
    with pytest.raises(SecondaryIsPrimary):  # the secondary is also in use
        registry.enter(client(), FOUR, TWO)


@pytest.mark.rule("P1")
def test_only_one_of_many_threads_pairs_a_client() -> None:
    registry, paired = Registry(), client()
    start, refused = threading.Barrier(16), []

    def enter() -> None:
        start.wait()
        try:
            registry.enter(paired, ONE, TWO)
        except AlreadyPaired as exc:
            refused.append(exc)

    threads = [threading.Thread(target=enter) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == 15
