"""Rules as the `$management` node of a subscription exchanges them.

A client adds a rule as a map. The service lists rules as described lists, whose descriptors are
those of the .NET SDK.
"""

from collections.abc import Mapping
from typing import Any

from pairbus.amqp.types import Described, Pairs, Timestamp, ULong
from pairbus.emulator.filters.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from pairbus.errors import DecodeError
from pairbus.servicebus.described_types import (
    CORRELATION_FILTER,
    EMPTY_RULE_ACTION,
    FALSE_FILTER,
    RULE_DESCRIPTION,
    SQL_FILTER,
    SQL_RULE_ACTION,
    TRUE_FILTER,
)
from pairbus.servicebus.entity_paths import check_name

_CORRELATION_KEYS = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "label",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}
"""The fields of a correlation filter by their key in a request, in the order of a response."""
_COMPATIBILITY_LEVEL = 20


def parse_rule_map(name: str, description: Mapping[Any, Any]) -> Rule:
    """Return the rule of a request. Raises DecodeError or ConfigurationError."""
    check_name("rule", name)
    sql = _map(description, "sql-filter")
    correlation = _map(description, "correlation-filter")
    action = _map(description, "sql-rule-action")
    rule_filter: Filter
    if sql is not None:
        rule_filter = SqlFilter(_expression(sql))
    elif correlation is not None:
        rule_filter = _parse_correlation(correlation)
    else:
        raise DecodeError("'rule-description' has neither a sql-filter nor a correlation-filter.")
    return Rule(
        name=name,
        filter=rule_filter,
        action=None if action is None else SqlAction(_expression(action)),
    )


def encode_rule(rule: Rule, created_ms: int) -> Described:
    """Return the description of a rule for a response."""
    if rule.action is None:
        action = Described(ULong(EMPTY_RULE_ACTION), [])
    else:
        action = Described(ULong(SQL_RULE_ACTION), [rule.action.expression, _COMPATIBILITY_LEVEL])
    return Described(
        ULong(RULE_DESCRIPTION),
        [_encode_filter(rule.filter), action, rule.name, Timestamp(created_ms)],
    )


def _encode_filter(rule_filter: Filter) -> Described:
    match rule_filter:
        case TrueFilter():
            return Described(ULong(TRUE_FILTER), [])
        case FalseFilter():
            return Described(ULong(FALSE_FILTER), [])
        case SqlFilter(expression):
            return Described(ULong(SQL_FILTER), [expression, _COMPATIBILITY_LEVEL])
        case CorrelationFilter():
            values = [getattr(rule_filter, field) for field in _CORRELATION_KEYS.values()]
            return Described(ULong(CORRELATION_FILTER), [*values, dict(rule_filter.properties)])


def _parse_correlation(fields: Mapping[Any, Any]) -> CorrelationFilter:
    texts = {field: fields.get(key) for key, field in _CORRELATION_KEYS.items()}
    for field, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise DecodeError(f"{field!r} of the correlation filter is not a string.")
    return CorrelationFilter(**texts, properties=_map(fields, "properties") or {})


def _map(fields: Mapping[Any, Any], key: str) -> dict[str, Any] | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, Pairs) or not isinstance(value, dict):
        raise DecodeError(f"{key!r} of the rule is not a map.")
    if not all(isinstance(name, str) for name in value):
        raise DecodeError(f"{key!r} of the rule has a key that is not a string.")
    return value


def _expression(fields: Mapping[str, Any]) -> str:
    expression = fields.get("expression")
    if not isinstance(expression, str):
        raise DecodeError("A SQL filter or action of the rule has no expression.")
    return expression
