"""The official emulator's Config.json: namespaces, queues, topics, subscriptions and rules.

Read as the emulator reads it: comments (`//` and `/* */`) and trailing commas are passed over, and
the case of names does not matter. What is left out has the service's default, not the emulator's
(which keeps messages for an hour, and delivers them three times): a namespace is to behave like the
cloud's. The properties of an entity may be any that its description has. `Logging` is passed over.

Whatever is unknown or wrong is a ConfigurationError that says where it is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairbus.emulator.admin.atom_rules import CORRELATION_PROPERTIES
from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    parse_setting,
    property_name,
    setting_fields,
)
from pairbus.emulator.filters.rules import (
    CorrelationFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    compile_rules,
)
from pairbus.emulator.jsonc import JsonNode, parse_jsonc
from pairbus.errors import ConfigurationError
from pairbus.servicebus.entity_paths import (
    check_name,
    check_path,
    normalize_path,
    path_from_address,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionConfig:
    description: SubscriptionDescription
    rules: tuple[Rule, ...] = ()
    """Empty: the rule that takes everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    description: TopicDescription
    subscriptions: tuple[SubscriptionConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    name: str
    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicConfig, ...] = ()


def load_namespaces(names: Iterable[str], file: Path | None) -> list[NamespaceConfig]:
    """Return the namespaces to serve: those of a Config.json, then one without entities for each
    further name. With neither there is one namespace, `local`.

    Raises ConfigurationError if the file is not valid, and OSError if it cannot be read.
    """
    namespaces: list[NamespaceConfig] = []
    if file is not None:
        try:
            namespaces += read_config(file.read_text(encoding="utf-8"))
        except ConfigurationError as exc:
            raise ConfigurationError(f"{file}: {exc}") from exc
    configured = {namespace.name for namespace in namespaces}
    namespaces += [NamespaceConfig(name=name) for name in names if name not in configured]
    return namespaces or [NamespaceConfig(name="local")]


def read_config(content: str) -> tuple[NamespaceConfig, ...]:
    """The namespaces that a Config.json describes. Raises ConfigurationError."""
    root = parse_jsonc(content)
    user = root.members("UserConfig", "$schema").get("UserConfig")
    if user is None:
        raise ConfigurationError("Config.json has no UserConfig")
    listed = user.members("Namespaces", "Logging").get("Namespaces")
    if listed is None:
        raise user.wrong("Namespaces is needed here")
    namespaces = [(node, _namespace(node)) for node in listed.items()]
    _check_unique("namespace", [(node, found.name) for node, found in namespaces])
    return tuple(found for _, found in namespaces)


def _namespace(node: JsonNode) -> NamespaceConfig:
    parts = node.members("Name", "Queues", "Topics")
    name = _name(node, parts, lambda name: check_name("namespace", name))
    queues = [(item, _queue(item)) for item in _list(parts, "Queues")]
    topics = [(item, _topic(item)) for item in _list(parts, "Topics")]
    described: list[tuple[JsonNode, EntityDescription]] = [
        *queues,
        *((item, topic.description) for item, topic in topics),
    ]
    _check_unique("entity", [(item, one.path) for item, one in described])
    targets = {normalize_path(one.path) for _, one in described}
    for item, topic in topics:
        described += [(item, below.description) for below in topic.subscriptions]
    for item, one in described:
        for field in ("forward_to", "forward_dead_lettered_messages_to"):
            target = getattr(one, field, None)
            if target is not None and normalize_path(path_from_address(target)) not in targets:
                raise item.wrong(
                    f"{property_name(field)} of {one.path!r} is {target!r}, which is no queue or "
                    "topic of this namespace"
                )
    return NamespaceConfig(
        name=name,
        queues=tuple(queue for _, queue in queues),
        topics=tuple(topic for _, topic in topics),
    )


def _queue(node: JsonNode) -> QueueDescription:
    parts = node.members("Name", "Properties")
    name = _name(node, parts, lambda name: check_path("queue", name))
    given = _settings(parts, QueueDescription)
    return node.tried(lambda: QueueDescription(name=name, **given))


def _topic(node: JsonNode) -> TopicConfig:
    parts = node.members("Name", "Properties", "Subscriptions")
    name = _name(node, parts, lambda name: check_path("topic", name))
    given = _settings(parts, TopicDescription)
    found = [(item, _subscription(item, name)) for item in _list(parts, "Subscriptions")]
    _check_unique("subscription", [(item, one.description.name) for item, one in found])
    return TopicConfig(
        description=node.tried(lambda: TopicDescription(name=name, **given)),
        subscriptions=tuple(one for _, one in found),
    )


def _subscription(node: JsonNode, topic: str) -> SubscriptionConfig:
    parts = node.members("Name", "Properties", "Rules")
    name = _name(node, parts, lambda name: check_name("subscription", name))
    given = _settings(parts, SubscriptionDescription)
    rules = [(item, _rule(item)) for item in _list(parts, "Rules")]
    _check_unique("rule", [(item, rule.name) for item, rule in rules])
    return SubscriptionConfig(
        description=node.tried(lambda: SubscriptionDescription(topic=topic, name=name, **given)),
        rules=tuple(rule for _, rule in rules),
    )


def _rule(node: JsonNode) -> Rule:
    parts = node.members("Name", "Properties")
    name = _name(node, parts, lambda name: check_name("rule", name))
    if "Properties" not in parts:
        raise node.wrong("a rule needs Properties")
    properties = parts["Properties"]
    given = properties.members("FilterType", "CorrelationFilter", "SqlFilter", "Action")
    kind = given["FilterType"].text() if "FilterType" in given else ""
    wanted = {"sql": "SqlFilter", "correlation": "CorrelationFilter"}.get(kind.lower())
    if wanted is None:
        raise properties.wrong(f"FilterType is Sql or Correlation, not {kind!r}")
    if wanted not in given:
        raise properties.wrong(f"FilterType is {kind}, and so {wanted} is needed")
    filter_: Filter
    if wanted == "SqlFilter":
        filter_ = SqlFilter(_sql(given[wanted]))
    else:
        filter_ = _correlation(given[wanted])
    action = SqlAction(_sql(given["Action"])) if "Action" in given else None
    rule = Rule(name=name, filter=filter_, action=action)
    properties.tried(lambda: compile_rules([rule]))
    return rule


def _sql(node: JsonNode) -> str:
    expression = node.members("SqlExpression", "CompatibilityLevel", "RequiresPreprocessing").get(
        "SqlExpression"
    )
    if expression is None:
        raise node.wrong("SqlExpression is needed here")
    return expression.text()


def _correlation(node: JsonNode) -> CorrelationFilter:
    given = node.members(*CORRELATION_PROPERTIES, "Properties", "RequiresPreprocessing")
    given.pop("RequiresPreprocessing", None)
    properties: dict[str, Any] = {}
    if (own := given.pop("Properties", None)) is not None:
        for key, value in own.mapping().items():
            if not isinstance(value.value, str | int | float):
                raise value.wrong("a string, number or boolean is needed here")
            properties[key] = value.value
    texts = {CORRELATION_PROPERTIES[name]: value.text() for name, value in given.items()}
    return node.tried(lambda: CorrelationFilter(**texts, properties=properties))


def _name(node: JsonNode, parts: dict[str, JsonNode], check: Callable[[str], None]) -> str:
    if "Name" not in parts:
        raise node.wrong("a Name is needed here")
    name = parts["Name"].text()
    parts["Name"].tried(lambda: check(name))
    return name


def _list(parts: dict[str, JsonNode], name: str) -> list[JsonNode]:
    return parts[name].items() if name in parts else []


def _settings(parts: dict[str, JsonNode], kind: type[EntityDescription]) -> dict[str, Any]:
    if "Properties" not in parts:
        return {}
    known = setting_fields(kind)
    known.pop("AuthorizationRules", None)  # keys do not belong in this file
    found: dict[str, Any] = {}
    for name, value in parts["Properties"].members(*known).items():
        field, type_ = known[name]
        found[field] = _setting(value, type_)
    return found


def _setting(node: JsonNode, kind: Any) -> Any:
    if kind is int:
        return node.number()
    if kind in (bool, bool | None):
        return node.flag()
    return node.tried(lambda: parse_setting(node.text(), kind))


def _check_unique(kind: str, named: Iterable[tuple[JsonNode, str]]) -> None:
    seen: set[str] = set()
    for node, name in named:
        if normalize_path(name) in seen:
            raise node.wrong(f"there is another {kind} of the name {name!r}")
        seen.add(normalize_path(name))
