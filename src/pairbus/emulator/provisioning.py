"""Create the entities of a configuration in a namespace."""

from pairbus.emulator.config import NamespaceConfig
from pairbus.emulator.entities.descriptions import EntityDescription
from pairbus.emulator.entities.registry import EntityRegistry
from pairbus.errors import ConfigurationError, EntityNotFound


def create_missing(entities: EntityRegistry, config: NamespaceConfig, now_ms: int) -> None:
    """Create the entities of a configuration that do not exist. Existing ones are not changed.

    Raises ConfigurationError if an entity forwards to one that does not exist.
    """
    subscriptions = [
        subscription for topic in config.topics for subscription in topic.subscriptions
    ]
    descriptions: list[EntityDescription] = [topic.description for topic in config.topics]
    descriptions += config.queues
    descriptions += (subscription.description for subscription in subscriptions)
    rules = {subscription.description.path: subscription.rules for subscription in subscriptions}
    missing = [
        description for description in descriptions if entities.find(description.path) is None
    ]
    while missing:
        # An entity can be created after the one that it forwards to.
        postponed = []
        for description in missing:
            first, *others = rules.get(description.path) or (None,)
            try:
                entities.create(description, now_ms, first)
            except EntityNotFound:
                postponed.append(description)
                continue
            for rule in others:
                assert rule is not None
                entities.create_rule(description.path, rule, now_ms)
        if len(postponed) == len(missing):
            raise ConfigurationError(
                f"{postponed[0].path!r} forwards to an entity that does not exist."
                " Add it to the configuration."
            )
        missing = postponed
