"""The operations of the administration API: get, list, create, update, delete.

As in the service, getting a queue or topic that does not exist returns an empty feed, which the SDK
reports as "not found". For everything else that does not exist the response is 404.
"""

from datetime import datetime
from typing import Any

from pairbus.emulator.admin import atom_writer
from pairbus.emulator.admin.atom_reader import ParsedDescription, parse_description, parse_rule
from pairbus.emulator.admin.atom_writer import AtomEntry
from pairbus.emulator.admin.paths import AdminPath, Resource
from pairbus.emulator.admin.responses import (
    AdminError,
    AdminRequest,
    entry_response,
    feed_response,
    page_response,
)
from pairbus.emulator.auth import Authority, Right
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.entities.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    kind_of,
)
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.registry import EntityRegistry
from pairbus.emulator.entities.runtime_properties import to_datetime
from pairbus.emulator.filters.rules import Rule
from pairbus.emulator.tiers import NamespaceTier
from pairbus.errors import ConfigurationError, EntityNotFound, NotAuthorized
from pairbus.servicebus.atom import FORWARD_DEAD_LETTERS_TOKEN, FORWARD_TO_TOKEN
from pairbus.servicebus.entity_paths import SUBSCRIPTIONS, normalize_path, path_from_address

_FORWARDING_TOKEN_HEADERS = {
    "forward_to": FORWARD_TO_TOKEN,
    "forward_dead_lettered_messages_to": FORWARD_DEAD_LETTERS_TOKEN,
}


class Resources:
    """The entities and rules of a namespace as resources of the API."""

    def __init__(
        self,
        entities: EntityRegistry,
        authority: Authority,
        created_at: datetime,
        tier: NamespaceTier,
    ) -> None:
        self._entities = entities
        self._authority = authority
        self._created_at = created_at
        self._tier = tier

    def handle(self, request: AdminRequest) -> HttpResponse:
        """Return the response to a request.

        Raises AdminError, and the errors of `EntityRegistry` and of the parsers of bodies.
        """
        path, method = request.path, request.http.method
        if method not in path.methods:
            allowed = ", ".join(path.methods)
            raise AdminError(
                405,
                f"{method} is not supported for this resource. It supports {allowed}.",
                headers=(("Allow", allowed),),
            )
        match path.resource, method:
            case Resource.NAMESPACE, _:
                entry = atom_writer.namespace_entry(request.endpoint, self._created_at, self._tier)
                return entry_response(request, entry)
            case Resource.RULE, "PUT":
                return self._put_rule(request)
            case Resource.RULE, "DELETE":
                self._entities.delete_rule(path.entity, path.name, request.now_ms)
                return HttpResponse(status=200)
            case Resource.RULE, _:
                return self._get_rule(request)
            case _, "PUT":
                return self._put_entity(request)
            case _, "DELETE":
                self._entities.delete(path.entity)
                return HttpResponse(status=200)
            case Resource.ENTITY | Resource.SUBSCRIPTION, _:
                return self._get_entity(request)
            case _:
                return self._list(request)

    # Entities.

    def _get_entity(self, request: AdminRequest) -> HttpResponse:
        path = request.path
        if path.resource is Resource.ENTITY and self._entities.find(path.entity) is None:
            return feed_response(request, "Publicly Listed Services", path.entity, [])
        return self._entity_response(request, self._entities.get(path.entity))

    def _put_entity(self, request: AdminRequest) -> HttpResponse:
        parsed = parse_description(request.http.body)
        kind = parsed.kind
        is_subscription_path = request.path.resource is Resource.SUBSCRIPTION
        if (kind is SubscriptionDescription) is not is_subscription_path:
            raise ConfigurationError(f"A {kind.__name__} cannot be put at this path.")
        version = request.endpoint.api_version
        if any(version < atom_writer.INTRODUCED_IN.get(name, "") for name in parsed.settings):
            raise ConfigurationError(
                f"The entity description of type '{kind.__name__}' has unsupported "
                f"properties for api-version '{version}' in the request."
            )
        self._check_forwarding(request, parsed)
        if _is_update(request.http):
            return self._entity_response(request, self._update(request, parsed))
        description = kind(**self._identity(request.path), **parsed.settings)
        entity = self._entities.create(description, request.now_ms, parsed.default_rule)
        return self._entity_response(request, entity, status=201)

    def _identity(self, path: AdminPath) -> dict[str, Any]:
        if path.resource is Resource.ENTITY:
            return {"name": path.entity}
        # The topic keeps the case in which it was created, regardless of that in the path.
        return {"topic": self._entities.get(path.topic).path, "name": path.name}

    def _update(self, request: AdminRequest, parsed: ParsedDescription) -> Entity:
        entity = self._entities.get(request.path.entity)
        if type(entity.description) is not parsed.kind:
            raise ConfigurationError(
                f"{entity.path!r} is a {kind_of(entity.description)}. It cannot be updated with a "
                f"{parsed.kind.__name__}."
            )
        # An old version of the API cannot name these settings, so it does not reset them.
        kept = {
            name: getattr(entity.description, name)
            for name, version in atom_writer.INTRODUCED_IN.items()
            if request.endpoint.api_version < version and hasattr(entity.description, name)
        }
        return self._entities.update(entity.path, {**kept, **parsed.settings}, request.now_ms)

    def _check_forwarding(self, request: AdminRequest, parsed: ParsedDescription) -> None:
        """Check that forwarding targets exist, and that the client has the Manage right on them."""
        for name, header in _FORWARDING_TOKEN_HEADERS.items():
            target = parsed.settings.get(name)
            if target is None:
                continue
            path, token = path_from_address(target), request.http.header(header)
            if token is None:
                raise NotAuthorized(
                    f"Forwarding to {path!r} requires a token for it in the header {header}."
                )
            claims = self._authority.claims_of_token(token, request.now_ms / 1000)
            if not claims.allows(path, Right.MANAGE):
                raise NotAuthorized(f"'Manage' claim(s) on {path!r} are required in {header}.")
            entity = self._entities.find(path)
            if entity is None or isinstance(entity.description, SubscriptionDescription):
                raise AdminError(
                    400,
                    f"The auto forwarding destination entity {path!r} does not exist.",
                    sub_code=40400,
                )

    def _entity_response(
        self, request: AdminRequest, entity: Entity, status: int = 200
    ) -> HttpResponse:
        return entry_response(request, self._entity_entry(request, entity), status)

    def _entity_entry(self, request: AdminRequest, entity: Entity) -> AtomEntry:
        runtime = self._entities.runtime_properties(entity)
        return atom_writer.entity_entry(entity.description, runtime, request.endpoint.api_version)

    # Rules.

    def _get_rule(self, request: AdminRequest) -> HttpResponse:
        subscription = self._entities.get(request.path.entity)
        rule = subscription.rules.get(request.path.name.lower())
        if rule is None:
            raise EntityNotFound(f"{subscription.path!r} has no rule {request.path.name!r}.")
        return entry_response(request, _rule_entry(subscription, rule))

    def _put_rule(self, request: AdminRequest) -> HttpResponse:
        subscription = self._entities.get(request.path.entity)
        rule = parse_rule(request.http.body, request.path.name)
        is_update = _is_update(request.http)
        put_rule = self._entities.update_rule if is_update else self._entities.create_rule
        put_rule(subscription.path, rule, request.now_ms)
        return entry_response(request, _rule_entry(subscription, rule), 200 if is_update else 201)

    # Lists.

    def _list(self, request: AdminRequest) -> HttpResponse:
        resource = request.path.resource
        if resource is Resource.RULES:
            subscription = self._entities.get(request.path.entity)
            return page_response(
                request,
                "Rules",
                f"{subscription.path}/Rules",
                sorted(subscription.rules.values(), key=lambda rule: rule.name.lower()),
                lambda rule: _rule_entry(subscription, rule),
            )
        if resource is Resource.SUBSCRIPTIONS:
            topic = self._entities.get(request.path.entity)
            if not isinstance(topic.description, TopicDescription):
                raise EntityNotFound(f"{topic.path!r} is not a topic.")
            title, path = SUBSCRIPTIONS, f"{topic.path}/{SUBSCRIPTIONS}"
            entities = sorted(
                self._entities.subscriptions(topic), key=lambda entity: normalize_path(entity.path)
            )
        elif resource is Resource.TOPICS:
            title, path = "Topics", "$Resources/topics"
            entities = self._entities.all(TopicDescription)
        else:
            title, path = "Queues", "$Resources/queues"
            entities = self._entities.all(QueueDescription)
        return page_response(
            request, title, path, entities, lambda entity: self._entity_entry(request, entity)
        )


def _is_update(request: HttpRequest) -> bool:
    """Return True if a PUT request updates an existing resource."""
    condition = request.header("If-Match")
    if condition not in (None, "*"):
        raise AdminError(412, "If-Match must be '*' or absent: entities have no entity tags.")
    return condition is not None


def _rule_entry(subscription: Entity, rule: Rule) -> AtomEntry:
    # The creation time of a rule is not stored, so that of its subscription is used.
    return atom_writer.rule_entry(subscription.path, rule, to_datetime(subscription.row.created_ms))
