"""What clients put to the management API: Atom entries that describe an entity or a rule."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.etree.ElementTree import Element

from pairbus.emulator.admin.atom_rules import parse_rule_element
from pairbus.emulator.admin.xml import child, local_name, parse_xml, text_of
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.descriptions import (
    DESCRIPTION_TYPES,
    EntityDescription,
    parse_setting,
    setting_fields,
)
from pairbus.emulator.filters.rules import Rule
from pairbus.errors import ConfigurationError
from pairbus.servicebus.entity_paths import DEFAULT_RULE


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDescription:
    """What a client put: the kind of entity, and only the settings that it named."""

    kind: type[EntityDescription]
    settings: Mapping[str, Any]
    default_rule: Rule | None = None
    """The rule that a new subscription is to have instead of one that takes everything."""


def parse_description(body: bytes) -> ParsedDescription:
    """What a client put for a queue, topic or subscription. Unknown elements, and those that only
    the service sets, are passed over. Raises ConfigurationError."""
    element = _content(body)
    kind = DESCRIPTION_TYPES.get(local_name(element).removesuffix("Description"))
    if kind is None or not local_name(element).endswith("Description"):
        raise ConfigurationError(
            f"the entry describes a {local_name(element)[:64]!r}, and not a queue, topic or "
            "subscription"
        )
    known = setting_fields(kind)
    settings: dict[str, Any] = {}
    default_rule = None
    for part in element:
        name = local_name(part)
        if name == "AuthorizationRules":
            settings["authorization_rules"] = tuple(_read_access_rule(rule) for rule in part)
        elif name == "DefaultRuleDescription" and len(part):
            default_rule = parse_rule_element(part, text_of(child(part, "Name")) or DEFAULT_RULE)
        elif name in known and text_of(part) is not None:
            field, value_type = known[name]
            try:
                settings[field] = parse_setting(part.text or "", value_type)
            except ConfigurationError as exc:
                raise ConfigurationError(f"{name}: {exc}") from exc
    return ParsedDescription(kind=kind, settings=settings, default_rule=default_rule)


def parse_rule(body: bytes, name: str) -> Rule:
    """What a client put for a rule, whose name is in the path. Raises ConfigurationError."""
    element = _content(body)
    if local_name(element) != "RuleDescription":
        raise ConfigurationError(f"the entry describes a {local_name(element)[:64]!r}, not a rule")
    return parse_rule_element(element, name)


def _content(body: bytes) -> Element:
    """The description in an entry."""
    entry = parse_xml(body)
    content = child(entry, "content") if local_name(entry) == "entry" else None
    if content is None or len(content) != 1:
        raise ConfigurationError(
            "the body is not an Atom entry with one description as its content"
        )
    return content[0]


def _read_access_rule(element: Element) -> SharedAccessRule:
    name, key = text_of(child(element, "KeyName")), text_of(child(element, "PrimaryKey"))
    rights = child(element, "Rights")
    if name is None or key is None or rights is None:
        raise ConfigurationError("an authorization rule needs KeyName, PrimaryKey and Rights")
    granted = {right.lower(): right for right in Right}
    asked = [(part.text or "").strip().lower() for part in rights]
    if unknown := [right for right in asked if right not in granted]:
        raise ConfigurationError(f"{unknown[0][:64]!r} is none of {', '.join(Right)}")
    return SharedAccessRule(
        name=name,
        primary_key=key,
        secondary_key=text_of(child(element, "SecondaryKey")),
        rights=frozenset(granted[right] for right in asked),
        created_at=_read_moment(text_of(child(element, "CreatedTime"))),
        modified_at=_read_moment(text_of(child(element, "ModifiedTime"))),
    )


def _read_moment(given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        when = datetime.fromisoformat(given.strip())
    except ValueError as exc:
        raise ConfigurationError(
            f"{given[:64]!r} is not a time such as 2024-05-01T10:00:00Z"
        ) from exc
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when
