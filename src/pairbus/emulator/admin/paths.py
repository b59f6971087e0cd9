"""What a path of the administration API means.

| path | what it is |
| --- | --- |
| `$namespaceinfo` | the namespace |
| `$Resources/queues`, `$Resources/topics` | the list of all |
| `a/b` | a queue or a topic |
| `a/b/subscriptions`, `a/b/subscriptions/s` | the list, or one of a topic |
| `a/b/subscriptions/s/rules`, `…/rules/r` | the list, or one of a subscription |

Words have any case. A queue or topic cannot have a segment `subscriptions`, so the first one ends
its name. What is behind it stays a name, slashes and all, so that a bad one is called bad.
"""

from dataclasses import dataclass
from enum import Enum, auto

from pairbus.servicebus.entity_paths import subscription_path


class Resource(Enum):
    """What a path can lead to."""

    NAMESPACE = auto()
    QUEUES = auto()
    TOPICS = auto()
    ENTITY = auto()
    SUBSCRIPTIONS = auto()
    SUBSCRIPTION = auto()
    RULES = auto()
    RULE = auto()


_ONE = frozenset({Resource.ENTITY, Resource.SUBSCRIPTION, Resource.RULE})


@dataclass(frozen=True, slots=True)
class AdminPath:
    """Where a path leads. `entity` is the path of the queue, topic or subscription that it is
    about, empty for the namespace; `topic` that of a subscription; `name` that of a subscription or
    rule."""

    resource: Resource
    entity: str = ""
    topic: str = ""
    name: str = ""

    @property
    def methods(self) -> tuple[str, ...]:
        """What can be done there."""
        return ("GET", "PUT", "DELETE") if self.resource in _ONE else ("GET",)


_FIXED = {
    "$namespaceinfo": AdminPath(Resource.NAMESPACE),
    "$resources/queues": AdminPath(Resource.QUEUES),
    "$resources/topics": AdminPath(Resource.TOPICS),
}


def parse_path(path: str) -> AdminPath | None:
    """Where a path leads, None where it cannot be anything."""
    if path.startswith("$"):
        return _FIXED.get(path.lower())
    segments = path.split("/")
    words = [segment.lower() for segment in segments]
    if "subscriptions" not in words:
        return AdminPath(Resource.ENTITY, path)
    cut = words.index("subscriptions")
    topic, below = "/".join(segments[:cut]), segments[cut + 1 :]
    if not below:
        return AdminPath(Resource.SUBSCRIPTIONS, topic)
    if len(below) == 1 or below[1].lower() != "rules":
        name = "/".join(below)
        return AdminPath(Resource.SUBSCRIPTION, subscription_path(topic, name), topic, name)
    entity = subscription_path(topic, below[0])
    if len(below) == 2:
        return AdminPath(Resource.RULES, entity)
    return AdminPath(Resource.RULE, entity, topic, "/".join(below[2:]))
