"""JSON with comments and trailing commas, as .NET reads configuration, and the place of each value.

Every mistake is a ConfigurationError that says where it is: by line and column where the text is
not JSON, by its path (`UserConfig.Namespaces[0].Queues[2]`) where a value is not what is needed.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pairbus.errors import ConfigurationError

T = TypeVar("T")

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
# A comma with nothing before it is not a trailing one.
_COMMA = re.compile(rf"{_STRING}|[{{\[]\s*,|,(?=\s*[}}\]])")


def parse_jsonc(content: str) -> "JsonNode":
    """The value that the text describes. Raises ConfigurationError."""
    plain = _COMMENT.sub(_blank, content.removeprefix("\ufeff"))
    plain = _COMMA.sub(_blank, plain)
    try:
        value = json.loads(plain, object_pairs_hook=_object, parse_constant=_refuse)
    except ConfigurationError:
        raise
    except json.JSONDecodeError as exc:
        raise ConfigurationError(
            f"line {exc.lineno}, column {exc.colno}: this is not JSON: {exc.msg}"
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise ConfigurationError(f"the file cannot be read: {exc}") from exc
    return JsonNode(value, "")


class JsonNode:
    """A value of the file, and where it stands."""

    def __init__(self, value: Any, place: str) -> None:
        self.value = value
        self.place = place

    def wrong(self, message: str) -> ConfigurationError:
        return ConfigurationError(f"{self.place or 'the file'}: {message}")

    def members(self, *known: str) -> dict[str, "JsonNode"]:
        """The members of an object by their right spelling; those that are null are left out."""
        spelled = {name.lower(): name for name in known}
        found: dict[str, JsonNode] = {}
        for key, node in self.mapping().items():
            name = spelled.get(key.lower())
            if name is None:
                raise self.wrong(f"{key!r} is not known here; known are {', '.join(known)}")
            if node.value is not None:
                found[name] = node
        return found

    def mapping(self) -> dict[str, "JsonNode"]:
        """The members of an object, as they are."""
        if not isinstance(self.value, dict):
            raise self.wrong(f"an object is needed here, not {shown(self.value)}")
        before = f"{self.place}." if self.place else ""
        return {key: JsonNode(value, before + key) for key, value in self.value.items()}

    def items(self) -> list["JsonNode"]:
        if not isinstance(self.value, list):
            raise self.wrong(f"a list is needed here, not {shown(self.value)}")
        return [JsonNode(value, f"{self.place}[{at}]") for at, value in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong(f"a string is needed here, not {shown(self.value)}")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong(f"true or false is needed here, not {shown(self.value)}")
        return self.value

    def number(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.wrong(f"a whole number is needed here, not {shown(self.value)}")
        return self.value

    def tried(self, make: Callable[[], T]) -> T:
        """What `make` makes; its complaint, if it has one, gets this place."""
        try:
            return make()
        except ConfigurationError as exc:
            raise self.wrong(str(exc)) from exc


def shown(value: Any) -> str:
    """A value for an error message."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _blank(found: re.Match[str]) -> str:
    """Spaces instead of a comment or comma, so that lines and columns stay; strings as they are."""
    text = found[0]
    return text if text.startswith(('"', "{", "[")) else re.sub(r"[^\n]", " ", text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, str] = {}
    for key, _ in pairs:
        if key.lower() in found:
            raise ConfigurationError(f"{key!r} is twice in one object")
        found[key.lower()] = key
    return dict(pairs)


def _refuse(constant: str) -> NoReturn:
    raise ConfigurationError(f"{constant} is not JSON")
