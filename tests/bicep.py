"""Evaluates a Bicep file, as far as that of deploy/azure needs it.

The parser gives string literals and names as the same type, so a string that equals the name of a
parameter, variable or loop item in scope is taken for that name.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pycep import BicepParser

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BicepResource:
    """A resource that a deployment would create."""

    symbol: str
    type: str
    api_version: str
    name: str
    parent: str | None
    """The symbol of the parent."""
    scope: str | None
    """The symbol of the resource that a role assignment is for."""
    body: Mapping[str, Any]
    """Its other values."""

    @property
    def properties(self) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self.body["properties"]
        return properties


class BicepTemplate:
    """A parsed file."""

    def __init__(self, path: Path) -> None:
        self._parsed: Any = BicepParser().parse(text=path.read_text(encoding="utf-8"))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The declarations of the parameters."""
        parameters: Mapping[str, Any] = self._parsed["parameters"]
        return parameters

    def evaluate(self, **arguments: Any) -> list[BicepResource]:
        """Return the resources for these arguments. Raises ValueError for an argument that does not
        exist or is missing, and for an expression that is not supported."""
        if unknown := arguments.keys() - self.parameters.keys():
            raise ValueError(f"The template has no parameters {sorted(unknown)}.")
        names: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            default = parameter["default"]
            if name not in arguments and default is None:
                raise ValueError(f"The parameter {name} needs a value.")
            names[name] = arguments.get(name, _value(default, names))
        for name, variable in self._parsed["variables"].items():
            names[name] = _value(variable["value"], names)
        return list(
            chain.from_iterable(
                _resources(symbol, resource, names)
                for symbol, resource in self._parsed["resources"].items()
            )
        )


def _resources(symbol: str, resource: Any, names: Mapping[str, Any]) -> Iterator[BicepResource]:
    config = resource["config"]
    if "loop_type" not in config:
        yield _resource(symbol, resource, config, names)
        return
    loop = config["loop_type"]["detail"]
    for item in _value(loop["array_name"], names):
        yield _resource(symbol, resource, config["config"], {**names, loop["item_name"]: item})


def _resource(
    symbol: str, resource: Any, config: Mapping[str, Any], names: Mapping[str, Any]
) -> BicepResource:
    references = ("parent", "scope")
    body = {key: _value(value, names) for key, value in config.items() if key not in references}
    return BicepResource(
        symbol=symbol,
        type=resource["type"],
        api_version=resource["api_version"],
        name=body.pop("name"),
        parent=config.get("parent"),
        scope=config.get("scope"),
        body=body,
    )


def _value(expression: Any, names: Mapping[str, Any]) -> Any:
    match expression:
        case str() if expression in names:
            return names[expression]
        case str():
            return _PLACEHOLDER.sub(lambda match: str(names[match[1]]), expression)
        case {"function": {"type": name, "parameters": parameters}}:
            return _call(name, [each for each in parameters.values() if each is not None], names)
        case {"operator": {"type": "property_accessor", "operands": operands}}:
            return f"<{_value(operands['operand_1'], names)}.{operands['operand_2']}>"
        case {"function": _} | {"operator": _}:
            raise ValueError(f"The expression is not supported: {expression}")
        case dict():
            return {key: _value(value, names) for key, value in expression.items()}
        case list():
            return [_value(value, names) for value in expression]
        case _:
            return expression


def _call(name: str, parameters: list[Any], names: Mapping[str, Any]) -> Any:
    values = [_value(each, names) for each in parameters]
    match name, values:
        case "range", [int(start), int(count)]:
            return range(start, start + count)
        case "concat", _:
            return list(chain.from_iterable(values))
        case "guid" | "subscription_resource_id" | "resource_group", _:
            return f"{name}({', '.join(map(str, values))})"
        case _:
            raise ValueError(f"The function {name} is not supported.")
