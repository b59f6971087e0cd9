"""Rules in the XML of the administration API: filters, actions and their typed values.

| XML | Python | XML | Python |
| --- | --- | --- | --- |
| int | Int32 | dateTime | datetime, naive if it has no time zone |
| long, other integers | int | duration | timedelta |
| boolean | bool | guid | uuid.UUID |
| double, float, decimal | float | string, unknown types | str |

SQL expressions are not checked here but when the rule is compiled.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from xml.etree.ElementTree import Element

from pairbus.amqp.types import Int32
from pairbus.emulator.admin.xml import (
    child,
    escape_text,
    local_name,
    text_of,
    write_element,
)
from pairbus.emulator.filters.rules import (
    CORRELATION_PROPERTIES,
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

_TYPE = f"{{{INSTANCE}}}type"
_NIL = f"{{{INSTANCE}}}nil"


def parse_rule_element(element: Element, name: str) -> Rule:
    """Parse a RuleDescription. Raises ConfigurationError."""
    check_name("rule", name)
    return Rule(
        name=name,
        filter=_parse_filter(child(element, "Filter")),
        action=_parse_action(child(element, "Action")),
    )


def rule_elements(rule: Rule) -> Iterable[str]:
    """Write the filter and the action of a rule."""
    match rule.filter:
        case TrueFilter():
            yield _sql_element("Filter", "TrueFilter", "1=1", {})
        case FalseFilter():
            yield _sql_element("Filter", "FalseFilter", "1=0", {})
        case SqlFilter(expression, parameters):
            yield _sql_element("Filter", "SqlFilter", expression, parameters)
        case CorrelationFilter() as correlation:
            yield write_element(
                "Filter", *_correlation_elements(correlation), i_type="CorrelationFilter"
            )
    if rule.action is None:
        yield write_element("Action", i_type="EmptyRuleAction")
    else:
        yield _sql_element(
            "Action", "SqlRuleAction", rule.action.expression, rule.action.parameters
        )


def _parse_filter(element: Element | None) -> Filter:
    if element is None:
        return TrueFilter()
    match _type_of(element):
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter":
            return SqlFilter(*_parse_sql(element))
        case "CorrelationFilter":
            texts = {
                CORRELATION_PROPERTIES[local_name(part)]: part.text
                for part in element
                if local_name(part) in CORRELATION_PROPERTIES
            }
            return CorrelationFilter(
                **texts, properties=_parse_values(child(element, "Properties"))
            )
        case other:
            raise ConfigurationError(
                f"{other[:64]!r} is not a filter. "
                "Use SqlFilter, CorrelationFilter, TrueFilter or FalseFilter."
            )


def _parse_action(element: Element | None) -> SqlAction | None:
    kind = "EmptyRuleAction" if element is None else _type_of(element)
    if element is None or kind == "EmptyRuleAction":
        return None
    if kind != "SqlRuleAction":
        raise ConfigurationError(
            f"{kind[:64]!r} is not an action. Use SqlRuleAction or EmptyRuleAction."
        )
    return SqlAction(*_parse_sql(element))


def _parse_sql(element: Element) -> tuple[str, dict[str, Any]]:
    expression = text_of(child(element, "SqlExpression"))
    if expression is None:
        raise ConfigurationError(f"A {_type_of(element)} needs a SqlExpression.")
    return expression, _parse_values(child(element, "Parameters"))


def _parse_values(element: Element | None) -> dict[str, Any]:
    """Parse the typed values in a list of `KeyValueOfstringanyType`."""
    values: dict[str, Any] = {}
    for pair in [] if element is None else element:
        key, value = text_of(child(pair, "Key")), child(pair, "Value")
        if key is None or value is None:
            raise ConfigurationError("A parameter or property of a rule needs a Key and a Value.")
        if key in values:
            raise ConfigurationError(
                f"{key[:64]!r} occurs twice. Each parameter or property needs a unique name."
            )
        values[key] = _parse_value(key, value)
    return values


def _parse_value(key: str, element: Element) -> Any:
    if element.get(_NIL) == "true":
        return None
    kind, value = _type_of(element), element.text or ""
    parse = _PARSERS.get(kind)
    if parse is None:
        return value
    try:
        return parse(value.strip())
    except ValueError as exc:
        raise ConfigurationError(
            f"The value {value[:64]!r} of {key[:64]!r} is not of type {kind}."
        ) from exc


def _integer_parser(bits: int, to_type: Callable[[int], int]) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text) if len(text) <= 20 else 2**64
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError
        return to_type(value)

    return parse


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError
    return text.lower() in ("true", "1")


_LONGS = ("long", "short", "byte", "unsignedInt", "unsignedShort", "unsignedByte", "unsignedLong")
_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "int": _integer_parser(32, Int32),
    **dict.fromkeys(_LONGS, _integer_parser(64, int)),
    "boolean": _parse_boolean,
    **dict.fromkeys(("double", "float", "decimal"), float),
    "dateTime": datetime.fromisoformat,
    "duration": parse_time_span,
    "guid": UUID,
}


def _sql_element(name: str, kind: str, expression: str, parameters: Mapping[str, Any]) -> str:
    return write_element(
        name,
        write_element("SqlExpression", escape_text(expression)),
        write_element("CompatibilityLevel", "20"),
        write_element("Parameters", *_value_elements(parameters)),
        write_element("RequiresPreprocessing", "true"),
        i_type=kind,
    )


def _correlation_elements(correlation: CorrelationFilter) -> Iterable[str]:
    for name, field in CORRELATION_PROPERTIES.items():
        value = getattr(correlation, field)
        if value is not None:
            yield write_element(name, escape_text(value))
    yield write_element("Properties", *_value_elements(correlation.properties))


def _value_elements(values: Mapping[str, Any]) -> Iterable[str]:
    for key, value in values.items():
        # A time without a time zone is kept unchanged: a client reads what it has written.
        normalized = value if isinstance(value, datetime) else normalize(value)
        yield write_element(
            "KeyValueOfstringanyType",
            write_element("Key", escape_text(key)),
            _value_element(normalized),
        )


def _value_element(value: Any) -> str:
    kind, written, namespace = "string", str(value), SCHEMA
    if value is None:
        return write_element("Value", xmlns_d6p1=SCHEMA, i_nil="true", i_type="d6p1:string")
    if isinstance(value, bool):
        kind, written = "boolean", "true" if value else "false"
    elif isinstance(value, int):
        kind, written = "int" if isinstance(value, Int32) else "long", str(int(value))
    elif isinstance(value, float):
        kind, written = "double", _format_double(value)
    elif isinstance(value, datetime):
        kind, written = "dateTime", value.isoformat().replace("+00:00", "Z")
    elif isinstance(value, timedelta):
        kind, written, namespace = "duration", format_time_span(value), SERIALIZATION
    elif isinstance(value, UUID):
        kind, namespace = "guid", SERIALIZATION
    return write_element("Value", escape_text(written), xmlns_d6p1=namespace, i_type=f"d6p1:{kind}")


def _format_double(value: float) -> str:
    """Write a double with the names of XML Schema for infinity and not-a-number."""
    text = repr(float(value))
    return {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(text, text)


def _type_of(element: Element) -> str:
    return element.get(_TYPE, "").rpartition(":")[2]
