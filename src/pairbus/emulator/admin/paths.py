"""Paths of the administration API.

| path | resource |
| --- | --- |
| `$namespaceinfo` | the namespace |
| `$Resources/queues`, `$Resources/topics` | the list of all queues or topics |
| `a/b` | a queue or topic |
| `a/b/subscriptions`, `a/b/subscriptions/s` | the subscriptions of a topic, or one of them |
| `a/b/subscriptions/s/rules`, `…/rules/r` | the rules of a subscription, or one of them |

Paths are case-insensitive. The path of a queue or topic cannot have a segment `subscriptions`, so
it ends at the first one. The rest is a name even if it contains slashes, so that an invalid name is
reported as one.
"""

from dataclasses import dataclass
from enum import Enum, auto

from pairbus.servicebus.entity_paths import subscription_path


class Resource(Enum):
    """The kinds of resources that a path can name."""

    NAMESPACE = auto()
    QUEUES = auto()
    TOPICS = auto()
    ENTITY = auto()
    SUBSCRIPTIONS = auto()
    SUBSCRIPTION = auto()
    RULES = auto()
    RULE = auto()


_EDITABLE = frozenset({Resource.ENTITY, Resource.SUBSCRIPTION, Resource.RULE})


@dataclass(frozen=True, slots=True)
class AdminPath:
    """A parsed path.

    `entity` is the path of the queue, topic or subscription, empty for the namespace; `topic` is
    the topic of a subscription, `name` the name of a subscription or rule.
    """

    resource: Resource
    entity: str = ""
    topic: str = ""
    name: str = ""

    @property
    def methods(self) -> tuple[str, ...]:
        """The HTTP methods that the resource supports."""
        return ("GET", "PUT", "DELETE") if self.resource in _EDITABLE else ("GET",)


_FIXED_PATHS = {
    "$namespaceinfo": AdminPath(Resource.NAMESPACE),
    "$resources/queues": AdminPath(Resource.QUEUES),
    "$resources/topics": AdminPath(Resource.TOPICS),
}


def parse_path(path: str) -> AdminPath | None:
    """Parse a path. Return None if it cannot name any resource."""
    if path.startswith("$"):
        return _FIXED_PATHS.get(path.lower())
    segments = path.split("/")
    lowered = [segment.lower() for segment in segments]
    if "subscriptions" not in lowered:
        return AdminPath(Resource.ENTITY, path)
    index = lowered.index("subscriptions")
    topic, rest = "/".join(segments[:index]), segments[index + 1 :]
    if not rest:
        return AdminPath(Resource.SUBSCRIPTIONS, topic)
    if len(rest) == 1 or rest[1].lower() != "rules":
        name = "/".join(rest)
        return AdminPath(Resource.SUBSCRIPTION, subscription_path(topic, name), topic, name)
    entity = subscription_path(topic, rest[0])
    if len(rest) == 2:
        return AdminPath(Resource.RULES, entity)
    return AdminPath(Resource.RULE, entity, topic, "/".join(rest[2:]))
