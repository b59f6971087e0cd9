"""The emulator's own HTTP API, beside the administration API: faults and the meter, as JSON.

| call | what |
| --- | --- |
| GET /$pairbus/meter | readings by entity and kind |
| GET /$pairbus/faults | faults, with how often each fired |
| POST /$pairbus/faults | add one: kind, and perhaps entity, count, after, seconds, status |
| DELETE /$pairbus/faults | remove all; DELETE /$pairbus/faults/3 removes the third |

It is an extension of the administration API, which asks for the Manage right over the namespace.
"""

import json
from dataclasses import asdict, fields
from typing import Any

from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.faults import Fault, Faults
from pairbus.emulator.meter import Meter
from pairbus.errors import ConfigurationError

CONTROL_PREFIX = "$pairbus"
_GIVEN = {field.name for field in fields(Fault)} - {"fired", "number"}


class ControlApi:
    """Answers requests below /$pairbus."""

    def __init__(self, faults: Faults, meter: Meter) -> None:
        self._faults = faults
        self._meter = meter

    def handle(self, request: HttpRequest) -> HttpResponse:
        try:
            return self._route(request)
        except ConfigurationError as exc:
            return _json(400, {"error": str(exc)})

    def _route(self, request: HttpRequest) -> HttpResponse:
        parts = request.path.strip("/").lower().split("/")[1:]
        if parts == ["meter"] and request.method == "GET":
            return _json(200, self._readings())
        if parts == ["faults"]:
            if request.method == "GET":
                return _json(200, self._faults.told())
            if request.method == "POST":
                return _json(201, {"number": self._faults.add(_fault(request.body)).number})
            if request.method == "DELETE":
                self._faults.clear()
                return _json(200, [])
        if len(parts) == 2 and parts[0] == "faults" and request.method == "DELETE":
            found = self._faults.find(int(parts[1])) if parts[1].isdecimal() else None
            if found is not None:
                self._faults.remove(found)
                return _json(200, self._faults.told())
        return _json(404, {"error": f"there is no {request.method} {request.path[:200]}"})

    def _readings(self) -> list[dict[str, Any]]:
        return [
            {"entity": entity, "kind": kind, **asdict(reading)}
            for (entity, kind), reading in sorted(self._meter.readings().items())
        ]


def _fault(body: bytes) -> Fault:
    try:
        given = json.loads(body)
    except ValueError as exc:
        raise ConfigurationError(f"the body is not JSON: {exc}") from exc
    if not isinstance(given, dict) or "kind" not in given or not given.keys() <= _GIVEN:
        raise ConfigurationError(f"a fault has a kind, and perhaps {', '.join(sorted(_GIVEN))}")
    try:
        return Fault(**given)
    except TypeError as exc:
        raise ConfigurationError(f"a value of the fault has the wrong type: {exc}") from exc


def _json(status: int, content: Any) -> HttpResponse:
    return HttpResponse(
        status=status, body=json.dumps(content).encode(), content_type="application/json"
    )
