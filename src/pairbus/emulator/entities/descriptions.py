"""Settings of queues, topics and subscriptions, with the defaults and limits of the service.

Fields have the names of the SDK (`lock_duration`); XML and Config.json use those of the service
(`LockDuration`). Two limits are wider than in the service, so that tests can be small: a lock may
be shorter than five seconds, and a queue smaller than a gigabyte.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, TypeVar

from pairbus.emulator.auth import SharedAccessRule
from pairbus.errors import ConfigurationError
from pairbus.servicebus.atom import property_name, property_text
from pairbus.servicebus.entity_paths import (
    check_name,
    check_path,
    subscription_path,
)
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.limits import (
    KB,
    MAX_AUTHORIZATION_RULES,
    MAX_DELIVERY_COUNT,
    MAX_MESSAGE_KB_PREMIUM,
    MAX_MESSAGE_KB_STANDARD,
    MAX_USER_METADATA,
)
from pairbus.servicebus.time_spans import MAX_TIME_SPAN, parse_time_span


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDescription:
    """The settings of a queue. Raises ConfigurationError for a value outside its limits."""

    name: str
    lock_duration: timedelta = timedelta(minutes=1)
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live: timedelta = MAX_TIME_SPAN
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    authorization_rules: tuple[SharedAccessRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    support_ordering: bool | None = None
    """None means ordered, unless the entity is partitioned."""
    auto_delete_on_idle: timedelta = MAX_TIME_SPAN
    enable_partitioning: bool = False
    enable_express: bool = False
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    max_message_size_in_kilobytes: int = MAX_MESSAGE_KB_STANDARD

    def __post_init__(self) -> None:
        check_path("queue", self.name)
        _check(self, self.name)

    @property
    def path(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """The settings of a topic. Raises ConfigurationError for a value outside its limits."""

    name: str
    default_message_time_to_live: timedelta = MAX_TIME_SPAN
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    enable_batched_operations: bool = True
    filtering_messages_before_publishing: bool = False
    authorization_rules: tuple[SharedAccessRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    support_ordering: bool | None = None
    """None means ordered, unless the entity is partitioned."""
    auto_delete_on_idle: timedelta = MAX_TIME_SPAN
    enable_partitioning: bool = False
    enable_subscription_partitioning: bool = False
    enable_express: bool = False
    user_metadata: str | None = None
    max_message_size_in_kilobytes: int = MAX_MESSAGE_KB_STANDARD

    def __post_init__(self) -> None:
        check_path("topic", self.name)
        _check(self, self.name)

    @property
    def path(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionDescription:
    """The settings of a subscription. Raises ConfigurationError for a value outside its limits."""

    topic: str
    name: str
    lock_duration: timedelta = timedelta(minutes=1)
    requires_session: bool = False
    default_message_time_to_live: timedelta = MAX_TIME_SPAN
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle: timedelta = MAX_TIME_SPAN
    user_metadata: str | None = None

    def __post_init__(self) -> None:
        check_path("topic", self.topic)
        check_name("subscription", self.name)
        _check(self, self.path)

    @property
    def path(self) -> str:
        return subscription_path(self.topic, self.name)


EntityDescription = QueueDescription | TopicDescription | SubscriptionDescription

D = TypeVar("D", bound=EntityDescription)

DESCRIPTION_TYPES: Mapping[str, type[EntityDescription]] = {
    "Queue": QueueDescription,
    "Topic": TopicDescription,
    "Subscription": SubscriptionDescription,
}


def max_message_size(description: EntityDescription) -> int:
    """Return the largest size of a message in bytes. A subscription has no limit of its own."""
    kilobytes = getattr(description, "max_message_size_in_kilobytes", MAX_MESSAGE_KB_STANDARD)
    return KB * int(kilobytes)


def kind_of(description: EntityDescription) -> str:
    """Return `Queue`, `Topic` or `Subscription`."""
    return type(description).__name__.removesuffix("Description")


IDENTITY_FIELDS = frozenset({"topic", "name"})
IMMUTABLE_FIELDS = ("requires_session", "requires_duplicate_detection", "enable_partitioning")
"""Settings that an update cannot change."""
FORWARDING_FIELDS = ("forward_to", "forward_dead_lettered_messages_to")
"""Settings that name another entity. Topics do not have them."""


def setting_fields(kind: type[EntityDescription]) -> dict[str, tuple[str, Any]]:
    """Return the settings of a kind of entity: the field and its type by the service's name."""
    return {
        property_name(f.name): (f.name, f.type)
        for f in fields(kind)
        if f.name not in IDENTITY_FIELDS
    }


def parse_setting(text: str, kind: Any) -> Any:
    """Parse the text of a setting of type `kind`. Raises ConfigurationError."""
    if kind == str | None:
        return text or None
    text = text.strip()
    if kind is timedelta:
        return parse_time_span(text)
    if kind in (bool, bool | None):
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"{text[:64]!r} is not a boolean. Use true or false.")
        return text.lower() == "true"
    if kind is int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 19):
            raise ConfigurationError(f"{text[:64]!r} is not an integer.")
        return int(text)
    for status in EntityStatus:
        if status.lower() == text.lower():
            return status
    raise ConfigurationError(
        f"{text[:64]!r} is not a status. Use one of {', '.join(EntityStatus)}."
    )


def updated_description(old: EntityDescription, settings: Mapping[str, Any]) -> EntityDescription:
    """Return the description after an update with these settings.

    As in the service, other settings return to their defaults, except for the immutable ones.
    Raises ConfigurationError for an invalid value or a change of an immutable setting.
    """
    kept = {
        name: getattr(old, name)
        for name in (*IDENTITY_FIELDS, *IMMUTABLE_FIELDS)
        if hasattr(old, name)
    }
    new = stored_description(type(old), {**kept, **settings})
    _check(new, new.path)
    for name in IMMUTABLE_FIELDS:
        if getattr(old, name, None) != getattr(new, name, None):
            raise ConfigurationError(
                f"The value for the {property_name(name)} property of an existing {kind_of(old)} "
                "cannot be changed."
            )
    return new


def stored_description(kind: type[D], values: Mapping[str, Any]) -> D:
    """Return the description of an entity that exists, without a check of its name and settings.

    They were checked when it was created, and an older version may have allowed others.
    """
    description = object.__new__(kind)
    for field in fields(kind):
        object.__setattr__(description, field.name, values.get(field.name, field.default))
    return description


def with_settings(description: D, **settings: Any) -> D:
    """Return the description with other settings, without a check of its name and settings."""
    values = {field.name: getattr(description, field.name) for field in fields(description)}
    return stored_description(type(description), {**values, **settings})


def _check(description: EntityDescription, path: str) -> None:
    """Raise ConfigurationError for a setting outside its limits or a conflict of settings."""
    minute, day = timedelta(minutes=1), timedelta(days=1)
    for name, minimum, maximum in (
        ("lock_duration", timedelta(milliseconds=1), 5 * minute),
        ("default_message_time_to_live", timedelta(seconds=1), MAX_TIME_SPAN),
        ("duplicate_detection_history_time_window", timedelta(seconds=20), 7 * day),
        ("auto_delete_on_idle", 5 * minute, MAX_TIME_SPAN),
        ("max_delivery_count", 1, MAX_DELIVERY_COUNT),
        ("max_size_in_megabytes", 1, 81920),
        ("max_message_size_in_kilobytes", 1, MAX_MESSAGE_KB_PREMIUM),
    ):
        value = getattr(description, name, None)
        if value is not None and not minimum <= value <= maximum:
            raise ConfigurationError(
                f"{property_name(name)} of {path!r} is {property_text(value)}. "
                f"It must be from {property_text(minimum)} to {property_text(maximum)}."
            )
    length = len(description.user_metadata or "")
    if length > MAX_USER_METADATA:
        raise ConfigurationError(
            f"UserMetadata of {path!r} has {length} characters. The maximum is {MAX_USER_METADATA}."
        )
    if not isinstance(description, SubscriptionDescription):
        _check_authorization_rules(description.authorization_rules, path)
        if description.enable_express and description.requires_duplicate_detection:
            raise ConfigurationError(
                f"{path!r} cannot have both EnableExpress and RequiresDuplicateDetection."
            )


def _check_authorization_rules(rules: tuple[SharedAccessRule, ...], path: str) -> None:
    if len(rules) > MAX_AUTHORIZATION_RULES:
        raise ConfigurationError(
            f"{path!r} has {len(rules)} authorization rules. "
            f"The maximum is {MAX_AUTHORIZATION_RULES}."
        )
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"Two authorization rules of {path!r} have the same name.")
