"""The checks before two namespaces are paired."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.credentials import AzureSasCredential
from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from pairbus.errors import (
    AlreadyPaired,
    ConfigurationError,
    OptionsMissing,
    SameNamespace,
    SecondaryInUse,
    SecondaryIsPrimary,
    SecondaryMissing,
)
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.namespaces import NamespaceId, registry
from pairbus.pairing.plan import PairingPlan, make_plan

KEY = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"
KINDS = [ServiceBusClient, AsyncServiceBusClient]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=["sync", "aio"])


def string(name: str, more: str = "") -> str:
    return f"Endpoint=sb://{name}.servicebus.windows.net/;{KEY}{more}"


def client(name: str = "one", kind: Any = ServiceBusClient) -> Any:
    return kind.from_connection_string(string(name))


def plan(
    primary: Any, secondary: Any = None, kind: Any = ServiceBusClient, **options: Any
) -> PairingPlan:
    return make_plan(primary, SendAvailabilityOptions(secondary=secondary, **options), kind)


@pytest.fixture(autouse=True)
def _clean_registry() -> Iterator[None]:
    assert len(registry) == 0
    yield
    registry._pairings.clear()


@pytest.mark.rule("P1")
@each_kind
@pytest.mark.parametrize("ready", [True, False])
def test_two_namespaces_can_be_paired(kind: Any, ready: bool) -> None:
    primary = client("one", kind)
    secondary = client("two", kind) if ready else string("two")

    pairing_plan = plan(primary, secondary, kind, backlog_queue_count=2)

    assert pairing_plan.primary is primary
    assert (pairing_plan.secondary is secondary) is ready
    assert isinstance(pairing_plan.secondary, kind)
    assert pairing_plan.owns_secondary is not ready
    assert pairing_plan.primary_id == NamespaceId("one.servicebus.windows.net")
    assert pairing_plan.secondary_id == NamespaceId("two.servicebus.windows.net")
    assert pairing_plan.paths == ("one/x-servicebus-transfer/0", "one/x-servicebus-transfer/1")
    assert len(registry) == 1
    pairing_plan.release()
    pairing_plan.release()
    assert len(registry) == 0


@pytest.mark.rule("P1")
def test_options_are_required() -> None:
    with pytest.raises(OptionsMissing, match="SendAvailabilityOptions"):
        make_plan(client(), None, ServiceBusClient)
    assert len(registry) == 0


@pytest.mark.rule("P1")
@pytest.mark.parametrize("secondary", [None, ""])
def test_secondary_is_required(secondary: Any) -> None:
    with pytest.raises(SecondaryMissing, match="no secondary"):
        plan(client(), secondary)
    assert len(registry) == 0


@pytest.mark.rule("P1")
@pytest.mark.parametrize("name", ["one", "ONE"])
def test_namespace_cannot_be_its_own_secondary(name: str) -> None:
    for secondary in (client(name), string(name)):
        with pytest.raises(SameNamespace, match="one outage would affect both"):
            plan(client("one"), secondary)
    assert len(registry) == 0


@pytest.mark.rule("P1")
def test_client_cannot_be_paired_twice() -> None:
    primary = client("one")
    pairing_plan = plan(primary, string("two"))

    for other in ("two", "three"):
        with pytest.raises(AlreadyPaired, match="Close that pairing first"):
            plan(primary, string(other))

    assert len(registry) == 1  # the failed calls did not remove the first pairing
    pairing_plan.release()
    plan(primary, string("three"))


@pytest.mark.rule("P1")
def test_primary_cannot_be_a_secondary() -> None:
    plan(client("one"), string("two"))

    with pytest.raises(SecondaryIsPrimary):
        plan(client("three"), string("one"))
    assert len(registry) == 1


@pytest.mark.rule("P1")
def test_secondary_serves_only_one_primary() -> None:
    plan(client("one"), string("two"))

    with pytest.raises(SecondaryInUse):
        plan(client("three"), string("two"))
    assert len(registry) == 1


@pytest.mark.rule("P1")
def test_two_clients_of_one_namespace_can_both_be_paired() -> None:
    first, second = plan(client("one"), string("two")), plan(client("one"), string("two"))

    assert len(registry) == 2
    first.release()
    assert len(registry) == 1
    second.release()


@pytest.mark.rule("P1")
def test_checks_are_made_in_order() -> None:
    primary, third = client("one"), client("three")
    plan(primary, string("two"))
    plan(third, string("four"))

    # Each call has the expected mistake, and every later one that can be combined with it.
    with pytest.raises(OptionsMissing):
        make_plan(primary, None, ServiceBusClient)
    with pytest.raises(SecondaryMissing):
        plan(primary, None, enable_syphon=True)
    with pytest.raises(SameNamespace):
        plan(primary, string("one"), enable_syphon=True)
    with pytest.raises(AlreadyPaired):
        plan(primary, string("three"), enable_syphon=True)
    with pytest.raises(SecondaryIsPrimary):
        plan(client("five"), string("three"), enable_syphon=True)
    with pytest.raises(SecondaryInUse):
        plan(client("five"), string("four"), enable_syphon=True)
    assert len(registry) == 2


@pytest.mark.rule("P1")
@each_kind
def test_connection_string_with_an_entity_path_is_refused(kind: Any) -> None:
    narrow = string("two", ";EntityPath=orders")

    for secondary in (narrow, kind.from_connection_string(narrow)):
        with pytest.raises(ConfigurationError, match="secondary is limited to 'orders'"):
            plan(client("one", kind), secondary, kind)
    with pytest.raises(ConfigurationError, match="primary is limited to 'orders'"):
        plan(kind.from_connection_string(narrow), string("one"), kind)
    assert len(registry) == 0


@pytest.mark.parametrize(
    "wrong",
    ["nonsense", "Endpoint=sb://two.servicebus.windows.net/", f"{KEY}", "Endpoint=;a=b"],
)
def test_invalid_connection_string_is_a_configuration_error(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="connection string of the secondary is invalid"):
        plan(client(), wrong)
    assert len(registry) == 0


@pytest.mark.rule("P1")
def test_connection_string_in_place_of_the_primary_is_not_in_the_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan(string("one"), string("two"))

    assert str(caught.value) == (
        "The primary must be an azure.servicebus.ServiceBusClient, not str."
    )


def test_sync_and_async_clients_cannot_be_mixed() -> None:
    with pytest.raises(ConfigurationError, match=r"use pairbus\.pair_namespace"):
        plan(client("one"), string("two"), AsyncServiceBusClient)
    with pytest.raises(ConfigurationError, match=r"use pairbus\.aio\.pair_namespace"):
        plan(client("one", AsyncServiceBusClient), string("two"))
    with pytest.raises(ConfigurationError, match=r"not azure\.servicebus\.aio\.ServiceBusClient"):
        plan(client("one"), client("two", AsyncServiceBusClient))
    with pytest.raises(ConfigurationError, match="not int"):
        plan(client("one"), 7)
    assert len(registry) == 0


@pytest.mark.rule("P3")
def test_primary_without_a_name_needs_primary_name() -> None:
    local = ServiceBusClient("localhost", AzureSasCredential("sr=x"))

    with pytest.raises(ConfigurationError, match="Set primary_name"):
        plan(local, string("two"))
    assert len(registry) == 0

    pairing_plan = plan(local, string("two"), primary_name="custom", backlog_queue_count=1)
    assert pairing_plan.paths == ("custom/x-servicebus-transfer/0",)


@pytest.mark.rule("P3")
def test_primary_name_that_is_invalid_in_a_path_is_refused() -> None:
    for name in ("", "a/b", "ä"):
        with pytest.raises(ConfigurationError, match="primary_name"):
            plan(client(), string("two"), primary_name=name)
    assert len(registry) == 0


@pytest.mark.rule("P1")
def test_invalid_syphon_options_leave_nothing_paired() -> None:
    primary = client("one")

    with pytest.raises(ConfigurationError, match="syphon_options must be a"):
        plan(primary, string("two"), enable_syphon=True, syphon_options=1)

    assert len(registry) == 0
    pairing_plan = plan(
        primary, string("two"), enable_syphon=True, backlog_queue_count=2
    )  # a second attempt
    assert len(registry) == 1
    assert pairing_plan.syphon.backlog_queues == pairing_plan.paths
