"""A handler that returns what the SDK puts, for tests of the Atom documents alone.

Unlike the administration API it does not check rights, forwarding targets or SQL, so that
descriptions and rules can have arbitrary values.
"""

from hypothesis import strategies as st

from pairbus.emulator.admin.atom_reader import parse_description, parse_rule
from pairbus.emulator.admin.atom_writer import (
    ENTRY_TYPE,
    ApiEndpoint,
    entity_entry,
    rule_entry,
    write_entry,
)
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.entities.descriptions import EntityDescription, SubscriptionDescription
from pairbus.emulator.entities.runtime_properties import RuntimeProperties
from pairbus.emulator.filters.rules import Rule
from tests.unit.emulator.admin.harness import CREATED_AT

ENDPOINT = ApiEndpoint(namespace="local", base_url="https://localhost:5671")
RUNTIME = RuntimeProperties(created_at=CREATED_AT, updated_at=CREATED_AT)

# The SDK removes "ns1:" and ":ns1" from its requests, and XML parsers read \r as \n.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff", codec="utf-8")
    | st.sampled_from("\t\n<>&\"'"),
    min_size=1,
    max_size=40,
).filter(lambda text: "ns1" not in text)


class EchoHandler:
    """Stores the last description or rule that was put, and returns it for every request."""

    def __init__(
        self, description: EntityDescription | None = None, runtime: RuntimeProperties = RUNTIME
    ) -> None:
        self.description = description
        self.runtime = runtime
        self.rule: Rule | None = None
        self.requests: list[HttpRequest] = []

    def __call__(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        path, _, rule_name = request.path.partition("/rules/")
        if rule_name:
            if request.method == "PUT":
                self.rule = parse_rule(request.body, rule_name)
            assert self.rule is not None
            entry = rule_entry(path, self.rule, CREATED_AT)
        else:
            if request.method == "PUT":
                self.description = _describe(request)
            assert self.description is not None
            entry = entity_entry(self.description, self.runtime)
        body = write_entry(entry, ENDPOINT)
        return HttpResponse(status=200, body=body, content_type=ENTRY_TYPE)


def _describe(request: HttpRequest) -> EntityDescription:
    parsed = parse_description(request.body)
    identity = {"name": request.path}
    if parsed.kind is SubscriptionDescription:
        topic, _, name = request.path.split("/")
        identity = {"topic": topic, "name": name}
    return parsed.kind(**identity, **parsed.settings)
