"""The emulator's control API, next to the administration API: faults, meter and clock, as JSON.

| request | effect |
| --- | --- |
| GET /$pairbus/meter | return the readings by entity and kind of operation |
| GET /$pairbus/faults | return the faults and how often each was triggered |
| POST /$pairbus/faults | add a fault: kind, and optionally entity, count, after, seconds, status |
| DELETE /$pairbus/faults | remove all faults |
| DELETE /$pairbus/faults/3 | remove fault number 3 |
| GET /$pairbus/clock | return the time of the namespace |
| POST /$pairbus/clock | move the clock forward, by advance_seconds |

It is an extension of the administration API, which requires the Manage right on the namespace.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import timedelta
from typing import Any

from pairbus.emulator.clock import NamespaceClock
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.faults import Fault, Faults
from pairbus.emulator.meter import Meter
from pairbus.errors import ConfigurationError

CONTROL_PREFIX = "$pairbus"
_FAULT_FIELDS = {field.name for field in fields(Fault)} - {"fired", "number"}


class ControlApi:
    """Handles requests below /$pairbus."""

    def __init__(
        self,
        faults: Faults,
        meter: Meter,
        clock: NamespaceClock,
        advance: Callable[[timedelta], None],
    ) -> None:
        """`advance` moves the clock forward, with everything that becomes due."""
        self._faults = faults
        self._meter = meter
        self._clock = clock
        self._advance = advance

    def handle(self, request: HttpRequest) -> HttpResponse:
        try:
            return self._route(request)
        except ConfigurationError as exc:
            return _json_response(400, {"error": str(exc)})

    def _route(self, request: HttpRequest) -> HttpResponse:
        segments = request.path.strip("/").lower().split("/")[1:]
        match request.method, segments:
            case "GET", ["meter"]:
                return _json_response(200, self._readings())
            case "GET", ["faults"]:
                return _json_response(200, self._faults.to_json())
            case "POST", ["faults"]:
                fault = self._faults.add(_parse_fault(request.body))
                return _json_response(201, {"number": fault.number})
            case "DELETE", ["faults"]:
                self._faults.clear()
                return _json_response(200, [])
            case "DELETE", ["faults", number] if number.isdecimal():
                if (existing := self._faults.find(int(number))) is not None:
                    self._faults.remove(existing)
                    return _json_response(200, self._faults.to_json())
            case "GET", ["clock"]:
                return _json_response(200, self._time())
            case "POST", ["clock"]:
                self._advance(_parse_span(request.body))
                return _json_response(200, self._time())
        return _json_response(
            404, {"error": f"{request.method} {request.path[:200]} does not exist."}
        )

    def _time(self) -> dict[str, Any]:
        """Return the time of the namespace, and how far it is ahead of that of the machine."""
        return {
            "now": self._clock.now().isoformat(),
            "ahead_seconds": self._clock.offset_ms / 1000,
        }

    def _readings(self) -> list[dict[str, Any]]:
        return [
            {"entity": entity, "kind": kind, **asdict(reading)}
            for (entity, kind), reading in sorted(self._meter.readings().items())
        ]


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise ConfigurationError(f"The body is not JSON, or is nested too deeply: {exc}") from exc


def _parse_span(body: bytes) -> timedelta:
    content = _parse_json(body)
    if not isinstance(content, dict) or content.keys() != {"advance_seconds"}:
        raise ConfigurationError("The body is an object with advance_seconds.")
    seconds = content["advance_seconds"]
    try:
        if isinstance(seconds, bool):
            raise TypeError("it is a boolean")
        return timedelta(seconds=seconds)
    except (TypeError, ValueError, OverflowError) as exc:
        raise ConfigurationError(f"advance_seconds is not a number of seconds: {exc}") from exc


def _parse_fault(body: bytes) -> Fault:
    content = _parse_json(body)
    if (
        not isinstance(content, dict)
        or "kind" not in content
        or not content.keys() <= _FAULT_FIELDS
    ):
        optional = ", ".join(sorted(_FAULT_FIELDS - {"kind"}))
        raise ConfigurationError(f"A fault is an object with kind, and optionally {optional}.")
    try:
        return Fault(**content)
    except TypeError as exc:
        raise ConfigurationError(f"A field of the fault has the wrong type: {exc}") from exc


def _json_response(status: int, content: Any) -> HttpResponse:
    return HttpResponse(
        status=status, body=json.dumps(content).encode(), content_type="application/json"
    )
