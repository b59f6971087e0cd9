"""Conversion of AMQP values to JSON."""

import base64
import math
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pairbus.amqp.types import Array, Described, Pairs, Timestamp


def amqp_to_json(value: Any) -> Any:
    """Convert an AMQP value for `json.dumps`: binary becomes `{"base64": …}`, a timestamp becomes
    text."""
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
            return [amqp_to_json(item) for item in value.elements]
        case Pairs():
            return [[amqp_to_json(key), amqp_to_json(item)] for key, item in value]
        case dict():
            return {key_text(key): amqp_to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [amqp_to_json(item) for item in value]
        case Described():
            return {
                "descriptor": amqp_to_json(value.descriptor),
                "value": amqp_to_json(value.value),
            }
    return str(value)


def key_text(key: Any) -> str:
    """Return the key of a map as text."""
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def iso_time(milliseconds: int) -> str | None:
    """Return a Unix time in milliseconds as ISO 8601 in UTC, or None if it is out of range."""
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def oldest_to_json(oldest_ms: int | None, now_ms: int) -> dict[str, Any]:
    """Return the enqueued time and the age of the oldest message."""
    if oldest_ms is None:
        return {"oldest_time": None, "oldest_age_seconds": None}
    return {
        "oldest_time": iso_time(oldest_ms),
        "oldest_age_seconds": max(now_ms - oldest_ms, 0) / 1000,
    }
