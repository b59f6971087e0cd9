"""The SDK's administration client on a small service in memory, made of our HTTP and Atom parts.

The client's requests are written as HTTP/1.1 bytes, go through `HttpConnection`, and its answers
come back as bytes: everything but the socket.
"""

import http.client
import io
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus.management import ServiceBusAdministrationClient
from requests.adapters import BaseAdapter

from pairbus.emulator.admin.atom_reader import parse_description, parse_rule
from pairbus.emulator.admin.atom_writer import (
    ENTRY_TYPE,
    ERROR_TYPE,
    FEED_TYPE,
    ApiEndpoint,
    AtomEntry,
    entity_entry,
    namespace_entry,
    rule_entry,
    write_entry,
    write_error,
    write_feed,
)
from pairbus.emulator.connections.http import HttpConnection, HttpRequest, HttpResponse
from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    SubscriptionDescription,
    updated_description,
)
from pairbus.emulator.entities.runtime_properties import RuntimeProperties
from pairbus.emulator.filters.rules import Rule
from pairbus.errors import ConfigurationError

KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ="
MOMENT = datetime(2024, 5, 1, 10, 11, 12, 345678, tzinfo=UTC)
RUNTIME = RuntimeProperties(created_at=MOMENT, updated_at=MOMENT)
SITE = ApiEndpoint(namespace="local", base_url="https://localhost:5671")

Handler = Callable[[HttpRequest], HttpResponse]


class InMemory(BaseAdapter):
    """Sends what `requests` would send to a handler."""

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
        return self.answer(request, connection.output())

    def answer(self, request: requests.PreparedRequest, data: bytes) -> requests.Response:
        parsed = http.client.HTTPResponse(_Bytes(data))  # type: ignore[arg-type]
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

    def close(self) -> None:
        pass


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self.data)


def client_of(
    handler: Handler,
    credential: str = f"SharedAccessKeyName=root;SharedAccessKey={KEY}",
    **options: Any,
) -> ServiceBusAdministrationClient:
    session = requests.Session()
    session.mount("https://", InMemory(handler))
    return ServiceBusAdministrationClient.from_connection_string(
        f"Endpoint=sb://localhost:5671/;{credential}",
        transport=RequestsTransport(session=session),
        **options,
    )


class Service:
    """As much of the service as the documents need: entities, rules, and the answers of each."""

    def __init__(self) -> None:
        self.entities: dict[str, EntityDescription] = {}
        self.rules: dict[str, Rule] = {}
        self.requests: list[HttpRequest] = []
        self.runtime = RUNTIME

    def __call__(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        try:
            if request.path == "$namespaceinfo":
                return found(namespace_entry(SITE, MOMENT))
            if request.path.startswith("$Resources/"):
                kind = request.path.removeprefix("$Resources/").removesuffix("s").capitalize()
                return self.page(request, lambda one: type(one).__name__.startswith(kind))
            if request.path.lower().endswith("/subscriptions"):
                topic = request.path.rpartition("/")[0]
                return self.page(
                    request,
                    lambda one: isinstance(one, SubscriptionDescription) and one.topic == topic,
                )
            if request.path.endswith("/rules"):
                return self.page(request, lambda _: False, self.rules.values())
            if "/rules/" in request.path:
                return self.rule(request)
            return self.entity(request)
        except ConfigurationError as exc:
            return failed(400, f"SubCode=40000. {exc}")

    def page(
        self, request: HttpRequest, wanted: Callable[[EntityDescription], bool], rules=()
    ) -> HttpResponse:
        skip, top = int(request.query["$skip"]), int(request.query["$top"])
        if skip < 0 or top < 0:
            return failed(400, "Parameter 'skip' should be non-negative integer.")
        entries = [entity_entry(one, self.runtime) for one in self.entities.values() if wanted(one)]
        entries += [rule_entry("t/Subscriptions/s", rule, MOMENT) for rule in rules]
        more = len(entries) > skip + top
        body = write_feed(
            "Page", request.path, entries[skip:][:top], SITE, MOMENT, skip=skip, top=top, more=more
        )
        return HttpResponse(status=200, body=body, content_type=FEED_TYPE)

    def entity(self, request: HttpRequest) -> HttpResponse:
        key = request.path.lower()
        old = self.entities.get(key)
        if request.method == "PUT":
            given = parse_description(request.body)
            if request.header("If-Match") == "*":
                if old is None:
                    return failed(404, "SubCode=40400. Not Found. The Operation doesn't exist.")
                self.entities[key] = updated_description(old, given.settings)
                return found(entity_entry(self.entities[key], self.runtime))
            if old is not None:
                return failed(409, "SubCode=40900. Conflict.")
            names = {"name": request.path}
            if given.kind is SubscriptionDescription:
                topic, _, name = request.path.split("/")
                names = {"topic": topic, "name": name}
            self.entities[key] = given.kind(**names, **given.settings)
            return found(entity_entry(self.entities[key], self.runtime), 201)
        if old is None and request.method == "GET":
            body = write_feed("Publicly Listed Services", "", [], SITE, MOMENT)
            return HttpResponse(status=200, body=body, content_type=FEED_TYPE)
        if old is None:
            return failed(404, "No service is hosted at the specified address.")
        if request.method == "DELETE":
            del self.entities[key]
            return HttpResponse(status=200)
        return found(entity_entry(old, self.runtime))

    def rule(self, request: HttpRequest) -> HttpResponse:
        name = request.path.rpartition("/")[2]
        if request.method == "PUT":
            self.rules[name] = parse_rule(request.body, name)
        status = 201 if request.method == "PUT" else 200
        return found(rule_entry("t/Subscriptions/s", self.rules[name], MOMENT), status)


def found(entry: AtomEntry, status: int = 200) -> HttpResponse:
    return HttpResponse(status=status, body=write_entry(entry, SITE), content_type=ENTRY_TYPE)


def failed(status: int, detail: str) -> HttpResponse:
    return HttpResponse(status=status, body=write_error(status, detail), content_type=ERROR_TYPE)
