"""Requests to the emulator's HTTP API."""

import json
import ssl
import time
import urllib.error
import urllib.request
from typing import Any

from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.tokens import sign_token
from tests.waiting import DEADLINE_S


def send_http_request(
    namespace: LocalNamespace, method: str, path: str, body: Any = None, *, key: str | None = None
) -> tuple[int, Any]:
    """Return the status and body of a request to the emulator's HTTP API.

    A body of bytes is sent unchanged, any other one as JSON."""
    parsed = ConnectionString.parse(namespace.connection_string)
    assert parsed.key_name is not None
    assert parsed.key is not None
    address = f"https://localhost:{namespace.port}"
    token = sign_token(
        address, parsed.key_name, parsed.key if key is None else key, int(time.time()) + 600
    )
    request = urllib.request.Request(
        f"{address}/$pairbus/{path}",
        method=method,
        data=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
        headers={"Authorization": token},
    )
    context = ssl.create_default_context(cafile=namespace.ca_file)
    try:
        with urllib.request.urlopen(request, context=context, timeout=DEADLINE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as exc:
        with exc:
            text = exc.read()
        return exc.code, json.loads(text) if text.startswith((b"{", b"[")) else text.decode()
