"""Stand-in for the preparers that create namespaces and entities with Azure Resource Manager.

Entities are created with the SDK's administration client. Namespaces, their keys and their shared
access rules are those of the running emulator.
"""

import contextlib
import functools
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from azure.core.exceptions import ResourceNotFoundError
from azure.mgmt.servicebus.models import AccessRights
from azure.servicebus.management import AccessRights as EntityRights
from azure.servicebus.management import (
    AuthorizationRule,
    ServiceBusAdministrationClient,
)

from tests.sdk_suite import state
from tests.sdk_suite.namespaces import DOMAIN as SERVICEBUS_ENDPOINT_SUFFIX
from tests.sdk_suite.preparers import Preparer

__all__ = [
    "SERVICEBUS_ENDPOINT_SUFFIX",
    "CachedServiceBusNamespacePreparer",
    "CachedServiceBusQueuePreparer",
    "CachedServiceBusResourceGroupPreparer",
    "CachedServiceBusSubscriptionPreparer",
    "CachedServiceBusTopicPreparer",
    "ServiceBusNamespaceAuthorizationRulePreparer",
    "ServiceBusNamespacePreparer",
    "ServiceBusQueueAuthorizationRulePreparer",
    "ServiceBusQueuePreparer",
    "ServiceBusResourceGroupPreparer",
    "ServiceBusSubscriptionPreparer",
    "ServiceBusTopicPreparer",
]

ALL_RIGHTS = (AccessRights.manage, AccessRights.send, AccessRights.listen)


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as the tests see it."""

    name: str


def administration() -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        state.running().messages.connection_string()
    )


class ServiceBusResourceGroupPreparer(Preparer):
    """Passes no resource group: the emulator has none."""


class ServiceBusNamespacePreparer(Preparer):
    names = (
        "servicebus_namespace",
        "servicebus_namespace_connection_string",
        "servicebus_namespace_key_name",
        "servicebus_namespace_primary_key",
    )

    def create(self, resources: dict[str, Any]) -> dict[str, Any]:
        namespace = state.running().messages
        values = (
            Resource(namespace.name),
            namespace.connection_string(),
            namespace.key_name,
            namespace.key,
        )
        return dict(zip(self.names, values, strict=True))


class EntityPreparer(Preparer):
    """Creates an entity with a unique name."""

    parameter = ""

    def __init__(
        self, name_prefix: str = "", *, parameter_name: str | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.prefix = name_prefix
        self.names = (parameter_name or self.parameter,)

    def create(self, resources: dict[str, Any]) -> dict[str, Any]:
        name = f"{self.prefix}{uuid4().hex[:12]}"
        with administration() as client:
            self.create_entity(client, name, resources)
        return {self.names[0]: Resource(name)}

    def remove(self, resources: dict[str, Any]) -> None:
        # The test may have deleted it.
        with administration() as client, contextlib.suppress(ResourceNotFoundError):
            self.delete_entity(client, resources[self.names[0]].name, resources)

    def create_entity(
        self, client: ServiceBusAdministrationClient, name: str, resources: dict[str, Any]
    ) -> None:
        raise NotImplementedError

    def delete_entity(
        self, client: ServiceBusAdministrationClient, name: str, resources: dict[str, Any]
    ) -> None:
        raise NotImplementedError


class ServiceBusQueuePreparer(EntityPreparer):
    parameter = "servicebus_queue"

    def create_entity(
        self, client: ServiceBusAdministrationClient, name: str, resources: dict[str, Any]
    ) -> None:
        client.create_queue(name, **({"lock_duration": "PT30S"} | self.settings))

    def delete_entity(
        self, client: ServiceBusAdministrationClient, name: str, resources: dict[str, Any]
    ) -> None:
        client.delete_queue(name)


class ServiceBusTopicPreparer(EntityPreparer):
    parameter = "servicebus_topic"

    def create_entity(
        self, client: ServiceBusAdministrationClient, name: str, resources: dict[str, Any]
    ) -> None:
        client.create_topic(name)

    def delete_entity(
        self, client: ServiceBusAdministrationClient, name: str, resources: dict[str, Any]
    ) -> None:
        client.delete_topic(name)


class ServiceBusSubscriptionPreparer(EntityPreparer):
    parameter = "servicebus_subscription"

    def create_entity(
        self, client: ServiceBusAdministrationClient, name: str, resources: dict[str, Any]
    ) -> None:
        topic = resources["servicebus_topic"].name
        client.create_subscription(topic, name, **({"lock_duration": "PT60S"} | self.settings))

    def delete_entity(
        self, client: ServiceBusAdministrationClient, name: str, resources: dict[str, Any]
    ) -> None:
        client.delete_subscription(resources["servicebus_topic"].name, name)


class ServiceBusNamespaceAuthorizationRulePreparer(Preparer):
    names = ("servicebus_authorization_rule", "servicebus_authorization_rule_connection_string")

    def __init__(self, name_prefix: str = "", *, access_rights: Any = ALL_RIGHTS) -> None:
        super().__init__()
        self._rule = str(access_rights[0]).lower()

    def create(self, resources: dict[str, Any]) -> dict[str, Any]:
        namespace = state.running().messages
        return {
            self.names[0]: Resource(self._rule),
            self.names[1]: namespace.connection_string(self._rule, f"key-of-{self._rule}"),
        }


class ServiceBusQueueAuthorizationRulePreparer(Preparer):
    names = (
        "servicebus_queue_authorization_rule",
        "servicebus_queue_authorization_rule_connection_string",
    )

    def create(self, resources: dict[str, Any]) -> dict[str, Any]:
        name, key = "queue-rule", uuid4().hex
        rule = AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=[EntityRights.MANAGE, EntityRights.SEND, EntityRights.LISTEN],
            key_name=name,
            primary_key=key,
            secondary_key=uuid4().hex,
        )
        queue = resources["servicebus_queue"].name
        with administration() as client:
            properties = client.get_queue(queue)
            properties.authorization_rules = [rule]
            client.update_queue(properties)
        connection_string = state.running().messages.connection_string(name, key)
        return {
            self.names[0]: Resource(name),
            self.names[1]: f"{connection_string};EntityPath={queue}",
        }


CachedServiceBusResourceGroupPreparer = ServiceBusResourceGroupPreparer
CachedServiceBusNamespacePreparer = ServiceBusNamespacePreparer
CachedServiceBusQueuePreparer = functools.partial(ServiceBusQueuePreparer, use_cache=True)
CachedServiceBusTopicPreparer = functools.partial(ServiceBusTopicPreparer, use_cache=True)
CachedServiceBusSubscriptionPreparer = functools.partial(
    ServiceBusSubscriptionPreparer, use_cache=True
)
