"""Entities and rules as the store keeps them: as Atom entries of the administration API."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pairbus.emulator.admin import atom_reader, atom_writer
from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    SubscriptionDescription,
    stored_description,
)
from pairbus.emulator.entities.runtime_properties import RuntimeProperties
from pairbus.emulator.filters.rules import Rule
from pairbus.emulator.storage.entities import EntityRow
from pairbus.servicebus.entity_paths import DEFAULT_RULE, SUBSCRIPTIONS

_ENDPOINT = atom_writer.ApiEndpoint(namespace="", base_url="")
_EPOCH = datetime.fromtimestamp(0, UTC)


def encode_description(description: EntityDescription) -> str:
    runtime = RuntimeProperties(created_at=_EPOCH, updated_at=_EPOCH)
    entry = atom_writer.entity_entry(description, runtime)
    return atom_writer.write_entry(entry, _ENDPOINT).decode()


def decode_description(row: EntityRow) -> EntityDescription:
    parsed = atom_reader.parse_description(row.description.encode())
    identity: dict[str, Any] = {"name": row.path}
    if parsed.kind is SubscriptionDescription:
        topic, _, name = row.path.rpartition(f"/{SUBSCRIPTIONS}/")
        identity = {"topic": topic, "name": name}
    return stored_description(parsed.kind, identity | dict(parsed.settings))


def encode_rule(subscription_path: str, rule: Rule) -> str:
    entry = atom_writer.rule_entry(subscription_path, rule, _EPOCH)
    return atom_writer.write_entry(entry, _ENDPOINT).decode()


def decode_rule(name: str, text: str) -> Rule:
    # Like an entity, a rule keeps a name that an older version has allowed.
    return replace(atom_reader.parse_rule(text.encode(), DEFAULT_RULE), name=name)
