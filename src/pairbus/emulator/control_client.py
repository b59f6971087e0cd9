"""Requests to the control API of an emulator in another process."""

import json
import time
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

from pairbus.emulator.admin.control import CONTROL_PREFIX
from pairbus.errors import ConfigurationError, StateError
from pairbus.servicebus.administration import AdministrationOptions
from pairbus.servicebus.tokens import acquire_token, authorization_header

TIMEOUT_S = 300.0
"""The longest time for one request: much may become due in a long span of time."""


def read_clock(connection_string: str, ca_file: str) -> datetime:
    """Return the time of a namespace. Raises StateError if the request fails."""
    content = _request(connection_string, ca_file, "GET", "clock")
    return datetime.fromisoformat(content["now"])


def advance_clock(connection_string: str, ca_file: str, span: timedelta) -> None:
    """Move the clock of a namespace forward. Raises ConfigurationError if the span is refused, and
    StateError for any other failure of the request."""
    content = {"advance_seconds": span.total_seconds()}
    _request(connection_string, ca_file, "POST", "clock", content)


def _request(
    connection_string: str, ca_file: str, method: str, resource: str, content: Any = None
) -> Any:
    """Return the content of the response."""
    options = AdministrationOptions.from_connection_string(connection_string, ca_file=ca_file)
    assert options.tokens is not None
    path = f"/{CONTROL_PREFIX}/{resource}"
    token = acquire_token(options.tokens, f"https://{options.namespace}/", time.time())
    with closing(options.transport(time.monotonic)) as transport:
        status, body = transport.request(
            method,
            path,
            deadline=time.monotonic() + TIMEOUT_S,
            headers={"Authorization": authorization_header(token)},
            body=None if content is None else json.dumps(content).encode(),
        )
    if status == 400:
        raise ConfigurationError(json.loads(body)["error"])
    if status != 200:
        detail = body[:500].decode(errors="replace")
        raise StateError(f"{method} {path} of {options.namespace} failed: {status} {detail}")
    return json.loads(body)
