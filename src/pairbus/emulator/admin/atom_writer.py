"""Writing of the Atom entries, feeds and errors that the administration API returns.

A client puts an `<entry>` with a description, and gets one with the runtime properties. A list is a
`<feed>` of entries, in pages, and an error is an `<Error>`. Elements have the names of the service;
clients find them by name, so their order differs from that of the service.

| status | body | exception of the SDK |
| --- | --- | --- |
| 200, 201 | entry or feed | |
| 200 | a feed instead of the requested entry | ResourceNotFoundError, as with the service |
| 401 | error | ClientAuthenticationError |
| 404 | error | ResourceNotFoundError |
| 409 | error | ResourceExistsError |
| 400, 403, others | error | HttpResponseError, with the detail as its message |
| 408, 429, 500, 502, 503, 504 | error | HttpResponseError after retries |
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from pairbus.emulator.admin.atom_rules import rule_elements
from pairbus.emulator.admin.xml import escape_text, write_element
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    SubscriptionDescription,
    TopicDescription,
    kind_of,
    setting_fields,
)
from pairbus.emulator.entities.runtime_properties import RuntimeProperties
from pairbus.emulator.filters.rules import Rule
from pairbus.emulator.tiers import NamespaceTier
from pairbus.servicebus.atom import property_name, property_text
from pairbus.servicebus.limits import BYTES_PER_SECOND_PREMIUM
from pairbus.servicebus.xml_namespaces import ATOM, COUNTS, INSTANCE, SERVICE

ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"
ERROR_TYPE = "application/xml; charset=utf-8"

API_VERSION = "2024-05"
"""The newest version of the API, which the SDK requests."""
INTRODUCED_IN = {
    "max_message_size_in_kilobytes": "2021-05",
    "sql_filter_count": "2024-05",
    "correlation_filter_count": "2024-05",
}
"""The API version that introduced a property. Older versions neither return nor accept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEndpoint:
    """The URL of a namespace such as `https://localhost:5671`, and the requested API version."""

    namespace: str
    base_url: str
    api_version: str = API_VERSION

    def url(self, path: str, query: str = "") -> str:
        return f"{self.base_url}/{quote(path, safe='/$')}?{query}api-version={self.api_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomEntry:
    """An entry that can be written alone or in a feed."""

    title: str
    path: str
    content: str
    updated_at: datetime
    published_at: datetime | None = None


def entity_entry(
    description: EntityDescription, runtime: RuntimeProperties, api_version: str = API_VERSION
) -> AtomEntry:
    """Return the entry of a queue, topic or subscription for a version of the API."""
    kind = kind_of(description)
    return AtomEntry(
        title=description.name,
        path=description.path,
        content=write_element(
            f"{kind}Description",
            *_setting_elements(description, api_version),
            *_runtime_elements(description, runtime, api_version),
            xmlns=SERVICE,
            xmlns_i=INSTANCE,
        ),
        updated_at=runtime.updated_at,
        published_at=runtime.created_at,
    )


def rule_entry(subscription_path: str, rule: Rule, created_at: datetime) -> AtomEntry:
    """Return the entry of a rule of a subscription."""
    return AtomEntry(
        title=rule.name,
        path=f"{subscription_path}/Rules/{rule.name}",
        content=write_element(
            "RuleDescription",
            *rule_elements(rule),
            write_element("CreatedAt", _format_time(created_at)),
            write_element("Name", escape_text(rule.name)),
            xmlns=SERVICE,
            xmlns_i=INSTANCE,
        ),
        updated_at=created_at,
        published_at=created_at,
    )


def namespace_entry(endpoint: ApiEndpoint, created_at: datetime, tier: NamespaceTier) -> AtomEntry:
    """Return the entry of the namespace. The SDK knows no tier `unlimited`, which is Premium:
    it has no credits."""
    sku = [write_element("MessagingSKU", "Standard")]
    if tier.credits_per_second is None:
        units = (tier.bytes_per_second or BYTES_PER_SECOND_PREMIUM) // BYTES_PER_SECOND_PREMIUM
        sku = [
            write_element("MessagingSKU", "Premium"),
            write_element("MessagingUnits", str(units)),
        ]
    return AtomEntry(
        title=endpoint.namespace,
        path="$namespaceinfo",
        content=write_element(
            "NamespaceInfo",
            write_element("CreatedTime", _format_time(created_at)),
            *sku,
            write_element("ModifiedTime", _format_time(created_at)),
            write_element("Name", escape_text(endpoint.namespace)),
            write_element("NamespaceType", "Messaging"),
            xmlns=SERVICE,
            xmlns_i=INSTANCE,
        ),
        updated_at=created_at,
    )


def write_entry(entry: AtomEntry, endpoint: ApiEndpoint) -> bytes:
    return _entry_element(entry, endpoint, xmlns=ATOM).encode()


def write_feed(
    title: str,
    path: str,
    entries: Iterable[AtomEntry],
    endpoint: ApiEndpoint,
    now: datetime,
    *,
    skip: int = 0,
    top: int = 100,
    more: bool = False,
) -> bytes:
    """Write a page of a list.

    If there are more entries, the second link leads to the next page: the SDK reads `$skip` and
    `$top` from it.
    """
    page_url = endpoint.url(path, f"$skip={skip}&$top={top}&")
    links = [write_element("link", rel="self", href=page_url)]
    if more:
        next_url = endpoint.url(path, f"$skip={skip + top}&$top={top}&")
        links.append(write_element("link", rel="next", href=next_url))
    head = [
        write_element("title", escape_text(title), type="text"),
        write_element("id", escape_text(page_url)),
        write_element("updated", _format_time(now)),
    ]
    return write_element(
        "feed", *head, *links, *(_entry_element(entry, endpoint) for entry in entries), xmlns=ATOM
    ).encode()


def write_error(status: int, detail: str) -> bytes:
    """Write the body of an error. The SDK shows the detail as the message of its exception."""
    return write_element(
        "Error", write_element("Code", str(status)), write_element("Detail", escape_text(detail))
    ).encode()


def _entry_element(entry: AtomEntry, endpoint: ApiEndpoint, **attributes: str) -> str:
    url = endpoint.url(entry.path)
    return write_element(
        "entry",
        write_element("id", escape_text(url)),
        write_element("title", escape_text(entry.title), type="text"),
        *_time_element("published", entry.published_at),
        write_element("updated", _format_time(entry.updated_at)),
        write_element("author", write_element("name", escape_text(endpoint.namespace))),
        write_element("link", rel="self", href=url),
        write_element("content", entry.content, type="application/xml"),
        **attributes,
    )


def _setting_elements(description: EntityDescription, api_version: str) -> Iterable[str]:
    for name, (field, _) in setting_fields(type(description)).items():
        if api_version < INTRODUCED_IN.get(field, ""):
            continue
        value = getattr(description, field)
        if field == "support_ordering" and value is None:
            value = not getattr(description, "enable_partitioning", False)
        if field == "authorization_rules":
            yield write_element(name, *(_access_rule_element(rule) for rule in value))
        elif value is not None:
            yield write_element(name, escape_text(property_text(value)))


def _runtime_elements(
    description: EntityDescription, runtime: RuntimeProperties, api_version: str
) -> Iterable[str]:
    counts = runtime.counts
    numbers: dict[str, int] = {}
    if not isinstance(description, SubscriptionDescription):
        numbers["size_in_bytes"] = runtime.size_in_bytes
        yield write_element("IsAnonymousAccessible", "false")
    if isinstance(description, TopicDescription):
        numbers["subscription_count"] = runtime.subscription_count
        numbers["sql_filter_count"] = runtime.sql_filter_count
        numbers["correlation_filter_count"] = runtime.correlation_filter_count
    else:
        numbers["message_count"] = counts.total
    for name, number in numbers.items():
        if api_version >= INTRODUCED_IN.get(name, ""):
            yield write_element(property_name(name), str(number))
    yield write_element("CreatedAt", _format_time(runtime.created_at))
    yield write_element("UpdatedAt", _format_time(runtime.updated_at))
    yield write_element("AccessedAt", _format_time(runtime.accessed_at))
    yield write_element(
        "CountDetails",
        write_element("d2p1:ActiveMessageCount", str(counts.active)),
        write_element("d2p1:DeadLetterMessageCount", str(counts.dead_letter)),
        write_element("d2p1:ScheduledMessageCount", str(counts.scheduled)),
        write_element("d2p1:TransferMessageCount", str(counts.transfer)),
        write_element("d2p1:TransferDeadLetterMessageCount", str(counts.transfer_dead_letter)),
        xmlns_d2p1=COUNTS,
    )
    yield write_element("EntityAvailabilityStatus", "Available")


def _access_rule_element(rule: SharedAccessRule) -> str:
    return write_element(
        "AuthorizationRule",
        write_element("ClaimType", "SharedAccessKey"),
        write_element("ClaimValue", "None"),
        write_element(
            "Rights",
            *(write_element("AccessRights", right) for right in Right if right in rule.rights),
        ),
        *_time_element("CreatedTime", rule.created_at),
        *_time_element("ModifiedTime", rule.modified_at),
        write_element("KeyName", escape_text(rule.name)),
        write_element("PrimaryKey", escape_text(rule.primary_key)),
        *(
            [write_element("SecondaryKey", escape_text(rule.secondary_key))]
            if rule.secondary_key is not None
            else []
        ),
        i_type="SharedAccessAuthorizationRule",
    )


def _time_element(name: str, time: datetime | None) -> list[str]:
    """Return the element of a time, or none if the time is not known."""
    return [] if time is None else [write_element(name, _format_time(time))]


def _format_time(time: datetime | None) -> str:
    """Write a time as the service does; None is written as the start of the year 1."""
    if time is None:
        return "0001-01-01T00:00:00Z"
    return time.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
