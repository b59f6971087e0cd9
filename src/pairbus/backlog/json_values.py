"""AMQP values as JSON has them. Types that JSON lacks are said in words that a program can tell."""

import base64
import math
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pairbus.amqp.types import Array, Described, Pairs, Timestamp


def to_json(value: Any) -> Any:
    """A value for `json.dumps`: binary as `{"base64": …}`, times as text."""
    match value:
        case None | bool():
            return value
        case Timestamp():
            return iso_time(int(value)) or int(value)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case str():
            return str(value)
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case UUID():
            return str(value)
        case Array():
            return [to_json(one) for one in value.elements]
        case Pairs():
            return [[to_json(key), to_json(one)] for key, one in value]
        case dict():
            return {key_text(key): to_json(one) for key, one in value.items()}
        case list() | tuple():
            return [to_json(one) for one in value]
        case Described():
            return {"descriptor": to_json(value.descriptor), "value": to_json(value.value)}
    return str(value)


def key_text(key: Any) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def iso_time(milliseconds: int) -> str | None:
    """A time since 1970 as ISO 8601, in UTC; None where no calendar has it."""
    try:
        when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
