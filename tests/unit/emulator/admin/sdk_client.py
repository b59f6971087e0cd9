"""The SDK's administration client, connected to a handler of HTTP requests without a socket.

The requests of the client are written as HTTP/1.1 bytes and parsed by `HttpConnection`; responses
go back as bytes too.
"""

import http.client
import io
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus.management import ServiceBusAdministrationClient
from requests.adapters import BaseAdapter

from pairbus.emulator.connections.http import HttpConnection, HttpRequest, HttpResponse

KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ="

Handler = Callable[[HttpRequest], HttpResponse]


def connect_client(
    handler: Handler,
    credential: str = f"SharedAccessKeyName=root;SharedAccessKey={KEY}",
    **options: Any,
) -> ServiceBusAdministrationClient:
    """Return a client whose requests are handled by `handler`."""
    session = requests.Session()
    session.mount("https://", HandlerAdapter(handler))
    return ServiceBusAdministrationClient.from_connection_string(
        f"Endpoint=sb://localhost:5671/;{credential}",
        transport=RequestsTransport(session=session),
        **options,
    )


class HandlerAdapter(BaseAdapter):
    """Passes the requests of a `requests` session to a handler."""

    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self.handler = handler

    def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:
        body = request.body or b""
        body = body if isinstance(body, bytes) else body.encode()
        host = urlsplit(str(request.url)).netloc
        headers = {**request.headers, "Host": host, "Content-Length": str(len(body))}
        head = [f"{request.method} {request.path_url} HTTP/1.1"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        connection = HttpConnection()
        received = connection.receive("\r\n".join([*head, "", ""]).encode("latin-1") + body)
        if received is not None:
            connection.respond(self.handler(received))
        return _parse_response(request, connection.output())

    def close(self) -> None:
        pass


def _parse_response(request: requests.PreparedRequest, data: bytes) -> requests.Response:
    parsed = http.client.HTTPResponse(_SocketOfBytes(data))  # type: ignore[arg-type]
    parsed.begin()
    raw = urllib3.HTTPResponse(
        body=io.BytesIO(parsed.read()),
        status=parsed.status,
        reason=parsed.reason,
        headers=dict(parsed.getheaders()),
        preload_content=False,
    )
    response = requests.Response()
    response.status_code, response.reason, response.raw = raw.status, raw.reason, raw
    response.headers = requests.structures.CaseInsensitiveDict(raw.headers)
    response.request, response.url = request, request.url or ""
    return response


class _SocketOfBytes:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self.data)
