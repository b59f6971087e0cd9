"""The administration API with real entities in a real store, and without sockets."""

import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.emulator.admin.api import AdministrationApi
from pairbus.emulator.auth import Authority, Right, SharedAccessRule
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.entities.registry import EntityRegistry
from pairbus.emulator.storage.store import Store
from tests.unit.emulator.admin.sdk_client import KEY, connect_client

CREATED_AT = datetime(2024, 5, 1, 10, 11, 12, 345678, tzinfo=UTC)
NOW_MS = round(CREATED_AT.timestamp() * 1000)
LISTEN_KEY = "bGlzdGVu"
RULES = (
    SharedAccessRule(name="root", primary_key=KEY),
    SharedAccessRule(
        name="reader", primary_key=LISTEN_KEY, rights=frozenset({Right.LISTEN, Right.SEND})
    ),
)


class AdminHarness:
    """A namespace that records requests, responses and metered operations."""

    def __init__(
        self,
        path: Path,
        *,
        extensions: Mapping[str, Callable[[HttpRequest], HttpResponse]] | None = None,
    ) -> None:
        self.path = path
        self.store = Store(path)
        tokens = itertools.count()
        self.entities = EntityRegistry(self.store, lambda: next(tokens).to_bytes(16, "big"))
        self.now_ms = NOW_MS
        self.scheme = "https"
        self.metered: list[tuple[str, str]] = []
        self.requests: list[HttpRequest] = []
        self.responses: list[HttpResponse] = []
        self.api = AdministrationApi(
            self.entities,
            Authority(RULES, entity_rules=self._entity_rules),
            namespace="local",
            created_ms=NOW_MS,
            meter=lambda path, kind: self.metered.append((path, kind)),
            extensions={} if extensions is None else extensions,
        )

    def _entity_rules(self, path: str) -> tuple[SharedAccessRule, ...]:
        entity = self.entities.find(path)
        return () if entity is None else getattr(entity.description, "authorization_rules", ())

    def __call__(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        response = self.api.handle(request, self.now_ms, scheme=self.scheme)
        self.responses.append(response)
        return response

    @property
    def last_body(self) -> str:
        """The body of the last response."""
        return self.responses[-1].body.decode()

    def client(self, *credential: str, **options: Any) -> ServiceBusAdministrationClient:
        return connect_client(self, *credential, **options)

    def restart(self) -> "AdminHarness":
        self.store.close()
        return AdminHarness(self.path)
