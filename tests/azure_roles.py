"""The built-in roles of Azure for Service Bus, and the deployment of deploy/azure on emulators."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairbus.emulator import LocalNamespace
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.servicebus.time_spans import parse_time_span
from tests.bicep import BicepResource, BicepTemplate
from tests.commands import KEY

ROLES = {
    "Data Sender": "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39",
    "Data Receiver": "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0",
    "Data Owner": "090c5cfd-751d-490a-894a-3ce6f1109419",
}
"""The ids of the roles. In Azure, their names begin with "Azure Service Bus"."""
RIGHTS = {
    "Data Sender": frozenset({Right.SEND}),
    "Data Receiver": frozenset({Right.LISTEN}),
    "Data Owner": frozenset(Right),
}
TEMPLATE = Path(__file__).resolve().parent.parent / "deploy" / "azure" / "main.bicep"
PRIMARY_NAME, SECONDARY_NAME = "contoso", "contoso-backup"
BACKLOG_QUEUES = 2
USERS = {
    "senders": ["sender"],
    "orderedSenders": ["ordered-sender"],
    "receivers": ["receiver"],
    "syphons": ["syphon"],
    "operators": ["operator"],
}
_SETTINGS = {
    "requiresDuplicateDetection": ("requires_duplicate_detection", bool),
    "duplicateDetectionHistoryTimeWindow": (
        "duplicate_detection_history_time_window",
        parse_time_span,
    ),
    "maxSizeInMegabytes": ("max_size_in_megabytes", int),
    "maxDeliveryCount": ("max_delivery_count", int),
    "lockDuration": ("lock_duration", parse_time_span),
    "deadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", bool),
    "enableBatchedOperations": ("enable_batched_operations", bool),
}


def _rule(rights: frozenset[Right]) -> SharedAccessRule:
    return SharedAccessRule(name=_rule_name(rights), primary_key=KEY, rights=rights)


def _rule_name(rights: frozenset[Right]) -> str:
    return "-".join(sorted(right.value for right in rights))


RULES = tuple(_rule(rights) for rights in (*RIGHTS.values(), frozenset({Right.SEND, Right.LISTEN})))


@dataclass(frozen=True, slots=True)
class AzureDeployment:
    """The resources of the template, in two emulated namespaces. A user gets the rights of its role
    assignments, and no others."""

    resources: list[BicepResource]
    primary: LocalNamespace
    secondary: LocalNamespace

    def reset(self) -> None:
        """Remove all messages and faults, and create the entities anew."""
        namespaces = {"primary": self.primary, "secondary": self.secondary}
        for namespace in namespaces.values():
            namespace.clear_faults()
            namespace.reset()
        for resource in self.resources:
            if resource.parent is not None:
                _create(namespaces[resource.parent], resource)

    def rights(self, user: str, namespace: str) -> frozenset[Right]:
        """Return the rights of a user in a namespace, `primary` or `secondary`."""
        assigned = (
            each.properties["roleDefinitionId"]
            for each in self.resources
            if each.scope == namespace and each.properties["principalId"] == user
        )
        roles = [role for text in assigned for role, id in ROLES.items() if id in text]
        return frozenset[Right]().union(*(RIGHTS[role] for role in roles))

    def connection_string(self, user: str, namespace: str, without: Right | None = None) -> str:
        """Return a connection string of a user, or one that has a right less: Listen instead of
        Send, and the other way round, because there is no key without any right."""
        rights = self.rights(user, namespace)
        if without is not None:
            assert without in rights
            rights -= {without, Right.MANAGE}
            rights = rights or frozenset({Right.SEND, Right.LISTEN}) - {without}
        running = self.primary if namespace == "primary" else self.secondary
        return running.connection_string_of(_rule_name(rights), KEY)

    def variables(self, user: str, **without: Right) -> dict[str, str]:
        """Return the environment variables of commands of a user. `primary=Right.SEND` takes this
        right away."""
        return {
            "PAIRBUS_PRIMARY": self.connection_string(user, "primary", without.get("primary")),
            "PAIRBUS_SECONDARY": self.connection_string(
                user, "secondary", without.get("secondary")
            ),
            "PAIRBUS_PRIMARY_NAME": PRIMARY_NAME,
            "PAIRBUS_BACKLOG_QUEUES": str(BACKLOG_QUEUES),
        }


@contextmanager
def deployed(**arguments: Any) -> Iterator[AzureDeployment]:
    """Start the namespaces of the template with their entities."""
    resources = BicepTemplate(TEMPLATE).evaluate(
        primaryName=PRIMARY_NAME,
        secondaryName=SECONDARY_NAME,
        secondaryLocation="northeurope",
        backlogQueueCount=BACKLOG_QUEUES,
        **USERS,
        **arguments,
    )
    with (
        LocalNamespace(PRIMARY_NAME, rules=RULES) as primary,
        LocalNamespace(SECONDARY_NAME, rules=RULES) as secondary,
    ):
        deployment = AzureDeployment(resources, primary, secondary)
        deployment.reset()
        yield deployment


def _create(namespace: LocalNamespace, resource: BicepResource) -> None:
    settings = {}
    for key, value in resource.properties.items():
        name, convert = _SETTINGS[key]
        settings[name] = convert(value)
    create = namespace.create_topic if resource.type.endswith("/topics") else namespace.create_queue
    create(resource.name.replace("~", "/"), **settings)
