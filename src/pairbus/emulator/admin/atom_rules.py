"""Rules in the XML of the management API: filters, actions, and their typed values.

| XML | Python | XML | Python |
| --- | --- | --- | --- |
| int | Int32 | dateTime | datetime, naive where it has no zone |
| long, other integers | int | duration | timedelta |
| boolean | bool | guid | uuid.UUID |
| double, float, decimal | float | string, what is unknown | str |

An expression is only carried here; whether it is SQL is found out when the rule is compiled.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from xml.etree.ElementTree import Element

from pairbus.amqp.types import Int32
from pairbus.emulator.admin.xml import (
    child,
    element,
    escape_text,
    local_name,
    text_of,
)
from pairbus.emulator.entities.descriptions import property_name
from pairbus.emulator.filters.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from pairbus.emulator.filters.values import normalize
from pairbus.errors import ConfigurationError
from pairbus.servicebus.entity_paths import check_name
from pairbus.servicebus.time_spans import format_time_span, parse_time_span
from pairbus.servicebus.xml_namespaces import INSTANCE, SCHEMA, SERIALIZATION

CORRELATION_PROPERTIES = {
    property_name(f.name): f.name for f in fields(CorrelationFilter) if f.name != "properties"
}
"""The system properties that a correlation filter can ask for: the service's name, and ours."""

_TYPE = f"{{{INSTANCE}}}type"
_NIL = f"{{{INSTANCE}}}nil"


def parse_rule_element(element: Element, name: str) -> Rule:
    """The rule that a RuleDescription describes. Raises ConfigurationError."""
    check_name("rule", name)
    return Rule(
        name=name,
        filter=_read_filter(child(element, "Filter")),
        action=_read_action(child(element, "Action")),
    )


def rule_elements(rule: Rule) -> Iterable[str]:
    """Filter and action of a rule."""
    match rule.filter:
        case TrueFilter():
            yield _sql("Filter", "TrueFilter", "1=1", {})
        case FalseFilter():
            yield _sql("Filter", "FalseFilter", "1=0", {})
        case SqlFilter(expression, parameters):
            yield _sql("Filter", "SqlFilter", expression, parameters)
        case CorrelationFilter() as wanted:
            yield element("Filter", *_correlation(wanted), i_type="CorrelationFilter")
    if rule.action is None:
        yield element("Action", i_type="EmptyRuleAction")
    else:
        yield _sql("Action", "SqlRuleAction", rule.action.expression, rule.action.parameters)


def _read_filter(element: Element | None) -> Filter:
    if element is None:
        return TrueFilter()
    match _type_of(element):
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter":
            return SqlFilter(*_read_sql(element))
        case "CorrelationFilter":
            texts = {
                CORRELATION_PROPERTIES[n]: part.text
                for n, part in _by_name(element)
                if n in CORRELATION_PROPERTIES
            }
            return CorrelationFilter(**texts, properties=_read_values(child(element, "Properties")))
        case other:
            raise ConfigurationError(
                f"a filter is a SqlFilter, CorrelationFilter, TrueFilter or FalseFilter, "
                f"not {other[:64]!r}"
            )


def _read_action(element: Element | None) -> SqlAction | None:
    kind = "EmptyRuleAction" if element is None else _type_of(element)
    if element is None or kind == "EmptyRuleAction":
        return None
    if kind != "SqlRuleAction":
        raise ConfigurationError(
            f"an action is a SqlRuleAction or EmptyRuleAction, not {kind[:64]!r}"
        )
    return SqlAction(*_read_sql(element))


def _read_sql(element: Element) -> tuple[str, dict[str, Any]]:
    expression = text_of(child(element, "SqlExpression"))
    if expression is None:
        raise ConfigurationError(f"a {_type_of(element)} needs a SqlExpression")
    return expression, _read_values(child(element, "Parameters"))


def _read_values(element: Element | None) -> dict[str, Any]:
    """The typed values of a list of `KeyValueOfstringanyType`."""
    found: dict[str, Any] = {}
    for pair in [] if element is None else element:
        key, value = text_of(child(pair, "Key")), child(pair, "Value")
        if key is None or value is None:
            raise ConfigurationError("a parameter or property of a rule needs a Key and a Value")
        if key in found:
            raise ConfigurationError(f"{key[:64]!r} is there twice")
        found[key] = _read_value(key, value)
    return found


def _read_value(key: str, element: Element) -> Any:
    if element.get(_NIL) == "true":
        return None
    kind, given = _type_of(element), element.text or ""
    read = _READ.get(kind)
    if read is None:
        return given
    try:
        return read(given.strip())
    except ValueError as exc:
        raise ConfigurationError(f"{key[:64]!r}: {given[:64]!r} is no {kind}") from exc


def _integer(bits: int, kind: Callable[[int], int]) -> Callable[[str], int]:
    def read(given: str) -> int:
        value = int(given) if len(given) <= 20 else 2**64
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError
        return kind(value)

    return read


def _boolean(given: str) -> bool:
    if given.lower() not in ("true", "false", "1", "0"):
        raise ValueError
    return given.lower() in ("true", "1")


_LONGS = ("long", "short", "byte", "unsignedInt", "unsignedShort", "unsignedByte", "unsignedLong")
_READ: Mapping[str, Callable[[str], Any]] = {
    "int": _integer(32, Int32),
    **dict.fromkeys(_LONGS, _integer(64, int)),
    "boolean": _boolean,
    **dict.fromkeys(("double", "float", "decimal"), float),
    "dateTime": datetime.fromisoformat,
    "duration": parse_time_span,
    "guid": UUID,
}


def _sql(name: str, kind: str, expression: str, parameters: Mapping[str, Any]) -> str:
    return element(
        name,
        element("SqlExpression", escape_text(expression)),
        element("CompatibilityLevel", "20"),
        element("Parameters", *_values(parameters)),
        element("RequiresPreprocessing", "true"),
        i_type=kind,
    )


def _correlation(wanted: CorrelationFilter) -> Iterable[str]:
    for name, field in CORRELATION_PROPERTIES.items():
        value = getattr(wanted, field)
        if value is not None:
            yield element(name, escape_text(value))
    yield element("Properties", *_values(wanted.properties))


def _values(values: Mapping[str, Any]) -> Iterable[str]:
    for key, value in values.items():
        # A time without a zone stays so: a client is to read what it wrote.
        shown = value if isinstance(value, datetime) else normalize(value)
        yield element("KeyValueOfstringanyType", element("Key", escape_text(key)), _value(shown))


def _value(value: Any) -> str:
    kind, written, namespace = "string", str(value), SCHEMA
    if value is None:
        return element("Value", xmlns_d6p1=SCHEMA, i_nil="true", i_type="d6p1:string")
    if isinstance(value, bool):
        kind, written = "boolean", "true" if value else "false"
    elif isinstance(value, int):
        kind, written = "int" if isinstance(value, Int32) else "long", str(int(value))
    elif isinstance(value, float):
        kind, written = "double", _double(value)
    elif isinstance(value, datetime):
        kind, written = "dateTime", value.isoformat().replace("+00:00", "Z")
    elif isinstance(value, timedelta):
        kind, written, namespace = "duration", format_time_span(value), SERIALIZATION
    elif isinstance(value, UUID):
        kind, namespace = "guid", SERIALIZATION
    return element("Value", escape_text(written), xmlns_d6p1=namespace, i_type=f"d6p1:{kind}")


def _double(value: float) -> str:
    """XML Schema's own words for what is not a number."""
    shown = repr(float(value))
    return {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(shown, shown)


def _type_of(element: Element) -> str:
    return element.get(_TYPE, "").rpartition(":")[2]


def _by_name(element: Element) -> Iterable[tuple[str, Element]]:
    return [(local_name(part), part) for part in element]
