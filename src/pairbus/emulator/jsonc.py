"""JSON with comments and trailing commas, as .NET reads configuration, with the path of each value.

Every error is a ConfigurationError that names the position: the line and column if the text is not
JSON, or the path (`UserConfig.Namespaces[0].Queues[2]`) if a value is not valid.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pairbus.errors import ConfigurationError

T = TypeVar("T")

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
# A comma right after an opening bracket is not a trailing comma.
_COMMA = re.compile(rf"{_STRING}|[{{\[]\s*,|,(?=\s*[}}\]])")


def parse_jsonc(content: str) -> "JsonNode":
    """Return the value that the text describes. Raises ConfigurationError."""
    plain = _COMMENT.sub(_blank, content.removeprefix("\ufeff"))
    plain = _COMMA.sub(_blank, plain)
    try:
        value = json.loads(plain, object_pairs_hook=_object, parse_constant=_refuse)
    except ConfigurationError:
        raise
    except json.JSONDecodeError as exc:
        raise ConfigurationError(
            f"line {exc.lineno}, column {exc.colno}: invalid JSON: {exc.msg}"
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise ConfigurationError(f"the file cannot be read: {exc}") from exc
    return JsonNode(value, "")


class JsonNode:
    """A value of the file, and its path."""

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def error(self, message: str) -> ConfigurationError:
        """Return an error that names the path of this value."""
        return ConfigurationError(f"{self.path or 'the file'}: {message}")

    def members(self, *names: str) -> dict[str, "JsonNode"]:
        """Return the members of an object by these names, in any case, without those that are
        null. Raises ConfigurationError for any other name."""
        spelling = {name.lower(): name for name in names}
        members: dict[str, JsonNode] = {}
        for key, node in self.mapping().items():
            name = spelling.get(key.lower())
            if name is None:
                raise self.error(f"unknown name {key!r}. Use one of {', '.join(names)}.")
            if node.value is not None:
                members[name] = node
        return members

    def mapping(self) -> dict[str, "JsonNode"]:
        """Return all members of an object."""
        if not isinstance(self.value, dict):
            raise self._unexpected("an object")
        prefix = f"{self.path}." if self.path else ""
        return {key: JsonNode(value, prefix + key) for key, value in self.value.items()}

    def items(self) -> list["JsonNode"]:
        if not isinstance(self.value, list):
            raise self._unexpected("a list")
        return [JsonNode(value, f"{self.path}[{index}]") for index, value in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self._unexpected("a string")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self._unexpected("true or false")
        return self.value

    def number(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self._unexpected("a whole number")
        return self.value

    def build(self, factory: Callable[[], T]) -> T:
        """Return what `factory` returns. An error that it raises gets the path of this value."""
        try:
            return factory()
        except ConfigurationError as exc:
            raise self.error(str(exc)) from exc

    def _unexpected(self, expected: str) -> ConfigurationError:
        text = json.dumps(self.value)
        shown = text if len(text) <= 40 else text[:39] + "…"
        return self.error(f"expected {expected}, not {shown}")


def _blank(match: re.Match[str]) -> str:
    """Return spaces for a comment or comma, so that lines and columns stay, and strings as is."""
    text = match[0]
    return text if text.startswith(('"', "{", "[")) else re.sub(r"[^\n]", " ", text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys: set[str] = set()
    for key, _ in pairs:
        if key.lower() in keys:
            raise ConfigurationError(f"{key!r} occurs twice in one object")
        keys.add(key.lower())
    return dict(pairs)


def _refuse(constant: str) -> NoReturn:
    raise ConfigurationError(f"{constant} is not valid JSON")
