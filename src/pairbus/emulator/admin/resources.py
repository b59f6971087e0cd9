"""What can be done through the administration API: get, list, create, update, delete.

A queue or topic that does not exist is got as an empty feed, as the service has it, which the SDK
takes for "not found"; everything else that does not exist is 404.
"""

from datetime import datetime
from typing import Any

from pairbus.emulator.admin import atom_writer
from pairbus.emulator.admin.atom_reader import ParsedDescription, parse_description, parse_rule
from pairbus.emulator.admin.paths import AdminPath, Resource
from pairbus.emulator.admin.responses import (
    AdminError,
    AdminRequest,
    entry_response,
    feed_response,
    page_response,
    to_datetime,
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
from pairbus.emulator.filters.rules import Rule
from pairbus.errors import ConfigurationError, EntityNotFound, NotAuthorized
from pairbus.servicebus.atom import FORWARD_DEAD_LETTERS_TOKEN, FORWARD_TO_TOKEN
from pairbus.servicebus.entity_paths import SUBSCRIPTIONS, normalize_path, path_from_address

_FORWARDING = {
    "forward_to": FORWARD_TO_TOKEN,
    "forward_dead_lettered_messages_to": FORWARD_DEAD_LETTERS_TOKEN,
}


class Resources:
    """The entities and rules of a namespace, as the API shows them."""

    def __init__(
        self, entities: EntityRegistry, authority: Authority, created_at: datetime
    ) -> None:
        self._entities = entities
        self._authority = authority
        self._created_at = created_at

    def answer(self, call: AdminRequest) -> HttpResponse:
        """Raises Refusal, or what `EntityRegistry` and the readers of bodies raise."""
        place, method = call.place, call.request.method
        if method not in place.methods:
            raise AdminError(
                405,
                f"{method} is not supported here: {', '.join(place.methods)}.",
                headers=(("Allow", ", ".join(place.methods)),),
            )
        match place.resource, method:
            case Resource.NAMESPACE, _:
                return entry_response(
                    call, atom_writer.namespace_entry(call.site, self._created_at)
                )
            case Resource.RULE, "PUT":
                return self._put_rule(call)
            case Resource.RULE, "DELETE":
                self._entities.delete_rule(place.entity, place.name, call.now_ms)
                return HttpResponse(status=200)
            case Resource.RULE, _:
                return self._get_rule(call)
            case _, "PUT":
                return self._put(call)
            case _, "DELETE":
                self._entities.delete(place.entity)
                return HttpResponse(status=200)
            case Resource.ENTITY | Resource.SUBSCRIPTION, _:
                return self._get(call)
            case _:
                return self._list(call)

    # Entities.

    def _get(self, call: AdminRequest) -> HttpResponse:
        entity = self._entities.find(call.place.entity)
        if entity is None and call.place.resource is Resource.ENTITY:
            return feed_response(call, "Publicly Listed Services", call.place.entity, [])
        return self._shown(call, self._entities.get(call.place.entity))

    def _put(self, call: AdminRequest) -> HttpResponse:
        given = parse_description(call.request.body)
        about_subscription = call.place.resource is Resource.SUBSCRIPTION
        if (given.kind is SubscriptionDescription) is not about_subscription:
            raise ConfigurationError(f"a {given.kind.__name__} cannot be at this path")
        version = call.site.api_version
        if any(version < atom_writer.INTRODUCED_IN.get(name, "") for name in given.settings):
            raise ConfigurationError(
                f"The entity description of type '{given.kind.__name__}' has unsupported "
                f"properties for api-version '{version}' in the request."
            )
        self._check_forwarding(call, given)
        if _replaces(call.request):
            return self._shown(call, self._update(call, given))
        description = given.kind(**self._identity(call.place), **given.settings)
        entity = self._entities.create(description, call.now_ms, given.default_rule)
        return self._shown(call, entity, status=201)

    def _identity(self, place: AdminPath) -> dict[str, Any]:
        if place.resource is Resource.ENTITY:
            return {"name": place.entity}
        # The topic is written as it was created, whatever the case of the path.
        return {"topic": self._entities.get(place.topic).path, "name": place.name}

    def _update(self, call: AdminRequest, given: ParsedDescription) -> Entity:
        entity = self._entities.get(call.place.entity)
        if type(entity.description) is not given.kind:
            raise ConfigurationError(
                f"{entity.path!r} is a {kind_of(entity.description)}, and cannot become a "
                f"{given.kind.__name__}"
            )
        # An old version of the API cannot name these, and so does not reset them.
        kept = {
            name: getattr(entity.description, name)
            for name, since in atom_writer.INTRODUCED_IN.items()
            if call.site.api_version < since and hasattr(entity.description, name)
        }
        return self._entities.update(entity.path, {**kept, **given.settings}, call.now_ms)

    def _check_forwarding(self, call: AdminRequest, given: ParsedDescription) -> None:
        """Whoever forwards has to have the Manage right over the target too, and it has to be
        there."""
        for name, header in _FORWARDING.items():
            target = given.settings.get(name)
            if target is None:
                continue
            path, token = path_from_address(target), call.request.header(header)
            if token is None:
                raise NotAuthorized(f"forwarding to {path!r} needs a token for it in {header}.")
            claims = self._authority.claims_of_token(token, call.now_ms / 1000)
            if not claims.allows(path, Right.MANAGE):
                raise NotAuthorized(f"'Manage' claim(s) on {path!r} are required in {header}.")
            entity = self._entities.find(path)
            if entity is None or isinstance(entity.description, SubscriptionDescription):
                raise AdminError(
                    400,
                    f"The auto forwarding destination entity {path!r} does not exist.",
                    sub_code=40400,
                )

    def _shown(self, call: AdminRequest, entity: Entity, status: int = 200) -> HttpResponse:
        return entry_response(call, self._entry(call, entity), status)

    def _entry(self, call: AdminRequest, entity: Entity) -> atom_writer.AtomEntry:
        runtime = self._entities.runtime_properties(entity)
        return atom_writer.entity_entry(entity.description, runtime, call.site.api_version)

    # Rules.

    def _get_rule(self, call: AdminRequest) -> HttpResponse:
        subscription = self._entities.get(call.place.entity)
        rule = subscription.rules.get(call.place.name.lower())
        if rule is None:
            raise EntityNotFound(f"{subscription.path!r} has no rule {call.place.name!r}.")
        return entry_response(call, _rule_entry(subscription, rule))

    def _put_rule(self, call: AdminRequest) -> HttpResponse:
        subscription = self._entities.get(call.place.entity)
        rule = parse_rule(call.request.body, call.place.name)
        replaces = _replaces(call.request)
        put_rule = self._entities.update_rule if replaces else self._entities.create_rule
        put_rule(subscription.path, rule, call.now_ms)
        return entry_response(call, _rule_entry(subscription, rule), 200 if replaces else 201)

    # Lists.

    def _list(self, call: AdminRequest) -> HttpResponse:
        entities, place = self._entities, call.place
        if place.resource is Resource.RULES:
            subscription = entities.get(place.entity)
            rules = sorted(subscription.rules.values(), key=lambda rule: rule.name.lower())
            path = f"{subscription.path}/Rules"
            return page_response(
                call, "Rules", path, rules, lambda rule: _rule_entry(subscription, rule)
            )
        if place.resource is Resource.SUBSCRIPTIONS:
            topic = entities.get(place.entity)
            if not isinstance(topic.description, TopicDescription):
                raise EntityNotFound(f"{topic.path!r} is not a topic.")
            found = sorted(
                entities.subscriptions(topic), key=lambda entity: normalize_path(entity.path)
            )
            title, path = SUBSCRIPTIONS, f"{topic.path}/{SUBSCRIPTIONS}"
        elif place.resource is Resource.TOPICS:
            found = entities.all(TopicDescription)
            title, path = "Topics", "$Resources/topics"
        else:
            found = entities.all(QueueDescription)
            title, path = "Queues", "$Resources/queues"
        return page_response(
            call, title, path, found, lambda entry_response: self._entry(call, entry_response)
        )


def _replaces(request: HttpRequest) -> bool:
    """Whether a PUT is an update."""
    condition = request.header("If-Match")
    if condition not in (None, "*"):
        raise AdminError(412, "If-Match is '*' or absent: entities have no tags to compare with.")
    return condition is not None


def _rule_entry(subscription: Entity, rule: Rule) -> atom_writer.AtomEntry:
    # When a rule was made is not kept: it is as old as its subscription.
    return atom_writer.rule_entry(subscription.path, rule, to_datetime(subscription.row.created_ms))
