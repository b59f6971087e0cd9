"""The emulator's control API, next to the administration API: faults and the meter, as JSON.

| request | effect |
| --- | --- |
| GET /$pairbus/meter | return the readings by entity and kind of operation |
| GET /$pairbus/faults | return the faults and how often each was triggered |
| POST /$pairbus/faults | add a fault: kind, and optionally entity, count, after, seconds, status |
| DELETE /$pairbus/faults | remove all faults |
| DELETE /$pairbus/faults/3 | remove fault number 3 |

It is an extension of the administration API, which requires the Manage right on the namespace.
"""

import json
from dataclasses import asdict, fields
from typing import Any

from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.faults import Fault, Faults
from pairbus.emulator.meter import Meter
from pairbus.errors import ConfigurationError

CONTROL_PREFIX = "$pairbus"
_FAULT_FIELDS = {field.name for field in fields(Fault)} - {"fired", "number"}


class ControlApi:
    """Handles requests below /$pairbus."""

    def __init__(self, faults: Faults, meter: Meter) -> None:
        self._faults = faults
        self._meter = meter

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
        return _json_response(
            404, {"error": f"{request.method} {request.path[:200]} does not exist."}
        )

    def _readings(self) -> list[dict[str, Any]]:
        return [
            {"entity": entity, "kind": kind, **asdict(reading)}
            for (entity, kind), reading in sorted(self._meter.readings().items())
        ]


def _parse_fault(body: bytes) -> Fault:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise ConfigurationError(f"The body is not JSON, or is nested too deeply: {exc}") from exc
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
