"""deploy/azure/main.bicep: properties that Azure knows, settings that a pairing needs, and roles.

`azure.mgmt.servicebus` has the types of the resources, in the version of the API that it names.
"""

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from azure.mgmt.servicebus import ServiceBusManagementClient, models, types
from azure.mgmt.servicebus.models import SkuName
from typing_extensions import get_type_hints, is_typeddict

from pairbus.pairing.backlog_queues import QUEUE_SETTINGS
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.servicebus.time_spans import MAX_TIME_SPAN, parse_time_span
from tests.azure_roles import ROLES
from tests.bicep import BicepResource, BicepTemplate

FILE = Path(__file__).resolve().parent.parent / "deploy" / "azure" / "main.bicep"
TYPES = {
    "Microsoft.ServiceBus/namespaces": types.SBNamespace,
    "Microsoft.ServiceBus/namespaces/queues": types.SBQueue,
    "Microsoft.ServiceBus/namespaces/topics": types.SBTopic,
}
ARGUMENTS = {
    "primaryName": "contoso",
    "secondaryName": "contoso-backup",
    "secondaryLocation": "northeurope",
    "topicNames": ["news"],
    "backlogQueueCount": 3,
    "senders": ["sender"],
    "orderedSenders": ["ordered-sender"],
    "receivers": ["receiver"],
    "syphons": ["syphon"],
    "operators": ["operator"],
}


@pytest.fixture(scope="module")
def resources() -> list[BicepResource]:
    return BicepTemplate(FILE).evaluate(**ARGUMENTS)


def of_symbol(resources: list[BicepResource], symbol: str) -> list[BicepResource]:
    found = [resource for resource in resources if resource.symbol == symbol]
    assert found, symbol
    return found


def problems(value: Any, kind: Any, where: str) -> Iterator[str]:
    """Yield what Azure would not accept in a value of a type."""
    if is_typeddict(kind):
        hints = get_type_hints(kind, vars(types) | vars(models))
        for key, each in value.items():
            if key in hints:
                yield from problems(each, hints[key], f"{where}.{key}")
            else:
                yield f"{where} has no property {key}"
    elif not any(isinstance(value, each) for each in get_args(kind) or (kind,)):
        yield f"{where} is {value!r}, which is not {kind}"


def test_every_property_exists_in_the_api_and_has_its_type(resources: list[BicepResource]):
    checked = [resource for resource in resources if resource.type in TYPES]

    assert {resource.type for resource in checked} == TYPES.keys()
    for resource in checked:
        assert list(problems(resource.body, TYPES[resource.type], resource.symbol)) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"properties": {"requiresDuplicates": True}}, "has no property requiresDuplicates"),
        ({"properties": {"maxDeliveryCount": "many"}}, "is 'many', which is not"),
    ],
)
def test_wrong_property_is_found(body: Mapping[str, Any], problem: str):
    (found,) = problems(body, types.SBQueue, "queue")

    assert problem in found


def test_api_version_is_that_of_the_types(resources: list[BicepResource]):
    version = inspect.getdoc(ServiceBusManagementClient) or ""
    versions = {resource.api_version for resource in resources if resource.type in TYPES}

    assert len(versions) == 1
    assert f'"{versions.pop()}"' in version


def test_tiers_exist_and_have_duplicate_detection():
    (allowed,) = (
        decorator["argument"]
        for decorator in BicepTemplate(FILE).parameters["tier"]["decorators"]
        if decorator["type"] == "allowed"
    )

    assert set(allowed) == {sku.value for sku in SkuName} - {"Basic"}


def test_entities_of_senders_have_duplicate_detection(resources: list[BicepResource]):
    for resource in of_symbol(resources, "queues") + of_symbol(resources, "topics"):
        assert resource.parent == "primary"
        assert resource.properties["requiresDuplicateDetection"] is True
        assert resource.properties["duplicateDetectionHistoryTimeWindow"] == "P1D"


def test_backlog_queues_have_the_paths_and_settings_of_a_pairing(resources: list[BicepResource]):
    backlog = of_symbol(resources, "backlog")

    assert {queue.parent for queue in backlog} == {"secondary"}
    assert [queue.name.replace("~", "/") for queue in backlog] == list(backlog_paths("contoso", 3))
    for queue in backlog:
        assert queue.properties == {
            "maxSizeInMegabytes": QUEUE_SETTINGS["max_size_in_megabytes"],
            "maxDeliveryCount": QUEUE_SETTINGS["max_delivery_count"],
            "lockDuration": "PT1M",
            "deadLetteringOnMessageExpiration": True,
            "enableBatchedOperations": True,
        }
        assert parse_time_span(queue.properties["lockDuration"]) == QUEUE_SETTINGS["lock_duration"]
    # The defaults of the service.
    assert QUEUE_SETTINGS["default_message_time_to_live"] == MAX_TIME_SPAN
    assert QUEUE_SETTINGS["auto_delete_on_idle"] == MAX_TIME_SPAN


def test_number_of_backlog_queues_is_the_default_of_a_pairing():
    assert BicepTemplate(FILE).parameters["backlogQueueCount"]["default"] == 10


def test_role_assignments_are_the_table_of_docs_rights(resources: list[BicepResource]):
    assignments = [each for each in resources if each.type.endswith("/roleAssignments")]
    names = [each.name for each in assignments]

    assert len(set(names)) == len(names)
    found = {
        (each.properties["principalId"], str(each.scope), role)
        for each in assignments
        for role, id in ROLES.items()
        if id in each.properties["roleDefinitionId"]
    }
    assert len(found) == len(assignments)
    assert found == {
        ("sender", "primary", "Data Sender"),
        ("sender", "secondary", "Data Sender"),
        ("ordered-sender", "primary", "Data Sender"),
        ("ordered-sender", "secondary", "Data Sender"),
        ("ordered-sender", "secondary", "Data Receiver"),
        ("receiver", "primary", "Data Receiver"),
        ("syphon", "primary", "Data Sender"),
        ("syphon", "secondary", "Data Receiver"),
        ("operator", "primary", "Data Sender"),
        ("operator", "secondary", "Data Owner"),
    }


@pytest.mark.parametrize("arguments", [{}, {**ARGUMENTS, "other": 1}], ids=["missing", "unknown"])
def test_wrong_arguments_are_errors(arguments: dict[str, Any]):
    with pytest.raises(ValueError, match=r"primaryName needs a value|no parameters \['other'\]"):
        BicepTemplate(FILE).evaluate(**arguments)
