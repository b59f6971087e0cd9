"""The marks of a test that describe its namespace, as a configuration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any, TypeVar

import pytest

from pairbus.emulator.config import NamespaceConfig, SubscriptionConfig, TopicConfig
from pairbus.emulator.entities.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.emulator.filters.rules import Rule, SqlFilter
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConfigurationError
from pairbus.servicebus.entity_paths import DEFAULT_RULE, normalize_path

NAMESPACE, QUEUE, TOPIC = "servicebus_namespace", "servicebus_queue", "servicebus_topic"
SQL_FILTER = "sql_filter"
OPTIONS = {"on_disk", *signature(LocalNamespace).parameters} - {"folder"}
EXAMPLES = {
    NAMESPACE: f'@pytest.mark.{NAMESPACE}("orders", on_disk=True)',
    QUEUE: f'@pytest.mark.{QUEUE}("orders", requires_session=True)',
    TOPIC: f'@pytest.mark.{TOPIC}("news", subscriptions=["all"])',
}

Description = TypeVar("Description", QueueDescription, TopicDescription, SubscriptionDescription)


class MarkError(ConfigurationError):
    """Raised when the marks of a test do not describe a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceMarks:
    """The namespace that the marks of a test describe."""

    config: NamespaceConfig
    on_disk: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of LocalNamespace."""


def parse_marks(marks: Iterable[pytest.Mark]) -> NamespaceMarks:
    """Return the namespace that marks describe, the closest first. Raises MarkError.

    A mark of the test itself replaces one of its class or module that has the same name.
    """
    options: dict[str, Any] | None = None
    queues: dict[str, QueueDescription] = {}
    topics: dict[str, TopicConfig] = {}
    for mark in marks:
        if mark.name == NAMESPACE and options is None:
            options = {"name": _name(mark, default="local"), **mark.kwargs}
        elif mark.name == QUEUE:
            queue = _describe(QueueDescription, mark.kwargs, "queue", name=_name(mark))
            queues.setdefault(normalize_path(queue.path), queue)
        elif mark.name == TOPIC:
            topic = _topic(mark)
            topics.setdefault(normalize_path(topic.description.path), topic)
    if both := queues.keys() & topics.keys():
        raise MarkError(f"{min(both)!r} is the name of a queue and of a topic.")
    options = {"name": "local"} if options is None else options
    if unknown := options.keys() - OPTIONS:
        raise MarkError(
            f"{NAMESPACE} has no option {min(unknown)!r}."
            f" Its options are: {', '.join(sorted(OPTIONS))}."
        )
    config = NamespaceConfig(
        name=options.pop("name"),
        queues=tuple(reversed(queues.values())),
        topics=tuple(reversed(topics.values())),
    )
    return NamespaceMarks(
        config=config, on_disk=bool(options.pop("on_disk", False)), options=options
    )


def _name(mark: pytest.Mark, default: str | None = None) -> str:
    """Return the name that is the first argument of a mark, or its keyword argument `name`."""
    if default is not None and not mark.args:
        return default
    if len(mark.args) != 1 or not isinstance(mark.args[0], str):
        given = ", ".join(map(repr, mark.args)) or "no argument"
        raise MarkError(
            f"{mark.name} takes one name, not {given}. For example: {EXAMPLES[mark.name]}"
        )
    return mark.args[0]


def _topic(mark: pytest.Mark) -> TopicConfig:
    settings = dict(mark.kwargs)
    subscriptions = settings.pop("subscriptions", ())
    topic = _describe(TopicDescription, settings, "topic", name=_name(mark))
    if isinstance(subscriptions, str) or not isinstance(subscriptions, Iterable):
        raise MarkError(
            f"The subscriptions of topic {topic.name!r} are a list of names, or a dictionary of"
            f" names and settings, not {subscriptions!r}. For example: {EXAMPLES[TOPIC]}"
        )
    if not isinstance(subscriptions, Mapping):
        subscriptions = {name: {} for name in subscriptions}
    return TopicConfig(
        description=topic,
        subscriptions=tuple(
            _subscription(topic.name, name, settings) for name, settings in subscriptions.items()
        ),
    )


def _subscription(topic: str, name: object, settings: Mapping[str, Any]) -> SubscriptionConfig:
    if not isinstance(name, str) or not isinstance(settings, Mapping):
        raise MarkError(
            f"{name!r}: {settings!r} is not a subscription of topic {topic!r}."
            ' Write {"NAME": {"requires_session": True}}.'
        )
    settings = dict(settings)
    expression = settings.pop(SQL_FILTER, None)
    description = _describe(
        SubscriptionDescription, settings, "subscription", topic=topic, name=name
    )
    if expression is None:
        return SubscriptionConfig(description=description)
    rule = Rule(name=DEFAULT_RULE, filter=SqlFilter(expression))
    return SubscriptionConfig(description=description, rules=(rule,))


def _describe(
    kind: type[Description], settings: Mapping[str, Any], noun: str, **identity: Any
) -> Description:
    """Return the description of an entity. Raises MarkError for a setting that is not valid."""
    known = {f.name for f in fields(kind)} - {"topic", "name"}
    if unknown := settings.keys() - known:
        raise MarkError(
            f"{noun} {identity['name']!r} has no setting {min(unknown)!r}."
            f" Its settings are: {', '.join(sorted(known))}."
        )
    try:
        return kind(**identity, **settings)
    except ConfigurationError as exc:
        raise MarkError(str(exc)) from exc
    except (TypeError, AttributeError) as exc:
        raise MarkError(
            f"A setting of {noun} {identity['name']!r} has the wrong type"
            f" ({exc}). A span of time is a timedelta."
        ) from exc
