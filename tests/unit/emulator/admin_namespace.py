"""A whole namespace behind the SDK's administration client: real entities in a real store, and no
socket."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.emulator.admin.api import AdministrationApi
from pairbus.emulator.auth import Authority, Right, SharedAccessRule
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.entities.registry import EntityRegistry
from pairbus.emulator.storage.store import Store
from tests.unit.emulator.admin_bench import KEY, MOMENT, client_of

NOW_MS = round(MOMENT.timestamp() * 1000)
LISTEN_KEY = "bGlzdGVu"
RULES = (
    SharedAccessRule(name="root", primary_key=KEY),
    SharedAccessRule(
        name="reader", primary_key=LISTEN_KEY, rights=frozenset({Right.LISTEN, Right.SEND})
    ),
)


class Namespace:
    """Keeps what was asked, answered and metered."""

    def __init__(
        self,
        path: Path,
        *,
        extensions: Mapping[str, Callable[[HttpRequest], HttpResponse]] | None = None,
        trust_bearer_tokens: bool = False,
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
        authority = Authority(
            RULES, entity_rules=self._entity_rules, trust_bearer_tokens=trust_bearer_tokens
        )
        self.admin = AdministrationApi(
            self.entities,
            authority,
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
        response = self.admin.handle(request, self.now_ms, scheme=self.scheme)
        self.responses.append(response)
        return response

    @property
    def last(self) -> str:
        """The last answer as it went over the wire."""
        return self.responses[-1].body.decode()

    def client(self, *credential: str, **options: Any) -> ServiceBusAdministrationClient:
        return client_of(self, *credential, **options)

    def started_again(self) -> "Namespace":
        self.store.close()
        return Namespace(self.path)


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    made = Namespace(tmp_path / "namespace.db")
    yield made
    made.store.close()
