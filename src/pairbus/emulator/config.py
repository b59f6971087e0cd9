"""Config.json of the Azure Service Bus emulator: namespaces, queues, topics, subscriptions, rules.

The file is read as the official emulator reads it: comments (`//` and `/* */`) and trailing commas
are allowed, and names are case-insensitive. Properties that are left out have the defaults of
Service Bus, not those of the official emulator (which keeps messages for an hour, and delivers them
three times), so that a namespace behaves as in the cloud. An entity may have every property of its
description. `Logging` is ignored. A namespace may have a `Tier` (standard, premium or unlimited),
and a premium one `MessagingUnits`; the official emulator has neither.

A wrong file is a ConfigurationError that names the position.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pairbus.emulator.entities.descriptions import (
    FORWARDING_FIELDS,
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    parse_setting,
    setting_fields,
)
from pairbus.emulator.filters.rules import (
    CORRELATION_PROPERTIES,
    CorrelationFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    compile_rules,
)
from pairbus.emulator.jsonc import JsonNode, parse_jsonc
from pairbus.emulator.tiers import NamespaceTier, tier_of
from pairbus.errors import ConfigurationError
from pairbus.servicebus.atom import property_name
from pairbus.servicebus.entity_paths import (
    check_name,
    check_namespace_name,
    check_path,
    normalize_path,
    path_from_address,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionConfig:
    """A subscription and its rules."""

    description: SubscriptionDescription
    rules: tuple[Rule, ...] = ()
    """Without any, the subscription gets the rule that selects all messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic and its subscriptions."""

    description: TopicDescription
    subscriptions: tuple[SubscriptionConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    """A namespace and its entities."""

    name: str
    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicConfig, ...] = ()
    tier: NamespaceTier | None = None


def load_namespaces(names: Iterable[str], file: Path | None) -> list[NamespaceConfig]:
    """Return the namespaces to serve: those of a Config.json, then one without entities for each
    further name. With neither there is one namespace, `local`.

    Raises ConfigurationError if the file is not valid or cannot be read, or if a name is there
    twice.
    """
    namespaces: list[NamespaceConfig] = []
    if file is not None:
        try:
            namespaces += read_config(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
            raise ConfigurationError(f"{file} cannot be read: {reason}.") from exc
        except ConfigurationError as exc:
            raise ConfigurationError(f"{file}: {exc}") from exc
    names = tuple(names)
    for name in names:
        check_namespace_name(name)
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(
            f"The namespace {repeated!r} is named twice. Use a different name for each."
        )
    configured = {namespace.name for namespace in namespaces}
    namespaces += [NamespaceConfig(name=name) for name in names if name not in configured]
    return namespaces or [NamespaceConfig(name="local")]


def read_config(content: str) -> tuple[NamespaceConfig, ...]:
    """Return the namespaces of a Config.json. Raises ConfigurationError."""
    root = parse_jsonc(content)
    user_config = root.members("UserConfig", "$schema").get("UserConfig")
    if user_config is None:
        raise root.error("UserConfig is missing")
    listed = user_config.members("Namespaces", "Logging").get("Namespaces")
    if listed is None:
        raise user_config.error("Namespaces is missing")
    namespaces = [(node, _read_namespace(node)) for node in listed.items()]
    _check_unique("namespace", [(node, namespace.name) for node, namespace in namespaces])
    return tuple(namespace for _, namespace in namespaces)


def _read_namespace(node: JsonNode) -> NamespaceConfig:
    members = node.members("Name", "Queues", "Topics", "Tier", "MessagingUnits")
    name = _read_name(node, members, check_namespace_name)
    queues = [(item, _read_queue(item)) for item in _items(members, "Queues")]
    topics = [(item, _read_topic(item)) for item in _items(members, "Topics")]
    entities: list[tuple[JsonNode, EntityDescription]] = [
        *queues,
        *((item, topic.description) for item, topic in topics),
    ]
    _check_unique("entity", [(item, entity.path) for item, entity in entities])
    targets = {normalize_path(entity.path) for _, entity in entities}
    for item, topic in topics:
        entities += [(item, subscription.description) for subscription in topic.subscriptions]
    for item, entity in entities:
        _check_forwarding(item, entity, targets)
    return NamespaceConfig(
        name=name,
        queues=tuple(queue for _, queue in queues),
        topics=tuple(topic for _, topic in topics),
        tier=_read_tier(node, members),
    )


def _read_tier(node: JsonNode, members: dict[str, JsonNode]) -> NamespaceTier | None:
    if "Tier" not in members:
        if "MessagingUnits" in members:
            raise node.error("MessagingUnits needs a Tier")
        return None
    units = members["MessagingUnits"].number() if "MessagingUnits" in members else 1
    return node.build(lambda: tier_of(members["Tier"].text(), units))


def _read_queue(node: JsonNode) -> QueueDescription:
    members = node.members("Name", "Properties")
    name = _read_name(node, members, partial(check_path, "queue"))
    settings = _read_settings(members, QueueDescription)
    return node.build(lambda: QueueDescription(name=name, **settings))


def _read_topic(node: JsonNode) -> TopicConfig:
    members = node.members("Name", "Properties", "Subscriptions")
    name = _read_name(node, members, partial(check_path, "topic"))
    settings = _read_settings(members, TopicDescription)
    subscriptions = [
        (item, _read_subscription(item, name)) for item in _items(members, "Subscriptions")
    ]
    _check_unique(
        "subscription",
        [(item, subscription.description.name) for item, subscription in subscriptions],
    )
    return TopicConfig(
        description=node.build(lambda: TopicDescription(name=name, **settings)),
        subscriptions=tuple(subscription for _, subscription in subscriptions),
    )


def _read_subscription(node: JsonNode, topic: str) -> SubscriptionConfig:
    members = node.members("Name", "Properties", "Rules")
    name = _read_name(node, members, partial(check_name, "subscription"))
    settings = _read_settings(members, SubscriptionDescription)
    rules = [(item, _read_rule(item)) for item in _items(members, "Rules")]
    _check_unique("rule", [(item, rule.name) for item, rule in rules])
    return SubscriptionConfig(
        description=node.build(lambda: SubscriptionDescription(topic=topic, name=name, **settings)),
        rules=tuple(rule for _, rule in rules),
    )


def _read_rule(node: JsonNode) -> Rule:
    members = node.members("Name", "Properties")
    name = _read_name(node, members, partial(check_name, "rule"))
    if "Properties" not in members:
        raise node.error("Properties is missing")
    properties = members["Properties"]
    parts = properties.members("FilterType", "CorrelationFilter", "SqlFilter", "Action")
    filter_type = parts["FilterType"].text() if "FilterType" in parts else ""
    filter_name = {"sql": "SqlFilter", "correlation": "CorrelationFilter"}.get(filter_type.lower())
    if filter_name is None:
        raise properties.error(f"FilterType must be Sql or Correlation, not {filter_type!r}")
    if filter_name not in parts:
        raise properties.error(f"FilterType is {filter_type}, but {filter_name} is missing")
    filter_: Filter
    if filter_name == "SqlFilter":
        filter_ = SqlFilter(_read_sql(parts[filter_name]))
    else:
        filter_ = _read_correlation(parts[filter_name])
    action = SqlAction(_read_sql(parts["Action"])) if "Action" in parts else None
    rule = Rule(name=name, filter=filter_, action=action)
    properties.build(lambda: compile_rules([rule]))
    return rule


def _read_sql(node: JsonNode) -> str:
    members = node.members("SqlExpression", "CompatibilityLevel", "RequiresPreprocessing")
    if "SqlExpression" not in members:
        raise node.error("SqlExpression is missing")
    return members["SqlExpression"].text()


def _read_correlation(node: JsonNode) -> CorrelationFilter:
    members = node.members(*CORRELATION_PROPERTIES, "Properties", "RequiresPreprocessing")
    members.pop("RequiresPreprocessing", None)
    application_properties: dict[str, Any] = {}
    if (properties := members.pop("Properties", None)) is not None:
        for key, value in properties.mapping().items():
            if not isinstance(value.value, str | int | float):
                raise value.error("expected a string, number or boolean")
            application_properties[key] = value.value
    texts = {CORRELATION_PROPERTIES[name]: value.text() for name, value in members.items()}
    return node.build(lambda: CorrelationFilter(**texts, properties=application_properties))


def _read_name(node: JsonNode, members: dict[str, JsonNode], check: Callable[[str], None]) -> str:
    if "Name" not in members:
        raise node.error("Name is missing")
    name = members["Name"].text()
    members["Name"].build(lambda: check(name))
    return name


def _items(members: dict[str, JsonNode], name: str) -> list[JsonNode]:
    return members[name].items() if name in members else []


def _read_settings(members: dict[str, JsonNode], kind: type[EntityDescription]) -> dict[str, Any]:
    if "Properties" not in members:
        return {}
    known = setting_fields(kind)
    known.pop("AuthorizationRules", None)  # keys do not belong in this file
    settings: dict[str, Any] = {}
    for name, value in members["Properties"].members(*known).items():
        field, type_ = known[name]
        settings[field] = _read_setting(value, type_)
    return settings


def _read_setting(node: JsonNode, kind: Any) -> Any:
    if kind is int:
        return node.number()
    if kind in (bool, bool | None):
        return node.flag()
    text = node.text()
    return node.build(lambda: parse_setting(text, kind))


def _check_unique(kind: str, named: Iterable[tuple[JsonNode, str]]) -> None:
    names: set[str] = set()
    for node, name in named:
        if normalize_path(name) in names:
            raise node.error(f"another {kind} has the name {name!r}")
        names.add(normalize_path(name))


def _check_forwarding(node: JsonNode, entity: EntityDescription, targets: set[str]) -> None:
    for field in FORWARDING_FIELDS:
        target = getattr(entity, field, None)
        if target is not None and normalize_path(path_from_address(target)) not in targets:
            raise node.error(
                f"{property_name(field)} of {entity.path!r} is {target!r}, which is not a queue or "
                "topic of this namespace"
            )
