"""Parsing of the Atom entries that clients put: descriptions of entities and rules."""

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
    """The kind of entity in an entry, and only the settings that the entry contains."""

    kind: type[EntityDescription]
    settings: Mapping[str, Any]
    default_rule: Rule | None = None
    """The rule that a new subscription gets instead of one that matches all messages."""


def parse_description(body: bytes) -> ParsedDescription:
    """Parse the entry for a queue, topic or subscription.

    Unknown elements, and those that only the service sets, are ignored. Raises ConfigurationError.
    """
    description = _entry_content(body)
    name = local_name(description)
    kind = DESCRIPTION_TYPES.get(name.removesuffix("Description"))
    if kind is None or not name.endswith("Description"):
        raise ConfigurationError(
            f"The entry describes a {name[:64]!r}, not a queue, topic or subscription."
        )
    known_settings = setting_fields(kind)
    settings: dict[str, Any] = {}
    default_rule = None
    for part in description:
        name = local_name(part)
        if name == "AuthorizationRules":
            settings["authorization_rules"] = tuple(_parse_access_rule(rule) for rule in part)
        elif name == "DefaultRuleDescription" and len(part):
            default_rule = parse_rule_element(part, text_of(child(part, "Name")) or DEFAULT_RULE)
        elif name in known_settings and text_of(part) is not None:
            field, value_type = known_settings[name]
            try:
                settings[field] = parse_setting(part.text or "", value_type)
            except ConfigurationError as exc:
                raise ConfigurationError(f"{name}: {exc}") from exc
    return ParsedDescription(kind=kind, settings=settings, default_rule=default_rule)


def parse_rule(body: bytes, name: str) -> Rule:
    """Parse the entry for a rule, whose name is in the path. Raises ConfigurationError."""
    description = _entry_content(body)
    if local_name(description) != "RuleDescription":
        raise ConfigurationError(
            f"The entry describes a {local_name(description)[:64]!r}, not a rule."
        )
    return parse_rule_element(description, name)


def _entry_content(body: bytes) -> Element:
    """Return the description in an entry."""
    entry = parse_xml(body)
    content = child(entry, "content") if local_name(entry) == "entry" else None
    if content is None or len(content) != 1:
        raise ConfigurationError(
            "The body is not an Atom entry with one description as its content."
        )
    return content[0]


def _parse_access_rule(element: Element) -> SharedAccessRule:
    name, key = text_of(child(element, "KeyName")), text_of(child(element, "PrimaryKey"))
    rights = child(element, "Rights")
    if name is None or key is None or rights is None:
        raise ConfigurationError("An authorization rule needs KeyName, PrimaryKey and Rights.")
    by_name = {right.lower(): right for right in Right}
    names = [(part.text or "").strip().lower() for part in rights]
    if unknown := [right for right in names if right not in by_name]:
        raise ConfigurationError(
            f"{unknown[0][:64]!r} is not a right. Use one of {', '.join(Right)}."
        )
    return SharedAccessRule(
        name=name,
        primary_key=key,
        secondary_key=text_of(child(element, "SecondaryKey")),
        rights=frozenset(by_name[right] for right in names),
        created_at=_parse_time(text_of(child(element, "CreatedTime"))),
        modified_at=_parse_time(text_of(child(element, "ModifiedTime"))),
    )


def _parse_time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as exc:
        raise ConfigurationError(
            f"{text[:64]!r} is not a time such as 2024-05-01T10:00:00Z."
        ) from exc
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time
